"""Fetch the bytes of arrays from a file whose rows are known: read and checked, or mapped."""

from __future__ import annotations

import mmap
import zlib
from collections.abc import Iterator
from io import FileIO

import numpy as np

from nbmodule.errors import FileFormatError
from nbmodule.files.checksums import read_into
from nbmodule.files.stored_leaf import StoredRow

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
                    raise FileFormatError(
                        f'cannot load "/{row.path}" of {where}: the file ends within it.'
                    )
                check_bytes(row, data, where)
            blocks[identity] = data
        yield row, blocks[identity]


def check_bytes(row: StoredRow, data: np.ndarray, where: str) -> None:
    """Test the checksum of an array, if there is one."""
    if row.crc is not None and zlib.crc32(data.data) != row.crc:
        raise FileFormatError(
            f'cannot load "/{row.path}" of {where}: its bytes have changed since they were written '
            "(the checksum is wrong)."
        )


def empty(size: int) -> np.ndarray:
    """Return an empty array of bytes, aligned so that JAX can use it without a copy."""
    try:
        room = np.empty(size + _ALIGNMENT, np.uint8)
    except MemoryError as error:
        raise FileFormatError(f"cannot make room for an array of {size} bytes.") from error
    start = -room.ctypes.data % _ALIGNMENT
    return room[start : start + size]
