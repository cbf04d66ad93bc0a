"""Decides when the watchers of a run may measure, and keeps what they bring."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np

from nbmodule.live.controls.loop import Loop
from nbmodule.live.monitors.sources import GivenArrays, module_of, named, source_of, why_not
from nbmodule.live.monitors.weights import WeightWatch
from nbmodule.live.run.cost import Pace
from nbmodule.live.run.failure import describe_caught, guard
from nbmodule.live.run.state import RunState
from nbmodule.live.run.watch import FIELDS, Sample, Strips, Watcher, find_watches

LEVELS = ("all", "weights")
"""What may be watched: weights, gradients and returns, or the weights alone."""
_LEAST, _MOST = 0.25, 60.0
"""Seconds between two measurements."""
_STEPS = 3
"""Steps of one measurement."""
_BAD = FIELDS.index("nonfinite")


class Sampling:
    """The watchers of one run.

    The first step is watched as well, so that what has to be compiled begins as soon as it is over.
    Later a measurement spans three steps: a plain one, the one that is watched, and the one beside
    which the device reduces what was remembered. How much longer the last two take than the first,
    and the time on the host, is what watching costs; the next measurement waits until that is
    within the budget.

    Args:
        run: The run.
        loop: Its loop, which is asked to look soon and to run a step in a context.
        returns: None if the model is not to be watched.
        recorded: Gives the statistics that a recorder has kept since it was asked last.
        alarm: Called with what is not finite, and with a sentence.
    """

    def __init__(
        self,
        run: RunState,
        loop: Loop,
        returns: str | None,
        *,
        recorded: Callable[[int], list[Sample]],
        alarm: Callable[[str, str], None],
    ) -> None:
        self._run, self._loop, self._level = run, loop, returns and LEVELS[0]
        self._recorded, self._alarm = recorded, alarm
        self.given = GivenArrays()
        self._pace = Pace(run.budget / 2, least=_LEAST, most=_MOST)
        self._next = 0.0
        self._phase = self._done = 0
        self._mark = self._host = 0.0
        self._lasted: list[float] = []
        self._slower: deque[float] = deque(maxlen=5)
        """By how much the last watched steps were."""
        self._warm = self._has_asked = False

    def add_control(self) -> None:
        """Let the reader choose what is watched."""
        model = self._run.model
        if self._level is None or (model is None and not self.given):
            return
        if not self.given and source_of(model) is None:
            self._run.unwatched = why_not(model)
            return
        choices = LEVELS if module_of(model) is not None else LEVELS[1:]
        self._level = self._level if self._level in choices else choices[0]
        if "watch" not in self._run.controls:
            self._run.controls.field(
                "watch", self._level, self._set_level, choices=(*choices, "off")
            )

    def give(self, params: object, grads: object) -> None:
        """Take arrays that the loop hands over; at the first of a kind they get watchers."""
        if self.given.take(params, grads):
            self._run.unwatched = ""
            self.add_control()
            self._restart()

    def switch_off(self) -> None:
        """Measure no more."""
        self._set_level("off")

    def look(self, now: float, done: int) -> None:
        """Take what was measured, and ask for the next if it is time; called at boundaries."""
        for sample in self._recorded(done):
            self._keep(sample)
        if self._level is None:
            return
        begun = time.perf_counter()
        if self._run.watchers is None:
            self._run.watchers = [
                *find_watches(self._run.model, self._level),
                *self._watches_of_given(),
            ]
            for watch in self._run.watchers:
                self._run.examiner = getattr(watch, "examiner", self._run.examiner)
        for watch in self._run.watchers:
            for sample in watch.take(done):
                self._keep(sample)
        if not done and not self._has_asked:
            self._ask(done)
        elif self._phase:
            self._go_on(begun, done)
        elif now >= self._next and self._run.watchers and done:
            self._phase, self._host, self._lasted = 1, 0.0, []
            self._loop.measure_soon()
        self._done = done
        self._host += time.perf_counter() - begun
        self._loop.measure_at = self._next if self._run.watchers else math.inf

    def leave(self) -> None:
        """Note that the work at this boundary is over: what follows is the user's step."""
        self._mark = time.perf_counter()

    def _go_on(self, begun: float, done: int) -> None:
        """After each step of a measurement: ask, take, weigh."""
        if done == self._done:  # a pause
            return
        self._lasted.append(begun - self._mark)
        if self._phase == 1:
            self._ask(done)
        if self._phase < _STEPS:
            self._phase += 1
            self._loop.measure_soon()
            return
        self._phase = 0
        plain, *others = self._lasted
        slower = sum(others) - plain * len(others)
        preparing = any(watch.is_preparing for watch in self._run.watchers or ())
        if (
            preparing or not self._warm
        ):  # what loads and compiles says nothing of the measurements that follow
            self._warm = not preparing
            self._next = time.monotonic() + _LEAST
            return
        self._slower.append(slower)
        slower = max(median(self._slower), 0.0)  # of one alone, most is other processes
        self._run.cost.note(slower)
        self._pace.note(self._host + slower)
        # All that is spent beside the training shares one budget, and looking at the model is what
        # can wait.
        self._next = time.monotonic() + min(max(self._pace.interval, self._run.cost.rest()), _MOST)

    def _ask(self, done: int) -> None:
        """Have the next step watched."""
        self._has_asked = True
        watches = self._run.watchers or ()
        for watch in watches:
            watch.request(done)
        contexts = [context for watch in watches if (context := watch.around(done + 1)) is not None]
        self._loop.around = _Guarded(self._run, contexts) if contexts else None

    def _watches_of_given(self) -> list[Watcher]:
        given, found = self.given, []
        if given.params is not None:
            found.append(WeightWatch(lambda: dict(named(given.params))))
        if given.grads is not None:
            found.append(WeightWatch(lambda: dict(named(given.grads)), "gradient"))
        return found

    def measure_last(self, done: int) -> None:
        """Take one more sample of the weights, because the run ends."""
        for watch in self._run.watchers or ():
            measure = getattr(watch, "measure_last", None)
            for sample in measure(done) if measure is not None and done else ():
                strips = self._run.watched.get(sample.quantity)
                if strips is None or self._run.step_of(done) not in strips.steps[-1:]:
                    self._keep(sample)

    def close(self) -> None:
        """Let go of the model."""
        for watch in self._run.watchers or ():
            watch.close()
        self._run.watchers, self._level = [], None
        self.given.clear()

    def _set_level(self, level: str) -> None:
        self._restart()
        self._level = None if level == "off" else level

    def _restart(self) -> None:
        for watch in self._run.watchers or ():
            watch.close()
        self._run.watchers, self._phase, self._warm, self._loop.around = None, 0, False, None
        self._next = 0.0

    def _keep(self, sample: Sample) -> None:
        strips = self._run.watched.setdefault(sample.quantity, Strips(sample.quantity))
        strips.add(sample._replace(step=self._run.step_of(sample.step)))
        values = np.asarray(sample.values)
        if values.shape[-1] != len(FIELDS):
            return
        bad = [i for i in np.flatnonzero(values[:, _BAD] > 0) if i < len(sample.paths)]
        if bad and sample.quantity in ("weight", "return"):
            text = _describe_nonfinite(sample, values, bad)
            self._alarm(f"{sample.quantity}s", text)


