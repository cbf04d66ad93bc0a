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
    of_snapshot,
    rule,
    scale_rate,
    short,
)

Array = NDArray[Any]
FIRST, LAST = slice(1), slice(-1, None)

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
    for snapshot, call in ((s, c) for s in evidence.snapshots if s.step < end for c in s.calls):
        # -Inf alone stands in a mask before a softmax
        if _is_spoiled(call.returns) and not len(_nonfinite(call.inputs)):
            own = [v.path.rpartition(".") for v in snapshot.variables if not math.isfinite(v.norm)]
            names = [name for path, _, name in own if path == call.path]
            cause = f": its {names[0]} is not finite" if names else ""
            text = f"not finite first in {call.name}{cause}"
            yield found(text, "wrong", call.path, step=snapshot.step)
            return


def _nonfinite(x: Array) -> Array:
    return x[~np.isfinite(x)] if x.dtype.kind in "fc" else x.ravel()[:0]


def _is_spoiled(x: Array) -> bool:
    """Return True if values are not finite, and not only some of them -Inf."""
    bad = _nonfinite(x)
    return len(bad) > 0 and (len(bad) == x.size or not np.isneginf(bad).all())


# -- along the depth --
def _norms(arrays: list[Array]) -> list[float]:
    return [float(np.sqrt(np.mean(np.square(x.astype(np.float64))))) for x in arrays]


def _chain(snapshot: Snapshot) -> list[CallEvidence]:
    """Calls of layers that hold trainable parameters, in the order of calling."""
    return [c for c in snapshot.calls if c.trainable and c.returns.ndim > 1]


def _is_steep(ratio: float, layers: int, least: float) -> bool:
    """Return True if sizes grow by a factor of `least` in all, and by `A_LAYER` from each layer to
    the next.
    """
    return ratio > least and ratio ** (1 / (layers - 1)) > A_LAYER


def _logs(name: str, sizes: list[float]) -> dict[str, list[float]]:
    return {f"{name} by layer": [math.log10(max(size, 1e-38)) for size in sizes]}


def _gradients(evidence: Evidence, verb: str, sign: int) -> Iterator[RuleVerdict]:
    """Yield a verdict if the gradient shrinks (`sign` -1) or grows (1) toward the first layer, in
    the newest step with gradients of at least four layers.
    """
    for snapshot in reversed(evidence.snapshots):
        chain = [c for c in _chain(snapshot) if c.gradient.size]
        sizes = _norms([c.gradient for c in chain])
        if len(sizes) < 4 or not all(map(math.isfinite, sizes)) or max(sizes[-2:]) <= 0:
            continue
        ratio = sizes[0] / max(sizes[-2:])
        if _is_steep((ratio or 1e-38) ** sign, len(sizes), 1 / GRADIENT_RATIO):
            factor = f"1/{short(1 / ratio)} of" if 0 < ratio < 1 else f"{short(ratio)} times"
            first, last = chain[0], chain[-1]
            text = f"the gradient {verb} toward {first.name}: it is {factor} that at {last.name}"
            picture = _logs("gradient", sizes)
            yield found(text, path=first.path, step=snapshot.step, evidence=picture)
        return


@rule("vanishing-gradient", needs=("calls",), category="inside")
def vanishing_gradient(evidence: Evidence) -> Iterator[RuleVerdict]:
    """The gradient shrinks on its way back to the first layers, which therefore hardly learn. Usual
    causes: saturating activations, small initial weights, many layers without residual connections.
    """
    return _gradients(evidence, "vanishes", -1)


@rule("exploding-gradient", needs=("calls",), category="inside")
def exploding_gradient(evidence: Evidence) -> Iterator[RuleVerdict]:
    """The gradient grows on its way back to the first layers, whose steps are therefore far too
    large. Usual causes: large initial weights, long recurrences. Clip the gradient, or use
    normalization or an initializer that fits the activation.
    """
    return _gradients(evidence, "explodes", 1)


@of_snapshot("return-scale", category="inside", steps=FIRST)
def return_scale(snapshot: Snapshot) -> Iterator[RuleVerdict]:
    """Returns grow or shrink from layer to layer by a large factor. Use an initializer that fits
    the activation (`nb.KaimingNormal` for ReLU, `nb.GlorotNormal` for tanh) or normalization.
    """
    chain = [c for c in _chain(snapshot) if np.any(c.returns)]
    sizes = _norms([c.returns for c in chain])
    if len(sizes) < 4 or not all(0 < size < math.inf for size in sizes):
        return
    ratio = max(sizes[-1] / sizes[0], sizes[0] / sizes[-1])
    if _is_steep(ratio, len(sizes), RETURN_RATIO):
        word = "grow" if sizes[-1] > sizes[0] else "shrink"
        ends = f"from {chain[0].name} to {chain[-1].name}"
        text = f"returns {word} with depth, {short(ratio)} times {ends}"
        yield found(text, path=chain[-1].path, evidence=_logs("returns", sizes))


