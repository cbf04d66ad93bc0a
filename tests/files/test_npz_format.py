from __future__ import annotations

import io
import zipfile

import numpy as np
import pytest

from nbmodule.errors import FileFormatError
from nbmodule.files import read, save
from tests.files.trees import equal, refused


@pytest.fixture
def path(tmp_path):
    return tmp_path / "w.npz"


def npy(header: str, data: bytes = b"", version: bytes = b"\x01\x00") -> bytes:
    text = header.encode()
    return b"\x93NUMPY" + version + len(text).to_bytes(2, "little") + text + data


def write(path, members: dict[str, bytes]) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_a_file_of_numpy_is_loaded(path, save):
    arrays = {
        "params/dense/kernel": np.arange(6, dtype=np.float32).reshape(2, 3),
        "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "big_endian": np.arange(3, dtype=">i4"),
        "scalar": np.float64(2),
        "flags": np.array([True]),
        "empty": np.zeros((0, 2)),
        "z": np.ones(2, complex),
    }
    save(path, **arrays)
    found = read(path).variables
    assert equal(found.pop("params"), {"dense": {"kernel": arrays.pop("params/dense/kernel")}})
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].dtype == np.asarray(array).dtype.newbyteorder("<")


def test_pickled_objects_are_never_loaded(path, tmp_path):
    class Harm:
        def __reduce__(self):
            return (open, (str(tmp_path / "harm"), "w"))

    np.savez(path, a=np.array([Harm()], object))
    refused(path, r'"a" of .*: it holds pickled objects, which are never loaded')
    write(
        path,
        {
            "a.npy": npy(
                "{'descr': 'i4', 'fortran_order': False, 'shape': (1,)}", b"cposix\nsystem\n."
            ),
            "b": b"not npy",
        },
    )
    with pytest.raises(FileFormatError):
        read(path)
    assert not (tmp_path / "harm").exists()


@pytest.mark.parametrize(
    ("member", "message"),
    [
        (npy(("{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000000,)}"), bytes(8)), ("does not take 8 bytes")),
        (npy(("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}"), bytes(8)), ("does not take|damaged")),
        (npy(("{'descr': '<U4', 'fortran_order': False, 'shape': (1,)}"), bytes(16)), ("its dtype is <U4, and only arrays of numbers")),
        (npy("__import__('os').system('true')", bytes(8)), "it is damaged"),
        (npy(("{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}"), bytes(8), b"\x09\x00"), r"unknown version \(9, 0\)|damaged"),
        (b"", "it is damaged"),
    ],
)  # fmt: skip
def test_a_member_made_to_harm_is_refused(path, member, message):
    write(path, {"a.npy": member})
    refused(path, message)


def test_an_archive_that_unpacks_to_more_than_it_can_hold_is_refused(path):
    """Many members that share their bytes: the archive claims far more than deflate could reach."""
    buffer = io.BytesIO()
    np.save(buffer, np.zeros(1 << 21))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.npy", buffer.getvalue())
        first = archive.infolist()[0]
        for number in range(200):
            again = zipfile.ZipInfo(f"b{number}.npy")
            for name in ("header_offset", "file_size", "compress_size", "CRC", "compress_type"):
                setattr(again, name, getattr(first, name))
            archive.filelist.append(again)
            archive.NameToInfo[again.filename] = again
        archive._didModify = True
    refused(
        path, r"claims to unpack from .* bytes to .*, and at most 100 times its size and 256 MiB"
    )


def test_an_archive_of_another_program_is_not_called_damaged(tmp_path):
    path = tmp_path / "model.keras"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("metadata.json", "{}")
    message = refused(path, r"an archive that holds 'metadata.json'.*nb.from_keras")
    assert "damaged" not in message


def test_mapped_arrays_are_read_only(tmp_path):
    tree = {"w": np.ones(3), "scalar": np.float32(2), "empty": np.zeros((0, 2))}
    np.savez(tmp_path / "w.npz", **tree)
    save(tmp_path / "w.h5", tree)
    for name in ("w.npz", "w.h5"):
        found = read(tmp_path / name, mmap=True).variables
        assert all(
            not np.asarray(leaf).flags.writeable
            for leaf in found.values()
            if isinstance(leaf, np.ndarray)
        ), name


def test_a_single_text_and_flat_names_are_read(path):
    np.savez(path, **{"step": 3, "model/a.b/w": np.ones(2), "dtypes": np.str_('{"x": 1}')})
    found = read(path).variables
    assert found["dtypes"] == '{"x": 1}' and int(found["step"]) == 3
    assert found["model"]["a.b"]["w"].tolist() == [1, 1]
    path.write_bytes(path.read_bytes()[:200])
    refused(path, "cannot load")
