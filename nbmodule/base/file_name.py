"""What a user names a file or a folder by: text or a `pathlib.Path`, and nothing else."""

from __future__ import annotations

import os

from nbmodule.errors import ArgumentError, ArgumentTypeError


def file_name(path: object, act: str, done: str) -> str:
    """The name as text.

    Args:
        path: That a user gave.
        act: What is asked for, such as `save`, for errors.
        done: What did not happen, such as `written`, for errors.

    Raises:
        ArgumentTypeError: if it is bytes, an open file, or anything else that is no text.
        ArgumentError: if no file can have the name.

    Example:
        >>> from pathlib import Path
        >>> file_name(Path("runs") / "weights.h5", "save", "written")
        'runs/weights.h5'
    """
    name = os.fspath(path) if isinstance(path, (str, os.PathLike)) else path
    if not isinstance(name, str):
        cure = " `os.fsdecode` makes text of bytes." if isinstance(name, bytes) else ""
        raise ArgumentTypeError(
            f"cannot {act}: the name of a file is text or a pathlib.Path, found "
            f"{type(path).__name__}. Nothing was {done}.{cure}"
        )
    if "\0" in name or not name:
        what = "holds a NUL character" if name else "is empty"
        raise ArgumentError(f"cannot {act}: the name {name!r} {what}. Nothing was {done}.")
    return name
