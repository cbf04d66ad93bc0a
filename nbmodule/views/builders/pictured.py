"""Pictures that users give for a kind of value, or for places: where such a value is shown, theirs
is drawn.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable
from typing import Any

from nbmodule.errors import ArgumentTypeError
from nbmodule.views.arrays.pictures import picture_of, text_picture
from nbmodule.views.records.records import Picture

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
        raise ArgumentTypeError(f"view_for takes a class or a path, not {type(kind).__name__}")
    if fn is not None and not callable(fn):
        raise ArgumentTypeError(f"view_for takes a function of one value, not {type(fn).__name__}")
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
        return text_picture(
            type(value).__name__, f"could not be drawn: {type(error).__name__}: {error}"
        )


def has_pictures() -> bool:
    """Return True if a user has registered a picture."""
    return bool(_pictures_by_type or _pictures_by_path)


def drawn_by_user(value: Any, path: str | None = None) -> Picture | None:
    """The picture of a value that a user has given for its path or its class; None where there is
    none.
    """
    if not has_pictures():
        return None
    fn = next(
        (
            f
            for pattern, f in _pictures_by_path.items()
            if path is not None and fnmatch.fnmatchcase(path, pattern)
        ),
        None,
    )
    fn = fn or next(
        (_pictures_by_type[cls] for cls in type(value).__mro__ if cls in _pictures_by_type), None
    )
    if fn is None:
        return None
    try:
        drawn = fn(value)
    except Exception as error:  # noqa: BLE001 - a display never breaks the cell
        return text_picture(
            type(value).__name__, f"view_for raised {type(error).__name__}: {error}"
        )
    if isinstance(drawn, Picture):
        return drawn
    return (
        text_picture(type(value).__name__, drawn) if isinstance(drawn, str) else picture_of(drawn)
    )
