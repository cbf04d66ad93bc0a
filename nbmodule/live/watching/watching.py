"""Decides when the watchers of a run may measure, and keeps what they bring."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from nbmodule.core.shape.walk import is_module
from nbmodule.live.run.cost import WINDOW, Pace
from nbmodule.live.run.failure import describe_failure, guard
from nbmodule.live.run.watch import FIELDS, Sample, Strips, Watcher, find_watches
from nbmodule.live.watching.sources import GivenArrays, named, source_of, why_not
from nbmodule.live.watching.weights import WeightWatch

if TYPE_CHECKING:
    from nbmodule.live.live import Live

LEVELS = ("all", "weights")
"""What may be watched: weights, gradients and returns, or the weights alone."""
_LEAST, _MOST = 0.25, 60.0
"""Seconds between two measurements."""
_STEPS = 3
"""Steps of one measurement."""
_BAD = FIELDS.index("nonfinite")


class Sampling:
    """The watchers of one run.

    A measurement spans three steps: a plain one, the one that is watched, and the one beside which the device reduces what
    was remembered. How much longer the last two take than the first, and the time on the host, is what watching costs; the
    next measurement waits until that is within the budget.
    """

    def __init__(self, live: Live, returns: str | None) -> None:
        self._live, self._level = live, returns and LEVELS[0]
        self.strips: dict[str, Strips] = {}
        self.given = GivenArrays()
        self._unwatched = ""
        self._watches: list[Watcher] | None = None
        self._pace = Pace(live.budget / 2, least=_LEAST, most=_MOST)
        self._next = 0.0
        self._phase = self._done = 0
        self._mark = self._host = 0.0
        self._lasted: list[float] = []
        self._warm = False

    def add_control(self) -> None:
        """Let the reader choose what is watched."""
        model = self._live.model
        if self._level is None or (model is None and not self.given):
            return
        if not self.given and source_of(model) is None:
            self._unwatched = why_not(model)
            return
        choices = LEVELS if is_module(model) else LEVELS[1:]
        self._level = self._level if self._level in choices else choices[0]
        if "watch" not in self._live.controls:
            self._live.controls.field("watch", self._level, self._set_level, choices=(*choices, "off"))

    def give(self, params: object, grads: object) -> None:
        """Take arrays that the loop hands over; at the first of a kind they get watchers."""
        if self.given.take(params, grads):
            self._unwatched = ""
            self.add_control()
            self._restart()

    def switch_off(self) -> None:
        """Measure no more."""
        self._set_level("off")

    def look(self, now: float, done: int) -> None:
        """Take what was measured, and ask for the next if it is time; called at boundaries."""
        for sample in self._live.recorded(done):
            self._keep(sample)
        if self._level is None:
            return
        begun = time.perf_counter()
        if self._watches is None:
            self._watches = [*find_watches(self._live.model, self._level), *self._watches_of_given()]
        for watch in self._watches:
            for sample in watch.take(done):
                self._keep(sample)
        if self._phase:
            self._go_on(begun, done)
        elif now >= self._next and self._watches and done:
            self._phase, self._host, self._lasted = 1, 0.0, []
            self._live.look_soon()
        self._done = done
        self._host += time.perf_counter() - begun

    def leave(self) -> None:
        """Note that the work at this boundary is over: what follows is the user's step."""
        self._mark = time.perf_counter()

    def _go_on(self, begun: float, done: int) -> None:
        """After each step of a measurement: ask, take, weigh."""
        if done == self._done:  # a pause
            return
        self._lasted.append(begun - self._mark)
        if self._phase == 1:
            watches = self._watches or ()
            for watch in watches:
                watch.request(done)
            contexts = [context for watch in watches if (context := watch.around(done + 1)) is not None]
            self._live.loop.around = _Guarded(self._live, contexts) if contexts else None
        if self._phase < _STEPS:
            self._phase += 1
            self._live.look_soon()
            return
        self._phase = 0
        plain, *others = self._lasted
        slower = sum(others) - plain * len(others)
        preparing = any(watch.is_preparing for watch in self._watches or ())
        if preparing or not self._warm:  # what loads and compiles says nothing of the measurements that follow
            self._warm = not preparing
            self._next = time.monotonic() + _LEAST
            return
        self._live.note_cost(slower)
        self._pace.note(self._host + max(slower, 0.0))
        # All that is spent beside the training shares one budget, and looking at the model is what can wait.
        over = self._live.cost / self._live.budget if self._live.progress.elapsed > WINDOW else 1.0
        self._next = time.monotonic() + min(self._pace.interval * max(over, 1.0), _MOST)

    def notes(self) -> list[str]:
        """What the watchers have to say of themselves."""
        said = [watch.about for watch in self._watches or () if watch.about]
        return [self._unwatched, *said] if self._unwatched else said

    def _watches_of_given(self) -> list[Watcher]:
        given, found = self.given, []
        if given.params is not None:
            found.append(WeightWatch(lambda: dict(named(given.params))))
        if given.grads is not None:
            found.append(WeightWatch(lambda: dict(named(given.grads)), "gradient"))
        return found

    def picture(self, path: str, quantity: str = "weight") -> Any:
        """The first picture that a watcher has of a submodule."""
        found = (watch.picture(path, quantity) for watch in self._watches or ())
        return next((picture for picture in found if picture is not None), None)

    def close(self) -> None:
        """Let go of the model."""
        for watch in self._watches or ():
            watch.close()
        self._watches, self._level = [], None
        self.given.clear()

    def _set_level(self, level: str) -> None:
        self._restart()
        self._level = None if level == "off" else level

    def _restart(self) -> None:
        for watch in self._watches or ():
            watch.close()
        self._watches, self._phase, self._warm, self._live.loop.around = None, 0, False, None
        self._next = 0.0

    def _keep(self, sample: Sample) -> None:
        strips = self.strips.setdefault(sample.quantity, Strips(sample.quantity))
        strips.add(sample._replace(step=self._live.step_of(sample.step)))
        values = np.asarray(sample.values)
        if values.shape[-1] != len(FIELDS):
            return
        bad = [i for i in np.flatnonzero(values[:, _BAD] > 0) if i < len(sample.paths)]
        if bad and sample.quantity in ("weight", "return"):
            # Returns stand in the order in which they came: the first bad one is what the others were made from.
            at = (
                bad[0]
                if sample.quantity == "return"
                else max(bad, key=lambda i: sample.paths[i].startswith(sample.paths[bad[0]] + "."))
            )
            path, count = sample.paths[at] or "the model", int(values[at, _BAD])
            self._live.alarm(f"{sample.quantity}s", f"{count:,} {sample.quantity}s of {path} are not finite")


class _Guarded:
    """Contexts around a step; one that fails is told, and the step runs without."""

    def __init__(self, live: Live, contexts: list[Any]) -> None:
        self._live, self._contexts, self._open = live, contexts, []

    def __enter__(self) -> None:
        for context in self._contexts:
            _, failure = guard("watching", context.__enter__)
            if failure is None:
                self._open.append(context)
            else:
                self._live.messages.add_failure(self._live.step, failure)

    def __exit__(self, *raised: object) -> None:
        while self._open:
            try:
                self._open.pop().__exit__(*raised)
            except BaseException as error:
                if error is raised[1]:
                    continue  # a context gives back the exception it was handed
                if not isinstance(error, Exception):
                    raise
                self._live.messages.add_failure(self._live.step, describe_failure("watching", error))
