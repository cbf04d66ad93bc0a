"""Additions of users to records: pictures for a kind of value or for places, names of classes and
tokens, numbers that tint rows.
"""

from __future__ import annotations

import dataclasses
import fnmatch
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nbmodule.base.format import count_noun, plain
from nbmodule.errors import ArgumentError, ArgumentTypeError
from nbmodule.views.arrays.pictures import picture_of, text_picture
from nbmodule.views.records.records import (
    ModuleTree,
    Picture,
    VariableTree,
    ViewRecord,
    mapped_pictures,
)

_pictures_by_type: dict[type, Callable[[Any], Any]] = {}
_pictures_by_path: dict[str, Callable[[Any], Any]] = {}


def view_for(kind: type | str, fn: Callable[[Any], Any] | None) -> None:
    """Add a picture for a kind of value: of a type, or at paths such as `blocks.*.attention`.

    It is drawn wherever such a value is shown: by itself, as the last value of a cell or by
    `nb.show`; as a leaf of a tree; as what a submodule returned.

    Args:
        kind: A class, or a path with `*`.
        fn: `fn(value)` gives a `Picture`, an array to be drawn, or a text; None takes the picture
            back.

    Example:
        >>> import numpy as np
        >>> view_for("encoder.*", lambda x: x[0])
        >>> picture_for(np.zeros((2, 3)), "encoder.mlp").shape
        (3,)
        >>> view_for("encoder.*", None)
    """
    if not isinstance(kind, type | str):
        raise ArgumentTypeError(f"view_for takes a class or a path, got {type(kind).__name__}")
    if fn is not None and not callable(fn):
        raise ArgumentTypeError(f"view_for takes a function of one value, got {type(fn).__name__}")
    table: dict[Any, Any] = _pictures_by_type if isinstance(kind, type) else _pictures_by_path
    if fn is None:
        table.pop(kind, None)
    else:
        table[kind] = fn


def picture_for(value: Any, path: str | None = None, **options: Any) -> Picture:
    """Draw a value: what a user added for its path or its class, else what suits an array; a
    failure is drawn as text.

    Args:
        value: Anything.
        path: Where it was found.
        options: Passed to `picture_of`.
    """
    try:
        return drawn_by_user(value, path) or picture_of(value, **options)
    except Exception as error:  # noqa: BLE001 - a display never breaks the cell
        reason = f"could not be drawn: {type(error).__name__}: {error}"
        return text_picture(type(value).__name__, reason)


def has_pictures() -> bool:
    """Return True if a user has registered a picture."""
    return bool(_pictures_by_type or _pictures_by_path)


def drawn_by_user(value: object, path: str | None = None) -> Picture | None:
    """The picture of a value that a user has given for its path or its class; None where there is
    none.
    """
    by_path = (f for glob, f in _pictures_by_path.items() if fnmatch.fnmatchcase(path or "", glob))
    classes = (cls for cls in type(value).__mro__ if cls in _pictures_by_type)
    fn = None if path is None else next(by_path, None)
    fn = fn or next((_pictures_by_type[cls] for cls in classes), None)
    if fn is None:
        return None
    name = type(value).__name__
    try:
        drawn = fn(value)
    except Exception as error:  # noqa: BLE001 - a display never breaks the cell
        return text_picture(name, f"view_for raised {type(error).__name__}: {error}")
    if isinstance(drawn, Picture):
        return drawn
    return text_picture(name, drawn) if isinstance(drawn, str) else picture_of(drawn)


# -- what a reader adds to a record --
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
    has_fitted = False

    def labeled(picture: Picture) -> Picture:
        nonlocal has_fitted
        is_reduced = any(note.startswith("mean of") for note in picture.notes)
        sizes = picture.shape if picture.kind == "bars" else picture.shape[1:]
        if picture.kind == "text" or is_reduced or len(names) not in sizes:
            return picture
        has_fitted = True
        return picture._replace(labels=names)

    record = mapped_pictures(record, labeled)
    if has_fitted or not names:
        return record
    count = count_noun(len(names), "label")
    note = f"{count} given, but no picture has as many bars, rows or columns"
    return dataclasses.replace(record, notes=(*record.notes, note))


def with_colors(record: ViewRecord, color: Mapping[str, float]) -> ViewRecord:
    """Tint the rows of a tree by a number for each path.

    Raises:
        ArgumentError: if a path is not in the tree, or the record is no tree.
    """
    if not color:
        return record
    if not isinstance(record, ModuleTree | VariableTree):
        raise ArgumentError(f"color= applies to the rows of a tree, got {type(record).__name__}.")
    if isinstance(record, VariableTree):
        names = {name for row in record.rows for name in row.spellings}
    else:
        names = {row.path for row in record.rows}
    unknown = [path for path in color if path not in names]
    if unknown:
        near = ", ".join(sorted(names - {""})[:3])
        raise ArgumentError(
            f"color= names {plain(unknown[0])!r}, which is not in the tree; the tree has {near}."
        )
    return dataclasses.replace(
        record, color={path: float(number) for path, number in color.items()}
    )
