"""Files that are small and claim much: what reading them costs stays within what the docs say."""

import json
import struct
import subprocess
import sys
import zipfile

import numpy as np

MEASURED = """
import resource, sys, time
import numpy as np
from nbmodule.errors import FileFormatError
from nbmodule.api.files import load
from nbmodule.files import read
import jax.numpy as jnp
jnp.zeros(()).block_until_ready()
used = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
before, start = used(), time.process_time()
try:
    found = (load if sys.argv[2] == "load" else read)(sys.argv[1])
    said = "loaded"
except FileFormatError as error:
    said = "refused"
print(said, used() - before, time.process_time() - start)
"""


def measured(path, how):
    """What is said, MiB that were taken at most, seconds of the processor."""
    made = subprocess.run(
        [sys.executable, "-c", MEASURED, path, how],
        capture_output=True,
        text=True,
        check=True,
        timeout=240,
    )
    said, memory, seconds = made.stdout.split()
    return said, float(memory), float(seconds)


def listing(path, count):
    header = json.dumps(
        {f"t{i}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for i in range(count)}
    ).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header)


def archive(path, count):
    """`count` zeros, packed as closely as zip can."""
    np.savez_compressed(path, a=np.zeros(count, np.uint8))
    return path.stat().st_size


def test_a_listing_of_very_many_arrays_is_refused_before_anything_is_made_of_it(tmp_path):
    path = tmp_path / "many.safetensors"
    listing(path, 300_000)
    said, memory, seconds = measured(path, "load")
    assert said == "refused"
    assert memory < 4 * path.stat().st_size / 2**20 + 20
    assert seconds < 10


def test_many_arrays_take_some_kilobytes_each(tmp_path):
    path = tmp_path / "some.safetensors"
    listing(path, 20_000)
    said, memory, _ = measured(path, "load")
    assert said == "loaded"
    assert memory < 20_000 * 8 / 1024 + 60


def test_an_archive_takes_the_room_of_its_arrays_once(tmp_path):
    path, size = tmp_path / "zeros.npz", 160 << 20
    archive(path, size)
    said, memory, _ = measured(path, "load")
    assert said == "loaded"
    assert memory < 1.2 * size / 2**20 + 60


def test_an_archive_of_very_many_members_is_refused(tmp_path):
    path = tmp_path / "members.npz"
    with zipfile.ZipFile(path, "w") as file:
        for number in range(100_001):
            file.writestr(zipfile.ZipInfo(f"{number}.npy"), b"")
    said, memory, _ = measured(path, "read")
    assert said == "refused"
    assert memory < 300
