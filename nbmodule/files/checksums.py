"""Write and read the index of all arrays with their checksums, behind the end of the HDF5 file, and
read the arrays.

A file that this package wrote is an HDF5 file followed by a JSON index and a footer of 40 bytes.
HDF5 libraries ignore what lies behind the end they know of, and cut it off as soon as they open the
file for writing. So an index that is there was written together with the data, and a file that
another program has changed has none.

Loading such a file reads the index and the arrays, never the HDF5 structures: no byte of it
reaches the HDF5 library, which crashes or hangs on some damaged files. The footer's checksum covers
the index, the index holds a checksum for every array.
"""

from __future__ import annotations

import mmap
import os
import struct
import zlib
from collections.abc import Iterator
from io import FileIO
from typing import Any, TypeGuard

import numpy as np

from nbmodule.base.bounded_json import dump_json, parse_json
from nbmodule.errors import FileFormatError
from nbmodule.files.chains import unreadable
from nbmodule.files.stored_leaf import GROUP, MOST_AXES, NOTHING, TEXT, StoredRow, kinds

FORMAT, VERSION = "nbmodule", 1
MAGIC = b"\x89NBM-SEAL\r\n\x1a\n\x00\x00\x01"
_FOOTER = struct.Struct(
    "<QQII16s"
)  # offset and length of the index, its checksum, the footer's own, magic
# Deflate cannot expand more than 1032 times, so no honest claim is much larger than the file that
# makes it.
_MOST_EXPANSION, _FREE_CLAIM = 1040, 1 << 24


def index_bytes(rows: list[StoredRow], end: int) -> bytes:
    """Return the bytes that follow an HDF5 file.

    Args:
        rows: All arrays of the file.
        end: Where the HDF5 file ends, in bytes.
    """
    text = dump_json(
        {"format": FORMAT, "version": VERSION, "rows": [_as_json(row) for row in rows]}, "the index"
    )
    checked = struct.pack("<QQI", end, len(text), zlib.crc32(text))
    return text + _FOOTER.pack(end, len(text), zlib.crc32(text), zlib.crc32(checked), MAGIC)


def _as_json(row: StoredRow) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "path": row.path,
        "dtype": row.dtype,
        "shape": row.shape,
        "size": row.size,
        "crc": row.crc,
    }
    entry |= {"compressed": True} if row.is_compressed else {"offset": row.offset}
    return entry | ({"notes": row.notes} if row.notes else {})


def read_index(file: FileIO, where: str) -> list[StoredRow] | None:
    """Read the index of a file; None if it has none.

    Raises:
        FileFormatError: if there is an index and it is damaged.
    """
    size = os.fstat(file.fileno()).st_size
    footer = read_at(file, max(0, size - _FOOTER.size), min(size, _FOOTER.size))
    if len(footer) < _FOOTER.size or not footer.endswith(MAGIC):
        return None
    offset, length, crc, footer_crc, _ = _FOOTER.unpack(footer)
    if footer_crc != zlib.crc32(footer[:20]) or offset + length != size - _FOOTER.size:
        raise unreadable(where, "the footer at its end is damaged.")
    text = read_at(file, offset, length)
    if zlib.crc32(text) != crc:
        raise unreadable(where, f"the index at byte {offset} is damaged (its checksum is wrong).")
    index = parse_json(text, f"the index of {where}")
    if (
        not isinstance(index, dict)
        or index.get("format") != FORMAT
        or not isinstance(index.get("rows"), list)
    ):
        raise unreadable(where, f"the index at byte {offset} lists no arrays.")
    check_version(index.get("version"), where)
    rows = [check_row(entry, offset, where) for entry in index["rows"]]
    # Rows that share all their bytes count once.
    spans = {(row.offset, row.size) for row in rows if not row.is_compressed}
    if sum(size for _, size in spans) > offset:
        raise unreadable(where, "its arrays overlap, or claim more bytes than the file has.")
    return rows


def read_at(file: FileIO, offset: int, length: int) -> bytes:
    """Read bytes from a place in a file, fewer at its end."""
    buffer = bytearray(length)
    return bytes(buffer[: read_into(file, offset, buffer)])


def read_into(file: FileIO, offset: int, buffer: Any) -> int:
    """Fill a buffer from a place in a file; gives the number of bytes, fewer at its end."""
    file.seek(offset)
    view, done = memoryview(buffer), 0
    while done < len(view) and (count := file.readinto(view[done : done + (1 << 30)])):
        done += count
    return done


MOST_ARRAYS = 100_000
"""Most arrays in a file of another program: each costs about 5 KB as a JAX array."""


def check_count(count: int, where: str) -> None:
    """Refuse a file of another program that lists more arrays than `MOST_ARRAYS`."""
    if count > MOST_ARRAYS:
        raise unreadable(
            where,
            f"it lists {count:,} arrays, and at most {MOST_ARRAYS:,} are "
            "read from such a file. Files of `nb.save` hold any number.",
        )


