from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

from nbmodule.files import hdf5_read, read, save
from tests.files.trees import equal, refused


@pytest.fixture
def path(tmp_path):
    return tmp_path / "w.h5"


@pytest.mark.parametrize("version", ["earliest", "v110", "latest"])
def test_files_of_plain_h5py_are_loaded(path, version):
    with h5py.File(path, "w", libver=version) as file:
        file["a/w"] = np.arange(6, dtype=np.float32).reshape(2, 3)
        file["a/b"] = np.arange(3, dtype=">i4")
        file["flags"], file["z"], file["s"] = (
            np.array([True, False]),
            np.array([1 + 2j]),
            np.float16(2),
        )
        file.create_dataset(
            "chunked",
            data=np.arange(1000).reshape(10, 100),
            chunks=(3, 7),
            compression="gzip",
            shuffle=True,
            fletcher32=True,
        )
        file.create_dataset("lzf", data=np.arange(100), compression="lzf")
        file.create_dataset("never", shape=(4,), dtype="f8", fillvalue=2.5)
        file.create_dataset("grows", data=np.ones((2, 3)), maxshape=(None, 3))
        file["text"], file["fixed"], file["none"] = "é", np.bytes_(b"abc"), h5py.Empty("f4")
        file["100%"] = np.ones(1)
        file["__buffers__/x"] = np.ones(1)  # has no meaning in a file that nbmodule did not write
        file.create_group("level")
        file["type"] = np.dtype("f8")
    for mmap in (False, True):
        found = read(path, mmap=mmap)
        assert not found.has_index
        assert found.buffers is None
        assert equal(
            found.variables,
            {
                ("a"): {("w"): np.arange(6, dtype=np.float32).reshape(2, 3), ("b"): np.arange(3, dtype=np.int32)},
                ("flags"): np.array([True, False]), ("z"): np.array([1 + 2j]), ("s"): np.array(2, np.float16),
                ("chunked"): np.arange(1000).reshape(10, 100), ("lzf"): np.arange(100), ("never"): np.full(4, 2.5), ("grows"): np.ones((2, 3)),
                ("text"): ("é"), ("fixed"): ("abc"), ("none"): None, ("100%"): np.ones(1), ("__buffers__"): {("x"): np.ones(1)}, ("level"): {},
            },
        )  # fmt: skip


def test_hard_links_within_a_file_are_one_array(path):
    with h5py.File(path, "w") as file:
        file["a/w"] = np.arange(3)
        file["hard"] = file["a/w"]
    result = read(path).variables
    assert result["hard"] is result["a"]["w"]


def put(**items):
    """What makes a file of these items; `_` in a name stands for a slash."""

    def make(file):
        for name, item in items.items():
            file[name.replace("_", "/")] = item

    return make


def dataset(shape, dtype="f8", **options):
    return lambda file: file.create_dataset("x", shape, dtype, **options)


def circle(file):
    file["a/b/w"] = np.ones(3)
    file["a/b/up"] = file["a"]


def doubling(file):
    """Each level doubles the number of paths."""
    for _ in range(60):
        lower = file.create_group("left")
        file["right"] = lower
        file = lower


def root_again(file):
    file["root"] = file["/"]


def virtual(file):
    layout = h5py.VirtualLayout((10,), "f8")
    layout[:] = h5py.VirtualSource("other.h5", "w", (10,))
    file.create_virtual_dataset("x", layout)


def newer(file):
    file.attrs["format"], file.attrs["format_version"] = "nbmodule", 2


LINKS = [h5py.ExternalLink("/etc/passwd", "/"), h5py.SoftLink("/a/w"), h5py.SoftLink("/../../etc")]
RECORDS = np.array([(1, 2.0)], [("a", "i4"), ("b", "f8")])
ROWS = np.array([np.ones(1), np.ones(2)], h5py.vlen_dtype("f8"))
TEXTS = np.array(["a", "b"], h5py.string_dtype())
CHUNKS = {"chunks": (1 << 20,)}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        *((put(a_w=np.ones(3), x=link), '"/x" is a soft or external link') for link in LINKS),
        *((make, "has two access paths") for make in (circle, doubling, root_again)),
        (put(**{"_".join("a" * 1200): np.ones(1)}), "is more than 1100 levels deep"),
        (dataset((100,), external=[("secret", 0, 800)]), '"/x" keeps its numbers in another file'),
        (virtual, '"/x" keeps its numbers in another file'),
        *(
            (dataset((10**15,), "f4", **options), "claims 4000000000000000 bytes in a file of")
            for options in ({}, CHUNKS, {**CHUNKS, "compression": "gzip"})
        ),
        *(
            (put(a_x=value), '"/a/x" does not hold plain numbers')
            for value in (RECORDS, TEXTS, ROWS, np.zeros(2, "V3"))
        ),
        (newer, r"written by a newer nbmodule \(format 2; this one reads up to 1\)"),
    ],
)
def test_links_cycles_false_claims_and_other_types_are_refused(path, monkeypatch, make, message):
    monkeypatch.chdir(path.parent)
    Path("secret").write_bytes(bytes(800))
    with h5py.File(path, "w") as file:
        make(file)
    refused(path, message)


def test_a_truncated_file_is_refused(path):
    save(path, {"w": np.arange(1000.0)})
    data = path.read_bytes()
    for size in (100, len(data) // 2, len(data) - 1000):
        path.unlink()
        path.write_bytes(data[:size])
        refused(path, f"it is truncated: it has {size} bytes, its head says")
    path.write_bytes(data[:-5])
    refused(path, "the index behind byte .* is damaged")


def test_notes_that_do_not_fit_their_array_are_refused(path):
    save(path, {"key": np.zeros(3, np.uint32), "n": np.zeros(3), "q": np.zeros(4, np.uint8)})
    data = path.read_bytes()
    changes = {
        "key": ("prng_impl", "threefry2x32", "not a random key"),
        "n": ("python", "int", "is not one"),
        "q": ("dtype", "int4", "damaged|takes|no shape"),
    }
    for name, (attribute, value, message) in changes.items():
        path.unlink()
        path.write_bytes(data)
        with h5py.File(path, "r+") as file:
            file[name].attrs[attribute] = value
        refused(path, message)


def test_a_chunk_that_cannot_be_unpacked_is_named(path):
    with h5py.File(path, "w") as file:
        file.create_dataset("a/x", data=np.arange(5000), chunks=(500,), compression="gzip")
        offset = file["a/x"].id.get_chunk_info(3).byte_offset
    data = bytearray(path.read_bytes())
    data[offset : offset + 20] = bytes(20)
    path.write_bytes(data)
    refused(path, '"/a/x" cannot be read: .*filter')


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", r"crashed \(signal 11\)"),
        ("import time; time.sleep(60)", "does not finish"),
    ],
)
def test_a_file_on_which_hdf5_crashes_or_hangs_is_refused(path, monkeypatch, program, message):
    with h5py.File(path, "w") as file:
        file["w"] = np.ones(3)
    monkeypatch.setattr(hdf5_read, "_WALK", program)
    monkeypatch.setattr(hdf5_read, "_PATIENCE", 1.0)
    refused(path, message)
