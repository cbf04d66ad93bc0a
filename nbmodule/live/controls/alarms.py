"""Says once that something is not finite, and ends the loop where that is wanted."""

from __future__ import annotations

from collections.abc import Callable

from nbmodule.base.format import format_count
from nbmodule.live.run.state import RunState


class Alarms:
    """The alarms of one run.

    Args:
        run: The run; its `nonfinite` says what an alarm does.
        stop: Ends the loop, with the reason.
    """

    def __init__(self, run: RunState, stop: Callable[[str], None]) -> None:
        self._run, self._stop = run, stop
        self._told: set[str] = set()

    def sound(self, what: str, text: str) -> None:
        """Say that something is not finite, the first time that it is."""
        run = self._run
        if run.nonfinite == "ignore" or what in self._told:
            return
        self._told.add(what)
        told = f"{text} (seen after step {format_count(run.count.done)}){self._cause()}"
        run.messages.add(run.count.done, "error", told, mark="not finite")
        if run.nonfinite == "stop" and not run.count.is_stopping:
            self._stop(told)

    def _cause(self) -> str:
        """Return where to look: the step at which the numbers went wrong, and its input if that is
        to blame.
        """
        run = self._run
        step = run.first_bad_step() or run.step_of(run.count.done)
        for number in (step - 1, step):
            fault = run.nonfinite_input(number) if number > 0 else ""
            if fault:
                return f"; {fault} at step {format_count(number)}"
        return f"; live.at({step}) shows where it began" if run.can_repeat else ""

    def forget(self) -> None:
        """After a rewind: what was told of steps that are left behind may be told again."""
        self._told.clear()
