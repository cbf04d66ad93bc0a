"""Rules that read how a model is put together: its outputs, its modes, what it calls."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nbmodule.base.format import count_noun
from nbmodule.live.diagnosis.evidence import NORMALIZES_BATCH, CallEvidence, Evidence, Snapshot
from nbmodule.live.diagnosis.rule import Fix, RuleVerdict, histogram_of, rule, short_number

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
def double_softmax(evidence: Evidence) -> Iterator[RuleVerdict]:
    """The model returns probabilities and the loss applies softmax (or sigmoid) to them again, so
    gradients are tiny and the loss cannot reach zero. Remove the last activation.
    """
    for snapshot in evidence.snapshots:
        root, labels = snapshot.root, snapshot.labels
        if root is None or root.returns is None:
            continue
        if labels is not None and snapshot.classes and _sums_to_one(root.returns, -1):
            if labels.min() < 0 or labels.max() >= snapshot.classes:
                continue
            expected = _cross_entropy(root.returns, labels)
            is_same = snapshot.loss is not None and abs(snapshot.loss - expected) < CLOSE * abs(
                expected
            )
            if snapshot.logits or (snapshot.logits is None and is_same):
                yield _double(snapshot, "softmax")
                return
        elif snapshot.logits and _looks_like_sigmoid(snapshot):
            yield _double(snapshot, "sigmoid")
            return


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
def softmax_axis(evidence: Evidence) -> Iterator[RuleVerdict]:
    """A softmax normalizes over the batch instead of over the classes, so samples compete with each
    other. Use `axis=-1`.
    """
    for snapshot in evidence.snapshots:
        for call in (*snapshot.calls, *((snapshot.root,) if snapshot.root else ())):
            x = call.returns
            if x is None or x.ndim != 2 or len(x) < 4 or _sums_to_one(x, -1):
                continue
            if _sums_to_one(x, 0):
                text = f"{call.name} normalizes over the batch: each column sums to 1, rows do not"
                yield RuleVerdict(
                    "softmax-axis",
                    text,
                    "wrong",
                    call.path,
                    snapshot.step,
                    evidence={"sum of each row": [float(s) for s in x.sum(axis=-1)[:100]]},
                    fixes=[Fix("axis=-1", "")],
                )
                return


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
    """Whether a return reaches the loss by another way than through the next linear layer.

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
def loss_broadcasts(evidence: Evidence) -> Iterator[RuleVerdict]:
    """Prediction [n, 1] and target [n] broadcast to [n, n], so each prediction is compared with
    every target. Give both the same shape.
    """
    for snapshot in evidence.snapshots:
        returns = snapshot.root.returns if snapshot.root else None
        if returns is None or returns.ndim < 1:
            continue
        for name, target in snapshot.batch.targets.items():
            if target.dtype.kind != "f" or target.ndim == returns.ndim or len(target) < 2:
                continue
            if sorted((target.shape, returns.shape), key=len) != [(len(target),), (len(target), 1)]:
                continue
            flat, wide = np.ravel(returns).astype(float), np.ravel(target).astype(float)
            apart = flat[:, None] - wide[None, :]
            if snapshot.loss is not None:
                losses = (float((apart**2).mean()), float(np.abs(apart).mean()))
                if not any(abs(snapshot.loss - each) < CLOSE * abs(each) for each in losses):
                    continue
            shapes = f"{list(returns.shape)} against {list(target.shape)}"
            text = (
                f"the loss compares {shapes} ({name}), which broadcast to [{len(target)}, "
                f"{len(target)}]"
            )
            yield RuleVerdict(
                "loss-broadcasts",
                text,
                "wrong",
                step=snapshot.step,
                fixes=[Fix("prediction[:, 0]", "")],
            )
            return


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
    if evidence.validated_in_training_mode:
        text = "the model is validated in training mode: dropout and batch statistics are active"
        yield RuleVerdict(
            "mode", text, fixes=[Fix("model.eval() before validation", "model.eval()")]
        )


@rule("small-batch-norm", needs=("calls",), category="model")
def small_batch_norm(evidence: Evidence) -> Iterator[RuleVerdict]:
    """BatchNorm in training mode computes its statistics from very few values per channel, so they
    are mostly noise. Use larger batches, or GroupNorm or LayerNorm.
    """
    for snapshot in evidence.snapshots:
        for call in snapshot.calls:
            x = call.inputs
            if x is None or not call.training or not NORMALIZES_BATCH.search(call.class_name):
                continue
            values = x.size // max(x.shape[-1], 1)
            if x.ndim >= 2 and values < 8:
                text = f"{call.name} normalizes by {count_noun(values, 'value')} per channel"
                yield RuleVerdict("small-batch-norm", text, path=call.path, step=snapshot.step)
                return


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
    still: set[str] | None = None
    for snapshot in snapshots:
        fixed = {v.path for v in snapshot.variables if v.trainable and v.change == 0 and v.norm > 0}
        still = fixed if still is None else still & fixed
    layers = sorted({path.rpartition(".")[0] for path in still or () if path.endswith("weight")})
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
def half_precision_overflow(evidence: Evidence) -> Iterator[RuleVerdict]:
    """A float16 value has overflowed (65,504 is the largest). Use bfloat16, scale the loss, or keep
    that layer in float32.
    """
    for snapshot in evidence.snapshots:
        for call in snapshot.calls:
            x = call.returns
            if x is None or x.dtype != np.float16:
                continue
            if np.isinf(x).any() or float(np.abs(x).max(initial=0)) > 3e4:
                text = (
                    f"{call.name} returns float16 values up to "
                    f"{short_number(float(np.abs(x).max()))}"
                )
                picture = histogram_of(f"returns of {call.name}", x)
                yield RuleVerdict(
                    "half-precision-overflow",
                    text,
                    "wrong",
                    call.path,
                    snapshot.step,
                    evidence=picture,
                )
                return


@rule("row-leak", needs=("calls",), category="model")
def row_leak(evidence: Evidence) -> Iterator[RuleVerdict]:
    """What the model returns for one sample depends on other samples of the batch. The usual cause
    is a reshape or transpose that mixes the batch axis with others.
    """
    for snapshot in evidence.snapshots:
        if snapshot.mixes_rows:
            text = "the return for one sample changes when another sample of the batch is changed"
            yield RuleVerdict("row-leak", text, "wrong", step=snapshot.step)
            return


@rule("causal-mask", needs=("calls",), category="model")
def causal_mask(evidence: Evidence) -> Iterator[RuleVerdict]:
    """The targets are the inputs shifted by one position, and a return depends on later positions:
    the model can see the token that it is to predict. Pass a causal mask.
    """
    for snapshot in evidence.snapshots:
        if snapshot.sees_targets:
            text = (
                "a position sees the next token, which is its target: the causal mask is "
                "missing or inverted"
            )
            yield RuleVerdict("causal-mask", text, "wrong", step=snapshot.step)
            return
