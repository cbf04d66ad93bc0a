"""Rules that read how a model is put together: its outputs, its modes, what it calls."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nbmodule.base.format import count_noun
from nbmodule.live.diagnosis.evidence import NORMALIZES_BATCH, CallEvidence, Evidence, Snapshot
from nbmodule.live.diagnosis.rule import (
    Fix,
    RuleVerdict,
    and_more,
    found,
    histogram_of,
    of_snapshot,
    rule,
    short,
)

Array = NDArray[Any]

_LINEAR = re.compile(r"Linear$|Dense$")
CLOSE = 0.02
"""Relative distance within which a logged loss is taken for a loss computed from the returns."""


def _sums_to_one(x: Array, axis: int) -> bool:
    values = x.astype(np.float64)
    if values.ndim < 2 or values.shape[axis] < 2 or not np.isfinite(values).all():
        return False
    inside = values.min() >= 0 and values.max() <= 1
    return bool(inside and np.allclose(values.sum(axis=axis), 1, atol=1e-3))


def _cross_entropy(logits: Array, labels: Array) -> float:
    values = logits.astype(np.float64)
    values = values - values.max(axis=-1, keepdims=True)
    logs = values - np.log(np.exp(values).sum(axis=-1, keepdims=True))
    return float(-np.take_along_axis(logs, labels[..., None].astype(int), axis=-1).mean())


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
        expected = _cross_entropy(x, labels)
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
