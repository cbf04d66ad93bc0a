"""The findings of a run: the verdicts of the rules of diagnosis, with buttons that try a fix.

A remedy is a message that a page may send, so that its button does what code would do; it is
offered only where that works.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np

from nbmodule.base.format import count_noun, format_number
from nbmodule.live.diagnosis.evidence import (
    Batch,
    Evidence,
    Snapshot,
    VariableEvidence,
    logged_curves,
    number_or_none,
)
from nbmodule.live.diagnosis.judge import Diagnosis, judge
from nbmodule.live.diagnosis.rule import RuleVerdict
from nbmodule.live.run_data.control import FACTOR, RATE
from nbmodule.live.run_data.messages import Remedy, RunFinding
from nbmodule.live.run_data.state import RunState

SAMPLES = 5
"""Newest samples of updates that are judged where no step is observed."""
_EVERY = 1.0
"""Seconds after which a run is judged again; more if judging takes long."""


def findings_of(run: RunState) -> tuple[RunFinding, ...]:
    """Judge a run; return its findings, the worst first."""
    begun = time.monotonic()
    run.verdicts = diagnose(run)
    verdicts = [
        RunFinding(v.severity, v.text, v.path, v.step, _remedy_of(run, v)) for v in run.verdicts
    ]
    run.found = (*verdicts, *_stalls_of(run))
    run.found_until = begun + max(_EVERY, (time.monotonic() - begun) / run.share)
    return run.found


def recent_findings(run: RunState) -> tuple[RunFinding, ...]:
    """Return the findings of the last judgment, unless it is too old."""
    return run.found if time.monotonic() < run.found_until else findings_of(run)


def diagnose(run: RunState) -> Diagnosis:
    """Judge a run by all rules: its curves, and the steps that were observed."""
    curves = logged_curves(run.history)
    bad_step = run.first_bad_step()
    fault = None if bad_step is None else run.bad_input(bad_step)
    more: dict[str, Any] = {"is_finished": run.has_ended, "input_fault": fault}
    more["rate"] = number_or_none(run.settings.get("lr"))
    evidence = Evidence(curves, **more)
    if run.examiner is not None:
        evidence = run.examiner.evidence(curves, **more)
    return judge(replace(evidence, snapshots=evidence.snapshots or _snapshots_of_updates(run)))


def _snapshots_of_updates(run: RunState) -> tuple[Snapshot, ...]:
    """Return the newest samples of updates as observed steps, for models whose steps cannot be
    observed: those of other frameworks, and arrays.
    """
    strips = run.watched.get("update")
    if strips is None:
        return ()
    snapshots = []
    for step, ratios in zip(strips.steps[-SAMPLES:].tolist(), strips.recent(SAMPLES)[..., 0]):
        known = [(p, r) for p, r in zip(strips.paths, ratios.tolist()) if np.isfinite(r)]
        # the norm and the shape of a matrix stand for those of a submodule, which is not one array
        variables = [VariableEvidence(p, (1, 1), True, 1.0, r, False) for p, r in known]
        snapshots.append(Snapshot(step, None, Batch(step, {}, {}), None, (), tuple(variables)))
    return tuple(snapshots)


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
    control = run.controls[name]
    low, high = control.details["low"], control.details["high"]
    value = float(f"{min(max(control.value * factor, low), high):.3g}")
    message = {"kind": "set", "name": name, "value": value}
    return None if value == control.value else Remedy(f"{name} → {format_number(value)}", message)


def _stalls_of(run: RunState) -> list[RunFinding]:
    """Return steps that were compiled again because their data had another shape."""
    stalls: list[Any] = [
        message
        for message in run.messages
        if message.mark == "compiled"
        and "new shapes" in message.text
        and message.step <= run.step  # not before a rewind
    ]
    if not stalls:
        return []
    shapes = stalls[-1].text.partition("new shapes, ")[2]
    text = f"compiled anew {count_noun(len(stalls), 'time')}: new shapes, {shapes}"
    return [RunFinding("note", text, step=stalls[-1].step)]
