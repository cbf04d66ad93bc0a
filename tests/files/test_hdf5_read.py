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


@pytest.mark.parametrize(
    "link",
    [h5py.ExternalLink("/etc/passwd", "/"), h5py.SoftLink("/a/w"), h5py.SoftLink("/../../etc")],
    ids=lambda value: value.path,
)
def test_soft_and_external_links_are_refused(path, link):
    with h5py.File(path, "w") as file:
        file["a/w"], file["x"] = np.ones(3), link
    refused(path, '"/x" is a soft or external link')


def test_cycles_and_groups_with_two_names_are_refused(path):
    with h5py.File(path, "w") as file:
        file["a/b/w"] = np.ones(3)
        file["a/b/up"] = file["a"]
    refused(path, "has two access paths, as in a cycle")
    with h5py.File(path, "w") as file:  # each level doubles the number of paths
        group = file
        for _ in range(60):
            lower = group.create_group("left")
            group["right"] = lower
            group = lower
    refused(path, "has two access paths")
    with h5py.File(path, "w") as file:
        file["root"] = file["/"]
    refused(path, "has two access paths")


def test_deep_nesting_is_refused(path):
    with h5py.File(path, "w") as file:
        file["/".join("a" * 1200)] = np.ones(1)
    refused(path, "is more than 1100 levels deep")


def test_arrays_that_lie_in_another_file_are_refused(path, tmp_path):
    secret = tmp_path / "secret"
    secret.write_bytes(bytes(800))
    with h5py.File(path, "w") as file:
        file.create_dataset("x", (100,), "f8", external=[(str(secret), 0, 800)])
    refused(path, '"/x" keeps its numbers in another file')
    layout = h5py.VirtualLayout((10,), "f8")
    layout[:] = h5py.VirtualSource(str(tmp_path / "other.h5"), "w", (10,))
    with h5py.File(path, "w") as file:
        file.create_virtual_dataset("x", layout)
    refused(path, '"/x" keeps its numbers in another file')


@pytest.mark.parametrize(
    "options", [{}, {"chunks": (1 << 20,)}, {"chunks": (1 << 20,), "compression": "gzip"}], ids=str
)
def test_claims_of_more_numbers_than_a_file_can_hold_are_refused(path, options):
    with h5py.File(path, "w") as file:
        file.create_dataset("x", (10**15,), "f4", **options)
    refused(path, '"/x".* claims 4000000000000000 bytes in a file of')


@pytest.mark.parametrize(
    "value",
    [
        np.array([(1, 2.0)], [("a", "i4"), ("b", "f8")]),
        np.array(["a", "b"], h5py.string_dtype()),
        np.array([np.ones(1), np.ones(2)], h5py.vlen_dtype("f8")),
        np.zeros(2, "V3"),
    ],
    ids=["records", "texts", "rows of any length", "opaque bytes"],
)
def test_what_is_no_array_of_numbers_is_refused(path, value):
    with h5py.File(path, "w") as file:
        file.create_dataset("a/x", data=value)
    refused(path, '"/a/x" does not hold plain numbers')


def test_a_file_that_was_cut_short_is_told_at_once(path):
    save(path, {"w": np.arange(1000.0)})
    data = path.read_bytes()
    for size in (100, len(data) // 2, len(data) - 1000):
        path.unlink()
        path.write_bytes(data[:size])
        refused(path, f"it is truncated: it has {size} bytes, its head says")


def test_a_file_whose_index_was_cut_off_in_part_is_refused(path):
    save(path, {"w": np.arange(10.0)})
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(data[:-5])
    refused(path, "the index behind byte .* is damaged")


def test_a_file_of_a_later_format_asks_for_a_newer_nbmodule(path):
    with h5py.File(path, "w") as file:
        file.attrs["format"], file.attrs["format_version"] = "nbmodule", 2
    refused(path, r"written by a newer nbmodule \(format 2; this one reads up to 1\)")


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


def test_no_descriptor_is_left(path):
    with h5py.File(path, "w") as file:
        file["x"] = h5py.SoftLink("/nowhere")
    folder = Path("/proc/self/fd")
    if not folder.exists():
        pytest.skip("no list of open files on this system")
    refused(path, "soft or external link")
    before = len(list(folder.iterdir()))
    for _ in range(5):
        refused(path, "soft or external link")
    assert len(list(folder.iterdir())) == before
