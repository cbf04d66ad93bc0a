"""Pause the garbage collector of Python, and recognize errors that handlers of signals raise."""

from __future__ import annotations

import contextlib
import gc
import signal
import threading
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


# -- signals --
def is_of_signal(error: BaseException) -> bool:
    """Return True if the handler of a signal raised this.

    Example:
        >>> is_of_signal(ValueError())
        False
    """
    codes = {
        code
        for number in signal.valid_signals()
        if (code := _code_of(signal.getsignal(number))) is not None
    }
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code in codes:
            return True
        trace = trace.tb_next
    return False


def _code_of(handler: object) -> CodeType | None:
    """The code of a handler that is written in Python."""
    handler = getattr(handler, "func", handler)  # functools.partial
    of_class = vars(type(handler)).get("__call__")  # an instance that is called
    return getattr(handler, "__code__", None) or getattr(of_class, "__code__", None)
