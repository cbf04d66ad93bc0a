"""Tracebacks of the reader's lines: our frames and JAX's are taken out, by the setting by which JAX
takes out its own.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import types
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import jax

from nbmodule.errors import NbModuleError

PACKAGE = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(__file__))), "")
_HIDDEN = (PACKAGE, os.path.join(os.path.dirname(jax.__file__), ""), contextlib.__file__)
_LIBRARIES = {"nbmodule", "jax", "jaxtyping", "functools", "contextlib"}
P = ParamSpec("P")
R = TypeVar("R")


def is_hidden(file: str) -> bool:
    """Return True for files of this package and of JAX, which tracebacks leave out."""
    return file.startswith(_HIDDEN)


def shorten(error: BaseException) -> None:
    """Take the frames between the reader's lines out of an error's traceback;
    `JAX_TRACEBACK_FILTERING=off` keeps them.

    Where it was raised stays, if that is in this package and the error is none that it means to
    raise.
    """
    if jax.config.jax_traceback_filtering == "off":  # pyright: ignore[reportAttributeAccessIssue]
        return
    frames, trace = [], error.__traceback__
    while trace is not None:
        frames.append(trace)
        trace = trace.tb_next
    retained = None
    for item in reversed(frames):
        file = item.tb_frame.f_code.co_filename
        is_place = (
            item is frames[-1] and file.startswith(PACKAGE) and not isinstance(error, NbModuleError)
        )
        if is_place or not file.startswith(_HIDDEN):
            retained = types.TracebackType(retained, item.tb_frame, item.tb_lasti, item.tb_lineno)
    error.__traceback__ = retained


def level_of_user_code() -> int:
    """Return the `stacklevel` of a warning that is to name a line of the user's."""
    frame, level = sys._getframe(1), 1
    while (
        frame is not None and str(frame.f_globals.get("__name__")).partition(".")[0] in _LIBRARIES
    ):
        frame, level = frame.f_back, level + 1
    return level


def shortened(fn: Callable[P, R]) -> Callable[P, R]:
    """Let the errors of `fn`, one of the ways into this package, show the reader's lines."""

    @functools.wraps(fn)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return fn(*args, **kwargs)
        except Exception as error:
            shorten(error)
            raise

    return call
