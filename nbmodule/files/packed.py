"""Many small arrays in one: those of a dtype lie one after the other in one dataset, and an index
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
from nbmodule.errors import FileFormatError
from nbmodule.files.chains import PACKED
from nbmodule.files.dtypes import kinds
from nbmodule.files.stored_leaf import (
    MOST_AXES,
    NOTHING,
    TEXT,
    StoredLeaf,
    describe_leaf,
    restore,
)

SMALL = 1 << 16  # bytes; a larger array always has a dataset of its own
MANY = 1000
_INDEX = "index"


class _JoinedLeaf(StoredLeaf):
    """All packed arrays of one dtype, as one leaf."""

    def __init__(self, dtype: str, parts: list[StoredLeaf]) -> None:
        self.parts = parts
        shown = "uint8" if kinds()[dtype].raw else dtype
        nbytes = sum(part.nbytes for part in parts)
        super().__init__(shown, (nbytes * 8 // kinds()[shown].bits,), nbytes, None)

    def data(self) -> np.ndarray:
        """Fetch the bytes of all parts."""
        return np.concatenate([part.data() for part in self.parts])


def pack_small_arrays(
    leaves: list[tuple[str, StoredLeaf | None]], packed: bool | None
) -> list[tuple[str, StoredLeaf | None]]:
    """Put small arrays together.

    Args:
        leaves: (path, leaf); None is an empty group.
        packed: Whether to do so; None packs when there are more than 1,000 small ones.
    """
    small = [
        (path, leaf)
        for path, leaf in leaves
        if leaf and leaf.dtype not in (TEXT, NOTHING) and leaf.nbytes <= SMALL
    ]
    if not small or packed is False or (packed is None and len(small) <= MANY):
        return leaves
    index: dict[str, list[Any]] = {}
    parts: dict[str, list[StoredLeaf]] = {}
    ends: dict[str, int] = {}
    starts: dict[int, int] = {}
    for path, leaf in small:
        start = starts.get(id(leaf.identity)) if leaf.identity is not None else None
        if start is None:
            start = ends.get(leaf.dtype, 0)
            starts[id(leaf.identity)] = start
            ends[leaf.dtype] = start + (leaf.nbytes if leaf.element.raw else prod(leaf.shape))
            parts.setdefault(leaf.dtype, []).append(leaf)
        index[path] = [leaf.dtype, start, leaf.shape] + ([leaf.notes] if leaf.notes else [])
    large = [(path, leaf) for path, leaf in leaves if path not in index]
    joined = [
        (f"{PACKED}/{dtype}", _JoinedLeaf(dtype, members)) for dtype, members in parts.items()
    ]
    text = dump_json(index, "the index of packed arrays").decode()
    return [*large, (f"{PACKED}/{_INDEX}", describe_leaf(text, f"{PACKED}/{_INDEX}")), *joined]


def unpack_small_arrays(blocks: Mapping[str, np.ndarray], where: str) -> Iterator[tuple[str, Any]]:
    """Yield (path, array) for each packed array.

    Args:
        blocks: The bytes of each dataset below `__packed__`, by its name.
        where: The file, for errors.

    Raises:
        FileFormatError: if the index is damaged.
    """
    if _INDEX not in blocks:
        raise FileFormatError(
            f'cannot load {where}: it has packed arrays and no "/{PACKED}/{_INDEX}".'
        )
    index = parse_json(blocks[_INDEX].tobytes(), f'"/{PACKED}/{_INDEX}" of {where}')
    if not isinstance(index, dict):
        raise FileFormatError(f'cannot load {where}: "/{PACKED}/{_INDEX}" lists no arrays.')
    restored: dict[tuple[Any, ...], Any] = {}
    for path, entry in index.items():
        location = f'"/{path[:200]}" of {where}'
        dtype, begin, end, shape, notes = _check_entry(entry, blocks, location)
        identity = (dtype, begin, end, shape, str(notes))
        if identity not in restored or not end - begin:
            restored[identity] = restore(blocks[dtype][begin:end], dtype, shape, notes, location)
        yield path, restored[identity]


def _check_entry(
    entry: Any, blocks: Mapping[str, np.ndarray], location: str
) -> tuple[str, int, int, tuple[int, ...], dict]:
    """Say which bytes an entry of the index means; refuse one that means none."""
    try:
        dtype, start, shape, *more = entry
        element, notes = kinds()[dtype], more[0] if more else {}
        if (
            len(shape) <= MOST_AXES
            and all(type(n) is int and 0 <= n < 1 << 63 for n in (start, *shape))
            and isinstance(notes, dict)
        ):
            begin = start if element.raw else start * element.bits // 8
            end = begin + element.nbytes(tuple(shape))
            if end <= blocks[dtype].size:
                return dtype, begin, end, tuple(shape), notes
    except (TypeError, ValueError, KeyError):
        pass
    raise FileFormatError(
        f"cannot load {location}: its entry in the index of packed arrays is damaged."
    )
