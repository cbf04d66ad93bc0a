"""Keeps a view within its share of a notebook: pictures first, then rows are left out, and the foot
line says so.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from nbmodule.base.format import count_noun
from nbmodule.views.arrays.flattening import LeafRows
from nbmodule.views.records.records import (
    CallTable,
    ComparisonTable,
    DifferenceTree,
    ModuleTree,
    Picture,
    Record,
    ReturnTable,
    VariableTree,
)

PICTURE_BYTES = 150_000
"""Bytes of picture data in one view; base64 makes a third more of them."""
MOST_ROWS = {
    VariableTree: 100_000,
    ModuleTree: 20_000,
    CallTable: 20_000,
    ComparisonTable: 20_000,
    ReturnTable: 500,
    DifferenceTree: 50_000,
}


def fitted(record: Record, pictures: int = PICTURE_BYTES) -> Record:
    """Leave out what would make a view too large.

    Args:
        record: Any record.
        pictures: Bytes that its pictures may have.

    Example:
        >>> from nbmodule.views.records.records import VariableRow
        >>> tree = VariableTree('v', [VariableRow(f'w{i}') for i in range(100_001)])
        >>> fitted(tree).notes
        ('1 row left out: ask for a part',)
    """
    most = MOST_ROWS.get(type(record))
    if most is None:
        return record
    rows: Sequence[Any] = getattr(record, "rows", ())
    notes = list(record.notes)
    if len(rows) > most:
        notes.append(f"{count_noun(len(rows) - most, 'row')} left out: ask for a part")
        rows = rows[:most]
    field = (
        "values"
        if isinstance(record, VariableTree)
        else "pictures"
        if type(record) is not ModuleTree
        else None
    )
    if field is not None:
        rows, dropped = _within(rows, field, pictures)
        if dropped:
            notes.append(f"{count_noun(dropped, 'picture')} left out: show one of them")
    return dataclasses.replace(record, rows=rows, notes=tuple(notes))


def _within(rows: Sequence[Any], field: str, budget: int) -> tuple[Sequence[Any], int]:
    """Keep pictures in order until their bytes are used up."""
    if isinstance(rows, LeafRows):
        return _leaves_within(rows, budget)
    used, dropped, out = 0, 0, None
    for i, row in enumerate(rows):
        held = getattr(row, field)
        if not held or isinstance(held, str):
            continue
        pictures = (held,) if isinstance(held, Picture) else held
        size = sum(len(p.data) for p in pictures)
        if used + size <= budget:
            used += size
            continue
        out = list(rows) if out is None else out
        out[i] = row._replace(**{field: None if isinstance(held, Picture) else ()})
        dropped += len(pictures)
    return (rows if out is None else out), dropped


def _leaves_within(rows: LeafRows, budget: int) -> tuple[LeafRows, int]:
    used, kept = 0, {}
    for i, held in rows.values.items():
        size = len(held.data) if isinstance(held, Picture) else 0
        if used + size <= budget:
            used, kept[i] = used + size, held
    return (rows if len(kept) == len(rows.values) else rows.with_values(kept)), len(
        rows.values
    ) - len(kept)
