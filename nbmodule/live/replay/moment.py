"""One step of a run again, opened as `nb.inspect` opens a call, beside the step before."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from nbmodule.base.format import format_count, format_number
from nbmodule.calls.calls import Calls
from nbmodule.calls.reduction import Statistics, read_statistics, reduce_tree
from nbmodule.views.panels.inspected_run import NoModules, Parts, Ran
from nbmodule.views.panels.inspection import Inspection

_MOST_CHANGES = 5
_CHANGED = 2.0
"""Factor from one step to the next that is worth telling."""


class Growth(NamedTuple):
    """How the norm of something changed from the step before to this one."""

    path: str
    what: str
    """'return' or 'gradient'."""
    before: float
    now: float

    @property
    def factor(self) -> float:
        """How many times as large it is."""
        if not math.isfinite(self.now):
            return math.inf
        return self.now / self.before if self.before > 0 else (math.inf if self.now > 0 else 1.0)

    def __str__(self) -> str:
        factor = "" if math.isinf(self.factor) else f" (x {format_number(self.factor, 3)})"
        return f"{self.what} of {self.path or 'the model'}: {format_number(self.before, 3)} -> {format_number(self.now, 3)}{factor}"


class Repeated(NamedTuple):
    """What repeating a step has brought."""

    step: int
    item: Any
    calls: Calls | None
    gradients: Mapping[str, Any]
    before: Calls | None
    gradients_before: Mapping[str, Any]
    ran: Ran | None
    logged: dict[str, tuple[float, float, float]]
    """By name: what the run logged, what the step gave when it was repeated, and what it gave while it was recorded."""
    about: str
    why: str
    input_fault: str = ""
    """Where the inputs hold NaN or Inf."""
    poisoned: str = ""
    """The first variable that was not finite before the step."""


class Moment(Inspection):
    """A step of a run, repeated with everything recorded; `live.at` gives it.

    Attributes:
        step: The step.
        batch: The item that the loop was given.
        calls: What ran, with every return and its gradient.
        gradients: Gradients by the parameters, by path.
        before: The calls of the step before; None where that is not kept.
        logged: What the run logged of the step, by name.
        is_exact: Whether repeating it gave the very bits that the run had logged; None where
            nothing can be compared.
        difference: Largest relative difference between the step as it ran and as it was recorded,
            which is another executable.
    """

    def __init__(self, found: Repeated) -> None:
        self.step, self.batch, self.gradients, self.before = (
            found.step,
            found.item,
            dict(found.gradients),
            found.before,
        )
        self.logged = {name: values[0] for name, values in found.logged.items()}
        self._values, self._gradients_before = found.logged, found.gradients_before
        self._input_fault = found.input_fault
        self._poisoned = found.poisoned and (
            f"{found.poisoned} before this step: look at live.at({found.step - 1})"
        )
        ran, why = found.ran, found.why

        def run() -> Ran:
            if ran is None:
                raise NoModules(why)
            return ran

        def graph() -> Any:
            raise NoModules("the graph of a step is shown by nb.graph(step, ...)")

        super().__init__(Parts(f"replay of step {format_count(found.step)}", run, graph))
        facts = [self.record.name, *(f"{n} {format_number(v)}" for n, v in self.logged.items())]
        notes = [
            self.said_of_bits,
            *self._said_of_values,
            *map(str, self.changes[:_MOST_CHANGES]),
            found.about,
        ]
        self._shown = dataclasses.replace(
            self._shown,
            title=(*facts, *self.record.title[1:]),
            notes=(*(note for note in notes if note), *self.record.notes),
        )

    @property
    def is_exact(self) -> bool | None:
        if not self._values:
            return None
        return all(
            run == again or (run != run and again != again)
            for run, again, _ in self._values.values()
        )

    @property
    def difference(self) -> float:
        pairs = (
            (again, seen)
            for _, again, seen in self._values.values()
            if math.isfinite(again) and math.isfinite(seen)
        )
        return max((abs(a - b) / max(abs(a), 1e-30) for a, b in pairs if a != b), default=0.0)

    @property
    def said_of_bits(self) -> str:
        """How close the repeated step is to the one that ran, in one sentence."""
        exact, far = self.is_exact, self.difference
        if exact is None:
            return "the step logged nothing that one of its compiled calls returned, so it cannot be compared with itself"
        if not exact:
            name, (run, again, _) = next((n, v) for n, v in self._values.items() if v[0] != v[1])
            return f"repeated not exactly: {name} was {run!r} and is {again!r}; was a batch changed in place, or state kept outside of variables?"
        seen = "" if far == 0 else f"; recorded, which compiles it otherwise, within {far:.1e}"
        return f"repeated bit for bit{seen}"

    @property
    def first_nonfinite(self) -> str:
        """Where the first value that is not finite was: an input, a variable before the step, the
        return of a submodule (its path), or `'gradient of ...'`; `''` if all are finite.
        """
        if self._input_fault:
            return self._input_fault
        if self._poisoned:
            return self._poisoned
        order = sorted(
            self.calls, key=lambda call: call.returned if call.returned >= 0 else math.inf
        )
        for call in order:
            if any(s is not None and s.nonfinite for s in _each(call.statistics)):
                return call.path or "the model"
        bad = (path for path, gradient in self.gradients.items() if _nonfinite(gradient))
        return next((f"gradient of {path}" for path in bad), "")

    @property
    def changes(self) -> list[Growth]:
        """Returns and gradients whose norm is twice that of the step before or more, largest first."""
        if self.before is None:
            return []
        found = [
            Growth(path, what, before[path], now)
            for what, before, after in (
                ("return", _norms(self.before), _norms(self.calls)),
                ("gradient", _norms_of(self._gradients_before), _norms_of(self.gradients)),
            )
            for path, now in after.items()
            if path in before
        ]
        return sorted((c for c in found if c.factor >= _CHANGED), key=lambda c: -c.factor)

    @property
    def _said_of_values(self) -> list[str]:
        first = self.first_nonfinite
        if first and first == self._input_fault:
            return [first]
        return [f"first non-finite: {first}"] if first else []


def _each(statistics: Any) -> list[Statistics | None]:
    return statistics if isinstance(statistics, list) else [statistics]


def _nonfinite(x: object) -> bool:
    found = _statistics_of(x)
    return found is not None and found.nonfinite > 0


@functools.singledispatch
def _statistics_of(x: object) -> Statistics | None:
    return read_statistics(reduce_tree([x])[0]) if hasattr(x, "dtype") else None


@_statistics_of.register
def _(x: Statistics) -> Statistics:
    return x


def _norm(statistics: Statistics | None) -> float | None:
    if statistics is None:
        return None
    if statistics.nonfinite:
        return math.inf
    return math.sqrt(statistics.size * (statistics.mean**2 + statistics.std**2))


def _norms(calls: Calls) -> dict[str, float]:
    found: dict[str, float] = {}
    for call in calls:
        norm = _norm(next((s for s in _each(call.statistics) if s is not None), None))
        if norm is not None:
            found.setdefault(call.path, norm)
    return found


def _norms_of(gradients: Mapping[str, Any]) -> dict[str, float]:
    norms = {path: _norm(_statistics_of(x)) for path, x in gradients.items()}
    return {path: norm for path, norm in norms.items() if norm is not None}
