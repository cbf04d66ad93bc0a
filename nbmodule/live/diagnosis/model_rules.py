"""Rules that read how a model is put together: its outputs, its modes, what it calls."""

from __future__ import annotations

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
    first_snapshot,
    histogram_of,
    rule,
    short_number,
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


@rule("double-softmax", needs=("calls",), category="model")
@first_snapshot
def double_softmax(snapshot: Snapshot) -> RuleVerdict | None:
    """The model returns probabilities and the loss applies softmax (or sigmoid) to them again, so
    gradients are tiny and the loss cannot reach zero. Remove the last activation.
    """
    root, labels = snapshot.root, snapshot.labels
    if root is None or root.returns is None:
        return None
    if labels is None or not snapshot.classes or not _sums_to_one(root.returns, -1):
        is_sigmoid = snapshot.logits and _looks_like_sigmoid(snapshot)
        return _double(snapshot, "sigmoid") if is_sigmoid else None
    if labels.min() < 0 or labels.max() >= snapshot.classes:
        return None
    expected, is_double = _cross_entropy(root.returns, labels), snapshot.logits
    if is_double is None and snapshot.loss is not None:
        is_double = abs(snapshot.loss - expected) < CLOSE * abs(expected)
    return _double(snapshot, "softmax") if is_double else None


def _double(snapshot: Snapshot, name: str) -> RuleVerdict:
    last = snapshot.calls[-1].path if snapshot.calls else ""
    text = f"the model ends in {name} ({last or 'its return'}) and the loss applies {name} again"
    return RuleVerdict(
        "double-softmax",
        text,
        "wrong",
        last,
        snapshot.step,
        evidence=histogram_of("returns", snapshot.root.returns if snapshot.root else ()),
        fixes=[Fix(f"remove the last {name}", "")],
    )


def _looks_like_sigmoid(snapshot: Snapshot) -> bool:
    last = snapshot.calls[-1] if snapshot.calls else None
    returns = snapshot.root.returns if snapshot.root else None
    if last is None or returns is None or "sigmoid" not in last.class_name.lower():
        return False
    return bool(returns.min() >= 0 and returns.max() <= 1)


@rule("softmax-axis", needs=("calls",), category="model")
@first_snapshot
def softmax_axis(snapshot: Snapshot) -> RuleVerdict | None:
    """A softmax normalizes over the batch instead of over the classes, so samples compete with each
    other. Use `axis=-1`.
    """
    for call in (*snapshot.calls, *((snapshot.root,) if snapshot.root else ())):
        x = call.returns
        if x is None or x.ndim != 2 or len(x) < 4 or _sums_to_one(x, -1) or not _sums_to_one(x, 0):
            continue
        text = f"{call.name} normalizes over the batch: each column sums to 1, rows do not"
        picture = {"sum of each row": [float(s) for s in x.sum(axis=-1)[:100]]}
        fixes, where = [Fix("axis=-1", "")], (call.path, snapshot.step)
        return RuleVerdict("softmax-axis", text, "wrong", *where, evidence=picture, fixes=fixes)
    return None


@rule("no-activation", needs=("calls",), category="model")
def no_activation(evidence: Evidence) -> Iterator[RuleVerdict]:
    """Two linear layers follow each other without an activation, so together they are one linear
    layer. Put an activation between them.
    """
    snapshot = evidence.snapshots[0]  # before the gradients of learned rows vanish
    calls = [call for call in snapshot.calls if call.class_name != "Identity"]
    for first, second in zip(calls, calls[1:]):
        if not (_LINEAR.search(first.class_name) and _LINEAR.search(second.class_name)):
            continue
        arrays = (first.inputs, first.returns, second.inputs, second.returns)
        if any(x is None for x in arrays) or not (first.trainable and second.trainable):
            continue
        entering, middle, received, leaving = (x for x in arrays if x is not None)
        if middle.shape[-1] < min(entering.shape[-1], leaving.shape[-1]):
            continue  # a narrow middle is a factorization, made on purpose
        if _is_used_elsewhere(first, second):
            continue  # as in a residual connection
        if middle.shape == received.shape and np.array_equal(middle, received):
            text = (
                f"no activation between {first.name} and {second.name}: "
                "together they are one linear layer"
            )
            fix = Fix("put an activation between them", "")
            yield RuleVerdict("no-activation", text, path=second.path, fixes=[fix])
            return


def _is_used_elsewhere(first: CallEvidence, second: CallEvidence) -> bool:
    """Return True if a return reaches the loss by another way than through the next linear layer.

    If it does not, its gradient is that of the next layer's return times one matrix.
    """
    g1, g2 = first.gradient, second.gradient
    if g1 is None or g2 is None or g1.ndim < 2 or g1.shape[:-1] != g2.shape[:-1]:
        return False
    g1, g2 = (g.reshape(-1, g.shape[-1]).astype(np.float64) for g in (g1, g2))
    size = float(np.linalg.norm(g1))
    if len(g1) <= g2.shape[1] or size == 0 or not np.isfinite([size, np.linalg.norm(g2)]).all():
        return False
    matrix = np.linalg.lstsq(g2, g1, rcond=None)[0]
    return float(np.linalg.norm(g2 @ matrix - g1)) > 1e-3 * size


