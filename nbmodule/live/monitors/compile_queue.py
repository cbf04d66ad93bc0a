"""Compile beside the training: one task at a time, in a thread of low priority.

A task that has not begun can be cancelled. The exit of Python waits for the task that runs and
drops the others: jaxlib 0.10 aborts a process that ends while a thread compiles.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import jax

_NICE = 10


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
    with _queue.lock:
        _queue.waiting.append((future, begin, finish))
        if _queue.thread is None:
            _queue.begin_next()
    return future


class _Queue:
    """The tasks that wait, and the thread of the one that runs."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.waiting: deque[tuple[Future[Any], Callable[[], Any], Callable[[Any], Any]]] = deque()
        self.thread: threading.Thread | None = None
        self.seconds = 0.0
        """CPU time of the tasks that have ended, at most; until a run counts it as its cost."""

    def begin_next(self) -> None:
        """Begin the next task, if there is one; called with the lock.

        Each has a thread of its own, which cannot raise its priority again.
        """
        self.thread = None
        while self.waiting and self.thread is None:
            task = self.waiting.popleft()
            if task[0].set_running_or_notify_cancel():
                self.thread = threading.Thread(
                    target=self._run, args=task, name="nbmodule-compile", daemon=True
                )
                self.thread.start()

    def _run(
        self, future: Future[Any], begin: Callable[[], Any], finish: Callable[[Any], Any]
    ) -> None:
        started, busy = time.perf_counter(), time.process_time()
        try:
            begun = begin()
            _lower_priority()
            future.set_result(finish(begun))
        except BaseException as error:  # noqa: BLE001 - `result` raises it
            future.set_exception(error)
        # XLA compiles in threads of its own
        seconds = min(time.perf_counter() - started, time.process_time() - busy)
        with self.lock:
            self.seconds += seconds
            self.begin_next()


_queue = _Queue()


def take_compile_seconds() -> float:
    """Return the CPU time of the tasks that have ended since the last call."""
    seconds, _queue.seconds = _queue.seconds, 0.0
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


def _wait_for_thread() -> None:
    with _queue.lock:
        _queue.waiting.clear()
        thread = _queue.thread
    if thread is not None:
        thread.join()


def _renew_queue() -> None:
    """Forget the tasks of the parent process: a forked child has none of its threads."""
    global _queue
    _queue = _Queue()


atexit.register(_wait_for_thread)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_queue)