def check_version(version: object, where: str) -> None:
    """Refuse a file of a later format."""
    if not is_count(version) or version < 1:
        raise unreadable(where, f"its format version is {str(version)[:40]!r}, expected a number.")
    if version > VERSION:
        raise unreadable(
            where,
            f"it was written by a newer nbmodule (format {version}; this one "
            f"reads up to {VERSION}). Update nbmodule to load it.",
        )


def check_row(entry: dict[str, Any], end: int, where: str) -> StoredRow:
    """Make a row of what a file claims, and refuse what cannot be.

    Args:
        entry: The fields of a row, from JSON.
        end: No array reaches beyond this byte.
        where: The file, for errors.
    """
    row = None
    try:
        row = row_of(entry)
        size = entry.get("size", 0)
        is_sound = type(row.path) is str and is_count(size) and size == row.size
        is_sound = is_sound and size <= most_bytes(end) and (row.dtype in kinds() or not row.shape)
        if is_sound and row.size and not row.is_compressed:
            is_sound = row.offset + row.size <= end
    except (KeyError, TypeError, ValueError, AttributeError):
        is_sound = False
    if row is None or not is_sound:
        raise unreadable(
            where,
            f"the index claims what a file of {end} bytes cannot hold: "
            f"{str(entry)[:200]}. The file is damaged.",
        )
    return row


def row_of(entry: dict[str, Any]) -> StoredRow:
    """Make a row of JSON; its size follows from dtype and shape, but for text.

    Raises:
        KeyError, TypeError, ValueError: if a field is missing or cannot be.
    """
    dtype, crc, notes = entry["dtype"], entry.get("crc"), entry.get("notes")
    shape, offset = tuple(entry.get("shape") or ()), entry.get("offset", 0)
    numbers = [*shape, offset, *([] if crc is None else [crc])]
    if len(shape) > MOST_AXES or not all(map(is_count, numbers)):
        raise ValueError("a number is negative, too large, or no integer")
    if dtype in kinds():
        size = kinds()[dtype].nbytes(shape)
    else:
        size = {TEXT: entry.get("size"), NOTHING: 0, GROUP: 0}[dtype]
    notes = dict(notes or {})
    is_compressed = entry.get("compressed") is True
    return StoredRow(entry["path"], dtype, shape, offset, size, crc, notes, is_compressed)


def most_bytes(size: int) -> int:
    """Return the most bytes that the arrays of a file of this size can unpack to."""
    return _MOST_EXPANSION * size + _FREE_CLAIM


def is_count(value: object) -> TypeGuard[int]:
    """Return True for a number of elements or bytes that a file may claim."""
    return type(value) is int and 0 <= value < 1 << 63


_ALIGNMENT = 64  # what XLA wants in order to take host memory without a copy on the CPU


def fetch(
    file: FileIO, rows: list[StoredRow], *, is_mapped: bool, where: str
) -> Iterator[tuple[StoredRow, np.ndarray]]:
    """Yield each row with its bytes, one row of `uint8`; rows that share their bytes get the same
    object.

    Args:
        file: Open for reading, without a buffer.
        rows: What to fetch.
        is_mapped: Map arrays instead of reading them: nothing is read until it is used, and no
            checksum of data is tested. Compressed arrays are read all the same.
        where: The file, for errors.

    Raises:
        FileFormatError: if a checksum is wrong, or the file ends too early.
    """
    whole = None
    if is_mapped and any(row.size for row in rows):  # `np.memmap` would make slow views
        whole = np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)
    blocks: dict[tuple[int, int], np.ndarray] = {}
    for row in rows:
        if row.data is not None:
            yield row, row.data
            continue
        identity = row.offset, row.size
        if identity not in blocks:
            if whole is not None:
                data = whole[row.offset : row.offset + row.size]
            else:
                data = empty(row.size)
                if read_into(file, row.offset, data) < row.size:
                    raise unreadable(f'"/{row.path}" of {where}', "the file ends within it.")
                check_bytes(row, data, where)
            blocks[identity] = data
        yield row, blocks[identity]


def check_bytes(row: StoredRow, data: np.ndarray, where: str) -> None:
    """Test the checksum of an array, if there is one."""
    if row.crc is not None and zlib.crc32(data.data) != row.crc:
        raise unreadable(
            f'"/{row.path}" of {where}',
            "its bytes have changed since they were written (the checksum is wrong).",
        )


def empty(size: int) -> np.ndarray:
    """Return an empty array of bytes, aligned so that JAX can use it without a copy."""
    try:
        room = np.empty(size + _ALIGNMENT, np.uint8)
    except MemoryError as error:
        raise FileFormatError(f"cannot make room for an array of {size} bytes.") from error
    start = -room.ctypes.data % _ALIGNMENT
    return room[start : start + size]
