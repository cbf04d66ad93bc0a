"""What a reader adds to a record: names of classes and tokens for its pictures, numbers that tint
its rows.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from nbmodule.base.format import count_noun, plain
from nbmodule.errors import ArgumentError
from nbmodule.views.records.records import ArrayCard, ModuleTree, Picture, ViewRecord
from nbmodule.views.records.variables import VariableTree


def with_labels(record: ViewRecord, labels: Sequence[str]) -> ViewRecord:
    """Write names at every picture that has as many bars, rows or columns.

    Args:
        record: Any record.
        labels: Names of classes or tokens.

    Returns:
        The record; where no picture fits it says so.

    Example:
        >>> import numpy as np
        >>> from nbmodule.views.builders.pytrees import array_card
        >>> with_labels(array_card(np.zeros(2)), ["cat", "dog"]).picture.labels
        ('cat', 'dog')
    """
    if not labels:
        return record
    names = tuple(plain(name, 40) for name in labels)
    if isinstance(record, ArrayCard):
        labeled = _labeled(record.picture, names)
        is_labeled, record = (
            labeled is not record.picture,
            dataclasses.replace(record, picture=labeled),
        )
    elif hasattr(record, "rows"):
        rows: Any = getattr(record, "rows", ())
        if isinstance(record, VariableTree):
            values = {i: _labeled(value, names) for i, value in record.columns.values.items()}
            is_labeled = any(values[i] is not value for i, value in record.columns.values.items())
            rows = record.columns.with_values(values)
        else:
            old, rows = rows, [_labeled_row(row, names) for row in rows]
            is_labeled = any(new is not row for new, row in zip(rows, old, strict=True))
        record = dataclasses.replace(record, rows=rows)  # type: ignore[call-arg]
    else:
        is_labeled = False
    if is_labeled:
        return record
    note = (
        f"{count_noun(len(names), 'label')} given, but no picture has as many bars, rows or columns"
    )
    return dataclasses.replace(record, notes=(*record.notes, note))


def _labeled_row(row: Any, names: tuple[str, ...]) -> Any:
    pictures = tuple(_labeled(picture, names) for picture in getattr(row, "pictures", ()))
    is_new = any(a is not b for a, b in zip(pictures, getattr(row, "pictures", ()), strict=True))
    return row._replace(pictures=pictures) if is_new else row


def _labeled(picture: Any, names: tuple[str, ...]) -> Any:
    if not isinstance(picture, Picture) or picture.kind == "text":
        return picture
    if any(note.startswith("mean of") for note in picture.notes):
        return picture
    sizes = picture.shape if picture.kind == "bars" else picture.shape[1:]
    return picture._replace(labels=names) if len(names) in sizes else picture


def with_colors(record: ViewRecord, color: Mapping[str, float]) -> ViewRecord:
    """Tint the rows of a tree by a number for each path.

    Raises:
        ArgumentError: if a path is not in the tree, or the record is no tree.
    """
    if not color:
        return record
    if not isinstance(record, ModuleTree | VariableTree):
        raise ArgumentError(f"color= tints the rows of a tree; found {type(record).__name__}.")
    if isinstance(record, VariableTree):
        rows = record.columns
        names = {name for i in range(len(rows)) for name in rows.spellings(i)}
    else:
        names = {row.path for row in record.rows}
    unknown = [path for path in color if path not in names]
    if unknown:
        near = ", ".join(sorted(names - {""})[:3])
        raise ArgumentError(
            f"color= names {plain(unknown[0])!r}, which is not in the tree; found for example "
            f"{near}."
        )
    return dataclasses.replace(
        record, color={path: float(number) for path, number in color.items()}
    )
