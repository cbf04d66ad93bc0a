"""Python itself: its garbage collector, the recursion limit, and signals."""

from __future__ import annotations

import contextlib
import gc
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from types import CodeType

_lock = threading.Lock()
_users = 0
_was_enabled = False


@contextlib.contextmanager
def collector_paused() -> Iterator[None]:
    """Pause the collector within a block; several threads may do so at once.

    Making 10,000 arrays starts it dozens of times, which takes as long as the work itself. Objects
    without cycles are freed as always.

    Example:
        >>> import gc
        >>> from nbmodule.base.interpreter import collector_paused
        >>> with collector_paused():
        ...     gc.isenabled()
        False
        >>> gc.isenabled()
        True
    """
    global _users, _was_enabled
    with _lock:
        if not _users:
            _was_enabled = gc.isenabled()
            gc.disable()
        _users += 1
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if not _users and _was_enabled:
                gc.enable()


# -- depth --
# Python stops at a thousand calls within each other. A chain of a thousand modules is no runaway
# recursion, so whoever meets one asks here for more room, once, at most what the stack bears. The
# limit is never lowered again: other threads may be in the middle of such a chain.
SHALLOW = 100
"""Levels that Python allows anyway."""
_CALLS = 5
"""Calls within each other for one level: a module's entry, what surrounds it, and its forward."""
_BYTES = 1400
"""Of the stack for one call through C, with some to spare (measured: 1,000)."""


def allow(levels: int) -> None:
    """Raise Python's recursion limit for objects nested that deep, as far as the stack allows.

    Example:
        >>> allow(3)
    """
    if levels <= SHALLOW:
        return
    expected = min(1000 + _CALLS * levels, _most())
    if sys.getrecursionlimit() < expected:
        sys.setrecursionlimit(expected)


def _most() -> int:
    """Return how many calls the stack allows."""
    try:
        import resource
    except ImportError:  # Windows: the stack of a program is fixed when it is built, and small
        return 0
    size = resource.getrlimit(resource.RLIMIT_STACK)[0]
    return (8 << 20 if size == resource.RLIM_INFINITY else size) // _BYTES


# -- signals --
def is_of_signal(error: BaseException) -> bool:
    """Return True if the handler of a signal raised this.

    Example:
        >>> is_of_signal(ValueError())
        False
    """
    codes = {_code_of(signal.getsignal(number)) for number in signal.valid_signals()}
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    return any(frame.f_code in codes for frame in frames)


def _code_of(handler: object) -> CodeType | None:
    """Return the code of a handler that is written in Python."""
    handler = getattr(handler, "func", handler)  # functools.partial
    of_class = vars(type(handler)).get("__call__")  # an instance that is called
    return getattr(handler, "__code__", None) or getattr(of_class, "__code__", None)
