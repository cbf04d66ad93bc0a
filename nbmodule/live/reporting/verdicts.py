"""What is wrong with a run while it goes on, worked out from what was logged and measured, and what
can be done about it.

The sentences are those of every view (`views/records/findings.py`); here stand the ranges that only
a training has. A remedy is a message that a page may send, so that its button does what code would
do, and it is offered only where that works.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from nbmodule.base.format import count_noun, format_count, format_number
from nbmodule.live.diagnosis.evidence import Evidence, LoggedCurve
from nbmodule.live.diagnosis.judge import Diagnosis, judge
from nbmodule.live.diagnosis.rule import RuleVerdict
from nbmodule.live.run.control import FACTOR, RATE
from nbmodule.live.run.finding import Remedy, RunFinding
from nbmodule.live.run.state import RunState
from nbmodule.live.run.watch import Strips
from nbmodule.views.records.findings import (
    GROWTH,
    GROWTH_A_LAYER,
    SMALLEST_FAMILY,
    derived,
    of_series,
    ranked,
)
from nbmodule.views.records.records import CallRow, CallTable, Finding, ShownStatistics

HIGH_UPDATE = 0.1
"""Of the norm of an update over that of the weights; about a thousandth is usual."""
GOOD_UPDATE = 0.01
SAMPLES = 3
"""Samples of which the median counts: one alone may be an odd step."""
_EVERY = 1.0
"""Seconds after which a run is judged anew."""
_SHARE = 0.02
"""Share of the time that judging may take."""
_NUMBER = re.compile(r"\d+(?!.*\d)")
"""The last number of a path."""
_PARTS = 1000
"""Elements that stand for those of a return, of which only shares are known."""


class RunFindings:
    """The findings of one run, judged again at most once a second."""

    def __init__(self, run: RunState) -> None:
        self._run = run

    def now(self) -> tuple[RunFinding, ...]:
        """Judge the run as it is now."""
        run, begun = self._run, time.monotonic()
        rules = [*_of_rules(run)]
        numbers = [*_of_numbers(run)]
        if any(each.finding.text.startswith("overfitting") for each in rules):
            numbers = [each for each in numbers if " rises since " not in each.finding.text]
        each = [*numbers, *_of_modules(run), *_of_stalls(run), *rules]
        order = {
            finding.text: place for place, finding in enumerate(ranked(v.finding for v in each))
        }
        first = {verdict.finding.text: verdict for verdict in reversed(each)}
        run.found = tuple(
            sorted((v for t, v in first.items() if t in order), key=lambda v: order[v.finding.text])
        )
        took = time.monotonic() - begun
        run.found_until = begun + max(_EVERY, took / _SHARE)
        return run.found

    def lately(self) -> tuple[RunFinding, ...]:
        """Give what was found a moment ago."""
        return self._run.found if time.monotonic() < self._run.found_until else self.now()


def _of_numbers(run: RunState) -> Iterator[RunFinding]:
    """What curves tell: where they cease to be finite, a validation that rises, a step that stands
    out.
    """
    bad = run.first_bad_step()
    for step in () if bad is None else (bad - 1, bad):
        fault = run.nonfinite_input(step) if step > 0 else ""
        if fault:
            text = f"{fault} at step {format_count(step)}"
            yield RunFinding(Finding(text, "", "wrong", 4.0), step)
            break
    for series in run.history:
        for finding, step in of_series(
            series.name, "step", series.first_nonfinite, series.best, series.last, len(series)
        ):
            yield RunFinding(finding, step)
    worst = next((each for each in run.outliers or () if math.isfinite(each.loss)), None)
    if worst is not None:
        text = f"loss {format_number(worst.loss, 3)} at step {format_count(worst.step)}, usually {format_number(worst.usual, 3)}"
        yield RunFinding(Finding(text, "", "doubt", 1.2), worst.step)


# Rules whose fault is found above, at every step and not only at those that are observed.
_FOUND_ABOVE = frozenset(
    "nonfinite-loss nonfinite-return nonfinite-data vanishing-gradient exploding-gradient "
    "large-update spikes".split()
)


def diagnose(run: RunState) -> Diagnosis:
    """Judge a run by all rules: its curves, and the steps that were observed."""
    curves = {
        series.name: LoggedCurve(series.name, series.steps, series.values.astype(np.float64))
        for series in run.history
    }
    if run.examiner is None:
        return judge(Evidence(curves, is_finished=run.has_ended))
    return judge(run.examiner.examiner.evidence(curves, is_finished=run.has_ended))


def _of_rules(run: RunState) -> Iterator[RunFinding]:
    """What the rules of diagnosis say beyond that."""
    run.verdicts = diagnose(run)
    for verdict in run.verdicts:
        if verdict.rule not in _FOUND_ABOVE:
            finding = Finding(verdict.text, verdict.path, verdict.severity, 1.1)
            yield RunFinding(finding, verdict.step, _remedy_of(run, verdict))


def _remedy_of(run: RunState, verdict: RuleVerdict) -> Remedy | None:
    """The first fix of a verdict that a button can carry out.

    Another rate is tried first: steps ahead with it are drawn beside those with the rate as it is.
    Where no step can be repeated the button sets the rate.
    """
    if run.has_ended:
        return None
    can_repeat = not run.why_not_repeatable
    name = next((name for name in (RATE, FACTOR) if name in run.controls), None)
    for fix in verdict.fixes:
        if fix.message.get("kind") == "rewind" and can_repeat:
            return Remedy(fix.label, fix.message)
        if fix.rate is None or name is None:
            continue
        if can_repeat:
            return Remedy(f"try {fix.label}", fix.message)
        value = float(f"{run.controls[name].value * fix.rate:.3g}")
        message = {"kind": "set", "name": name, "value": value}
        return Remedy(f"{name} \N{RIGHTWARDS ARROW} {format_number(value)}", message)
    return None


def _of_modules(run: RunState) -> Iterator[RunFinding]:
    watched = run.watched
    strips = watched.get("return")
    bad = run.first_bad_step()
    if strips is not None and len(strips):
        for finding in derived(_as_calls(strips)):
            text = finding.text.replace("NaN first in", "not finite first in")
            if text != finding.text and bad is not None and _has_input_fault(run, bad):
                continue  # the submodule got them from the data
            yield RunFinding(finding._replace(text=text, row=None))
    if "gradient" in watched:
        yield from _of_gradients(watched["gradient"])
    if "update" in watched:
        yield from _of_updates(run, watched["update"])


def _has_input_fault(run: RunState, step: int) -> bool:
    return any(run.nonfinite_input(each) for each in (step - 1, step) if each > 0)


def _of_gradients(strips: Strips) -> Iterator[RunFinding]:
    """Chains of numbered layers along which the gradient vanishes or explodes on its way back."""
    newest = strips.newest
    chains: dict[str, list[tuple[str, float]]] = {}
    for path, values in zip(strips.paths, [] if newest is None else newest, strict=False):
        family = _NUMBER.sub("*", path)
        if family != path and math.isfinite(values[1]):
            chains.setdefault(family, []).append((path, float(values[1])))
    for members in sorted(chains.values(), key=lambda chain: chain[0][0].count(".")):
        (first, low), (last, high) = members[0], members[-1]
        if len(members) < SMALLEST_FAMILY or not (low > 0 and high > 0):
            continue
        ratio = low / high
        size = max(ratio, 1 / ratio)
        if size < GROWTH or size ** (1 / (len(members) - 1)) < GROWTH_A_LAYER:
            continue
        factor = f"×{format_number(ratio, 2)}"
        text = (
            f"gradient {'explodes' if ratio > 1 else 'vanishes'} toward {_layer(first)}: "
            f"{factor} of {_layer(last)}"
        )
        yield RunFinding(Finding(text, first, "doubt", 2 + math.log10(size) / 100))
        return  # layers within those of a chain change as they do


def _layer(path: str) -> str:
    return f"layer {path}" if path.isdigit() else path


def _as_calls(strips: Strips) -> CallTable:
    """The newest statistics of submodules as calls, in the order in which they were measured."""
    rows = []
    newest = strips.newest
    assert newest is not None
    for order, (path, values) in enumerate(zip(strips.paths, newest.tolist(), strict=False)):
        mean, std, low, high, bad, zero = values
        if not math.isnan(bad):
            found = ShownStatistics(
                _PARTS,
                mean,
                std,
                low,
                high,
                nan=int(bad),
                zero=round(zero * _PARTS),
                bins=(_PARTS,),
            )
            rows.append(CallRow(path, order=order, statistics=found))
    return CallTable("", tuple(rows))


def _of_updates(run: RunState, strips: Strips) -> Iterator[RunFinding]:
    """Steps that are too long beside the weights, and weights that do not move while others do."""
    recent = strips.recent(SAMPLES)
    if len(recent) < SAMPLES:
        return
    ratios = np.median(recent[..., 0], axis=0)
    high = [k for k in np.argsort(-np.nan_to_num(ratios)).tolist() if ratios[k] > HIGH_UPDATE]
    if high:
        path, ratio = strips.paths[high[0]], float(ratios[high[0]])
        more = f" + {len(high) - 1}" if len(high) > 1 else ""
        text = f"update/weight {format_number(ratio, 2)} {path or 'the model'}{more}"
        yield RunFinding(Finding(text, path, "doubt", 1.5), None, _lower_rate(run, ratio))
    still = [path for path, ratio in zip(strips.paths, ratios.tolist(), strict=True) if ratio == 0]
    still = [path for path in still if not any(path.startswith(f"{other}.") for other in still)]
    if still and (ratios > 0).any():
        more = f" + {len(still) - 1}" if len(still) > 1 else ""
        yield RunFinding(Finding(f"does not change: {still[0]}{more}", still[0], "note", 1.0))


def _lower_rate(run: RunState, ratio: float) -> Remedy | None:
    """A rate at which the update would be of a usual size."""
    name = next((name for name in (RATE, FACTOR) if name in run.controls), None)
    if name is None:
        return None
    control: Any = run.controls[name]
    lower = float(f"{max(control.value * GOOD_UPDATE / ratio, getattr(control, 'low', 0.0)):.3g}")
    if not lower < control.value:
        return None
    return Remedy(f"{name} → {format_number(lower)}", {"kind": "set", "name": name, "value": lower})


def _of_stalls(run: RunState) -> Iterator[RunFinding]:
    """Steps that were compiled anew since their data had another shape."""
    stalls = [
        message
        for message in run.messages
        if message.mark == "compiled" and "new shapes" in message.text
    ]
    if not stalls:
        return
    shapes = stalls[-1].text.partition("new shapes, ")[2].partition(";")[0]
    text = f"compiled anew {count_noun(len(stalls), 'time')}: new shapes, {shapes}"
    remedy = (
        Remedy("drop the last batch", {"kind": "drop_last"}) if run.count.may_drop_last else None
    )
    yield RunFinding(Finding(text, "", "note", 1.5), stalls[-1].step, remedy)
