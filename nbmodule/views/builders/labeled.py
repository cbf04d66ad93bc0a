"""What a reader adds to a record: names of classes and tokens for its pictures, numbers that tint
its rows.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from nbmodule.base.format import count_noun, plain
from nbmodule.errors import ArgumentError
from nbmodule.views.records.records import ModuleTree, Picture, ViewRecord
from nbmodule.views.records.variables import VariableTree, mapped_pictures


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
    names = tuple(plain(name, 40) for name in labels)
    labeled = mapped_pictures(record, lambda picture: _labeled(picture, names))
    if not names or labeled is not record:
        return labeled
    count = count_noun(len(names), "label")
    note = f"{count} given, but no picture has as many bars, rows or columns"
    return dataclasses.replace(record, notes=(*record.notes, note))


def _labeled(picture: Picture, names: tuple[str, ...]) -> Picture:
    is_reduced = any(note.startswith("mean of") for note in picture.notes)
    sizes = picture.shape if picture.kind == "bars" else picture.shape[1:]
    fits = picture.kind != "text" and not is_reduced and len(names) in sizes
    return picture._replace(labels=names) if fits else picture


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
