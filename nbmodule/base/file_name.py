"""Names of files and folders: a str or a `pathlib.Path`."""

from __future__ import annotations

import os

from nbmodule.errors import ArgumentError, ArgumentTypeError


def file_name(path: object, act: str) -> str:
    """Return the name as text.

    Args:
        path: A name from a user.
        act: The attempted action, such as `save`, for errors.

    Raises:
        ArgumentTypeError: The name is bytes, an open file, or another type.
        ArgumentError: The name is empty or holds a NUL character.

    Example:
        >>> from pathlib import Path
        >>> file_name(Path("runs") / "weights.h5", "save")
        'runs/weights.h5'
    """
    name = os.fspath(path) if isinstance(path, (str, os.PathLike)) else path
    if not isinstance(name, str):
        cure = " `os.fsdecode` makes text of bytes." if isinstance(name, bytes) else ""
        raise ArgumentTypeError(
            f"cannot {act}: the name of a file is text or a pathlib.Path, found "
            f"{type(path).__name__}.{cure}"
        )
    if "\0" in name or not name:
        what = "holds a NUL character" if name else "is empty"
        raise ArgumentError(f"cannot {act}: the name {name!r} {what}.")
    return name
