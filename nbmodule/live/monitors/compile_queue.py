"""Compile beside the training: one task at a time, in a thread of low priority.

A task that has not begun starts no thread, so a run that closes can drop it. The exit of Python
waits for the task that runs and drops the others: jaxlib 0.10 aborts a process that ends while a
thread compiles.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import jax

_NICE = 10


class CompileTask:
    """A result that a background thread computes.

    Args:
        begin: First part, run at normal priority because it holds Python's lock. Its return is the
            argument of `finish`.
        finish: Long part, which releases Python's lock.

    Example:
        >>> square = CompileTask(lambda: 3, lambda x: x * x)
        >>> square.wait()
        9
    """

    def __init__(self, begin: Callable[[], Any], finish: Callable[[Any], Any]) -> None:
        self.error: BaseException | None = None
        """The exception that ended it, if it failed."""
        self.seconds = 0.0
        """Duration, without the time in the queue."""
        self._work: tuple[Callable[[], Any], Callable[[Any], Any]] | None = (begin, finish)
        self._result: Any = None
        self._done = threading.Event()
        _queue.add(self)

    @property
    def is_done(self) -> bool:
        """True if it ended, with a result, an error, or by `cancel`."""
        return self._done.is_set()

    @property
    def result(self) -> Any:
        """The result; None while it is computed.

        Raises:
            BaseException: The exception that ended the task.
        """
        if self.error is not None:
            raise self.error
        return self._result

    def wait(self) -> Any:
        """Wait for the result."""
        self._done.wait()
        return self.result

    def cancel(self) -> None:
        """Drop the task if it has not begun."""
        if _queue.drop(self):
            self._end()

    def _run(self) -> None:
        work, started, busy = self._work, time.perf_counter(), time.process_time()
        try:
            if work is not None:
                begun = work[0]()
                _lower_priority()
                self._result = work[1](begun)
        except BaseException as error:  # noqa: BLE001 - `result` raises it
            self.error = error
        finally:
            self.seconds = time.perf_counter() - started
            # XLA compiles in threads of its own
            _queue.seconds += min(self.seconds, time.process_time() - busy)
            self._end()

    def _end(self) -> None:
        self._work = None
        self._done.set()


def take_compile_seconds() -> float:
    """Return the CPU time of the tasks that have ended since the last call."""
    seconds, _queue.seconds = _queue.seconds, 0.0
    return seconds


def is_computed(tree: object) -> bool:
    """Return True if no array of a PyTree is still being computed."""
    arrays: list[Any] = [leaf for leaf in jax.tree.leaves(tree) if isinstance(leaf, jax.Array)]
    # `is_ready` of a deleted array ends the process (jaxlib 0.10)
    return all(array.is_deleted() or array.is_ready() for array in arrays)


class _Queue:
    """Waiting tasks and the one that runs, in a thread of its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[CompileTask] = deque()
        self._running: CompileTask | None = None
        self._is_closed = False
        self.seconds = 0.0
        """CPU time of the tasks that have ended, at most; until a run counts it as its cost."""

    def add(self, task: CompileTask) -> None:
        with self._lock:
            if not self._is_closed:
                self._waiting.append(task)
                self._start_next()
                return
        task._end()

    def drop(self, task: CompileTask) -> bool:
        """Remove a task; return False if it has begun."""
        with self._lock:
            was_waiting = task in self._waiting
            if was_waiting:
                self._waiting.remove(task)
        return was_waiting

    def close(self) -> None:
        """Drop the waiting tasks and wait for the running one."""
        with self._lock:
            self._is_closed = True
            waiting, self._waiting, running = self._waiting, deque(), self._running
        for task in waiting:
            task._end()
        if running is not None:
            running._done.wait()

    def _start_next(self) -> None:
        if self._running is None and self._waiting:
            self._running = task = self._waiting.popleft()
            thread = threading.Thread(
                target=self._work, args=(task,), name="nbmodule-compile", daemon=True
            )
            try:
                thread.start()
            except RuntimeError:  # Python is shutting down, or the system has no thread left
                self._running = None
                task._end()

    def _work(self, task: CompileTask) -> None:
        task._run()
        with self._lock:
            self._running = None
            self._start_next()


_queue = _Queue()


def _lower_priority() -> None:
    """Lower the priority of this thread, on systems that can do so for one thread."""
    with contextlib.suppress(AttributeError, OSError):
        if os.uname().sysname == "Linux":
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)


def _renew_queue() -> None:
    """Forget the tasks of the parent process: a forked child has none of its threads."""
    global _queue
    _queue = _Queue()


atexit.register(lambda: _queue.close())
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_queue)
