"""Work that is done beside the training: compiling, in threads of low priority, one after the other, the most wanted first.

A process that ends while a thread compiles is aborted by the compiler (jaxlib 0.10), so the end of Python waits for the one
that is at it and lets no other begin.
"""

from __future__ import annotations

import atexit
import contextlib
import heapq
import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

_NICE = 10
_over = threading.Event()


class _Turns:
    """Who is at work: one at a time, and of those who wait the one of the lowest rank, then the one who came first."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: list[tuple[int, int]] = []
        self._numbers = itertools.count()
        self._is_taken = False

    @contextlib.contextmanager
    def turn(self, rank: int) -> Iterator[None]:
        with self._changed:
            mine = (rank, next(self._numbers))
            heapq.heappush(self._waiting, mine)
            self._changed.wait_for(lambda: not self._is_taken and self._waiting[0] == mine)
            heapq.heappop(self._waiting)
            self._is_taken = True
        try:
            yield
        finally:
            with self._changed:
                self._is_taken = False
                self._changed.notify_all()


_turns = _Turns()


class Aside:
    """A result that is being made in a thread.

    Args:
        begin: What comes first, at normal priority, since it holds Python's lock; it gives what `finish` is called with.
        finish: The long part, which leaves Python alone.
        rank: Of several that wait, that of the lowest rank comes first.

    Example:
        >>> square = Aside(lambda: 3, lambda x: x * x)
        >>> square.wait()
        9
    """

    def __init__(self, begin: Callable[[], Any], finish: Callable[[Any], Any], rank: int = 0) -> None:
        self.error: BaseException | None = None
        """What ended it, if it failed."""
        self.seconds = 0.0
        """How long it took, without the time in which it waited for its turn."""
        self._result: Any = None
        self._done = threading.Event()
        threading.Thread(target=self._work, args=(begin, finish, rank), name="nbmodule-aside", daemon=True).start()

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

    def _work(self, begin: Callable[[], Any], finish: Callable[[Any], Any], rank: int) -> None:
        try:
            with _turns.turn(rank):
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
    with _turns.turn(-1):
        pass


def _begin_anew() -> None:
    """In a forked child nobody is at work, whoever was in its parent: none of its threads has come along."""
    global _turns
    _turns = _Turns()


atexit.register(_end)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)
