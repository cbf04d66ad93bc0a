"""Turn the first interrupt of a loop into a request to end at the next step boundary, and the
second into a hard one.

A signal is handled between any two bytecodes of the main thread. These rules follow. Inside a
`shield` (the bookkeeping at a boundary) no interrupt is raised; it waits for the end of the shield.
A step needs no shield: it writes variables as one act (`core/variables/commit.py`). The first
interrupt is soft only while the frame that iterates is on the stack: a loop that was left without
being closed, because a variable holds it, must not swallow the interrupt of something else.
Everything else goes to the handler that was there before.
"""

from __future__ import annotations

import inspect
import signal
import threading
from types import FrameType
from typing import Any, ClassVar


class shield:
    """Hold back interrupts of our loops while a block runs; they take effect when it ends.

    Does nothing in other threads, where no signal is ever raised, and for blocks outside of a loop.

    Example:
        >>> with shield():
        ...     pass
    """

    __slots__ = ("_counts",)
    depth: ClassVar[int] = 0
    """Number of shields around the main thread."""
    waiting: ClassVar[Any] = None
    """The function for the interrupt that waits for their end; None for none."""

    def __enter__(self) -> None:
        self._counts = threading.current_thread() is threading.main_thread()
        if self._counts:
            shield.depth += 1

    def __exit__(self, *_: object) -> None:
        if not self._counts:
            return
        shield.depth -= 1
        if shield.depth == 0 and shield.waiting is not None:
            waiting, shield.waiting = shield.waiting, None
            waiting()


class SoftInterrupt:
    """The interrupt key while a loop runs.

    Use it as a context manager around the loop. `pressed` becomes true at the first interrupt; the
    loop looks at it at its boundaries and calls `take`. Nested ones share the outermost. Outside
    the main thread it does nothing, and neither does it where interrupts are ignored.

    Example:
        >>> with SoftInterrupt() as interrupt:
        ...     interrupt.pressed
        False
    """

    _current: SoftInterrupt | None = None

    def __init__(self) -> None:
        self.pressed = False
        self.active = False
        self._owner: FrameType | None = None
        self._previous: Any = None

    def __enter__(self) -> SoftInterrupt:
        if threading.current_thread() is not threading.main_thread():
            return self
        outer = SoftInterrupt._current
        if outer is not None and outer._is_on_stack(inspect.currentframe()):
            return outer
        previous = signal.getsignal(signal.SIGINT)
        if previous is signal.SIG_IGN or previous is None:
            return self
        if outer is not None:
            outer._restore()
            previous = signal.getsignal(signal.SIGINT)
        self._previous, self._owner = previous, _iterating_frame()
        self.active, SoftInterrupt._current = True, self
        signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        self._restore()

    def take(self) -> None:
        """Raise the interrupt that was pressed, at a boundary."""
        __tracebackhide__ = True
        self.pressed = False
        raise KeyboardInterrupt("stopped between two steps")

    def _restore(self) -> None:
        if not self.active:
            return
        self.active, self._owner = False, None
        if SoftInterrupt._current is self:
            SoftInterrupt._current = None
        if signal.getsignal(signal.SIGINT) == self._handle:
            signal.signal(signal.SIGINT, self._previous)

    def _is_on_stack(self, frame: FrameType | None) -> bool:
        while frame is not None:
            if frame is self._owner:
                return True
            frame = frame.f_back
        return False

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if not self._is_on_stack(frame):
            self._restore()
            self._pass_on(number, frame)
        elif not self.pressed:
            self.pressed = True
        elif shield.depth:
            shield.waiting = lambda: self._pass_on(number, None)
        else:
            self._pass_on(number, frame)

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        """Do what an interrupt would have done without us; where that was nothing of Python's,
        raise.
        """
        if callable(self._previous):
            self._previous(number, frame)
        elif self._previous is signal.SIG_DFL:
            raise KeyboardInterrupt


def _iterating_frame() -> FrameType | None:
    """Find the frame whose `for` statement drives us: the nearest one that is no generator and not
    in this package.
    """
    frame = inspect.currentframe()
    while frame is not None:
        ours = frame.f_globals.get("__name__", "").startswith("nbmodule.")
        if not ours and not frame.f_code.co_flags & inspect.CO_GENERATOR:
            return frame
        frame = frame.f_back
    return None
