"""Whether an exception came of a signal: a limit of time, say, whose handler raises wherever the
program is just then.

Where an exception of somebody else's code is met by going on in another way, one of a signal still
has to end the program.
"""

from __future__ import annotations

import signal
from types import CodeType


def is_of_signal(error: BaseException) -> bool:
    """Whether the handler of a signal raised this.

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
