"""Write a skeleton and its arrays to a file in the order in which they lie, then the seal."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, BinaryIO

from nbmodule.files.hdf5_write import Skeleton
from nbmodule.files.leaves import StoredLeaf
from nbmodule.files.seal import SealedRow, seal
from nbmodule.files.threads import submit

_LARGE = 1 << 24  # bytes
_AHEAD = 2  # arrays that are on their way from their device while another is written


def write_all(file: BinaryIO, skeleton: Skeleton, leaves: list[StoredLeaf | None]) -> None:
    """Write everything; checksums are made in a second thread, so that they cost no time beside the disk.

    Args:
        file: New and empty.
        skeleton: Its rows get their checksums here.
        leaves: One for each row of the skeleton; None for an empty group.
    """
    blocks: dict[int, tuple[StoredLeaf, list[SealedRow]]] = {}
    for row, leaf in zip(skeleton.rows, leaves, strict=True):
        if leaf is not None and row.size and row.chunks is None:
            blocks.setdefault(row.offset, (leaf, []))[1].append(row)
    at = 0
    checksums: list[tuple[list[SealedRow], Future[int]]] = []
    with ThreadPoolExecutor(1) as pool:
        for offset, data, rows in _in_order(skeleton, blocks):
            file.write(bytes(offset - at))
            if rows:
                checksums.append((rows, submit(pool, zlib.crc32, data)))
            file.write(data)
            at = offset + len(data)
        file.write(bytes(skeleton.size - at))
        if skeleton.size > _LARGE:  # the processor makes checksums while the disk takes the data
            file.flush()
            os.fsync(file.fileno())
        for rows, checksum in checksums:
            for row in rows:
                row.crc = checksum.result()
    file.write(seal(skeleton.rows, skeleton.size))


def _in_order(
    skeleton: Skeleton, blocks: dict[int, tuple[StoredLeaf, list[SealedRow]]]
) -> Iterator[tuple[int, Any, list[SealedRow]]]:
    """Yield (offset, bytes, rows) of all pieces by their offset; arrays are fetched one after the other."""
    offsets = sorted(blocks)
    upcoming = iter(offsets)
    for offset, _ in zip(upcoming, range(_AHEAD), strict=False):
        blocks[offset][0].prefetch()
    pieces = iter([*skeleton.pieces, (skeleton.size, b"")])
    place, piece = next(pieces)
    for offset in offsets:
        while place < offset:
            yield place, piece, []
            place, piece = next(pieces)
        leaf, rows = blocks.pop(offset)
        if (following := next(upcoming, None)) is not None:
            blocks[following][0].prefetch()
        yield offset, leaf.data(), rows
    yield place, piece, []
    for place, piece in pieces:
        yield place, piece, []
