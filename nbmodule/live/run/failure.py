"""Catches an exception of a user's function that runs beside the training, and says where in his
code it happened.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from nbmodule.base.format import shown
from nbmodule.base.source_lines import PACKAGE
from nbmodule.errors import NbModuleError


@dataclass(frozen=True)
class CaughtException:
    """An exception that was caught: what ran, the error in one line, and the line of code that
    raised it; no line where nbmodule itself refused something.
    """

    what: str
    error: str
    place: str
    code: str
    traceback: str

    @shown
    def __str__(self) -> str:
        if not self.place:
            return f"{self.what}: {self.error}"
        code = f": {self.code}" if self.code else ""
        return f"{self.what} raised {self.error} ({self.place}{code})"


def describe_caught(what: str, error: BaseException) -> CaughtException:
    """Find the innermost line outside of this package and of installed ones, in the traceback of an
    exception.

    Example:
        >>> try:
        ...     1 / 0
        ... except ZeroDivisionError as error:
        ...     failure = describe_caught('stop_when', error)
        >>> failure.error
        'ZeroDivisionError: division by zero'
    """
    frames = traceback.extract_tb(error.__traceback__)
    own = [
        f
        for f in frames
        if "site-packages" not in f.filename and not f.filename.startswith(PACKAGE)
    ]
    frame = (own or frames or [None])[-1]
    is_ours = isinstance(error, NbModuleError) and not own
    place = (
        ""
        if is_ours
        else (
            "no line is known"
            if frame is None
            else f"{_name_of(frame.filename)}, line {frame.lineno}"
        )
    )
    message = str(error).strip().splitlines()
    summary = f"{type(error).__name__}: {message[0]}" if message else type(error).__name__
    if is_ours and message:
        summary = message[0]
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    return CaughtException(what, summary, place, (frame.line or "") if frame else "", text)


def guard(
    what: str, function: Callable[..., Any], *arguments: object
) -> tuple[Any, CaughtException | None]:
    """Call a function; give its value and None, or None and its failure."""
    try:
        return function(*arguments), None
    except Exception as error:  # noqa: BLE001 - a user's function may raise anything
        return None, describe_caught(what, error)


def _name_of(filename: str) -> str:
    """Name a cell by its number, a file by its last two parts."""
    if filename.startswith("<"):
        return filename.strip("<>")
    try:
        from IPython import get_ipython

        kind, name = get_ipython().compile.format_code_name(filename)
        return f"{kind.lower()} {name}"
    except (ImportError, AttributeError, TypeError):
        return "/".join(filename.replace(os.sep, "/").split("/")[-2:])
