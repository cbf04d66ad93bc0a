"""Verdicts of the rules of diagnosis on a run, with buttons that try a fix.

A button sends a message that does what code would do; it is offered only where that works.
"""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from nbmodule.base.format import format_number
from nbmodule.live.diagnosis.evidence import (
    Batch,
    Evidence,
    Snapshot,
    VariableEvidence,
    logged_curves,
    number_or_none,
)
from nbmodule.live.diagnosis.rule import Diagnosis, Fix, RuleVerdict, judge
from nbmodule.live.run_data.control import FACTOR, RATE
from nbmodule.live.run_data.state import RunState
from nbmodule.views.records.records import Finding

SAMPLES = 5
"""Newest samples of updates that are judged where no step is observed."""
_EVERY = 1.0
"""Seconds after which a run is judged again; more if judging takes long."""


def verdicts_of(run: RunState) -> Diagnosis:
    """Judge a run by all rules: its curves, and the steps that were observed."""
    begun = time.monotonic()
    curves = logged_curves(run.history)
    bad_step = run.first_bad_step()
    evidence = Evidence(curves) if run.examiner is None else run.examiner.evidence(curves)
    evidence = replace(
        evidence,
        snapshots=evidence.snapshots or _snapshots_of_updates(run),
        input_fault=None if bad_step is None else run.bad_input(bad_step),
        rate=number_or_none(run.settings.get("lr")),
        new_shapes=_new_shapes_of(run),
    )
    run.verdicts = Diagnosis(replace(v, button=_button_of(run, v)) for v in judge(evidence))
    run.judged_until = begun + max(_EVERY, (time.monotonic() - begun) / run.share)
    return run.verdicts


def recent_verdicts(run: RunState) -> Diagnosis:
    """Return the verdicts of the last judgment, unless it is too old."""
    return run.verdicts if time.monotonic() < run.judged_until else verdicts_of(run)


def findings_of(run: RunState) -> tuple[Finding, ...]:
    """Judge a run; return the verdicts as the findings that all views have."""
    return tuple(Finding(v.text, v.path, v.severity, 1.1) for v in verdicts_of(run))


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
        snapshots.append(Snapshot(step, None, Batch({}, {}), None, (), tuple(variables)))
    return tuple(snapshots)


def _button_of(run: RunState, verdict: RuleVerdict) -> Fix | None:
    """Return the first fix of a verdict that a button can carry out.

    Another rate is tried first: branches with it are drawn with those of the current rate.
    Where no step can be repeated the button sets the rate.
    """
    can_repeat = not run.why_not_repeatable
    for fix in () if run.count.has_ended else verdict.fixes:
        kind, name = fix.message.get("kind"), fix.message.get("name")
        if (kind == "rewind" and can_repeat) or (kind == "set" and name in run.controls):
            return fix
        button = None if fix.rate is None else _scaled_rate(run, fix.rate)
        if button is not None:
            return replace(fix, label=f"try {fix.label}") if can_repeat else button
    return None


def _scaled_rate(run: RunState, factor: float) -> Fix | None:
    """Return the fix that sets the learning rate; None without a control of the rate."""
    name = next((name for name in (RATE, FACTOR) if name in run.controls), None)
    if name is None:
        return None
    control = run.controls[name]
    low, high = control.details["low"], control.details["high"]
    value = float(f"{min(max(control.value * factor, low), high):.3g}")
    message = {"kind": "set", "name": name, "value": value}
    label = f"{name} → {format_number(value)}"
    return None if value == control.value else Fix(label, "", message)


def _new_shapes_of(run: RunState) -> list[tuple[int, str]]:
    """Return the steps that were compiled again for another shape, but none before a rewind."""
    marked = [m for m in run.messages if m.mark == "compiled" and m.step <= run.count.step]
    parts = [(message.step, *message.text.partition("new shapes, ")[1:]) for message in marked]
    return [(step, change) for step, sign, change in parts if sign]
