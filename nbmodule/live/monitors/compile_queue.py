"""Compile during the training: one task at a time, in a thread of low priority.

A task that has not begun can be cancelled. The exit of Python waits for the task that runs and
drops the others: jaxlib 0.10 aborts a process that ends while a thread compiles.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

import jax

_NICE = 10


class _Turn:
    """The lock that the running task holds, and the CPU time of those that have ended."""

    def __init__(self) -> None:
        self.lock, self.seconds = threading.Lock(), 0.0


_turn = _Turn()
if hasattr(os, "register_at_fork"):  # a child has none of the threads, and a lock that stays
    os.register_at_fork(after_in_child=_turn.__init__)


def compile_in_background(begin: Callable[[], Any], finish: Callable[[Any], Any]) -> Future[Any]:
    """Return the future result of a task in a background thread.

    Args:
        begin: First part, run at normal priority because it holds Python's lock. Its return is the
            argument of `finish`.
        finish: Long part, which releases Python's lock.

    Example:
        >>> compile_in_background(lambda: 3, lambda x: x * x).result()
        9
    """
    future: Future[Any] = Future()

    def work() -> None:
        with _turn.lock:
            is_exiting = not threading.main_thread().is_alive()
            if (is_exiting and future.cancel()) or not future.set_running_or_notify_cancel():
                return
            started, busy = time.perf_counter(), time.process_time()
            try:
                begun = begin()
                _lower_priority()
                future.set_result(finish(begun))
            except BaseException as error:  # noqa: BLE001 - `result` raises it
                future.set_exception(error)
            # at most: XLA compiles in threads of its own
            _turn.seconds += min(time.perf_counter() - started, time.process_time() - busy)

    # each has a thread of its own, which cannot raise its priority again
    threading.Thread(target=work, name="nbmodule-compile", daemon=False).start()
    return future


class Watcher:
    """A measurement of a model by functions that are compiled in the background.

    Attributes:
        about: Note for the footer of the view.
    """

    def __init__(self) -> None:
        self.about = ""
        self._compiled: dict[Any, Future[Any]] = {}

    @property
    def is_preparing(self) -> bool:
        """True if something is being compiled."""
        return not all(task.done() for task in self._compiled.values())

    def measure_last(self, step: int) -> Sequence[Any]:
        """Return samples of the end of the run; none, where steps are watched."""
        return ()

    def close(self) -> None:
        """Drop what was to be compiled."""
        for task in self._compiled.values():
            task.cancel()
        self._compiled.clear()


def take_compile_seconds() -> float:
    """Return the CPU time of the tasks that have ended since the last call."""
    seconds, _turn.seconds = _turn.seconds, 0.0
    return seconds


def is_computed(tree: object) -> bool:
    """Return True if no array of a PyTree is still being computed."""
    arrays: list[Any] = [leaf for leaf in jax.tree.leaves(tree) if isinstance(leaf, jax.Array)]
    # `is_ready` of a deleted array ends the process (jaxlib 0.10)
    return all(array.is_deleted() or array.is_ready() for array in arrays)


def _lower_priority() -> None:
    """Lower the priority of this thread, on the system that can do so for one thread."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