@rule("loss-broadcasts", needs=("calls", "batch"), category="model")
@first_snapshot
def loss_broadcasts(snapshot: Snapshot) -> RuleVerdict | None:
    """Prediction [n, 1] and target [n] broadcast to [n, n], so each prediction is compared with
    every target. Give both the same shape.
    """
    returns = snapshot.root.returns if snapshot.root else None
    for name, target in snapshot.batch.targets.items():
        n = len(target) if target.ndim else 0
        if returns is None or target.dtype.kind != "f" or n < 2:
            continue
        if {target.shape, returns.shape} != {(n,), (n, 1)}:
            continue
        apart = np.ravel(returns).astype(float)[:, None] - np.ravel(target).astype(float)
        losses = (float((apart**2).mean()), float(np.abs(apart).mean()))
        loss = snapshot.loss
        if loss is None or any(abs(loss - each) < CLOSE * abs(each) for each in losses):
            shapes = f"{list(returns.shape)} against {list(target.shape)}"
            text = f"the loss compares {shapes} ({name}), which broadcast to [{n}, {n}]"
            fixes = [Fix("prediction[:, 0]", "")]
            return RuleVerdict("loss-broadcasts", text, "wrong", step=snapshot.step, fixes=fixes)
    return None


@rule("mode", needs=("modes",), category="model")
def mode(evidence: Evidence) -> Iterator[RuleVerdict]:
    """Dropout and BatchNorm behave differently in training and evaluation. A model is trained with
    `train()` and validated with `eval()`.
    """
    trained = [s for s in evidence.snapshots if s.modes]
    if trained and not any(any(s.modes.values()) for s in trained):
        paths = list(trained[-1].modes)
        shown = paths[0] + (f" and {len(paths) - 1} more" if len(paths) > 1 else "")
        text = f"the model is trained in evaluation mode: {shown} does not behave as in training"
        fix = Fix("model.train()", "model.train()")
        yield RuleVerdict("mode", text, step=trained[0].step, fixes=[fix])


@rule("small-batch-norm", needs=("calls",), category="model")
@first_snapshot
def small_batch_norm(snapshot: Snapshot) -> RuleVerdict | None:
    """BatchNorm in training mode computes its statistics from very few values per channel, so they
    are mostly noise. Use larger batches, or GroupNorm or LayerNorm.
    """
    for call in snapshot.calls:
        x = call.inputs
        if x is None or not call.training or not NORMALIZES_BATCH.search(call.class_name):
            continue
        values = x.size // max(x.shape[-1], 1)
        if x.ndim >= 2 and values < 8:
            text = f"{call.name} normalizes by {count_noun(values, 'value')} per channel"
            return RuleVerdict("small-batch-norm", text, path=call.path, step=snapshot.step)
    return None


@rule("unused-layer", needs=("calls",), category="model")
def unused_layer(evidence: Evidence) -> Iterator[RuleVerdict]:
    """A layer with trainable parameters is never called, or its parameters never change while
    others do. Usual causes: forgotten in forward, a gradient that is stopped, a wrong name.
    """
    uncalled = set(evidence.snapshots[0].uncalled)
    for snapshot in evidence.snapshots:
        uncalled &= set(snapshot.uncalled)
    if uncalled:
        paths = sorted(uncalled)
        more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
        text = f"never called: {paths[0]}{more}, which has trainable parameters"
        yield RuleVerdict("unused-layer", text, path=paths[0])


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
    still: set[tuple[str, float]] | None = None  # the norm differs if other steps train it
    for snapshot in snapshots:
        fixed = {(v.path, v.norm) for v in snapshot.variables if v.trainable and v.change == 0}
        still = fixed if still is None else still & fixed
    weights = [path for path, norm in still or () if path.endswith("weight") and norm > 0]
    layers = sorted({path.rpartition(".")[0] for path in weights})
    order = [c.path for c in snapshots[-1].calls if c.trainable]
    moving = [k for k, path in enumerate(order) if path not in layers]
    # A gradient that is stopped freezes all that comes before. A layer between moving ones was not
    # chosen (a gate) or is dead, which other rules report.
    first = min(moving, default=0)
    layers = [path for path in layers if path in order and order.index(path) < first]
    if layers:
        more = f" and {len(layers) - 1} more" if len(layers) > 1 else ""
        text = f"{layers[0]}{more} never changes although it is to be trained"
        yield RuleVerdict("frozen-in-part", text, path=layers[0], step=snapshots[0].step)


@rule("half-precision-overflow", needs=("calls",), category="model")
@first_snapshot
def half_precision_overflow(snapshot: Snapshot) -> RuleVerdict | None:
    """A float16 value has overflowed (65,504 is the largest). Use bfloat16, scale the loss, or keep
    that layer in float32.
    """
    for call in snapshot.calls:
        x = call.returns
        if x is None or x.dtype != np.float16:
            continue
        largest = float(np.fmax.reduce(np.abs(x), axis=None, initial=0))  # NaN is not compared
        if largest > 3e4:
            text = f"{call.name} returns float16 values up to {short_number(largest)}"
            picture, where = histogram_of(f"returns of {call.name}", x), (call.path, snapshot.step)
            return RuleVerdict("half-precision-overflow", text, "wrong", *where, evidence=picture)
    return None


@rule("row-leak", needs=("calls",), category="model")
@first_snapshot
def row_leak(snapshot: Snapshot) -> RuleVerdict | None:
    """The return for one sample depends on other samples of the batch. The usual cause is a reshape
    or transpose that mixes the batch axis with others.
    """
    text = "the return for one sample changes when another sample of the batch is changed"
    verdict = RuleVerdict("row-leak", text, "wrong", step=snapshot.step)
    return verdict if snapshot.mixes_rows else None


@rule("causal-mask", needs=("calls",), category="model")
@first_snapshot
def causal_mask(snapshot: Snapshot) -> RuleVerdict | None:
    """The targets are the inputs shifted by one position, and a return depends on later positions:
    the model can see the token that it is to predict. Pass a causal mask.
    """
    text = "a position sees the next token, its target: the causal mask is missing or inverted"
    verdict = RuleVerdict("causal-mask", text, "wrong", step=snapshot.step)
    return verdict if snapshot.sees_targets else None
