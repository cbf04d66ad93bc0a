"""Tracebacks without the frames that lie between the reader's lines: ours as JAX hides its own, and by the same setting."""

from __future__ import annotations

import os
import types

import jax

_CORE = os.path.join(os.path.dirname(os.path.dirname(__file__)), "")


def shorten(error: BaseException) -> None:
    """Take the frames of this room out of an error's traceback, but for the outermost; `JAX_TRACEBACK_FILTERING=off` keeps them."""
    if jax.config.jax_traceback_filtering == "off":  # pyright: ignore[reportAttributeAccessIssue]
        return
    frames, trace = [], error.__traceback__
    while trace is not None:
        frames.append(trace)
        trace = trace.tb_next
    kept = None
    for number, each in reversed(list(enumerate(frames))):
        if number == 0 or number == len(frames) - 1 or not each.tb_frame.f_code.co_filename.startswith(_CORE):
            kept = types.TracebackType(kept, each.tb_frame, each.tb_lasti, each.tb_lineno)
    error.__traceback__ = kept