# -- units --
@rule("dead-units", needs=("calls",), category="inside")
def dead_units(evidence: Evidence) -> Iterator[RuleVerdict]:
    """Units return zero for every sample and so receive no gradient. Usual causes: a rate that was
    too large, a large negative bias, inputs on a wrong scale. Try a lower rate or LeakyReLU.
    """
    fired: dict[str, dict[int, Array]] = {}
    for snapshot in evidence.snapshots:
        for call in (call for call in snapshot.calls if call.returns.ndim >= 2):
            units = call.returns.reshape(-1, call.returns.shape[-1])
            if len(units) >= LEAST_ROWS and _is_rectifier(call, units):
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
    if given.size == units.size and given.min() >= 0:
        return False  # it is fed by zeros; the layer before is to blame
    # A gate or a softmax chooses a few units in each row, which is what it is for.
    chosen = (units != 0).sum(axis=1)
    chooses = bool(((chosen >= 1) & (chosen <= 2)).all()) or np.allclose(units.sum(axis=1), 1)
    return not chooses


@of_snapshot("saturated", category="inside", steps=LAST)
def saturated(snapshot: Snapshot) -> Iterator[RuleVerdict]:
    """An activation inside the network returns its extreme values almost everywhere, where its
    slope is zero. Usual causes: large weights, inputs that are not scaled, a rate that was too
    large.
    """
    for call in snapshot.calls[:-1]:
        x, name = call.returns, call.class_name.lower()
        lows = {"tanh": -0.99, "sigmoid": 0.01}
        low = next((low for word, low in lows.items() if word in name), None)
        is_logarithm = low == 0.01 and "log" in name
        if low is None or is_logarithm or call.trainable or x.dtype.kind != "f" or x.size < 64:
            continue
        share = ((x < low) | (x > 0.99)).mean()
        if share > SATURATED:
            text = f"{share:.0%} of {call.name} ({call.class_name}) is saturated"
            picture, fixes = histogram_of(f"returns of {call.name}", x), scale_rate(0.1)
            yield found(text, path=call.path, evidence=picture, fixes=fixes)


@of_snapshot("symmetric-units", needs=("variables",), category="inside", steps=LAST)
def symmetric_units(snapshot: Snapshot) -> Iterator[RuleVerdict]:
    """All rows of a weight are the same, so all units compute and learn the same. Draw initial
    weights at random.
    """
    trained = [v for v in snapshot.variables if v.trainable]
    matrices = [v for v in trained if len(v.shape) > 1]
    for same in (v for v in trained if v.rows_equal and v.norm > 0):
        text = f"all rows of {same.path} are equal: its units compute the same"
        yield found(text, "wrong", same.path)
    if len(matrices) > 1 and not any(v.norm for v in matrices):
        text = f"all weight matrices are zero, beginning with {matrices[0].path}"
        yield found(text, "wrong", matrices[0].path)


@of_snapshot("collapse", category="inside", steps=LAST)
def collapse(snapshot: Snapshot) -> Iterator[RuleVerdict]:
    """The model returns the same for every sample, whatever its input. Usual causes: dead units, a
    rate that is too large, inputs that are all alike.
    """
    x = snapshot.returns.astype(np.float64)
    given = snapshot.root.inputs if snapshot.root else x
    has_rows = x.ndim > 0 and given.ndim > 0 and 8 <= len(x) == len(given)
    if not has_rows or snapshot.step < 5 or not np.isfinite(x).all():
        return
    is_same = np.abs(x - x[0]).max() <= COLLAPSED * max(np.abs(x).max(), 1e-12)
    if is_same and (given != given[0]).any():
        text, picture = "the model returns the same for every sample", histogram_of("returns", x)
        yield found(text, evidence=picture)


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
        for call in (call for call in snapshot.calls if DROPS.search(call.class_name)):
            x, given = call.returns, call.inputs
            if x.size and call.training and x.shape == given.shape:
                dropped = np.where(given == 0, np.nan, x == 0)  # of an input of zero unknown
                if 0.02 < np.mean(dropped == 1) < 0.98:
                    masks.setdefault(call.path, []).append((snapshot.step, dropped))
    for path, ((step, first), *later) in masks.items():
        if later and all(_agree(mask, first) for _, mask in later):
            yield found(f"{path} drops the same elements at each step", path=path, step=step)
            return


def _agree(a: Array, b: Array) -> bool:
    """Return True if two masks are the same, where both are known."""
    rows = min(len(a), len(b))
    if a.shape[1:] != b.shape[1:] or rows < 2:
        return False
    apart = np.abs(a[:rows] - b[:rows])
    return not np.isnan(apart).all() and bool(np.nanmean(apart) < 0.005)