def _describe_nonfinite(sample: Sample, values: Any, bad: list[int]) -> str:
    """Say which weights or returns are not finite.

    Returns stand in the order of the calls: the first bad one is what the others were made from.
    """
    quantity, paths = sample.quantity, sample.paths
    if quantity == "weight" and len(bad) == len(paths) > 1:
        return "weights of all submodules are not finite"
    first = bad[0]
    if quantity == "weight":  # the row of a module above adds those below it
        first = max(bad, key=lambda i: paths[i].startswith(paths[bad[0]] + "."))
    count = int(values[first, _BAD])
    return f"{count:,} {quantity}s of {paths[first] or 'the model'} are not finite"


class _Guarded:
    """Contexts around a step; one that fails is told, and the step runs without."""

    def __init__(self, run: RunState, contexts: list[Any]) -> None:
        self._run, self._contexts, self._open = run, contexts, []

    def __enter__(self) -> None:
        for context in self._contexts:
            _, failure = guard("watching", context.__enter__)
            if failure is None:
                self._open.append(context)
            else:
                self._run.messages.add_failure(self._run.step, failure)

    def __exit__(self, *raised: object) -> None:
        while self._open:
            try:
                self._open.pop().__exit__(*raised)
            except BaseException as error:
                if error is raised[1]:
                    continue  # a context gives back the exception it was handed
                if not isinstance(error, Exception):
                    raise
                self._run.messages.add_failure(self._run.step, describe_caught("watching", error))
