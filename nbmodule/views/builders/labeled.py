"""What a reader adds to a record: names of classes and tokens for its pictures, numbers that tint
its rows.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from nbmodule.base.format import count_noun, plain
from nbmodule.errors import ArgumentError
from nbmodule.views.records.records import ArrayCard, ModuleTree, Picture, Record, VariableTree


def with_labels(record: Record, labels: Sequence[str]) -> Record:
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
        found, record = labeled is not record.picture, dataclasses.replace(record, picture=labeled)
    elif hasattr(record, "rows"):
        field = "values" if isinstance(record, VariableTree) else "pictures"
        before: list[Any] = list(getattr(record, "rows", ()))
        rows = [_labeled_row(row, field, names) for row in before]
        found = any(new is not old for new, old in zip(rows, before, strict=True))
        record = dataclasses.replace(record, rows=rows)  # type: ignore[call-arg]
    else:
        found = False
    if found:
        return record
    note = (
        f"{count_noun(len(names), 'label')} given, but no picture has as many bars, rows or columns"
    )
    return dataclasses.replace(record, notes=(*record.notes, note))


def _labeled_row(row: Any, field: str, names: tuple[str, ...]) -> Any:
    held = getattr(row, field, None)
    if not held or isinstance(held, str):
        return row
    if isinstance(held, Picture):
        new = _labeled(held, names)
        return row if new is held else row._replace(**{field: new})
    made = tuple(_labeled(picture, names) for picture in held)
    return (
        row
        if all(a is b for a, b in zip(made, held, strict=True))
        else row._replace(**{field: made})
    )


def _labeled(picture: Any, names: tuple[str, ...]) -> Any:
    if (
        picture is None
        or picture.kind == "text"
        or any(note.startswith("mean of") for note in picture.notes)
    ):
        return picture
    sizes = picture.shape if picture.kind == "bars" else picture.shape[1:]
    return picture._replace(labels=names) if len(names) in sizes else picture


def with_colors(record: Record, color: Mapping[str, float]) -> Record:
    """Tint the rows of a tree by a number for each path.

    Raises:
        ArgumentError: if a path is not in the tree, or the record is no tree.
    """
    if not color:
        return record
    if not isinstance(record, ModuleTree | VariableTree):
        raise ArgumentError(
            f"color= tints the rows of a tree; found {type(record).__name__}. Nothing was displayed."
        )
    known = {row.path for row in record.rows}
    if isinstance(record, VariableTree):
        known |= {name for row in record.rows for name in (row.chain, row.chain.replace("/", "."))}
    unknown = [path for path in color if path not in known]
    if unknown:
        near = ", ".join(sorted(known - {""})[:3])
        raise ArgumentError(
            f"color= names {plain(unknown[0])!r}, which is not in the tree; found for example {near}. Nothing was displayed."
        )
    return dataclasses.replace(
        record, color={path: float(number) for path, number in color.items()}
    )
