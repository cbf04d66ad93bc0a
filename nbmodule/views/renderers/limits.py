"""Keep a view within its share of a notebook: pictures are left out first, then rows, and the foot
line says so.
"""

from __future__ import annotations

import dataclasses
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
from nbmodule.views.records.variables import VariableRows, VariableTree, mapped_pictures

PICTURE_BYTES = 150_000
"""Bytes of picture data in one view, with the values of their cells; base64 makes a third more."""
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
        record = dataclasses.replace(record, rows=rows)  # type: ignore[call-arg]
    used = dropped = 0

    def within(picture: Picture) -> Picture | None:
        nonlocal used, dropped
        fits = used + picture.size <= pictures
        used, dropped = used + fits * picture.size, dropped + (not fits)
        return picture if fits else None

    record = mapped_pictures(record, within)
    if dropped:
        notes.append(f"{count_noun(dropped, 'picture')} left out: show one of them")
    return dataclasses.replace(record, notes=tuple(notes))
