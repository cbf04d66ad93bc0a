"""The findings of a run: those of its curves and watched samples, and those of the rules of
diagnosis, in one list.

Texts are those of every view (`views/records/findings.py`). A remedy is a message that a page may
send, so that its button does what code would do; it is offered only where that works.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from nbmodule.base.format import count_noun, format_count, format_number
from nbmodule.live.diagnosis.evidence import Evidence, LoggedCurve, number_or_none
from nbmodule.live.diagnosis.judge import Diagnosis, judge
from nbmodule.live.diagnosis.rule import RuleVerdict
from nbmodule.live.run.control import FACTOR, RATE
from nbmodule.live.run.messages import Remedy, RunFinding
from nbmodule.live.run.state import RunState
from nbmodule.live.run.strips import Strips
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
"""Norm of an update over that of the weights; about a thousandth is usual."""
GOOD_UPDATE = 0.01
SAMPLES = 3
"""Samples whose median counts: a single one may be an odd step."""
_EVERY = 1.0
"""Seconds after which a run is judged again."""
_SHARE = 0.02
"""Share of the time that judging may take."""
_NUMBER = re.compile(r"\d+(?!.*\d)")
"""The last number of a path."""
_PARTS = 1000
"""Elements that stand for those of a return, of which only shares are known."""
_FROM_SAMPLES = frozenset(
    "nonfinite-loss nonfinite-return nonfinite-data vanishing-gradient exploding-gradient "
    "large-update spikes".split()
)
"""Rules whose faults curves and samples show at every step, not only at observed ones."""


class RunFindings:
    """The findings of one run, judged again at most once a second."""

    def __init__(self, run: RunState) -> None:
        self._run = run

    def now(self) -> tuple[RunFinding, ...]:
        """Judge the run."""
        run, begun = self._run, time.monotonic()
        rules = list(_of_rules(run))
        overfits = any(each.finding.text.startswith("overfitting") for each in rules)
        curves = [
            each
            for each in _of_curves(run)
            if not (overfits and " rises since " in each.finding.text)
        ]
        findings = [*curves, *_of_modules(run), *_of_stalls(run), *rules]
        by_text = {each.finding.text: each for each in reversed(findings)}
        order = dict.fromkeys(finding.text for finding in ranked(f.finding for f in findings))
        run.found = tuple(by_text[text] for text in order)
        run.found_until = begun + max(_EVERY, (time.monotonic() - begun) / _SHARE)
        return run.found

    def lately(self) -> tuple[RunFinding, ...]:
        """Return the findings of the last judgment, unless it is too old."""
        return self._run.found if time.monotonic() < self._run.found_until else self.now()


def diagnose(run: RunState) -> Diagnosis:
    """Judge a run by all rules: its curves, and the steps that were observed."""
    curves = {
        series.name: LoggedCurve(series.name, series.steps, series.values.astype(np.float64))
        for series in run.history
    }
    bad_step = run.first_bad_step()
    fault = None if bad_step is None else run.bad_input(bad_step)
    more: dict[str, Any] = {"is_finished": run.has_ended, "input_fault": fault}
    more["rate"] = number_or_none(run.settings.get("lr"))
    if run.examiner is None:
        return judge(Evidence(curves, **more))
    return judge(run.examiner.examiner.evidence(curves, **more))


def _of_rules(run: RunState) -> Iterator[RunFinding]:
    run.verdicts = diagnose(run)
    for verdict in run.verdicts:
        if verdict.rule not in _FROM_SAMPLES:
            finding = Finding(verdict.text, verdict.path, verdict.severity, 1.1)
            yield RunFinding(finding, verdict.step, _remedy_of(run, verdict))


def _remedy_of(run: RunState, verdict: RuleVerdict) -> Remedy | None:
    """Return the first fix of a verdict that a button can carry out.

    Another rate is tried first: branches with it are drawn beside those with the current rate.
    Where no step can be repeated the button sets the rate.
    """
    can_repeat = not run.why_not_repeatable
    for fix in () if run.has_ended else verdict.fixes:
        kind, name = fix.message.get("kind"), fix.message.get("name")
        if (kind == "rewind" and can_repeat) or (kind == "set" and name in run.controls):
            return Remedy(fix.label, fix.message)
        remedy = None if fix.rate is None else _scaled_rate(run, fix.rate)
        if remedy is not None:
            return Remedy(f"try {fix.label}", fix.message) if can_repeat else remedy
    return None


def _scaled_rate(run: RunState, factor: float) -> Remedy | None:
    """Return a button that scales the learning rate; None without a control of the rate."""
    name = next((name for name in (RATE, FACTOR) if name in run.controls), None)
    if name is None:
        return None
    control: Any = run.controls[name]
    low, high = getattr(control, "low", 0.0), getattr(control, "high", math.inf)
    value = float(f"{min(max(control.value * factor, low), high):.3g}")
    message = {"kind": "set", "name": name, "value": value}
    return None if value == control.value else Remedy(f"{name} → {format_number(value)}", message)


def _of_curves(run: RunState) -> Iterator[RunFinding]:
    """Yield inputs and curves that are not finite, a validation that rises, and an outlier."""
    bad_step = run.first_bad_step()
    bad = None if bad_step is None else run.bad_input(bad_step)
    if bad is not None:
        step, fault = bad
        yield RunFinding(Finding(f"{fault} at step {format_count(step)}", "", "wrong", 4.0), step)
    for s in run.history:
        facts = (s.first_nonfinite, s.best, s.last, len(s))
        for finding, step in of_series(s.name, "step", *facts):
            yield RunFinding(finding, step)
    worst = next((each for each in run.outliers or () if math.isfinite(each.loss)), None)
    if worst is not None:
        loss, usual = format_number(worst.loss, 3), format_number(worst.usual, 3)
        text = f"loss {loss} at step {format_count(worst.step)}, usually {usual}"
        yield RunFinding(Finding(text, "", "doubt", 1.2), worst.step)


def _of_modules(run: RunState) -> Iterator[RunFinding]:
    watched = run.watched
    if "return" in watched and len(watched["return"]):
        step = run.first_bad_step()
        is_of_data = step is not None and run.bad_input(step) is not None
        for finding in derived(_as_calls(watched["return"])):
            text = finding.text.replace("NaN first in", "not finite first in")
            if text == finding.text or not is_of_data:
                yield RunFinding(finding._replace(text=text, row=None))
    if "gradient" in watched:
        yield from _of_gradients(watched["gradient"])
    if "update" in watched:
        yield from _of_updates(run, watched["update"])


def _of_gradients(strips: Strips) -> Iterator[RunFinding]:
    """Yield a chain of numbered layers along which the gradient vanishes or explodes backward."""
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
        verb = "explodes" if ratio > 1 else "vanishes"
        factor = f"×{format_number(ratio, 2)}"
        text = f"gradient {verb} toward {_layer(first)}: {factor} of {_layer(last)}"
        yield RunFinding(Finding(text, first, "doubt", 2 + math.log10(size) / 100))
        return  # layers within those of a chain change as they do


def _layer(path: str) -> str:
    return f"layer {path}" if path.isdigit() else path


def _as_calls(strips: Strips) -> CallTable:
    """Return the newest statistics of submodules as calls, in the order of measurement."""
    rows = []
    newest = strips.newest
    assert newest is not None
    for order, (path, values) in enumerate(zip(strips.paths, newest.tolist(), strict=False)):
        mean, std, low, high, bad, zero = values
        if not math.isnan(bad):
            counts: Any = {"nan": int(bad), "zero": round(zero * _PARTS), "bins": (_PARTS,)}
            statistics = ShownStatistics(_PARTS, mean, std, low, high, **counts)
            rows.append(CallRow(path, order=order, statistics=statistics))
    return CallTable("", tuple(rows))


def _of_updates(run: RunState, strips: Strips) -> Iterator[RunFinding]:
    """Yield updates that are large relative to the weights, and weights that do not move."""
    recent = strips.recent(SAMPLES)
    if len(recent) < SAMPLES:
        return
    ratios = np.median(recent[..., 0], axis=0)
    high = [k for k in np.argsort(-np.nan_to_num(ratios)).tolist() if ratios[k] > HIGH_UPDATE]
    if high:
        path, ratio = strips.paths[high[0]], float(ratios[high[0]])
        text = f"update/weight {format_number(ratio, 2)} {path or 'the model'}{_more(high)}"
        remedy = _scaled_rate(run, GOOD_UPDATE / ratio)
        yield RunFinding(Finding(text, path, "doubt", 1.5), None, remedy)
    still = [path for path, ratio in zip(strips.paths, ratios.tolist(), strict=True) if ratio == 0]
    still = [path for path in still if not any(path.startswith(f"{other}.") for other in still)]
    if still and (ratios > 0).any():
        text = f"does not change: {still[0]}{_more(still)}"
        yield RunFinding(Finding(text, still[0], "note", 1.0))


def _more(members: list[Any]) -> str:
    return f" + {len(members) - 1}" if len(members) > 1 else ""


def _of_stalls(run: RunState) -> Iterator[RunFinding]:
    """Yield steps that were compiled again because their data had another shape."""
    stalls = [
        message
        for message in run.messages
        if message.mark == "compiled"
        and "new shapes" in message.text
        and message.step <= run.step  # not before a rewind
    ]
    if not stalls:
        return
    shapes = stalls[-1].text.partition("new shapes, ")[2].partition(";")[0]
    text = f"compiled anew {count_noun(len(stalls), 'time')}: new shapes, {shapes}"
    remedy = Remedy("drop the last batch", {"kind": "drop_last"})
    remedy = remedy if run.count.may_drop_last else None
    yield RunFinding(Finding(text, "", "note", 1.5), stalls[-1].step, remedy)
