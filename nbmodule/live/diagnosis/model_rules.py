"""Rules that read the returns, gradients, updates and weights of submodules, and how a model is put
together: its outputs, its modes, its calls.

Submodules are compared in the order in which they were called, never by the text of their paths.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nbmodule.base.format import count_noun, format_count
from nbmodule.live.diagnosis.evidence import (
    DROPS,
    NORMALIZES_BATCH,
    CallEvidence,
    Evidence,
    Snapshot,
    cross_entropies,
)
from nbmodule.live.diagnosis.rule import (
    Fix,
    RuleVerdict,
    and_more,
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
_LINEAR = re.compile(r"Linear$|Dense$")
CLOSE = 0.02
"""Relative distance within which a logged loss is taken for a loss computed from the returns."""


# -- what submodules return --
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


# -- how a model is put together --
def _sums_to_one(x: Array, axis: int) -> bool:
    values = x.astype(np.float64)
    if values.ndim < 2 or values.shape[axis] < 2 or not np.isfinite(values).all():
        return False
    inside = values.min() >= 0 and values.max() <= 1
    return bool(inside and np.allclose(values.sum(axis=axis), 1, atol=1e-3))


@of_snapshot("double-softmax")
def double_softmax(snapshot: Snapshot) -> Iterator[RuleVerdict]:
    """The model returns probabilities and the loss applies softmax (or sigmoid) to them again, so
    gradients are tiny and the loss cannot reach zero. Remove the last activation.
    """
    x, labels, is_double = snapshot.returns, snapshot.labels, snapshot.logits
    path, class_name = "", ""
    if snapshot.calls:
        path, class_name = snapshot.calls[-1].path, snapshot.calls[-1].class_name.lower()
    name = "softmax" if snapshot.classes and _sums_to_one(x, -1) else "sigmoid"
    if not x.size:
        return
    if name == "sigmoid":
        is_double = is_double and name in class_name and x.min() >= 0 and x.max() <= 1
    elif labels.min() < 0 or labels.max() >= snapshot.classes:
        return
    elif is_double is None and snapshot.loss is not None:
        expected = float(cross_entropies(x, labels).mean())
        is_double = abs(snapshot.loss - expected) < CLOSE * abs(expected)
    if is_double:
        where = f"{name} ({path or 'its return'})"
        text = f"the model ends in {where} and the loss applies {name} again"
        fixes = [Fix(f"remove the last {name}", "")]
        yield found(text, "wrong", path, evidence=histogram_of("returns", x), fixes=fixes)


@of_snapshot("softmax-axis")
def softmax_axis(snapshot: Snapshot) -> Iterator[RuleVerdict]:
    """A softmax normalizes over the batch instead of over the classes, so samples compete with each
    other. Use `axis=-1`.
    """
    for call in (*snapshot.calls, *filter(None, [snapshot.root])):
        x = call.returns
        if x.ndim == 2 and len(x) >= 4 and _sums_to_one(x, 0) and not _sums_to_one(x, -1):
            text = f"{call.name} normalizes over the batch: each column sums to 1, rows do not"
            picture = {"sum of each row": x.sum(axis=-1)[:100].tolist()}
            yield found(text, "wrong", call.path, evidence=picture, fixes=[Fix("axis=-1", "")])


@rule("no-activation", needs=("calls",), category="model")
def no_activation(evidence: Evidence) -> Iterator[RuleVerdict]:
    """Two linear layers follow each other without an activation, so together they are one linear
    layer. Put an activation between them.
    """
    snapshot = evidence.snapshots[0]  # before the gradients of learned rows vanish
    calls = [call for call in snapshot.calls if call.class_name != "Identity"]
    pairs = [(first, second) for first, second in zip(calls, calls[1:]) if _are_one(first, second)]
    for first, second in pairs[:1]:
        text = f"no activation between {first.name} and {second.name}: "
        text += "together they are one linear layer"
        fix = Fix("put an activation between them", "")
        yield found(text, path=second.path, fixes=[fix])


def _are_one(first: CallEvidence, second: CallEvidence) -> bool:
    """Return True if two calls are linear layers and the second takes what the first returns."""
    middle, leaving = first.returns, second.returns
    are_linear = all(_LINEAR.search(c.class_name) and c.trainable for c in (first, second))
    if not are_linear or not middle.size or not np.array_equal(middle, second.inputs):
        return False
    # a narrow middle is a factorization, made on purpose
    is_narrow = middle.shape[-1] < min(first.inputs.shape[-1], leaving.shape[-1])
    return not is_narrow and not _is_used_elsewhere(first.gradient, second.gradient)


def _is_used_elsewhere(g1: Array, g2: Array) -> bool:
    """Return True if a return reaches the loss by another way than through the next linear layer,
    as in a residual connection.

    If it does not, its gradient `g1` is that of the next layer's return, `g2`, times one matrix.
    """
    if g1.ndim < 2 or g1.shape[:-1] != g2.shape[:-1]:
        return False
    own, following = (g.reshape(-1, g.shape[-1]).astype(np.float64) for g in (g1, g2))
    size = np.linalg.norm(own)
    if len(own) <= following.shape[1] or not size or not np.isfinite(size + following.sum()):
        return False
    matrix = np.linalg.lstsq(following, own, rcond=None)[0]
    return bool(np.linalg.norm(following @ matrix - own) > 1e-3 * size)


@of_snapshot("loss-broadcasts", needs=("calls", "batch"))
def loss_broadcasts(snapshot: Snapshot) -> Iterator[RuleVerdict]:
    """Prediction [n, 1] and target [n] broadcast to [n, n], so each prediction is compared with
    every target. Give both the same shape.
    """
    returns, loss = snapshot.returns, snapshot.loss
    for name, target in snapshot.batch.targets.items():
        n = target.size
        are_crossed = {target.shape, returns.shape} == {(n,), (n, 1)}
        if target.dtype.kind != "f" or n < 2 or not are_crossed:
            continue
        apart = np.ravel(returns).astype(float)[:, None] - np.ravel(target).astype(float)
        losses = (np.square(apart).mean(), np.abs(apart).mean())
        if loss is None or any(abs(loss - each) < CLOSE * abs(each) for each in losses):
            shapes = f"{list(returns.shape)} against {list(target.shape)}"
            text = f"the loss compares {shapes} ({name}), which broadcast to [{n}, {n}]"
            yield found(text, "wrong", fixes=[Fix("prediction[:, 0]", "")])


@rule("mode", needs=("modes",), category="model")
def mode(evidence: Evidence) -> Iterator[RuleVerdict]:
    """Dropout and BatchNorm behave differently in training and evaluation. A model is trained with
    `train()` and validated with `eval()`.
    """
    trained = [s for s in evidence.snapshots if s.modes]
    if not any(any(s.modes.values()) for s in trained):
        which = and_more(list(trained[-1].modes))
        text = f"the model is trained in evaluation mode: {which} does not behave as in training"
        yield found(text, step=trained[0].step, fixes=[Fix("model.train()", "model.train()")])


@of_snapshot("small-batch-norm")
def small_batch_norm(snapshot: Snapshot) -> Iterator[RuleVerdict]:
    """BatchNorm in training mode computes its statistics from very few values per channel, so they
    are mostly noise. Use larger batches, or GroupNorm or LayerNorm.
    """
    for call in snapshot.calls:
        is_trained = call.training and NORMALIZES_BATCH.search(call.class_name)
        if is_trained and call.inputs.ndim >= 2:
            values = call.inputs.size // max(call.inputs.shape[-1], 1)
            if values < 8:
                text = f"{call.name} normalizes by {count_noun(values, 'value')} per channel"
                yield found(text, path=call.path)


@rule("unused-layer", needs=("calls",), category="model")
def unused_layer(evidence: Evidence) -> Iterator[RuleVerdict]:
    """A layer with trainable parameters is never called, or its parameters never change while
    others do. Usual causes: forgotten in forward, a gradient that is stopped, a wrong name.
    """
    paths = sorted(set.intersection(*(set(s.uncalled) for s in evidence.snapshots)))
    if paths:
        text = f"never called: {and_more(paths)}, which has trainable parameters"
        yield found(text, path=paths[0])


@rule("frozen-in-part", needs=("variables",), category="model")
def frozen_in_part(evidence: Evidence) -> Iterator[RuleVerdict]:
    """Parameters that are to be trained do not change while others do. Usual causes: the gradient
    is stopped on the way, or the optimizer was made for another part.
    """
    snapshots = [
        s for s in evidence.snapshots if any(v.trainable and v.change > 0 for v in s.variables)
    ]
    if len(snapshots) < 3:
        return
    unchanged = [
        {(v.path, v.norm) for v in s.variables if v.trainable and not v.change} for s in snapshots
    ]
    still = set.intersection(*unchanged)  # the norm differs if other steps train it
    frozen = {path.rpartition(".")[0] for path, norm in still if path.endswith("weight") and norm}
    order = [c.path for c in snapshots[-1].calls if c.trainable]
    # A gradient that is stopped freezes all that comes before. A layer between moving ones was not
    # chosen (a gate) or is dead, which other rules report.
    first = list(itertools.takewhile(frozen.__contains__, order))
    if first and len(first) < len(order):
        layers = sorted(set(first))
        text = f"{and_more(layers)} never changes although it is to be trained"
        yield found(text, path=layers[0], step=snapshots[0].step)


@of_snapshot("half-precision-overflow")
def half_precision_overflow(snapshot: Snapshot) -> Iterator[RuleVerdict]:
    """A float16 value has overflowed (65,504 is the largest). Use bfloat16, scale the loss, or keep
    that layer in float32.
    """
    for call in (call for call in snapshot.calls if call.returns.dtype == np.float16):
        x = call.returns
        largest = np.fmax.reduce(np.abs(x), axis=None, initial=0)  # NaN is not compared
        if largest > 3e4:
            text = f"{call.name} returns float16 values up to {short(largest)}"
            picture = histogram_of(f"returns of {call.name}", x)
            yield found(text, "wrong", call.path, evidence=picture)


@of_snapshot("row-leak")
def row_leak(snapshot: Snapshot) -> Iterator[RuleVerdict]:
    """The return for one sample depends on other samples of the batch. The usual cause is a reshape
    or transpose that mixes the batch axis with others.
    """
    if snapshot.mixes_rows:
        text = "the return for one sample changes when another sample of the batch is changed"
        yield found(text, "wrong")


@of_snapshot("causal-mask")
def causal_mask(snapshot: Snapshot) -> Iterator[RuleVerdict]:
    """The targets are the inputs shifted by one position, and a return depends on later positions:
    the model can see the token that it is to predict. Pass a causal mask.
    """
    if snapshot.sees_targets:
        text = "a position sees the next token, its target: the causal mask is missing or inverted"
        yield found(text, "wrong")
