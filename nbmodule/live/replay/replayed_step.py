"""A repeated step, opened as `nb.inspect` opens a call, with the step before it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from nbmodule.base.format import format_count, format_number
from nbmodule.calls.call import Call
from nbmodule.calls.calls import Calls
from nbmodule.calls.reduction import Statistics, read_statistics, reduce_tree
from nbmodule.live.replay.samples import samples_of
from nbmodule.live.run_data.strips import norm
from nbmodule.views.panels.inspected_run import NoModules, Parts, Ran
from nbmodule.views.panels.inspection import Inspection

_MOST_CHANGES = 5
_CHANGED = 2.0
"""Factor from one step to the next from which a change is shown."""
_ROUNDING = 1e-3
"""Relative difference of two executables of one computation, at most."""


class Growth(NamedTuple):
    """The change of a norm from the step before."""

    path: str
    what: str
    """'return' or 'gradient'."""
    before: float
    now: float

    @property
    def factor(self) -> float:
        """The ratio of the norms."""
        if not math.isfinite(self.now):
            return math.inf
        if self.before > 0:
            return self.now / self.before
        return math.inf if self.now > 0 else 1.0

    def __str__(self) -> str:
        factor = "" if math.isinf(self.factor) else f" (x {format_number(self.factor, 3)})"
        norms = f"{format_number(self.before, 3)} -> {format_number(self.now, 3)}"
        return f"{self.what} of {self.path or 'the model'}: {norms}{factor}"


class TrackedStep(NamedTuple):
    """The calls of a step that was repeated under a tracker."""

    calls: Calls
    gradients: Mapping[str, Any]


class ReplayedStep(Inspection):
    """A repeated step of a run, with all calls recorded; `live.at` returns it.

    Attributes:
        step: The step.
        batch: The item that the loop was given.
        samples: The samples of the batch, the worst first, as `nb.samples` returns them; None
            where they are not known.
        calls: What ran, with every return and its gradient.
        gradients: Gradients by the parameters, by path.
        before: The calls of the step before; None where that is not kept.
        logged: What the run logged of the step, by name.

    Args:
        step: The step.
        item: The item of the loop.
        inputs: The arrays that the step was given, by name.
        run: The recorded step; None where no module is known.
        previous: The recorded step before.
        ran: The calls as a panel shows them; None where no module is known.
        values: By name: what the run logged, what the repeat gave, and what the recorded repeat
            gave, which is another executable.
        distance: How many steps were repeated, in words.
        fault: Where the inputs, or a variable before the step, hold NaN or Inf.
    """

    def __init__(
        self,
        step: int,
        item: object,
        *,
        inputs: list[tuple[str, Any]],
        run: TrackedStep | None,
        previous: TrackedStep | None,
        ran: Ran | None,
        values: dict[str, tuple[float, float, float]],
        distance: str,
        fault: str,
    ) -> None:
        self.step, self.batch = step, item
        self.gradients = {} if run is None else dict(run.gradients)
        self.before = None if previous is None else previous.calls
        self.logged = {name: logged for name, (logged, _, _) in values.items()}
        self._values, self._fault = values, fault
        self._previous_gradients = {} if previous is None else previous.gradients

        self.samples, extreme, row = samples_of(inputs, _return_of(ran.calls if ran else ()))

        def calls() -> Ran:
            if ran is None:
                raise NoModules(
                    "no nb.Module is known to this run: what the step called is not known"
                )
            return ran._replace(example=row)

        def graph() -> Any:
            raise NoModules("the graph of a step is shown by nb.graph(step, ...)")

        super().__init__(Parts(f"replay of step {format_count(step)}", calls, graph))
        first = self.first_nonfinite
        logged = (f"{name} {format_number(value)}" for name, value in self.logged.items())
        notes = [
            self.comparison,
            extreme,
            first if first and first == fault else first and f"first non-finite: {first}",
            *map(str, self.changes[:_MOST_CHANGES]),
            distance,
        ]
        self._shown = dataclasses.replace(
            self._shown,
            title=(self.record.name, *logged, *self.record.title[1:]),
            notes=(*(note for note in notes if note), *self.record.notes),
        )

    @property
    def is_exact(self) -> bool | None:
        """True if the repeat gave the bits that the run logged; None if there is nothing to
        compare.
        """
        if not self._values:
            return None
        logged, repeated, _ = zip(*self._values.values())
        return np.array_equal(logged, repeated, equal_nan=True)

    @property
    def difference(self) -> float:
        """Largest relative difference between the step as it ran and as it was recorded."""
        pairs = [(repeated, recorded) for _, repeated, recorded in self._values.values()]
        finite = [(a, b) for a, b in pairs if math.isfinite(a) and math.isfinite(b)]
        return max((abs(a - b) / max(abs(a), 1e-30) for a, b in finite), default=0.0)

    @property
    def comparison(self) -> str:
        """The difference between the repeated step and the one that ran, in one sentence."""
        if self.is_exact is None:
            return (
                "the step logged nothing that one of its compiled calls returned, so it cannot be "
                "compared with itself"
            )
        if not self.is_exact:
            name, (run, again, _) = next((n, v) for n, v in self._values.items() if v[0] != v[1])
            return (
                f"repeated not exactly: {name} was {run!r} and is {again!r}; was a batch changed "
                "in place, or state kept outside of variables?"
            )
        difference = self.difference
        if difference > _ROUNDING:
            return (
                f"repeated bit for bit, but the recorded form differs by {difference:.1e}: a value "
                "that the step reads was changed since, so the calls below are of another "
                "computation"
            )
        rounding = "" if difference == 0 else f"; the recorded form within {difference:.1e}"
        return f"repeated bit for bit{rounding}"

    @property
    def first_nonfinite(self) -> str:
        """The location of the first non-finite value: an input, a variable before the step, the
        return of a submodule (its path), or `'gradient of ...'`; `''` if all are finite.
        """
        if self._fault:
            return self._fault
        for call in sorted(self.calls, key=lambda c: c.returned if c.returned >= 0 else math.inf):
            if any(s is not None and s.nonfinite for s in _as_list(call.statistics)):
                return call.path or "the model"
        for path, gradient in self.gradients.items():
            statistics = _statistics_of(gradient)
            if statistics is not None and statistics.nonfinite:
                return f"gradient of {path}"
        return ""

    @property
    def changes(self) -> list[Growth]:
        """Returns and gradients whose norm at least doubled from the step before, largest first."""
        if self.before is None:
            return []
        runs = (self.before, self.calls)
        returns = [_norms((call.path, call.statistics) for call in calls) for calls in runs]
        trees = (self._previous_gradients, self.gradients)
        gradients = [_norms(tree.items()) for tree in trees]
        growths = [
            Growth(path, what, before[path], now)
            for what, (before, after) in (("return", returns), ("gradient", gradients))
            for path, now in after.items()
            if path in before
        ]
        return sorted((c for c in growths if c.factor >= _CHANGED), key=lambda c: -c.factor)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:
        bundle = super()._repr_mimebundle_(include, exclude)
        if "text/html" in bundle and self.samples is not None:
            bundle["text/html"] = str(bundle["text/html"]) + str(self.samples.html())
        return bundle


def _return_of(calls: Iterable[Call]) -> Any:
    """Return what the outermost module returned; None where it is not known."""
    outer = next((call for call in calls if call.parent is None and not call.error), None)
    return None if outer is None else outer.returns


def _as_list(statistics: Any) -> list[Statistics | None]:
    return statistics if isinstance(statistics, list) else [statistics]


def _statistics_of(x: object) -> Statistics | None:
    if isinstance(x, Statistics):
        return x
    return read_statistics(reduce_tree([x])[0]) if hasattr(x, "dtype") else None


def _norms(measured: Iterable[tuple[str, Any]]) -> dict[str, float]:
    """Return the norm of the first array at each path."""
    norms: dict[str, float] = {}
    for path, value in measured:
        first = next(filter(None, map(_statistics_of, _as_list(value))), None)
        if first is not None:
            norms.setdefault(path, math.inf if first.nonfinite else norm([first]))
    return norms
