"""Rules that read returns, gradients, updates and weights of submodules.

Submodules are compared in the order in which they were called, never by the text of their paths.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nbmodule.base.format import format_count
from nbmodule.live.diagnosis.evidence import (
    DROPS,
    CallEvidence,
    Evidence,
    Snapshot,
    VariableEvidence,
)
from nbmodule.live.diagnosis.rule import (
    Fix,
    RuleVerdict,
    histogram_of,
    rule,
    scale_rate,
    short_number,
)

Array = NDArray[Any]

GRADIENT_RATIO = 1e-3
"""First over last layer, across at least four layers; LeCun-scaled tanh networks keep 0.5 to 1 of
the gradient at each layer."""
A_LAYER = 1.5
RETURN_RATIO = 1e3
DEAD_UNITS = 0.5
LEAST_ROWS = 32
SATURATED = 0.8
SMALL_UPDATE = 2e-6
LARGE_UPDATE = 0.1
"""Norm of the update over that of the weights; 0.001 is usual."""
COLLAPSED = 1e-4


def _norm(x: Array | None) -> float:
    return float("nan") if x is None else float(np.sqrt(np.mean(np.square(x.astype(np.float64)))))


def _chain(snapshot: Snapshot) -> list[CallEvidence]:
    """Calls of layers that hold trainable parameters, in the order of calling."""
    return [
        c for c in snapshot.calls if c.trainable and c.returns is not None and c.returns.ndim > 1
    ]


@rule("nonfinite-return", needs=("calls",), category="inside")
def nonfinite_return(evidence: Evidence) -> Iterator[RuleVerdict]:
    """A submodule returned NaN or Inf for finite inputs. `nb.first_nonfinite` names the operation
    and its source line.
    """
    for snapshot in evidence.snapshots:
        # Once the inputs of a step were not finite, the weights are not finite either.
        if evidence.input_fault is not None and snapshot.step >= evidence.input_fault[0]:
            return
        for call in snapshot.calls:
            if (
                call.returns is None
                or not _has_nonfinite(call.returns)
                or _has_nonfinite(call.inputs)
            ):
                continue
            bad = [v.path for v in snapshot.variables if not math.isfinite(v.norm)]
            own = [path for path in bad if path.rpartition(".")[0] == call.path]
            cause = f": its {own[0].rpartition('.')[2]} is not finite" if own else ""
            if _only_masks(call.returns):
                continue
            text = f"not finite first in {call.name}{cause}"
            yield RuleVerdict("nonfinite-return", text, "wrong", call.path, snapshot.step)
            return


def _has_nonfinite(x: Array | None) -> bool:
    return x is not None and x.dtype.kind in "fc" and not np.isfinite(x).all()


def _only_masks(x: Array) -> bool:
    """Return True if all values that are not finite are -Inf, as in a mask before a softmax."""
    bad = x[~np.isfinite(x)]
    return bool(np.isneginf(bad).all()) and len(bad) < x.size


@rule("vanishing-gradient", needs=("calls",), category="inside")
def vanishing_gradient(evidence: Evidence) -> Iterator[RuleVerdict]:
    """The gradient shrinks on its way back to the first layers, which therefore hardly learn. Usual
    causes: saturating activations, small initial weights, many layers without residual connections.
    """
    step, chain, sizes, ratio = _gradients_of(evidence)
    if ratio < GRADIENT_RATIO and (ratio or 1e-38) ** (1 / (len(sizes) - 1)) < 1 / A_LAYER:
        factor = "0" if ratio == 0 else f"1/{short_number(1 / ratio)}"
        text = (
            f"the gradient vanishes toward {chain[0].name}: it is {factor} of that at "
            f"{chain[-1].name}"
        )
        yield RuleVerdict(
            "vanishing-gradient", text, path=chain[0].path, step=step, evidence=_logs(sizes)
        )


@rule("exploding-gradient", needs=("calls",), category="inside")
def exploding_gradient(evidence: Evidence) -> Iterator[RuleVerdict]:
    """The gradient grows on its way back to the first layers, whose steps are therefore far too
    large. Usual causes: large initial weights, long recurrences. Clip the gradient, or use
    normalization or an initializer that fits the activation.
    """
    step, chain, sizes, ratio = _gradients_of(evidence)
    if ratio > 1 / GRADIENT_RATIO and ratio ** (1 / (len(sizes) - 1)) > A_LAYER:
        text = (
            f"the gradient explodes toward {chain[0].name}: it is {short_number(ratio)} times "
            f"that at {chain[-1].name}"
        )
        yield RuleVerdict(
            "exploding-gradient", text, path=chain[0].path, step=step, evidence=_logs(sizes)
        )


def _gradients_of(evidence: Evidence) -> tuple[int, list[CallEvidence], list[float], float]:
    """Return the newest step with gradients of at least four layers, these layers, the sizes of
    their gradients, and the first over the larger of the last two; NaN where there is no such step.
    """
    for snapshot in reversed(evidence.snapshots):
        chain = [c for c in _chain(snapshot) if c.gradient is not None]
        sizes = [_norm(c.gradient) for c in chain]
        if len(sizes) >= 4 and all(map(math.isfinite, sizes)) and max(sizes[-2:]) > 0:
            return snapshot.step, chain, sizes, sizes[0] / max(sizes[-2:])
    return 0, [], [], math.nan


def _logs(sizes: list[float]) -> dict[str, list[float]]:
    return {"gradient by layer": [math.log10(max(size, 1e-38)) for size in sizes]}


@rule("return-scale", needs=("calls",), category="inside")
def return_scale(evidence: Evidence) -> Iterator[RuleVerdict]:
    """Returns grow or shrink from layer to layer by a large factor. Use an initializer that fits
    the activation (`nb.KaimingNormal` for ReLU, `nb.GlorotNormal` for tanh) or normalization.
    """
    snapshot = evidence.snapshots[0]
    chain = [c for c in _chain(snapshot) if c.returns is not None and not _is_zero(c.returns)]
    sizes = [_norm(c.returns) for c in chain]
    if len(sizes) < 4 or not all(0 < size < math.inf for size in sizes):
        return
    ratio = sizes[-1] / sizes[0]
    per_layer = max(ratio, 1 / ratio) ** (1 / (len(sizes) - 1))
    if max(ratio, 1 / ratio) < RETURN_RATIO or per_layer < A_LAYER:
        return
    word = "grow" if ratio > 1 else "shrink"
    text = (
        f"returns {word} with depth, {short_number(max(ratio, 1 / ratio))} times from "
        f"{chain[0].name} to {chain[-1].name}"
    )
    picture = {"returns by layer": [math.log10(size) for size in sizes]}
    yield RuleVerdict(
        "return-scale", text, path=chain[-1].path, step=snapshot.step, evidence=picture
    )


def _is_zero(x: Array) -> bool:
    return not np.any(x)


def _units(x: Array) -> Array | None:
    """Rows by units: all axes but the last are rows. None where there are too few rows."""
    flat = x.reshape(-1, x.shape[-1]) if x.ndim >= 2 else None
    return flat if flat is not None and len(flat) >= LEAST_ROWS else None


@rule("dead-units", needs=("calls",), category="inside")
def dead_units(evidence: Evidence) -> Iterator[RuleVerdict]:
    """Units return zero for every sample and so receive no gradient. Usual causes: a rate that was
    too large, a large negative bias, inputs on a wrong scale. Try a lower rate or LeakyReLU.
    """
    counted: dict[str, list[tuple[float, int, int]]] = {}
    for snapshot in evidence.snapshots:
        for call in snapshot.calls:
            units = _units(call.returns) if call.returns is not None else None
            if units is None or not _is_rectifier(call, units):
                continue
            dead = ~units.any(axis=0)
            counted.setdefault(call.path, []).append((float(dead.mean()), snapshot.step, dead.size))
    worst = max(counted.items(), key=lambda item: item[1][-1][0], default=None)
    if worst is None or worst[1][-1][0] < DEAD_UNITS:
        return
    path, history = worst
    share, _, units_count = history[-1]
    since = next(step for value, step, _ in history if value >= DEAD_UNITS)
    text = f"{round(share * units_count)} of {units_count} units of {path} never fire"
    picture = {"share that never fires": [value for value, _, _ in history]}
    yield RuleVerdict(
        "dead-units", text, path=path, step=since, evidence=picture, fixes=scale_rate(0.1)
    )


def _is_rectifier(call: CallEvidence, units: Array) -> bool:
    """Return True if the call is an activation with a threshold: no negative value, and no gate."""
    if (
        call.trainable
        or DROPS.search(call.class_name)
        or units.dtype.kind != "f"
        or units.min() < 0
    ):
        return False
    if (
        call.inputs is not None
        and call.returns is not None
        and call.inputs.shape == call.returns.shape
        and call.inputs.min() >= 0
    ):
        return False  # it is fed by zeros; the layer before is to blame
    # A gate or a softmax chooses a few units in each row, which is what it is for.
    chosen = (units != 0).sum(axis=1)
    chooses = bool(((chosen >= 1) & (chosen <= 2)).all()) or np.allclose(units.sum(axis=1), 1)
    return units.shape[1] >= 8 and not chooses


@rule("saturated", needs=("calls",), category="inside")
def saturated(evidence: Evidence) -> Iterator[RuleVerdict]:
    """An activation inside the network returns its extreme values almost everywhere, where its
    slope is zero. Usual causes: large weights, inputs that are not scaled, a rate that was too
    large.
    """
    snapshot = evidence.last
    assert snapshot is not None
    for call in snapshot.calls[:-1]:
        x = call.returns
        if x is None or call.trainable or x.dtype.kind != "f" or x.size < 64:
            continue
        name = call.class_name.lower()
        if "tanh" in name:
            share = float((np.abs(x) > 0.99).mean())
        elif "sigmoid" in name and "log" not in name:
            share = float(((x < 0.01) | (x > 0.99)).mean())
        else:
            continue
        if share > SATURATED:
            text = f"{share:.0%} of {call.name} ({call.class_name}) is saturated"
            yield RuleVerdict(
                "saturated",
                text,
                path=call.path,
                step=snapshot.step,
                evidence=histogram_of(f"returns of {call.name}", x),
                fixes=scale_rate(0.1),
            )
            return


@rule("symmetric-units", needs=("variables",), category="inside")
def symmetric_units(evidence: Evidence) -> Iterator[RuleVerdict]:
    """All rows of a weight are the same, so all units compute and learn the same. Draw initial
    weights at random.
    """
    snapshot = evidence.last
    assert snapshot is not None
    same = [v for v in snapshot.variables if v.trainable and v.rows_equal and v.norm > 0]
    zero = [v for v in snapshot.variables if v.trainable and len(v.shape) > 1 and v.norm == 0]
    matrices = [v for v in snapshot.variables if v.trainable and len(v.shape) > 1]
    if same:
        text = f"all rows of {same[0].path} are equal: its units compute the same"
        yield RuleVerdict("symmetric-units", text, "wrong", same[0].path, snapshot.step)
    elif len(zero) == len(matrices) > 1:
        text = f"all weight matrices are zero, beginning with {zero[0].path}"
        yield RuleVerdict("symmetric-units", text, "wrong", zero[0].path, snapshot.step)


@rule("collapse", needs=("calls",), category="inside")
def collapse(evidence: Evidence) -> Iterator[RuleVerdict]:
    """The model returns the same for every sample, whatever its input. Usual causes: dead units, a
    rate that is too large, inputs that are all alike.
    """
    snapshot = evidence.last
    assert snapshot is not None
    root = snapshot.root
    if root is None or root.returns is None or root.inputs is None or snapshot.step < 5:
        return
    x = root.returns.astype(np.float64)
    if x.ndim < 1 or len(x) < 8 or not np.isfinite(x).all() or len(root.inputs) != len(x):
        return
    apart = np.abs(x - x[0]).max()
    inputs = root.inputs.astype(np.float64)
    if np.abs(inputs - inputs[0]).max() == 0 or apart > COLLAPSED * max(
        float(np.abs(x).max()), 1e-12
    ):
        return
    text = "the model returns the same for every sample"
    picture = histogram_of("returns", x)
    yield RuleVerdict("collapse", text, step=snapshot.step, evidence=picture)


def _matrices(snapshot: Snapshot) -> list[VariableEvidence]:
    return [v for v in snapshot.variables if v.trainable and len(v.shape) > 1 and v.norm > 0]


@rule("no-update", needs=("variables",), category="inside")
def no_update(evidence: Evidence) -> Iterator[RuleVerdict]:
    """No parameter changes. Usual causes: the optimizer updates a copy, all parameters are frozen,
    gradients are zero or clipped to nothing, the schedule has ended, the rate is 0.
    """
    snapshots = [s for s in evidence.snapshots if any(v.trainable for v in s.variables)]
    if not snapshots:
        if evidence.snapshots and evidence.last is not None and evidence.last.variables:
            yield RuleVerdict("no-update", "no parameter is trainable: all are frozen", "wrong")
        return
    still = [s for s in snapshots if not any(v.trainable and v.change > 0 for v in s.variables)]
    if len(still) < max(2, (len(snapshots) + 1) // 2) or snapshots[-1] is not still[-1]:
        return
    if any(not math.isfinite(v.norm) for v in still[-1].variables):
        return
    step = still[0].step
    text = "no parameter changes: the step leaves all of them as they were"
    yield RuleVerdict("no-update", text, "wrong", step=step, evidence=_ratios(evidence))


@rule("small-update", needs=("variables",), category="inside")
def small_update(evidence: Evidence) -> Iterator[RuleVerdict]:
    """Updates are tiny beside the weights, so nothing is learned in any reasonable time. Usual
    causes: a rate that is too small, gradients clipped to almost nothing, a schedule that is over.
    """
    ratios = [_median_ratio(s) for s in evidence.snapshots]
    ratios = [ratio for ratio in ratios if ratio is not None]
    if len(ratios) < 2 or ratios[-1] is None:
        return
    usual = float(np.median([ratio for ratio in ratios if ratio is not None]))
    if not 0 < usual < SMALL_UPDATE * 10 or not _is_unfinished(evidence):
        return
    text = f"updates are {short_number(usual)} of the weights; about 0.001 is usual"
    yield RuleVerdict("small-update", text, evidence=_ratios(evidence), fixes=scale_rate(10))


def _is_unfinished(evidence: Evidence) -> bool:
    """Return True if the loss is near its start; small updates at the end of a run are healthy."""
    curve = evidence.loss
    if curve is None or len(curve.finite) < 10:
        return True
    values = curve.finite
    part = max(3, len(values) // 10)
    head, tail = float(np.median(values[:part])), float(np.median(values[-part:]))
    return tail > 0.8 * head


def _ratios(evidence: Evidence) -> dict[str, list[float]]:
    """Return the update ratio of each observed step, as evidence."""
    ratios = [_median_ratio(snapshot) for snapshot in evidence.snapshots]
    return {"update / weight": [ratio for ratio in ratios if ratio is not None]}


def _median_ratio(snapshot: Snapshot) -> float | None:
    ratios = [v.ratio for v in _matrices(snapshot)]
    return float(np.median(ratios)) if ratios else None


@rule("large-update", needs=("variables",), category="inside")
def large_update(evidence: Evidence) -> Iterator[RuleVerdict]:
    """Updates are large beside the weights, so each step undoes what earlier ones learned. The
    usual cause is a learning rate that is too large.
    """
    late = [s for s in evidence.snapshots if s.step >= 3] or []
    large = []
    for snapshot in late:
        ratio = _median_ratio(snapshot)
        if ratio is not None and ratio > LARGE_UPDATE:
            large.append((snapshot, ratio))
    needed = 1 if large and max(ratio for _, ratio in large) > 1.0 else 2
    if len(large) < needed or len(large) < len(late) / 2:
        return
    snapshot, ratio = large[-1]
    text = (
        f"updates are {short_number(ratio)} of the weights at step "
        f"{format_count(snapshot.step)}; about 0.001 is usual"
    )
    yield RuleVerdict(
        "large-update",
        text,
        step=large[0][0].step,
        evidence=_ratios(evidence),
        fixes=scale_rate(0.01 / ratio),
    )


@rule("weights-shrink", needs=("variables",), category="inside")
def weights_shrink(evidence: Evidence) -> Iterator[RuleVerdict]:
    """All weight matrices shrink steadily: weight decay is stronger than what the data teaches.
    Lower the decay.
    """
    snapshots = [s for s in evidence.snapshots if _matrices(s)]
    if len(snapshots) < 3:
        return
    paths = [v.path for v in _matrices(snapshots[0])]
    norms = np.array([[_norm_of(s, path) for path in paths] for s in snapshots])
    if not np.isfinite(norms).all():
        return
    usual = np.median(norms / norms[0], axis=1)
    if (np.diff(usual) < 0).mean() < 0.75:
        return
    ratio = float(usual[-1])
    if ratio < 0.4:
        text = (
            f"all weights shrink: to {ratio:.0%} of their norm since step "
            f"{format_count(snapshots[0].step)}"
        )
        picture = {"norm of the weights": [float(x) for x in norms.mean(axis=1)]}
        fix = Fix("a tenth of the weight decay", "")
        yield RuleVerdict(
            "weights-shrink", text, step=snapshots[0].step, evidence=picture, fixes=[fix]
        )


def _norm_of(snapshot: Snapshot, path: str) -> float:
    return next((v.norm for v in snapshot.variables if v.path == path), float("nan"))


@rule("same-dropout-mask", needs=("calls",), category="inside")
def same_dropout_mask(evidence: Evidence) -> Iterator[RuleVerdict]:
    """Dropout drops the same units at every step, so it only makes the network smaller. The usual
    cause is one fixed random key.
    """
    masks: dict[str, list[tuple[int, Array]]] = {}
    for snapshot in evidence.snapshots:
        for call in snapshot.calls:
            if not DROPS.search(call.class_name) or call.returns is None or call.inputs is None:
                continue
            if call.training and call.returns.shape == call.inputs.shape:
                dropped = np.where(call.inputs == 0, np.nan, call.returns == 0)
                if 0.02 < np.mean(dropped == 1) < 0.98:
                    masks.setdefault(call.path, []).append((snapshot.step, dropped))
    for path, seen in masks.items():
        if len(seen) >= 2 and all(_agree(mask, seen[0][1]) for _, mask in seen[1:]):
            text = f"{path} drops the same elements at each step"
            yield RuleVerdict("same-dropout-mask", text, path=path, step=seen[0][0])
            return


def _agree(a: Array, b: Array) -> bool:
    """Return True if two masks are the same, where both are known: of an input of zero they are not
    (NaN).
    """
    rows = min(len(a), len(b))
    if a.shape[1:] != b.shape[1:] or rows < 2:
        return False
    apart = np.abs(a[:rows] - b[:rows])
    known = apart[~np.isnan(apart)]
    return known.size > 0 and float(known.mean()) < 0.005
