"""Chunks of compressed arrays: how an array is cut, and how one chunk is packed and unpacked as
HDF5's filters do it.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from math import prod

import numpy as np

from nbmodule.errors import FileFormatError

_CHUNK_BYTES = 1 << 20


def chunk_shape(shape: tuple[int, ...], width: int) -> tuple[int, ...]:
    """Choose chunks of about a megabyte, each a run of bytes of the array: ones, then a part of one
    axis, then whole axes.

    Example:
        >>> from nbmodule.files.hdf5_write import chunk_shape
        >>> chunk_shape((1000, 1024), 4), chunk_shape((2, 3000, 1024), 4)
        ((256, 1024), (1, 256, 1024))
    """
    chunk = list(shape)
    for axis in range(len(shape)):
        inner = prod(shape[axis + 1 :]) * width
        chunk[axis] = max(1, min(shape[axis], _CHUNK_BYTES // inner))
        if chunk[axis] > 1:
            break
    return tuple(chunk)


def is_run(shape: tuple[int, ...], chunk: tuple[int, ...]) -> bool:
    """Whether each chunk is a run of bytes of the array: ones, then a part of one axis, then whole
    axes.
    """
    split = next((axis for axis, step in enumerate(chunk) if step > 1), len(chunk) - 1)
    return (
        0 not in shape
        and chunk[split + 1 :] == shape[split + 1 :]
        and all(c <= s for c, s in zip(chunk, shape, strict=True))
    )


def chunk_spans(
    shape: tuple[int, ...], chunk: tuple[int, ...]
) -> Iterator[tuple[tuple[int, ...], int, int]]:
    """Yield (position, first element, end) of each chunk in C order, for chunks that are runs."""
    grid = [range(0, size, step) for size, step in zip(shape, chunk, strict=True)]
    split = next((axis for axis, step in enumerate(chunk) if step > 1), len(chunk) - 1)
    inner = prod(shape[split + 1 :])
    for position in np.ndindex(*(len(steps) for steps in grid)):
        origin = tuple(steps[i] for steps, i in zip(grid, position, strict=True))
        begin = 0
        for size, location in zip(shape[: split + 1], origin, strict=False):
            begin = begin * size + location
        yield (
            origin,
            begin * inner,
            (begin + min(chunk[split], shape[split] - origin[split])) * inner,
        )


def compress(part: np.ndarray, padded: int, width: int, level: int) -> bytes:
    """Shuffle and deflate the bytes of one chunk as HDF5 does; chunks at the edge are filled up
    with zeros.
    """
    if part.size < padded:
        part = np.concatenate([part, np.zeros(padded - part.size, np.uint8)])
    if width > 1:
        part = np.ascontiguousarray(part.reshape(-1, width).T)
    return zlib.compress(part.data, level)


def inflate(packed: bytes, size: int, width: int, location: str) -> np.ndarray:
    """Undo `compress`, and never make more bytes than the chunk has."""
    machine = zlib.decompressobj()
    try:
        data = machine.decompress(packed, size + 1)
    except zlib.error as error:
        raise FileFormatError(
            f"cannot load {location}: a chunk cannot be unpacked ({error})."
        ) from error
    if len(data) != size:
        unpacked = f"more than {size}" if len(data) > size else str(len(data))
        raise FileFormatError(
            f"cannot load {location}: a chunk unpacks to {unpacked} bytes, expected {size}."
        )
    row = np.frombuffer(data, np.uint8)
    return row.reshape(width, -1).T.reshape(-1) if width > 1 else row
