"""Planted faults: each changes one knob of a healthy task. The list was written from the rules of
SageMaker Debugger, AutoTrainer, UMLAUT, DeepFD and common questions, before thresholds were set.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import nbmodule as nb
from benchmarks.clinic.tasks import (
    COPIES,
    IMAGES,
    RINGS,
    SEQUENCES,
    TABLE,
    TEXT,
    Convolutional,
    Recurrent,
    Transformer,
    perceptron,
)
from benchmarks.clinic.training import Training

Array = Any


@dataclass(frozen=True)
class Fault:
    """A planted fault.

    Attributes:
        name: What was done.
        category: `curve`, `data`, `model` or `inside`.
        rules: Rules that name it.
        near: Rules that detect it without naming the cause.
        training: The run with the fault.
        twin: The same run without.
    """

    name: str
    category: str
    rules: frozenset[str]
    near: frozenset[str]
    training: Training
    twin: Training


def with_data(
    task: Training, change: Callable[..., tuple[Array, ...]]
) -> Callable[[np.random.Generator], tuple[Array, ...]]:
    """The data of a task, changed by `change(rng, x, y, x_val, y_val)`."""
    return lambda rng: change(rng, *(np.array(part) for part in task.data(rng)))


def _set(x: Array, place: Any, value: float) -> Array:
    x = x.copy()
    x[place] = value
    return x


def _with_parts(rng: np.random.Generator, x: Array, y: Array) -> Array:
    """Add two columns whose difference is the target, as a price before and after a change."""
    before = rng.normal(size=(len(x), 1)).astype(x.dtype)
    return np.concatenate([x, before, before + y.reshape(-1, 1).astype(x.dtype)], 1)


def _column(x: Array, column: int, factor: float) -> Array:
    x = x.copy()
    x[:, column] *= factor
    return x


def _few(rng: np.random.Generator, x: Array, y: Array, xv: Array, yv: Array) -> tuple[Array, ...]:
    """Forty rows, so that a network remembers them, with a quarter of labels or noise changed."""
    x, y = x[:40], y[:40].copy()
    if y.dtype.kind == "i":
        y[:10] = rng.permutation(y[:10])
    else:
        y += rng.normal(size=y.shape).astype(y.dtype)
    return x, y, xv, yv


def _keep(
    rng: np.random.Generator, x: Array, y: Array, keep: Array, xv: Array, yv: Array
) -> tuple[Array, ...]:
    return x[keep], y[keep], xv, yv


def _imbalanced(
    rng: np.random.Generator, x: Array, y: Array, xv: Array, yv: Array
) -> tuple[Array, ...]:
    keep = (y == 0) | (rng.random(len(y)) < 0.01)
    x, y = x[keep], y[keep]
    at = rng.integers(0, len(x), 1000)
    return x[at], y[at], xv, yv


def in_order_of_class(rng: np.random.Generator, rows: int, size: int, y: Array) -> Iterator[Array]:
    """Batches of sorted data, never shuffled."""
    order = np.argsort(y, kind="stable")
    while True:
        for start in range(0, rows - size + 1, size):
            yield order[start : start + size]


def scaled(model: Any, factor: float) -> None:
    """Multiply all weight matrices."""
    for _, p in model.named_parameters():
        if p.ndim > 1:
            p.value = p.value * factor


def shifted(model: Any, path: str, value: float) -> None:
    """Set a bias."""
    bias = dict(model.named_parameters())[path]
    bias.value = jnp.full_like(bias.value, value)


def constant(model: Any, value: float) -> None:
    """Set all weights to one number."""
    for _, p in model.named_parameters():
        p.value = jnp.full_like(p.value, value)


def _freeze(model: Any, optimizer: Any) -> None:
    model.requires_grad_(False)


def _mixed(x: Array) -> Array:
    """Mix the rows of a batch."""
    return x.T.reshape(x.shape)


class WithUnused(nb.Module):
    """A model with a layer that forward forgets."""

    def __init__(self, body: Any, spare: Any):
        self.body, self.spare = body, spare

    def forward(self, x: Array) -> Array:
        return self.body(x)


class Stopped(nb.Module):
    """Two layers; the gradient is stopped between them."""

    def __init__(self) -> None:
        self.first, self.act, self.second = nb.Linear(2, 32), nb.ReLU(), nb.Linear(32, 4)

    def forward(self, x: Array) -> Array:
        return self.second(jax.lax.stop_gradient(self.act(self.first(x))))


class FixedDropout(nb.Module):
    """Dropout with one key for ever."""

    def __init__(self, rate: float):
        self.rate = rate

    def forward(self, x: Array) -> Array:
        mask = jax.random.bernoulli(jax.random.key(0), 1 - self.rate, x.shape)
        return jnp.where(mask, x / (1 - self.rate), 0)


def dropped(layer: Callable[[float], Any], rate: float, width: int = 32) -> Any:
    """A perceptron with dropout."""
    return nb.Sequential(nb.Linear(2, width), nb.ReLU(), layer(rate), nb.Linear(width, 4))


def deep(layers: int, act: Any, inputs: int = 2, outputs: int = 4) -> Callable[[], Any]:
    """A deep perceptron."""
    return functools.partial(perceptron, inputs, outputs, 32, layers, act)


def _on_a_copy(model: Any, optimizer: Any, gradients: Any) -> None:
    """Update a copy, made anew at each step."""
    optimizer.update(copy.deepcopy(model), gradients)


def adam(lr: Any, **options: Any) -> Callable[[], Any]:
    return lambda: nb.Adam(lr=lr, **options)


def sgd(lr: Any, **options: Any) -> Callable[[], Any]:
    return lambda: nb.SGD(lr=lr, **options)


def _loss_on_column(prediction: Array, target: Array) -> Array:
    return jnp.mean((prediction - target) ** 2)


def _fault(
    category: str,
    name: str,
    rules: str,
    task: Training,
    near: str = "",
    *,
    change: Callable[..., tuple[Array, ...]] | None = None,
    inputs: Callable[[Array], Array] = lambda x: x,
    targets: Callable[[Array], Array] = lambda y: y,
    **changes: Any,
) -> Fault:
    """Return a fault: a task with other knobs, or with all data, inputs or targets changed."""

    def each(rng: Any, x: Array, y: Array, xv: Array, yv: Array) -> tuple[Array, ...]:
        return inputs(x), targets(y), inputs(xv), targets(yv)

    changes["data"] = with_data(task, change or each)
    expected = frozenset(rules.split()), frozenset(near.split())
    return Fault(name, category, *expected, task.but(**changes), task)


def _faults() -> Iterator[Fault]:
    lost = "does-not-learn chance-accuracy"
    wild = "diverges large-update nonfinite-loss oscillates"
    low = "small-update learns-slowly no-update"
    fault = functools.partial(_fault, "curve")
    yield fault(
        "labels shuffled, rings",
        lost,
        RINGS,
        "overfits plateau",
        change=lambda rng, x, y, xv, yv: (x, rng.permutation(y), xv, rng.permutation(yv)),
    )
    yield fault(
        "labels of other rows, images",
        lost,
        IMAGES,
        "overfits",
        change=lambda rng, x, y, xv, yv: (x, np.roll(y, 1), xv, np.roll(yv, 1)),
    )
    yield fault("rate far too small, rings", low, RINGS, lost, optimizer=sgd(1e-6))
    yield fault("rate far too small, text", low, TEXT, lost, optimizer=adam(1e-7))
    yield fault(
        "rate too large, table",
        wild,
        TABLE,
        lost + " dead-units collapse nonfinite-return",
        optimizer=adam(1.0),
    )
    yield fault(
        "rate too large, SGD, table",
        wild,
        TABLE,
        lost + " dead-units collapse nonfinite-return",
        optimizer=sgd(5.0),
    )
    yield fault(
        "rate too large, text",
        wild,
        TEXT,
        lost + " dead-units collapse nonfinite-return",
        optimizer=adam(0.5),
    )
    yield fault(
        "rate too large, images", wild, IMAGES, lost + " dead-units collapse", optimizer=adam(2.0)
    )
    yield fault(
        "rate grows, rings", wild, RINGS, lost, optimizer=adam(lambda step: 1e-3 * 1.05**step)
    )
    yield fault(
        "overfits, rings",
        "overfits",
        RINGS,
        change=_few,
        model=functools.partial(perceptron, 2, 4, 256),
        batch=20,
        steps=400,
    )
    yield fault(
        "overfits, table, eval_loss",
        "overfits",
        TABLE,
        change=_few,
        batch=20,
        steps=400,
        names=("loss", "eval_loss", "acc"),
    )
    yield fault(
        "overfits, sequences, val/loss",
        "overfits",
        SEQUENCES,
        change=_few,
        batch=20,
        steps=400,
        names=("train/loss", "val/loss", "val/acc"),
    )
    yield fault(
        "one broken sample, images",
        "spikes",
        IMAGES,
        "input-scale return-scale",
        model=functools.partial(Convolutional, False),
        change=lambda rng, x, y, xv, yv: (_set(x, (37, 3, 3, 0), 900.0), y, xv, yv),
    )
    yield fault(
        "one broken target, table",
        "spikes",
        TABLE,
        "target-scale",
        change=lambda rng, x, y, xv, yv: (x, _set(y, 37, 500.0), xv, yv),
    )
    yield fault(
        "too little capacity, rings",
        "plateau",
        RINGS,
        lost + " validation-better",
        model=functools.partial(perceptron, 2, 4, 1, 1),
        steps=500,
    )
    yield fault(
        "sign of the gradient, sequences", wild, SEQUENCES, lost, gradient=lambda g: -1.0 * g
    )
    yield fault(
        "momentum 0.99 and a large rate, rings",
        wild,
        RINGS,
        lost,
        optimizer=sgd(1.5, momentum=0.99),
    )
    fault = functools.partial(_fault, "data")
    yield fault(
        "NaN in an input, table",
        "nonfinite-data",
        TABLE,
        inputs=lambda x: _set(x, (slice(None, None, 7), 4), np.nan),
    )
    yield fault(
        "NaN in images",
        "nonfinite-data",
        IMAGES,
        change=lambda rng, x, y, xv, yv: (
            _set(x, (slice(None, None, 9), 0, 0, 0), np.nan),
            y,
            xv,
            yv,
        ),
    )
    yield fault(
        "Inf in targets, table",
        "nonfinite-data",
        TABLE,
        change=lambda rng, x, y, xv, yv: (x, _set(y, slice(None, None, 9), np.inf), xv, yv),
    )
    yield fault(
        "0 to 255, images",
        "input-scale",
        IMAGES,
        inputs=lambda x: np.round(255 * np.clip(x, 0, 1)).astype(np.float32),
    )
    yield fault("inputs times 1000, table", "input-scale", TABLE, inputs=lambda x: x * 1000)
    yield fault("inputs plus 300, sequences", "input-scale", SEQUENCES, inputs=lambda x: x + 300)
    yield fault(
        "one column times 1e5, table",
        "column-scale input-scale",
        TABLE,
        inputs=lambda x: _column(x, 3, 1e5),
    )
    yield fault(
        "one column times 5,000, copies",
        "column-scale input-scale target-scale",
        COPIES,
        inputs=lambda x: _column(x, 5, 5e3),
    )
    yield fault(
        "a constant column, table",
        "constant-column",
        TABLE,
        inputs=lambda x: _set(x, (slice(None), 6), 7.0),
    )
    yield fault(
        "a column twice, table",
        "constant-column",
        TABLE,
        inputs=lambda x: np.concatenate([x[:, :7], x[:, :1]], 1),
    )
    yield fault("imbalance, rings", "class-imbalance", RINGS, change=_imbalanced)
    yield fault("imbalance, images", "class-imbalance", IMAGES, change=_imbalanced)
    yield fault(
        "a missing class, images",
        "missing-class",
        IMAGES,
        change=lambda rng, x, y, xv, yv: _keep(rng, x, y, y != 3, xv, yv),
    )
    yield fault(
        "a class too many in the head, rings",
        "missing-class",
        RINGS,
        model=functools.partial(perceptron, 2, 5),
    )
    yield fault("labels from 1, rings", "labels-out-of-range", RINGS, targets=lambda y: y + 1)
    yield fault(
        "labels from 1, sequences", "labels-out-of-range", SEQUENCES, targets=lambda y: y + 1
    )
    yield fault("sorted by class, images", "sorted-batches", IMAGES, order=in_order_of_class)
    yield fault("sorted by class, rings", "sorted-batches", RINGS, order=in_order_of_class)
    yield fault("the same batch each time, table", "same-batch", TABLE, "overfits", same_item=True)
    yield fault(
        "the same batch each time, images", "same-batch", IMAGES, "overfits", same_item=True
    )
    yield fault("targets times 1e4, table", "target-scale", TABLE, targets=lambda y: y * 1e4)
    yield fault("targets plus 1e5, table", "target-scale", TABLE, targets=lambda y: y + 1e5)
    yield fault(
        "the target among the inputs, table",
        "target-among-inputs",
        TABLE,
        model=functools.partial(perceptron, 9, 1),
        change=lambda rng, x, y, xv, yv: (
            np.concatenate([x, 3 * y + 1], 1),
            y,
            np.concatenate([xv, 3 * yv + 1], 1),
            yv,
        ),
    )
    yield fault(
        "the target as a difference of two columns, table",
        "target-among-inputs",
        TABLE,
        model=functools.partial(perceptron, 10, 1),
        change=lambda rng, x, y, xv, yv: (_with_parts(rng, x, y), y, _with_parts(rng, xv, yv), yv),
    )
    yield fault(
        "each row sixteen times, table",
        "duplicate-rows",
        TABLE,
        change=lambda rng, x, y, xv, yv: (
            np.repeat(x[: len(x) // 16], 16, 0)[: len(x)],
            np.repeat(y[: len(y) // 16], 16, 0)[: len(y)],
            xv,
            yv,
        ),
    )
    yield fault(
        "the label among the inputs, rings",
        "target-among-inputs",
        RINGS,
        model=functools.partial(perceptron, 3, 4),
        change=lambda rng, x, y, xv, yv: (
            np.c_[x, y].astype(np.float32),
            y,
            np.c_[xv, yv].astype(np.float32),
            yv,
        ),
    )
    fault = functools.partial(_fault, "model")
    for task, build in ((RINGS, perceptron), (IMAGES, Convolutional), (SEQUENCES, Recurrent)):
        yield fault(
            f"softmax before cross-entropy, {build.__name__}",
            "double-softmax",
            task,
            "plateau",
            model=lambda build=build: nb.Sequential(build(), nb.Softmax()),
        )
    yield fault(
        "softmax over the batch, rings",
        "softmax-axis",
        RINGS,
        lost,
        model=lambda: nb.Sequential(perceptron(), nb.Lambda(lambda x: jax.nn.softmax(x, 0))),
    )
    yield fault(
        "no activation, table",
        "no-activation",
        TABLE,
        "plateau does-not-learn",
        model=lambda: nb.Sequential(nb.Linear(8, 32), nb.Linear(32, 32), nb.Linear(32, 1)),
    )
    yield fault(
        "identity as activation, rings",
        "no-activation",
        RINGS,
        "plateau",
        model=functools.partial(perceptron, act=nb.Identity),
    )
    yield fault(
        "[n, 1] against [n], table",
        "loss-broadcasts",
        TABLE,
        "does-not-learn",
        loss=_loss_on_column,
        targets=lambda y: y[:, 0],
    )
    yield fault(
        "[n] against [n, 1], table",
        "loss-broadcasts",
        TABLE,
        "does-not-learn",
        loss=_loss_on_column,
        model=lambda: nb.Sequential(perceptron(8, 1), nb.Lambda(lambda x: x[:, 0])),
    )
    yield fault(
        "reshape mixes the batch, table",
        "row-leak",
        TABLE,
        lost,
        model=lambda: nb.Sequential(nb.Lambda(_mixed), perceptron(8, 1)),
    )
    yield fault(
        "reshape mixes the batch, rings",
        "row-leak",
        RINGS,
        lost,
        model=lambda: nb.Sequential(nb.Lambda(_mixed), perceptron()),
    )
    yield fault(
        "no causal mask, text",
        "causal-mask",
        TEXT,
        model=functools.partial(Transformer, mask="none"),
    )
    yield fault(
        "inverted causal mask, text",
        "causal-mask",
        TEXT,
        lost,
        model=functools.partial(Transformer, mask="inverted"),
    )
    yield fault(
        "trained in eval mode, images",
        "mode",
        IMAGES,
        model=functools.partial(Convolutional, True, 0.3),
        train_mode=False,
    )
    yield fault(
        "trained in eval mode, rings",
        "mode",
        RINGS,
        model=lambda: dropped(nb.Dropout, 0.3),
        train_mode=False,
    )
    yield fault(
        "batch norm of two rows, rings",
        "small-batch-norm",
        RINGS,
        lost,
        model=lambda: nb.Sequential(
            nb.Linear(2, 32), nb.BatchNorm1d(32), nb.ReLU(), nb.Linear(32, 4)
        ),
        batch=2,
    )
    yield fault(
        "a forgotten layer, rings",
        "unused-layer",
        RINGS,
        model=lambda: WithUnused(perceptron(), nb.Linear(2, 8)),
    )
    yield fault(
        "a forgotten layer, images",
        "unused-layer",
        IMAGES,
        model=lambda: WithUnused(Convolutional(), nb.Conv2d(1, 4, 3)),
    )
    yield fault("a stopped gradient, rings", "frozen-in-part", RINGS, model=Stopped)
    fault = functools.partial(_fault, "inside")
    yield fault(
        "ten sigmoid layers, rings", "vanishing-gradient", RINGS, lost, model=deep(10, nb.Sigmoid)
    )
    yield fault(
        "small initial weights, table",
        "vanishing-gradient return-scale",
        TABLE,
        "does-not-learn",
        model=deep(8, nb.Tanh, 8, 1),
        before=lambda m, o: scaled(m, 0.1),
    )
    yield fault(
        "large initial weights, rings",
        "return-scale exploding-gradient",
        RINGS,
        wild,
        model=deep(8, nb.ReLU),
        before=lambda m, o: scaled(m, 8.0),
    )
    yield fault(
        "dead units, rings",
        "dead-units",
        RINGS,
        lost + " no-update frozen-in-part collapse",
        before=lambda m, o: shifted(m, "0.bias", -20.0),
    )
    yield fault(
        "dead units, images",
        "dead-units",
        IMAGES,
        lost + " collapse",
        model=functools.partial(Convolutional, False),
        before=lambda m, o: shifted(m, "conv1.bias", -20.0),
    )
    yield fault(
        "saturated tanh, rings",
        "saturated",
        RINGS,
        "return-scale",
        model=functools.partial(perceptron, act=nb.Tanh),
        before=lambda m, o: scaled(m, 200.0),
    )
    yield fault(
        "saturated sigmoid, table",
        "saturated",
        TABLE,
        "large-update",
        model=functools.partial(perceptron, 8, 1, act=nb.Sigmoid),
        before=lambda m, o: scaled(m, 200.0),
    )
    yield fault(
        "equal initial weights, rings",
        "symmetric-units",
        RINGS,
        lost,
        before=lambda m, o: constant(m, 0.1),
    )
    yield fault(
        "equal initial weights, table",
        "symmetric-units",
        TABLE,
        "does-not-learn",
        before=lambda m, o: constant(m, 0.1),
    )
    yield fault(
        "all weights zero, rings",
        "symmetric-units",
        RINGS,
        lost + " no-update",
        before=lambda m, o: constant(m, 0.0),
    )
    yield fault(
        "same answer for all, images",
        "collapse",
        IMAGES,
        lost,
        model=lambda: nb.Sequential(nb.Lambda(lambda x: 0 * x), Convolutional(False)),
    )
    yield fault("optimizer on a copy, rings", "no-update", RINGS, lost, update=_on_a_copy)
    yield fault("everything frozen, images", "no-update", IMAGES, lost, before=_freeze)
    yield fault(
        "clipped to nothing, table",
        low,
        TABLE,
        "does-not-learn",
        optimizer=sgd(0.05, clip_norm=1e-6),
    )
    yield fault(
        "schedule over, rings",
        "no-update",
        RINGS,
        lost,
        optimizer=adam(lambda step: jnp.where(step < 4, 3e-3, 0.0)),
    )
    yield fault("rate 0, sequences", "no-update", SEQUENCES, lost, optimizer=sgd(0.0))
    yield fault(
        "weight decay far too strong, rings",
        "weights-shrink",
        RINGS,
        lost,
        optimizer=lambda: nb.AdamW(lr=3e-3, weight_decay=20.0),
    )
    yield fault(
        "weight decay far too strong, text",
        "weights-shrink",
        TEXT,
        lost,
        optimizer=lambda: nb.AdamW(lr=3e-3, weight_decay=20.0),
    )
    yield fault(
        "one dropout mask for ever, rings",
        "same-dropout-mask",
        RINGS,
        model=lambda: dropped(FixedDropout, 0.5),
    )


FAULTS: tuple[Fault, ...] = tuple(_faults())
