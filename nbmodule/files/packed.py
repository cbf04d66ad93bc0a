"""Many small arrays in one: those of a dtype follow each other in one dataset, and an index
says where each is.

A dataset of its own costs 0.4 ms and 300 bytes, however small the array. The group `__packed__`
holds one row of numbers for each dtype (`__packed__/float32`) and `index`, a text in JSON:
`{"linear0/w": ["float32", start, [64, 3]], ...}`. So with plain h5py

    index = json.loads(file["__packed__/index"][()])
    dtype, start, shape = index["linear0/w"][:3]
    w = file["__packed__"][dtype][start : start + math.prod(shape)].reshape(shape)

`start` counts the elements of that row. Elements of fewer than eight bits begin at a new byte for
each array.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import Any

import numpy as np

from nbmodule.base.bounded_json import dump_json, parse_json
from nbmodule.files.chains import PACKED, unreadable
from nbmodule.files.checksums import row_of
from nbmodule.files.stored_leaf import StoredRow, describe_leaf, kinds, restore

SMALL = 1 << 16  # bytes; a larger array always has a dataset of its own
MANY = 1000
_INDEX = "index"


def pack_small_arrays(rows: list[StoredRow], packed: bool | None) -> list[StoredRow]:
    """Put small arrays together.

    Args:
        rows: All that is to be written.
        packed: Whether to do so; None packs when there are more than 1,000 small ones.
    """
    small = [row for row in rows if row.dtype in kinds() and row.size <= SMALL]
    if not small or packed is False or (packed is None and len(small) <= MANY):
        return rows
    index: dict[str, list[Any]] = {}
    parts: dict[str, list[StoredRow]] = {}
    ends: dict[str, int] = {}
    starts: dict[int, int] = {}
    for row in small:
        start = starts.get(id(row.identity)) if row.identity is not None else None
        if start is None:
            start = ends.get(row.dtype, 0)
            starts[id(row.identity)] = start
            ends[row.dtype] = start + (row.size if row.element.raw else prod(row.shape))
            parts.setdefault(row.dtype, []).append(row)
        index[row.path] = [row.dtype, start, row.shape] + ([row.notes] if row.notes else [])
    large = [row for row in rows if row.path not in index]
    text = dump_json(index, "the index of packed arrays").decode()
    result = [*large, describe_leaf(text, f"{PACKED}/{_INDEX}")]
    for dtype, members in parts.items():
        shown = "uint8" if kinds()[dtype].raw else dtype
        size = sum(row.size for row in members)
        shape = (size * 8 // kinds()[shown].bits,)
        result.append(StoredRow(f"{PACKED}/{dtype}", shown, shape, size=size, data=members))
    return result


def unpack_small_arrays(blocks: Mapping[str, np.ndarray], where: str) -> Iterator[tuple[str, Any]]:
    """Yield (path, array) for each packed array.

    Args:
        blocks: The bytes of each dataset below `__packed__`, by its name.
        where: The file, for errors.

    Raises:
        FileFormatError: if the index is damaged.
    """
    if _INDEX not in blocks:
        raise unreadable(where, f'it has packed arrays and no "/{PACKED}/{_INDEX}".')
    index = parse_json(blocks[_INDEX].tobytes(), f'"/{PACKED}/{_INDEX}" of {where}')
    if not isinstance(index, dict):
        raise unreadable(where, f'"/{PACKED}/{_INDEX}" lists no arrays.')
    restored: dict[tuple[Any, ...], Any] = {}
    for path, entry in index.items():
        row = _check_entry(path, entry, blocks, where)
        identity = (row.dtype, row.offset, row.shape, str(row.notes))
        if identity not in restored or not row.size:
            data = blocks[row.dtype][row.offset : row.offset + row.size]
            restored[identity] = restore(row, data, where)
        yield path, restored[identity]


def _check_entry(path: str, entry: Any, blocks: Mapping[str, np.ndarray], where: str) -> StoredRow:
    """Return the row of an entry of the index, whose offset counts in its block."""
    try:
        dtype, start, shape, *notes = entry
        fields = {"path": path, "dtype": dtype, "shape": shape, "offset": start}
        row = row_of(fields | {"notes": notes[0] if notes else {}})
        if not row.element.raw:  # `start` counts elements
            row.offset = start * row.element.bits // 8
        if row.offset + row.size <= blocks[dtype].size:
            return row
    except (TypeError, ValueError, KeyError):
        pass
    raise unreadable(
        f'"/{path[:200]}" of {where}', "its entry in the index of packed arrays is damaged."
    )
