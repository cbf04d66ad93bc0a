"""Observe some of the watched steps of a run for the rules of diagnosis, within a budget of time.

An observation compiles the step once more and then costs about one step. It is made at once if the
first step took less than two seconds, and otherwise as soon as a fiftieth of the run's time pays it.
"""

from __future__ import annotations

import time
from typing import Any

from nbmodule.live.diagnosis.examine import Examiner

AT_ONCE = 2.0
"""Seconds that an observation may take without waiting."""
SHARE = 0.02
"""Share of the run's time that longer observations may take together."""


class StepExaminer:
    """Decides which watched calls of compiled steps are observed.

    Args:
        model: A module; it is held weakly.
    """

    def __init__(self, model: Any) -> None:
        self.examiner = Examiner(model)
        self._first: float | None = None
        self._seconds: float | None = None
        self._spent = 0.0

    def observe(
        self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], step: int
    ) -> None:
        """Observe a call that is about to be made, if it is time; never raises."""
        if self.examiner.error:
            return
        now = time.perf_counter()
        if self._first is None:
            self._first = now  # this step compiles, and its time says what an observation costs
            return
        if self._seconds is None:
            self._seconds = now - self._first
        if not self.examiner.is_due(step):
            self.examiner.see_batch(function, args, kwargs)
            return
        may_spend = SHARE * (now - self._first)
        if self._seconds > AT_ONCE and self._spent + self._seconds > may_spend:
            return
        self.examiner.see_step(function, args, kwargs, step)
        self.examiner.see_batch(function, args, kwargs)
        self._seconds = time.perf_counter() - now
        self._spent += self._seconds
