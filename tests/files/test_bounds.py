"""Files that are small and claim much: what reading them costs stays within what the docs say."""

import json
import struct
import zipfile

import numpy as np
import pytest

MEASURED = """
import resource, time
import numpy as np
from nbmodule.errors import FileFormatError
from nbmodule.api.files import load
from nbmodule.files import read
import jax.numpy as jnp
jnp.zeros(()).block_until_ready()
used = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
before, start = used(), time.process_time()
try:
    found = {how}({path!r})
    said = "loaded"
except FileFormatError as error:
    said = "refused"
print(said, used() - before, time.process_time() - start)
"""


def listing(path, count):
    row = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    header = json.dumps({f"t{i}": row for i in range(count)}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header)


def zeros(path, count):
    np.savez_compressed(path, a=np.zeros(count, np.uint8))


def members(path, count):
    with zipfile.ZipFile(path, "w") as file:
        for number in range(count):
            file.writestr(zipfile.ZipInfo(f"{number}.npy"), b"")


@pytest.mark.parametrize(
    ("name", "make", "count", "how", "outcome", "most"),
    [
        # Refused before anything is made of it.
        ("many.safetensors", listing, 300_000, "load", "refused", 95),
        # Some kilobytes for each array.
        ("some.safetensors", listing, 20_000, "load", "loaded", 20_000 * 8 / 1024 + 60),
        # The room of the arrays once.
        ("zeros.npz", zeros, 160 << 20, "load", "loaded", 1.2 * 160 + 60),
        ("members.npz", members, 100_001, "read", "refused", 300),
    ],
)
def test_a_small_file_that_claims_much_costs_little(
    tmp_path, run_python, name, make, count, how, outcome, most
):
    path = tmp_path / name
    make(path, count)
    printed = run_python(MEASURED.format(how=how, path=str(path)), timeout=240)
    said, megabytes, seconds = printed.split()
    assert said == outcome
    assert float(megabytes) < most
    assert outcome == "loaded" or float(seconds) < 10
