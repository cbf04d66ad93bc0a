"""Work that is done beside the training: compiling, in threads of low priority, one after the other.

A process that ends while a thread compiles is aborted by the compiler (jaxlib 0.10), so the end of Python waits for the one
that is at it and lets no other begin.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import time
from collections.abc import Callable
from typing import Any

_NICE = 10
_turn = threading.Lock()
_over = threading.Event()


class Aside:
    """A result that is being made in a thread.

    Args:
        begin: What comes first, at normal priority, since it holds Python's lock; it gives what `finish` is called with.
        finish: The long part, which leaves Python alone.

    Example:
        >>> square = Aside(lambda: 3, lambda x: x * x)
        >>> square.wait()
        9
    """

    def __init__(self, begin: Callable[[], Any], finish: Callable[[Any], Any]) -> None:
        self.error: BaseException | None = None
        """What ended it, if it failed."""
        self.seconds = 0.0
        """How long it took, without the time in which it waited for its turn."""
        self._result: Any = None
        self._done = threading.Event()
        threading.Thread(target=self._work, args=(begin, finish), name="nbmodule-aside", daemon=True).start()

    @property
    def is_done(self) -> bool:
        """Whether it is over, with a result or an error."""
        return self._done.is_set()

    @property
    def result(self) -> Any:
        """The result; None while it is being made.

        Raises:
            BaseException: what ended it.
        """
        if self.error is not None:
            raise self.error
        return self._result

    def wait(self) -> Any:
        """Wait for the result."""
        self._done.wait()
        return self.result

    def _work(self, begin: Callable[[], Any], finish: Callable[[Any], Any]) -> None:
        try:
            with _turn:
                started = time.perf_counter()
                if not _over.is_set():
                    begun = begin()
                    _give_way()
                    self._result = finish(begun)
                self.seconds = time.perf_counter() - started
        except BaseException as error:  # noqa: BLE001 - raised where the result is asked for
            self.error = error
        finally:
            self._done.set()


def _give_way() -> None:
    """Give this thread a low priority, where that can be done for one thread: the training comes first."""
    with contextlib.suppress(AttributeError, OSError):
        if os.uname().sysname == "Linux":
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)


def _end() -> None:
    _over.set()
    with _turn:
        pass


atexit.register(_end)
