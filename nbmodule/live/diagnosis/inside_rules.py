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
from nbmodule.live.diagnosis.evidence import DROPS, CallEvidence, Evidence, Snapshot
from nbmodule.live.diagnosis.rule import (
    Fix,
    RuleVerdict,
    found,
    histogram_of,
    rule,
    scale_rate,
    short,
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
SMALL_UPDATE = 2e-5
LARGE_UPDATE = 0.1
"""Norm of the update over that of the weights; 0.001 is usual."""
COLLAPSED = 1e-4


@rule("nonfinite-return", needs=("calls",), category="inside")
def nonfinite_return(evidence: Evidence) -> Iterator[RuleVerdict]:
    """A submodule returned NaN or Inf for finite inputs. `nb.first_nonfinite` names the operation
    and its source line.
    """
    # Once the inputs of a step were not finite, the weights are not finite either.
    end = math.inf if evidence.input_fault is None else evidence.input_fault[0]
    calls = ((s, call) for s in evidence.snapshots if s.step < end for call in s.calls)
    for snapshot, call in calls:
        if not _is_spoiled(call.returns) or (
            call.inputs is not None and _has_nonfinite(call.inputs)
        ):
            continue
        own = [v.path.rpartition(".") for v in snapshot.variables if not math.isfinite(v.norm)]
        names = [name for path, _, name in own if path == call.path]
        cause = f": its {names[0]} is not finite" if names else ""
        text = f"not finite first in {call.name}{cause}"
        yield found(text, "wrong", call.path, step=snapshot.step)
        return


def _has_nonfinite(x: Array) -> bool:
    return x.dtype.kind in "fc" and not np.isfinite(x).all()


def _is_spoiled(x: Array | None) -> bool:
    """Return True if values are not finite, and not -Inf alone, as in a mask before a softmax."""
    if x is None or not _has_nonfinite(x):
        return False
    bad = x[~np.isfinite(x)]
    return not np.isneginf(bad).all() or len(bad) == x.size


# -- along the depth --
def _norm(x: Array | None) -> float:
    return math.nan if x is None else float(np.sqrt(np.mean(np.square(x.astype(np.float64)))))


def _chain(snapshot: Snapshot) -> list[CallEvidence]:
    """Calls of layers that hold trainable parameters, in the order of calling."""
    return [
        c for c in snapshot.calls if c.trainable and c.returns is not None and c.returns.ndim > 1
    ]


def _is_steep(ratio: float, layers: int, least: float) -> bool:
    """Return True if sizes grow by a factor of `least` in all, and by `A_LAYER` from each layer to
    the next.
    """
    return ratio > least and ratio ** (1 / (layers - 1)) > A_LAYER


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


def _gradient_verdict(
    step: int, chain: list[CallEvidence], sizes: list[float], verb: str, factor: str
) -> RuleVerdict:
    text = f"the gradient {verb} toward {chain[0].name}: it is {factor} that at {chain[-1].name}"
    return found(text, path=chain[0].path, step=step, evidence=_logs("gradient", sizes))


def _logs(name: str, sizes: list[float]) -> dict[str, list[float]]:
    return {f"{name} by layer": [math.log10(max(size, 1e-38)) for size in sizes]}


@rule("vanishing-gradient", needs=("calls",), category="inside")
def vanishing_gradient(evidence: Evidence) -> Iterator[RuleVerdict]:
    """The gradient shrinks on its way back to the first layers, which therefore hardly learn. Usual
    causes: saturating activations, small initial weights, many layers without residual connections.
    """
    step, chain, sizes, ratio = _gradients_of(evidence)
    if _is_steep(1 / (ratio or 1e-38), len(sizes), 1 / GRADIENT_RATIO):
        factor = f"1/{short(1 / ratio)}" if ratio else "0"
        yield _gradient_verdict(step, chain, sizes, "vanishes", f"{factor} of")


@rule("exploding-gradient", needs=("calls",), category="inside")
def exploding_gradient(evidence: Evidence) -> Iterator[RuleVerdict]:
    """The gradient grows on its way back to the first layers, whose steps are therefore far too
    large. Usual causes: large initial weights, long recurrences. Clip the gradient, or use
    normalization or an initializer that fits the activation.
    """
    step, chain, sizes, ratio = _gradients_of(evidence)
    if _is_steep(ratio, len(sizes), 1 / GRADIENT_RATIO):
        yield _gradient_verdict(step, chain, sizes, "explodes", f"{short(ratio)} times")


@rule("return-scale", needs=("calls",), category="inside")
def return_scale(evidence: Evidence) -> Iterator[RuleVerdict]:
    """Returns grow or shrink from layer to layer by a large factor. Use an initializer that fits
    the activation (`nb.KaimingNormal` for ReLU, `nb.GlorotNormal` for tanh) or normalization.
    """
    snapshot = evidence.snapshots[0]
    chain = [c for c in _chain(snapshot) if np.any(c.returns)]
    sizes = [_norm(c.returns) for c in chain]
    if len(sizes) < 4 or not all(0 < size < math.inf for size in sizes):
        return
    ratio = max(sizes[-1] / sizes[0], sizes[0] / sizes[-1])
    if _is_steep(ratio, len(sizes), RETURN_RATIO):
        word = "grow" if sizes[-1] > sizes[0] else "shrink"
        ends = f"from {chain[0].name} to {chain[-1].name}"
        text = f"returns {word} with depth, {short(ratio)} times {ends}"
        picture = _logs("returns", sizes)
        yield found(text, path=chain[-1].path, step=snapshot.step, evidence=picture)


# -- units --
@rule("dead-units", needs=("calls",), category="inside")
def dead_units(evidence: Evidence) -> Iterator[RuleVerdict]:
    """Units return zero for every sample and so receive no gradient. Usual causes: a rate that was
    too large, a large negative bias, inputs on a wrong scale. Try a lower rate or LeakyReLU.
    """
    fired: dict[str, dict[int, Array]] = {}
    for snapshot in evidence.snapshots:
        for call in snapshot.calls:
            x = call.returns
            units = None if x is None or x.ndim < 2 else x.reshape(-1, x.shape[-1])
            if units is not None and len(units) >= LEAST_ROWS and _is_rectifier(call, units):
                fired.setdefault(call.path, {})[snapshot.step] = np.any(units, axis=0)
    if not fired:
        return
    path, by_step = min(fired.items(), key=lambda item: list(item[1].values())[-1].mean())
    shares = [1 - float(units.mean()) for units in by_step.values()]
    if shares[-1] >= DEAD_UNITS:
        since = next(step for step, share in zip(by_step, shares) if share >= DEAD_UNITS)
        last = list(by_step.values())[-1]
        text = f"{(~last).sum()} of {last.size} units of {path} never fire"
        picture, fixes = {"share that never fires": shares}, scale_rate(0.1)
        yield found(text, path=path, step=since, evidence=picture, fixes=fixes)


def _is_rectifier(call: CallEvidence, units: Array) -> bool:
    """Return True if the call is an activation with a threshold: no negative value, and no gate."""
    given = call.inputs
    if call.trainable or DROPS.search(call.class_name) or units.dtype.kind != "f":
        return False
    if units.min() < 0 or units.shape[1] < 8:
        return False
    if given is not None and given.size == units.size and given.min() >= 0:
        return False  # it is fed by zeros; the layer before is to blame
    # A gate or a softmax chooses a few units in each row, which is what it is for.
    chosen = (units != 0).sum(axis=1)
    chooses = bool(((chosen >= 1) & (chosen <= 2)).all()) or np.allclose(units.sum(axis=1), 1)
    return not chooses


@rule("saturated", needs=("calls",), category="inside")
def saturated(evidence: Evidence) -> Iterator[RuleVerdict]:
    """An activation inside the network returns its extreme values almost everywhere, where its
    slope is zero. Usual causes: large weights, inputs that are not scaled, a rate that was too
    large.
    """
    snapshot = evidence.snapshots[-1]
    for call in snapshot.calls[:-1]:
        x, name = call.returns, call.class_name.lower()
        if x is None or call.trainable or x.dtype.kind != "f" or x.size < 64:
            continue
        if "tanh" in name:
            share = (np.abs(x) > 0.99).mean()
        elif "sigmoid" in name and "log" not in name:
            share = ((x < 0.01) | (x > 0.99)).mean()
        else:
            continue
        if share > SATURATED:
            text = f"{share:.0%} of {call.name} ({call.class_name}) is saturated"
            picture, fixes = histogram_of(f"returns of {call.name}", x), scale_rate(0.1)
            yield found(text, path=call.path, step=snapshot.step, evidence=picture, fixes=fixes)
            return


@rule("symmetric-units", needs=("variables",), category="inside")
def symmetric_units(evidence: Evidence) -> Iterator[RuleVerdict]:
    """All rows of a weight are the same, so all units compute and learn the same. Draw initial
    weights at random.
    """
    snapshot = evidence.snapshots[-1]
    same = [v for v in snapshot.variables if v.trainable and v.rows_equal and v.norm > 0]
    matrices = [v for v in snapshot.variables if v.trainable and len(v.shape) > 1]
    if same:
        text = f"all rows of {same[0].path} are equal: its units compute the same"
        yield found(text, "wrong", same[0].path, step=snapshot.step)
    elif len(matrices) > 1 and not any(v.norm for v in matrices):
        text = f"all weight matrices are zero, beginning with {matrices[0].path}"
        yield found(text, "wrong", matrices[0].path, step=snapshot.step)


@rule("collapse", needs=("calls",), category="inside")
def collapse(evidence: Evidence) -> Iterator[RuleVerdict]:
    """The model returns the same for every sample, whatever its input. Usual causes: dead units, a
    rate that is too large, inputs that are all alike.
    """
    snapshot = evidence.snapshots[-1]
    root = snapshot.root
    if root is None or root.returns is None or root.inputs is None or snapshot.step < 5:
        return
    x, given = root.returns.astype(np.float64), root.inputs
    if x.ndim < 1 or len(x) < 8 or not np.isfinite(x).all() or len(given) != len(x):
        return
    is_same = np.abs(x - x[0]).max() <= COLLAPSED * max(np.abs(x).max(), 1e-12)
    if is_same and (given != given[0]).any():
        text, picture = "the model returns the same for every sample", histogram_of("returns", x)
        yield found(text, step=snapshot.step, evidence=picture)


# -- updates --
def _ratios(evidence: Evidence) -> dict[str, list[float]]:
    return {"update / weight": evidence.update_ratios}


@rule("no-update", needs=("variables",), category="inside")
def no_update(evidence: Evidence) -> Iterator[RuleVerdict]:
    """No parameter changes. Usual causes: the optimizer updates a copy, all parameters are frozen,
    gradients are zero or clipped to nothing, the schedule has ended, the rate is 0.
    """
    snapshots = [s for s in evidence.snapshots if any(v.trainable for v in s.variables)]
    still = [s for s in snapshots if not any(v.trainable and v.change > 0 for v in s.variables)]
    if not snapshots and evidence.snapshots[-1].variables:
        yield found("no parameter is trainable: all are frozen", "wrong")
    if len(still) < max(2, (len(snapshots) + 1) // 2) or snapshots[-1] is not still[-1]:
        return
    if all(math.isfinite(v.norm) for v in still[-1].variables):
        text = "no parameter changes: the step leaves all of them as they were"
        yield found(text, "wrong", step=still[0].step, evidence=_ratios(evidence))


@rule("small-update", needs=("variables",), category="inside")
def small_update(evidence: Evidence) -> Iterator[RuleVerdict]:
    """Updates are tiny beside the weights, so nothing is learned in any reasonable time. Usual
    causes: a rate that is too small, gradients clipped to almost nothing, a schedule that is over.
    """
    ratios = evidence.update_ratios
    if len(ratios) >= 2 and 0 < np.median(ratios) < SMALL_UPDATE and _is_unfinished(evidence):
        usual = short(np.median(ratios))
        text = f"updates are {usual} of the weights; about 0.001 is usual"
        yield found(text, evidence=_ratios(evidence), fixes=scale_rate(10))


def _is_unfinished(evidence: Evidence) -> bool:
    """Return True if the loss is near its start; small updates at the end of a run are healthy."""
    curve = evidence.loss
    if curve is None or len(curve.finite) < 10:
        return True
    part = max(3, len(curve.finite) // 10)
    return bool(np.median(curve.finite[-part:]) > 0.8 * np.median(curve.finite[:part]))


@rule("large-update", needs=("variables",), category="inside")
def large_update(evidence: Evidence) -> Iterator[RuleVerdict]:
    """Updates are large beside the weights, so each step undoes what earlier ones learned. The
    usual cause is a learning rate that is too large.
    """
    late = [s for s in evidence.snapshots if s.step >= 3]
    large = [s for s in late if s.update_ratio > LARGE_UPDATE]
    needed = 1 if any(s.update_ratio > 1 for s in large) else 2
    if len(large) < max(needed, len(late) / 2):
        return
    ratio = large[-1].update_ratio
    level = f"{short(ratio)} of the weights at step {format_count(large[-1].step)}"
    text = f"updates are {level}; about 0.001 is usual"
    picture, fixes = _ratios(evidence), scale_rate(0.01 / ratio)
    yield found(text, step=large[0].step, evidence=picture, fixes=fixes)


@rule("weights-shrink", needs=("variables",), category="inside")
def weights_shrink(evidence: Evidence) -> Iterator[RuleVerdict]:
    """All weight matrices shrink steadily: weight decay is stronger than what the data teaches.
    Lower the decay.
    """
    snapshots = [s for s in evidence.snapshots if s.matrices]
    if len(snapshots) < 3:
        return
    norms = [{v.path: v.norm for v in s.variables} for s in snapshots]
    paths = [v.path for v in snapshots[0].matrices]
    table = np.array([[each.get(path, math.nan) for path in paths] for each in norms])
    usual = np.median(table / table[0], axis=1)
    if (np.diff(usual) < 0).mean() >= 0.75 and usual[-1] < 0.4:
        since = format_count(snapshots[0].step)
        text = f"all weights shrink: to {usual[-1]:.0%} of their norm since step {since}"
        picture = {"norm of the weights": table.mean(axis=1).tolist()}
        fixes = [Fix("a tenth of the weight decay", "")]
        yield found(text, step=snapshots[0].step, evidence=picture, fixes=fixes)


@rule("same-dropout-mask", needs=("calls",), category="inside")
def same_dropout_mask(evidence: Evidence) -> Iterator[RuleVerdict]:
    """Dropout drops the same units at every step, so it only makes the network smaller. The usual
    cause is one fixed random key.
    """
    masks: dict[str, list[tuple[int, Array]]] = {}
    for snapshot in evidence.snapshots:
        for call in snapshot.calls:
            x, given = call.returns, call.inputs
            if x is None or given is None or not call.training or x.shape != given.shape:
                continue
            dropped = np.where(given == 0, np.nan, x == 0)  # of an input of zero it is not known
            if DROPS.search(call.class_name) and 0.02 < np.mean(dropped == 1) < 0.98:
                masks.setdefault(call.path, []).append((snapshot.step, dropped))
    for path, seen in masks.items():
        if len(seen) >= 2 and all(_agree(mask, seen[0][1]) for _, mask in seen[1:]):
            text = f"{path} drops the same elements at each step"
            yield found(text, path=path, step=seen[0][0])
            return


def _agree(a: Array, b: Array) -> bool:
    """Return True if two masks are the same, where both are known."""
    rows = min(len(a), len(b))
    if a.shape[1:] != b.shape[1:] or rows < 2:
        return False
    apart = np.abs(a[:rows] - b[:rows])
    known = apart[~np.isnan(apart)]
    return known.size > 0 and float(known.mean()) < 0.005
