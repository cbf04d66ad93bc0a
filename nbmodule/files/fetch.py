"""Fetch the bytes of arrays from a file whose rows are known: read and checked, or mapped."""

from __future__ import annotations

import mmap
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from io import FileIO
from math import prod
from typing import Any

import numpy as np

from nbmodule.errors import FileFormatError
from nbmodule.files.chunks import chunk_spans, inflate, is_run
from nbmodule.files.dtypes import kinds
from nbmodule.files.seal import SealedRow, read_at, read_into

_ALIGNMENT = 64  # what XLA wants in order to take host memory without a copy on the CPU


def fetch(
    file: FileIO, rows: list[SealedRow], *, is_mapped: bool, where: str
) -> Iterator[tuple[SealedRow, np.ndarray]]:
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
    whole = map_file(file) if is_mapped and any(row.size for row in rows) else None
    blocks: dict[Any, np.ndarray] = {}
    for row in rows:
        if row.data is not None:
            yield row, row.data
            continue
        identity = (row.offset, row.size) if row.chunks is None else (tuple(row.chunks), row.chunk)
        if identity not in blocks:
            blocks[identity] = _fetch_one(file, row, whole, f'"/{row.path}" of {where}')
        yield row, blocks[identity]


def _fetch_one(file: FileIO, row: SealedRow, whole: np.ndarray | None, location: str) -> np.ndarray:
    if row.chunks is not None:
        return _unpack(file, row, location)
    if whole is not None:
        return whole[row.offset : row.offset + row.size]
    data = empty(row.size)
    if read_into(file, row.offset, data) < row.size:
        raise FileFormatError(f"cannot load {location}: the file ends within it.")
    if row.crc is not None and zlib.crc32(data.data) != row.crc:
        raise FileFormatError(
            f"cannot load {location}: its bytes have changed since they were written (the "
            "checksum is wrong)."
        )
    return data


def map_file(file: FileIO) -> np.ndarray:
    """All bytes of a file, read-only, read from the disk when they are looked at (`np.memmap` would
    make slow views).
    """
    return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)


def empty(size: int) -> np.ndarray:
    """Room for bytes, aligned so that JAX can take it over without a copy."""
    try:
        room = np.empty(size + _ALIGNMENT, np.uint8)
    except MemoryError as error:
        raise FileFormatError(f"cannot make room for an array of {size} bytes.") from error
    start = -room.ctypes.data % _ALIGNMENT
    return room[start : start + size]


def _unpack(file: FileIO, row: SealedRow, location: str) -> np.ndarray:
    """Read, check and inflate all chunks, several at a time."""
    element = kinds()[row.dtype]
    stored, chunk, width = (
        element.stored_shape(row.shape),
        row.chunk or (),
        max(1, element.bits // 8),
    )
    if not is_run(stored, chunk):
        raise FileFormatError(
            f"cannot load {location}: its chunks {list(chunk)} are not as this format makes them."
        )
    out, padded = empty(row.size), prod(chunk) * width

    def unpack(item: tuple[tuple[tuple[int, ...], int, int], tuple[int, int, int], bytes]) -> None:
        (_, begin, end), (_, size, crc), packed = item
        if len(packed) < size or zlib.crc32(packed) != crc:
            raise FileFormatError(
                f"cannot load {location}: a chunk has changed since it was written (the checksum "
                "is wrong)."
            )
        out[begin * width : end * width] = inflate(packed, padded, width, location)[
            : (end - begin) * width
        ]

    def items() -> Iterator[Any]:
        for span, part in zip(chunk_spans(stored, chunk), row.chunks or (), strict=True):
            yield span, part, read_at(file, part[0], part[1])

    with ThreadPoolExecutor() as pool:
        for batch in _batches(items(), 32):
            list(pool.map(unpack, batch))
    return out


def _batches(items: Iterator[Any], size: int) -> Iterator[list[Any]]:
    batch = []
    for item in items:
        batch.append(item)
        if len(batch) == size:
            yield batch
            batch = []
    yield batch
