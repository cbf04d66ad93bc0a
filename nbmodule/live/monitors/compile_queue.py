"""Compile beside the training: one task at a time, in a thread of low priority.

A task that has not begun can be dropped. The exit of Python waits for the task that runs and drops
the others: jaxlib 0.10 aborts a process that ends while a thread compiles.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import time
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
        self._work: tuple[Callable[[], Any], Callable[[Any], Any]] | None = (begin, finish)
        self._result: Any = None
        self._done = threading.Event()
        thread = threading.Thread(target=self._run, name="nbmodule-compile", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # Python is shutting down, or the system has no thread left
            self._end()

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
        with _turns.changed:
            if _turns.running is not self:
                self._end()
                _turns.changed.notify_all()

    def _run(self) -> None:
        turns = _turns
        with turns.changed:
            turns.changed.wait_for(lambda: turns.running is None or self.is_done)
            if self.is_done or turns.are_over:
                self._end()
                return
            turns.running = self
        work, started, busy = self._work, time.perf_counter(), time.process_time()
        assert work is not None
        try:
            begun = work[0]()
            _lower_priority()
            self._result = work[1](begun)
        except BaseException as error:  # noqa: BLE001 - `result` raises it
            self.error = error
        finally:
            seconds = min(time.perf_counter() - started, time.process_time() - busy)
            with turns.changed:
                turns.running = None
                # XLA compiles in threads of its own
                turns.seconds += seconds
                self._end()
                turns.changed.notify_all()

    def _end(self) -> None:
        self._work = None
        self._done.set()


def take_compile_seconds() -> float:
    """Return the CPU time of the tasks that have ended since the last call."""
    seconds, _turns.seconds = _turns.seconds, 0.0
    return seconds


def is_computed(tree: object) -> bool:
    """Return True if no array of a PyTree is still being computed."""
    arrays: list[Any] = [leaf for leaf in jax.tree.leaves(tree) if isinstance(leaf, jax.Array)]
    # `is_ready` of a deleted array ends the process (jaxlib 0.10)
    return all(array.is_deleted() or array.is_ready() for array in arrays)


class _Turns:
    """Lets one task run at a time; others wait, each in its own thread."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.running: CompileTask | None = None
        self.are_over = False
        self.seconds = 0.0
        """CPU time of the tasks that have ended, at most; until a run counts it as its cost."""

    def close(self) -> None:
        """Drop the waiting tasks and wait for the running one."""
        with self.changed:
            self.are_over = True
            self.changed.wait_for(lambda: self.running is None)


_turns = _Turns()


def _lower_priority() -> None:
    """Lower the priority of this thread, on systems that can do so for one thread."""
    with contextlib.suppress(AttributeError, OSError):
        if os.uname().sysname == "Linux":
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)


def _renew_turns() -> None:
    """Forget the tasks of the parent process: a forked child has none of its threads."""
    global _turns
    _turns = _Turns()


atexit.register(lambda: _turns.close())
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_turns)
