from __future__ import annotations

import json
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nbmodule.errors import FileFormatError
from nbmodule.files import read, save
from tests.files.test_damage import with_index


def index_of(data: bytes) -> tuple[int, dict]:
    begin, length = struct.unpack("<QQ", data[-40:-24])
    return begin, json.loads(data[begin : begin + length])


def rewrite(path: Path, data: bytes) -> None:
    path.unlink()  # its last map may be open
    path.write_bytes(data)


def forge(path: Path, change: Any) -> None:
    """Change the index of a file, and make its checksums right again."""

    def as_text(index: dict) -> bytes:
        text = change(index)
        return text if isinstance(text, bytes) else json.dumps(text or index).encode()

    rewrite(path, with_index(path.read_bytes(), as_text))


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "w.h5"
    save(path, {"a": {"w": np.arange(6.0).reshape(2, 3)}, "b": np.arange(4, dtype=np.int16)})
    return path


def refused(path: Path, message: str) -> None:
    with pytest.raises(FileFormatError, match=message):
        read(path, mmap=True)
    with pytest.raises(FileFormatError, match=message):
        read(path)


def test_the_index_says_where_each_array_lies_and_its_checksum(path):
    data = path.read_bytes()
    _, index = index_of(data)
    rows = {row["path"]: row for row in index["rows"]}
    assert list(rows) == ["a/w", "b"]
    row = rows["a/w"]
    assert data[row["offset"] : row["offset"] + row["size"]] == np.arange(6.0).tobytes()
    assert row["crc"] == zlib.crc32(np.arange(6.0).tobytes())


@pytest.mark.parametrize(
    ("place", "message"),
    [
        *((at, "the footer at its end is damaged") for at in (-40, -32, -24, -20)),
        ("index", r"the index at byte \d+ is damaged"),
        ("array", r'cannot load "/b" of .*w\.h5: its bytes have changed'),
    ],
)
def test_the_error_about_a_damaged_byte_names_its_place(path, place, message):
    data = bytearray(path.read_bytes())
    begin, index = index_of(bytes(data))
    at = {"index": begin + 20, "array": index["rows"][1]["offset"]}.get(place, place)
    data[at] ^= 1
    rewrite(path, data)
    with pytest.raises(FileFormatError, match=message):
        read(path)


def set_in_row(**entries: Any):
    def change(index):
        index["rows"][0] |= entries

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        *(
            (set_in_row(**fields), r"the index claims what a file of \d+ bytes cannot hold")
            for fields in (
                {"shape": [10**15]},
                {"shape": [-2, -3]},
                {"shape": [1] * 33},
                {"shape": [3, 3]},
                {"offset": 1 << 40},
                {"crc": "x"},
                {"dtype": "object"},
                {"dtype": "float32"},
                {"notes": [1]},
                {"path": 5},
            )
        ),
        (set_in_row(path="b"), '"/b" is listed twice'),
        (set_in_row(path="a/" * 5000), "more than 1100 levels deep"),
        (set_in_row(notes={"prng_impl": "fry"}), "is not a random key"),
        (set_in_row(notes={"python": "int"}), "is not one"),
        (set_in_row(dtype="bool", shape=[48]), "bytes of a bool array are neither 0 nor 1"),
        (set_in_row(shape=[1 << 62, 1 << 62, 0], size=0, crc=0), "no array can have the shape"),
        (lambda index: index.update(rows=5), "lists no arrays"),
        (lambda index: index.update(version=2), r"newer nbmodule \(format 2"),
        (lambda index: index.update(version=True), "its format version is 'True'"),
        (
            lambda index: index["rows"].extend(
                {**index["rows"][0], "path": f"x{i}", "offset": i} for i in range(5000)
            ),
            "overlap",
        ),
        (lambda _: b"[" * 1_000_000, "it is not JSON"),
        (lambda _: b"", "it is not JSON"),
        (lambda _: b'{"format":"other","version":1,"rows":[]}', "lists no arrays"),
    ],
)
def test_an_index_made_to_harm_is_refused(path, change, message):
    forge(path, change)
    refused(path, message)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (set_in_row(path="x"), "it is damaged"),
        (set_in_row(compressed=False), "cannot hold"),
        (set_in_row(crc=1), "its bytes have changed"),
        (set_in_row(shape=[30000, 30000], size=7_200_000_000), "cannot hold"),
        (set_in_row(shape=[10, 10], size=800), "it is damaged"),
    ],
)
def test_compressed_rows_made_to_harm_are_refused(tmp_path, change, message):
    path = tmp_path / "w.h5"
    save(path, {"w": np.zeros((100, 100))}, compression=9)
    forge(path, change)
    refused(path, message)


@pytest.mark.parametrize(
    "entry",
    [
        5, [], ("abc"), [("float64"), 0], [("float64"), -1, [2]], [("float64"), 10**12, [2]], [("float64"), 0, [10**15]], [("float64"), 0, [2.0]],
        ["float99", 0, [1]], ["float64", True, [1]], ["float64", 0, [1], 7], [["float64"], 0, [1]],
    ],
)  # fmt: skip
def test_an_index_of_packed_arrays_made_to_harm_is_refused(tmp_path, entry):
    path = tmp_path / "w.h5"
    save(path, {"w": np.arange(3.0), "v" * 100: np.arange(4.0)}, packed=True)
    data = path.read_bytes()
    _, index = index_of(data)
    row = next(row for row in index["rows"] if row["path"] == "__packed__/index")
    old = data[row["offset"] : row["offset"] + row["size"]]
    new = json.dumps({"w": entry}).encode().ljust(len(old))
    rewrite(path, data.replace(old, new))

    def right_checksum(index):
        next(row for row in index["rows"] if row["path"] == "__packed__/index")["crc"] = zlib.crc32(
            new
        )

    forge(path, right_checksum)
    refused(path, '"/w" of .*: its entry in the index of packed arrays is damaged')
