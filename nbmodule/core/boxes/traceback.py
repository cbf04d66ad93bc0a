"""Tracebacks of the reader's lines: our frames and JAX's are taken out, by the setting by which JAX takes out its own."""

from __future__ import annotations

import contextlib
import functools
import os
import types
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import jax

from nbmodule.errors import NbModuleError

_OURS = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(__file__))), "")
_HIDDEN = (_OURS, os.path.join(os.path.dirname(jax.__file__), ""), contextlib.__file__)
P = ParamSpec("P")
R = TypeVar("R")


def shorten(error: BaseException) -> None:
    """Take the frames between the reader's lines out of an error's traceback; `JAX_TRACEBACK_FILTERING=off` keeps them.

    Where it was raised stays, if that is in this package and the error is none that it means to raise.
    """
    if jax.config.jax_traceback_filtering == "off":  # pyright: ignore[reportAttributeAccessIssue]
        return
    frames, trace = [], error.__traceback__
    while trace is not None:
        frames.append(trace)
        trace = trace.tb_next
    kept = None
    for each in reversed(frames):
        file = each.tb_frame.f_code.co_filename
        is_place = each is frames[-1] and file.startswith(_OURS) and not isinstance(error, NbModuleError)
        if is_place or not file.startswith(_HIDDEN):
            kept = types.TracebackType(kept, each.tb_frame, each.tb_lasti, each.tb_lineno)
    error.__traceback__ = kept


def shortened(fn: Callable[P, R]) -> Callable[P, R]:
    """Let the errors of `fn`, one of the ways into this package, show the reader's lines."""

    @functools.wraps(fn)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        __tracebackhide__ = True
        try:
            return fn(*args, **kwargs)
        except Exception as error:
            shorten(error)
            raise

    return call
