"""Schedule the watchers of a run within the budget, and keep what they measure."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Generator
from contextlib import AbstractContextManager, ExitStack
from statistics import median
from typing import Any

import numpy as np

from nbmodule.core.structure.walk import is_module
from nbmodule.errors import ArgumentError, ArgumentTypeError
from nbmodule.live.controls.loop import Loop
from nbmodule.live.monitors.step_watch import ReturnsWatcher
from nbmodule.live.monitors.weights import WeightWatch
from nbmodule.live.run_data.progress import rest_after
from nbmodule.live.run_data.sources import named_arrays, source_of, trained_module, why_not
from nbmodule.live.run_data.state import RunState
from nbmodule.live.run_data.strips import FIELDS, Sample, Strips

LEVELS = ("all", "weights")
"""Watched quantities: weights, gradients and returns, or the weights alone."""
_LEAST, _MOST = 0.25, 60.0
"""Seconds between two measurements."""
_STRETCH = 3.0
"""How many times as long as its busy time a rest may be, where a loop waits or shares its cores."""
_BAD = FIELDS.index("nonfinite")


class Sampling:
    """The watchers of one run.

    The first step is watched, so that compiling begins as soon as it is over. Later a measurement
    spans three steps: a plain one, the watched one, and the one during which the device reduces
    what was remembered. The extra time of the last two, and the time on the host, is the cost; the
    next measurement waits until it is within its share of the time (`RunState.share`).

    Args:
        run: The run.
        loop: Its loop, which runs a step in a context, and calls again at the next boundary.
        returns: None if the model is not to be watched.
        recorder: An `nb.Recorder`, which records each `every`-th step; None for none.

    Raises:
        ArgumentError: If an argument has an unknown value.
    """

    def __init__(self, run: RunState, loop: Loop, returns: str | None, recorder: Any) -> None:
        if returns not in (None, "stats"):
            raise ArgumentError(f"returns must be 'stats' or None, got {returns!r}.")
        if recorder is not None and not hasattr(recorder, "step"):
            got = type(recorder).__name__
            raise ArgumentTypeError(f"recorder must be an nb.Recorder, got {got}.")
        self._run, self._loop, self._level = run, loop, returns and LEVELS[0]
        self._recorder = recorder
        self._first_recorded = 0 if recorder is None else int(recorder.next)
        self._requested: list[AbstractContextManager[Any]] = []
        """Contexts of the next step."""
        self._entered = ExitStack()
        self._has_entered = False
        self._given: dict[str, Any] = {}
        """Arrays that the loop gives, by quantity."""
        self._next = self._next_busy = self._latest = 0.0
        """Earliest wall time, earliest busy time and latest wall time of the next measurement."""
        self._measurement: Generator[None, float, None] | None = None
        self._done = 0
        self._mark = self._host = 0.0
        self._costs: deque[float] = deque(maxlen=5)
        """Seconds of the last measurements; one of them may hold the work of other processes."""
        self._is_warm = False

    def add_control(self) -> None:
        """Add the control that chooses what is watched."""
        model = self._run.model
        if self._level is None or (model is None and not self._given):
            return
        if not self._given and source_of(model) is None:
            self._run.unwatched = why_not(model)
            return
        choices = LEVELS if trained_module(model) is not None else LEVELS[1:]
        self._level = self._level if self._level in choices else choices[0]
        if "watch" not in self._run.controls:
            choices = (*choices, "off")
            self._run.controls.field("watch", self._level, self.set_level, choices=choices)

    def give(self, params: object, grads: object) -> None:
        """Take references to arrays from the loop; the first of each kind get watchers."""
        given, before = {"weight": params, "gradient": grads}, len(self._given)
        self._given |= {name: arrays for name, arrays in given.items() if arrays is not None}
        if len(self._given) > before:
            self._run.unwatched = ""
            self.add_control()
            self._restart()

    def look(self, clock: float, done: int) -> None:
        """Take what was measured, and request the next measurement if it is due; at boundaries."""
        if self._level is None:
            return
        if self._measurement is not None:
            self._loop.await_steps()  # a step lasts until it is computed
        cost = self._run.cost
        begun, host = cost.busy(), time.thread_time()
        watchers = self._watchers()
        for watcher in watchers:
            for sample in watcher.take(done):
                self._keep(sample)
        if not done and not self._requested:
            self._request(done)
        elif self._measurement is not None and done != self._done:  # otherwise it is a pause
            self._go_on(begun - self._mark)
        elif self._measurement is None and watchers and done and self._is_due(clock):
            self._loop.await_steps()
            self._measurement, self._host = self._measured_steps(), 0.0
            next(self._measurement)
            self._loop.measure_soon()
        self._done = done
        self._host += time.thread_time() - host

    def _go_on(self, seconds: float) -> None:
        """Go on with a measurement after one of its steps, which took this busy time."""
        assert self._measurement is not None
        try:
            self._measurement.send(seconds)
            self._loop.measure_soon()
        except StopIteration:
            self._measurement = None

    def _measured_steps(self) -> Generator[None, float, None]:
        """Measure; each `yield` is a step, whose busy time is sent."""
        run, watchers = self._run, self._watchers()
        plain = yield
        self._request(run.count.done)
        watched = yield
        reducing = yield
        extra, clock = watched + reducing - 2 * plain, time.monotonic()
        run.cost.note(extra)  # the host's part is noted as it is spent
        is_preparing = any(watcher.is_preparing for watcher in watchers)
        is_typical, self._is_warm = self._is_warm and not is_preparing, not is_preparing
        self._next, self._next_busy = clock + _LEAST, 0.0
        if is_typical:  # others may hold the time of loading and compiling
            self._costs.append(extra + self._host)
            cost = max(median(self._costs), 0.0)
            rest = rest_after(cost, run.share, least=_LEAST, most=_MOST)
            self._next_busy, self._latest = run.cost.busy() + rest, clock + _STRETCH * rest

    def _is_due(self, clock: float) -> bool:
        """Return True if it is time for a measurement: the rest after the last one is as long in
        the time of the training as in that of the clock.
        """
        has_rested = self._run.cost.busy() >= self._next_busy or clock >= self._latest
        return clock >= self._next and has_rested

    def leave(self) -> None:
        """Note that the work at this boundary is over: the user's step follows."""
        self._mark = self._run.cost.busy()

    def _watchers(self) -> list[Any]:
        run = self._run
        if run.watchers is None:
            run.watchers, source = [], source_of(run.model)
            if source is not None:
                run.watchers.append(WeightWatch(source, is_a_copy=not is_module(run.model)))
            module = trained_module(run.model) if self._level == "all" else None
            if module is not None:
                run.watchers.append(ReturnsWatcher(module))
                run.examiner = run.watchers[-1].examiner
                run.examiner.item = lambda: run.count.item
            run.watchers += map(self._watch_given, self._given)
        return run.watchers

    def _watch_given(self, quantity: str) -> WeightWatch:
        return WeightWatch(lambda: dict(named_arrays(self._given[quantity])), quantity)

    def _request(self, done: int) -> None:
        """Have the next step watched."""
        contexts = [watcher.request(done) for watcher in self._run.watchers or ()]
        self._requested = [context for context in contexts if context is not None]

    def begin_step(self, number: int) -> None:
        """Enter the contexts that watch or record the step that begins now; one that fails is
        reported, and the step runs without it.
        """
        recorded = self._first_recorded + number
        if self._recorder is not None and not recorded % self._recorder.every:
            self._requested.insert(0, self._recorder.step(recorded))
        while self._requested:
            self._has_entered = True
            self._run.guard("watching", self._entered.enter_context, self._requested.pop(0))

    def end_step(self, error: BaseException | None = None) -> None:
        """Leave the contexts of a step, with the exception that ended it."""
        if self._has_entered:
            self._has_entered, kind = False, None if error is None else type(error)
            self._run.guard("watching", self._entered.__exit__, kind, error, None)

    def measure_last(self, done: int) -> None:
        """Take one more sample of the weights when the run ends."""
        for watcher in self._run.watchers or ():
            for sample in watcher.measure_last(done) if done else ():
                strips = self._run.watched.get(sample.quantity)
                if strips is None or strips.last_step != self._run.step_of(done):
                    self._keep(sample)

    def close(self) -> None:
        """Release the model."""
        self.set_level("off")
        self._run.watchers = []
        self._given.clear()

    def set_level(self, level: str) -> None:
        """Choose from now on what is watched: one of `LEVELS`, or 'off'."""
        self._restart()
        self._level = None if level == "off" else level

    def _restart(self) -> None:
        for watcher in self._run.watchers or ():
            watcher.close()
        self._run.watchers = self._measurement = None
        self._is_warm, self._requested = False, []
        self._next = self._next_busy = 0.0

    def _keep(self, sample: Sample) -> None:
        strips = self._run.watched.setdefault(sample.quantity, Strips(sample.quantity))
        strips.add(sample._replace(step=self._run.step_of(sample.step)))
        values = np.asarray(sample.values)
        if values.shape[-1] != len(FIELDS) or sample.quantity not in ("weight", "return"):
            return
        bad = [int(i) for i in np.flatnonzero(values[:, _BAD] > 0) if i < len(sample.paths)]
        if bad:
            self._run.sound_alarm(f"{sample.quantity}s", _describe_nonfinite(sample, values, bad))


def _describe_nonfinite(sample: Sample, values: Any, bad: list[int]) -> str:
    """Say which weights or returns are not finite.

    Returns are in the order of the calls: the others were made from the first bad one.
    """
    quantity, paths = sample.quantity, sample.paths
    if quantity == "weight" and len(bad) == len(paths) > 1:
        return "weights of all submodules are not finite"
    first = bad[0]
    if quantity == "weight":  # the row of a module comes before those below it
        first = max(bad, key=lambda i: paths[i].startswith(paths[bad[0]] + "."))
    count = int(values[first, _BAD])
    return f"{count:,} {quantity}s of {paths[first] or 'the model'} are not finite"
