"""Notices of a loop at its boundaries: non-finite numbers, and time spent compiling."""

from __future__ import annotations

import threading
from collections.abc import Callable

from jax import monitoring

from nbmodule.base.format import format_count
from nbmodule.base.jax_names import stop_listening
from nbmodule.live.run.state import RunState

_EVENT = "/jax/core/compile/backend_compile_duration"


class Alarms:
    """Reports once that something is not finite, and ends the loop where that is wanted.

    Args:
        run: The run; its `nonfinite` says what an alarm does.
        stop: Ends the loop, with the reason.
    """

    def __init__(self, run: RunState, stop: Callable[[str], None]) -> None:
        self._run, self._stop = run, stop
        self._reported: set[str] = set()

    def sound(self, quantity: str, text: str) -> None:
        """Report that a quantity is not finite, the first time."""
        run = self._run
        if run.nonfinite == "ignore" or quantity in self._reported:
            return
        self._reported.add(quantity)
        text = f"{text} (seen after step {format_count(run.count.done)}){self._cause()}"
        run.messages.add(run.count.done, "error", text, mark="not finite")
        if run.nonfinite == "stop" and not run.count.is_stopping:
            self._stop(text)

    def _cause(self) -> str:
        """Return where the numbers went wrong: an input of that step, or where to look."""
        run = self._run
        step = run.first_bad_step() or run.step_of(run.count.done)
        bad = run.bad_input(step)
        if bad is not None:
            return f"; {bad[1]} at step {format_count(bad[0])}"
        return f"; live.at({step}) shows where it began" if run.can_repeat else ""

    def forget(self) -> None:
        """After a rewind: alarms may sound again."""
        self._reported.clear()


class CompileClock:
    """Adds up the seconds that the thread of the loop spends in compiling.

    Example:
        >>> clock = CompileClock()
        >>> clock.start()
        >>> clock.stop()
        >>> clock.take()
        0.0
    """

    def __init__(self) -> None:
        self._seconds = 0.0
        self._thread = 0
        self._is_listening = False

    def start(self) -> None:
        """Start listening to JAX."""
        self.follow()
        monitoring.register_event_duration_secs_listener(self._add)
        self._is_listening = True

    def follow(self) -> None:
        """Count what this thread compiles from now on."""
        self._thread = threading.get_ident()

    def stop(self) -> None:
        """Stop listening."""
        if self._is_listening:
            self._is_listening = False
            stop_listening(self._add)

    def take(self) -> float:
        """Return the seconds since the last call."""
        seconds, self._seconds = self._seconds, 0.0
        return seconds

    def _add(self, event: str, duration_secs: float, **_: str | int) -> None:
        if event == _EVENT and threading.get_ident() == self._thread:
            self._seconds += duration_secs
