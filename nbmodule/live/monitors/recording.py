"""Let a recorder keep the steps of a run under their numbers, and show what it keeps.

A recorder returns a context for each step: `recorder.step(number)`. A loop of the user cannot stand
in a `with` of ours, so the context is entered before a step and left after it; an exception that
ends the step reaches it when the run is over. What was recorded is read some steps later, so that
no step waits for it.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from nbmodule.base.statistics import Statistics
from nbmodule.live.run.messages import CaughtException, guard
from nbmodule.live.run.state import RunState
from nbmodule.live.run.strips import MOST_ROWS, Sample, grouped, one_each

_READ_AFTER = 2
"""Steps after which a recorded step is read."""


class Recording:
    """The recorder of one run."""

    def __init__(self, run: RunState, recorder: object) -> None:
        self._run = run
        self._recorder: Any = recorder
        self._first = int(getattr(recorder, "next", 0))
        self._every = int(getattr(recorder, "every", 1))
        self._open: Any = None
        self._unread: deque[int] = deque(maxlen=8)

    def begin(self, step: int) -> None:
        """Enter the context of a step, if the step is recorded."""
        self.end()  # of a step that was left by `break`
        number = self._first + step
        if self._recorder is None or number % self._every:
            return
        context = self._recorder.step(number)
        if not self._failed(guard("the recorder", context.__enter__)[1]):
            self._open = context
            self._unread.append(number)

    def end(self, error: BaseException | None = None) -> None:
        """Leave the context of the step, with the exception that ended it if there was one."""
        context, self._open = self._open, None
        if context is None:
            return
        if error is None:
            self._failed(guard("the recorder", context.__exit__, None, None, None)[1])
            return
        try:
            context.__exit__(type(error), error, error.__traceback__)
        except BaseException as raised:  # noqa: BLE001 - a context may raise what it was handed
            if raised is not error and isinstance(raised, Exception):
                self._run.messages.add(self._run.step, "error", f"the recorder raised {raised}")

    def take(self, step: int) -> list[Sample]:
        """Return the statistics of steps that were recorded a while ago."""
        samples: list[Sample] = []
        recorder = self._recorder
        has_statistics = getattr(recorder, "returns", None) in ("stats", "exact stats")
        while self._unread and self._unread[0] + _READ_AFTER <= self._first + step:
            number = self._unread.popleft()
            if has_statistics and number in recorder:
                samples += samples_of(recorder[number], number - self._first)
        return samples

    def _failed(self, failure: CaughtException | None) -> bool:
        """Report a failure once, and record no more: the training goes on."""
        if failure is None:
            return False
        self._run.messages.add_failure(self._run.step, failure)
        self._recorder = self._open = None
        return True


def samples_of(calls: Any, step: int) -> list[Sample]:
    """Return rows of statistics of the calls of a step: of the first return of each submodule, and
    of the gradients of its parameters, or of its return if there are none.
    """
    returns: dict[str, Statistics] = {}
    gradients: dict[str, Statistics] = {}
    for call in calls:
        for rows, parts in ((returns, call.statistics), (gradients, call.gradient_statistics)):
            parts = parts if isinstance(parts, list) else [parts]
            first = next((s for s in parts if s is not None), None)
            if call.path and first is not None and len(rows) < MOST_ROWS:
                rows.setdefault(call.path, first)
    samples = [one_each(step, "return", returns)] if returns else []
    of_parameters = {
        name: s for name, s in getattr(calls, "gradients", {}).items() if isinstance(s, Statistics)
    }
    if of_parameters:
        values = list(of_parameters.values())
        samples.append(grouped(step, "gradient", list(of_parameters), values))
    elif gradients:
        samples.append(one_each(step, "gradient", gradients))
    return samples
