"""Keep a view within its share of a notebook: pictures are left out first, then rows, and the foot
line says so.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from nbmodule.base.format import count_noun
from nbmodule.views.records.records import (
    CallTable,
    ComparisonTable,
    DifferenceTree,
    ModuleTree,
    Picture,
    ReturnTable,
    ViewRecord,
)
from nbmodule.views.records.variables import VariableRows, VariableTree

PICTURE_BYTES = 150_000
"""Bytes of picture data in one view; base64 makes a third more of them."""
MOST_ROWS: dict[type, int] = {
    VariableTree: 100_000,
    ModuleTree: 20_000,
    CallTable: 20_000,
    ComparisonTable: 20_000,
    ReturnTable: 500,
    DifferenceTree: 50_000,
}


def fitted(record: ViewRecord, pictures: int = PICTURE_BYTES) -> ViewRecord:
    """Leave out what would make a view too large.

    Args:
        record: Any record.
        pictures: Bytes that its pictures may have.

    Example:
        >>> from nbmodule.views.records.variables import VariableRow
        >>> tree = VariableTree("v", [VariableRow(f"w{i}") for i in range(100_001)])
        >>> fitted(tree).notes
        ('1 row left out: ask for a part',)
    """
    most = MOST_ROWS.get(type(record))
    if most is None:
        return record
    rows: Any = getattr(record, "rows", ())
    notes = list(record.notes)
    if len(rows) > most:
        notes.append(f"{count_noun(len(rows) - most, 'row')} left out: ask for a part")
        rows = rows.first(most) if isinstance(rows, VariableRows) else rows[:most]
    if type(record) is not ModuleTree:
        rows, dropped = _within(rows, pictures)
        if dropped:
            notes.append(f"{count_noun(dropped, 'picture')} left out: show one of them")
    return dataclasses.replace(record, rows=rows, notes=tuple(notes))  # type: ignore[call-arg]


def _within(rows: Any, budget: int) -> tuple[Sequence[Any], int]:
    """Drop the pictures that exceed a budget of bytes, and count them."""
    is_columns = isinstance(rows, VariableRows)
    values = rows.values if is_columns else {i: row.pictures for i, row in enumerate(rows)}
    used, dropped = 0, {}
    for i, value in values.items():
        pictures = (value,) if isinstance(value, Picture) else () if is_columns else value
        size = sum(len(picture.data) for picture in pictures)
        if used + size > budget:
            dropped[i] = len(pictures)
        else:
            used += size
    if not dropped:
        return rows, 0
    if is_columns:
        rows = rows.with_values({i: v for i, v in values.items() if i not in dropped})
    else:
        rows = [r._replace(pictures=()) if i in dropped else r for i, r in enumerate(rows)]
    return rows, sum(dropped.values())
