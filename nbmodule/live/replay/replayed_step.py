"""A repeated step, opened as `nb.inspect` opens a call, with the step before it and its samples."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from nbmodule.base.format import format_count, format_number
from nbmodule.base.statistics import Statistics
from nbmodule.calls.call import Call
from nbmodule.calls.calls import Calls
from nbmodule.calls.reduction import read_statistics, reduce_tree
from nbmodule.live.diagnosis.evidence import cross_entropies
from nbmodule.live.replay.iterations import Iteration
from nbmodule.live.run_data.media import Media, samples
from nbmodule.live.run_data.strips import norm
from nbmodule.views.panels.inspected_run import ModelRun, NoModules, Parts, ran_of
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
        calls: All calls, with their returns and gradients.
        gradients: Gradients by the parameters, by path.
        before: The calls of the step before; None where that is not kept.
        logged: The values that the run logged at the step, by name.

    Args:
        step: The step.
        iteration: The iteration of the loop that made it.
        model: The module whose calls were recorded; None where no module is known.
        run: The recorded step; None where no module is known.
        previous: The recorded step before.
        values: By name: what the run logged, what the repeat gave, and what the recorded repeat
            gave, which is another executable.
        distance: How many steps were repeated, in words.
        fault: Where the inputs, or a variable before the step, hold NaN or Inf.
    """

    def __init__(
        self,
        step: int,
        iteration: Iteration,
        *,
        model: Any,
        run: TrackedStep | None,
        previous: TrackedStep | None,
        values: dict[str, tuple[float, float, float]],
        distance: str,
        fault: str,
    ) -> None:
        self.step, self.batch = step, iteration.item
        ran = None if run is None else ran_of(model, run.calls)
        self.gradients = {} if run is None else dict(run.gradients)
        self.before = None if previous is None else previous.calls
        self.logged = {name: logged for name, (logged, _, _) in values.items()}
        self._values, self._fault = values, fault
        self._previous_gradients = {} if previous is None else previous.gradients
        returned = _return_of(ran.calls if ran else ())
        self.samples, extreme, row = samples_of(iteration.named_inputs(), returned)

        def calls() -> ModelRun:
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
        for path, statistics in _reduced(self.gradients).items():
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
        gradients = [_norms(_reduced(tree).items()) for tree in trees]
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
    """Return the return of the outermost module; None where it is not known."""
    outer = next((call for call in calls if call.parent is None and not call.error), None)
    return None if outer is None else outer.returns


def _reduced(arrays: Mapping[str, Any]) -> dict[str, Statistics | None]:
    return dict(zip(arrays, map(read_statistics, reduce_tree(list(arrays.values())))))


def _as_list(statistics: Any) -> list[Statistics | None]:
    return statistics if isinstance(statistics, list) else [statistics]


def _norms(measured: Iterable[tuple[str, Any]]) -> dict[str, float]:
    """Return the norm of the first array at each path."""
    norms: dict[str, float] = {}
    for path, value in measured:
        first = next(filter(None, _as_list(value)), None)
        if first is not None:
            norms.setdefault(path, math.inf if first.nonfinite else norm([first]))
    return norms


_EXTREME = 10.0
"""Ratio of the largest number of an extreme sample to that of all others, at least."""
_MOST_SHOWN = 12


def samples_of(
    inputs: Iterable[tuple[str, Any]], returned: object
) -> tuple[Media | None, str, int]:
    """Return the samples of a batch: an extreme one first, then by their loss; None where the batch
    is not known or cannot be drawn. With a sentence on a sample whose numbers are far from those of
    all others, '' if there is none, and the number of the sample to look at first.

    Args:
        inputs: The arrays that the step was given, by name; the first axis of a batch counts
            samples.
        returned: The return of the model for the batch; None where it is not known.
    """
    arrays = {name: np.asarray(x) for name, x in inputs if _is_batch(x)}
    size = next((len(x) for x in arrays.values() if x.ndim > 1), 0)
    arrays = {name: x for name, x in arrays.items() if len(x) == size}
    if size < 2:
        return None, "", 0
    outputs = [np.asarray(x) for x in jax.tree.leaves(returned) if _is_batch(x)]
    predictions = outputs[0] if outputs and len(outputs[0]) == size else None
    target = arrays.pop(_target_among(arrays, predictions), None)
    losses = _losses(target, predictions)
    row, extreme = _extreme(arrays)
    ranks = np.zeros(size) if losses is None else np.nan_to_num(losses, nan=1e30)
    if row is not None:
        ranks[row] = np.inf
    try:
        media = _drawn(next(iter(arrays.values())), target, predictions, losses, ranks)
    except (ValueError, TypeError, StopIteration):
        media = None
    return media, extreme, int(ranks.argmax())


def _drawn(x: Any, target: Any, predictions: Any, losses: Any, ranks: Any) -> Media:
    """Draw the first samples by these ranks, which `samples` takes for their losses."""
    x = x.astype(np.float32) if x.dtype.kind == "f" else x
    media = samples(x, _class_of(target), _class_of(predictions), ranks, most=_MOST_SHOWN)
    columns = {name: column for name, column in media.columns.items() if name != "loss"}
    if losses is not None:
        shown = [losses[int(number)] for number in columns["sample"]]
        columns["loss"] = [format_number(float(loss), 3) for loss in shown]
    return dataclasses.replace(media, columns=columns)


def _class_of(values: Any) -> Any:
    """Return labels or scores by class; None for targets of several numbers."""
    if values is None or values.ndim > 2 or (values.ndim == 2 and values.dtype.kind != "f"):
        return None
    return values


def _is_batch(x: Any) -> bool:
    is_array = getattr(x, "ndim", 0) > 0 and x.size > 0
    is_deleted = isinstance(x, jax.Array) and x.is_deleted()
    return is_array and not is_deleted and np.asarray(x).dtype.kind in "fiub"


def _target_among(arrays: dict[str, np.ndarray], predictions: Any) -> str:
    """Return the name of the last input that can be the target of the predictions; '' if none."""
    for name, x in reversed(arrays.items()) if len(arrays) > 1 else ():
        is_label = x.ndim == 1 and x.dtype.kind in "iu"
        if is_label or (predictions is not None and x.shape == predictions.shape):
            return name
    return ""


def _losses(target: Any, predictions: Any) -> np.ndarray | None:
    """Return cross-entropy of class labels, or the mean squared error of targets."""
    if target is None or predictions is None:
        return None
    predictions = predictions.astype(np.float64)
    with np.errstate(all="ignore"):
        if target.shape == predictions.shape:
            return ((predictions - target) ** 2).reshape(len(target), -1).mean(1)
        if predictions.ndim != 2 or target.ndim != 1:
            return None
        if target.min() < 0 or target.max() >= predictions.shape[1]:
            return None
        return cross_entropies(predictions, target)


def _extreme(arrays: dict[str, np.ndarray]) -> tuple[int | None, str]:
    """Return the sample that holds a number far from those of all others, and a sentence."""
    for name, x in arrays.items():
        if x.dtype.kind != "f":
            continue
        largest = np.abs(x.reshape(len(x), -1).astype(np.float64)).max(1)
        row = int(largest.argmax())
        others = float(np.delete(largest, row).max())
        if np.isfinite(largest).all() and largest[row] > _EXTREME * others > 0:
            word = "pixel" if x.ndim > 2 else "number"
            value, limit = format_number(float(largest[row])), format_number(others, 2)
            return row, f"sample {row}: highest {word} of {name} {value}, others at most {limit}"
    return None, ""
