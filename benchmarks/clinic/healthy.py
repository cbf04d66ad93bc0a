"""Healthy runs that look odd: each must end without a verdict of a fault."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import nbmodule as nb
from benchmarks.clinic.faults import adam, deep, dropped, sgd, with_data
from benchmarks.clinic.tasks import (
    COPIES,
    IMAGES,
    RINGS,
    SEQUENCES,
    TABLE,
    TASKS,
    TEXT,
    Convolutional,
    Transformer,
    perceptron,
)
from benchmarks.clinic.training import Training

Array = Any


class Residual(nb.Module):
    """Blocks whose last layer begins at zero."""

    def __init__(self, blocks: int = 6, zero: bool = True):
        first = {"weight_initializer": nb.Zeros()} if zero else {}
        self.enter = nb.Linear(2, 32)
        self.blocks = [
            nb.Sequential(nb.Linear(32, 32), nb.ReLU(), nb.Linear(32, 32, **first))
            for _ in range(blocks)
        ]
        self.head = nb.Linear(32, 4)

    def forward(self, x: Array) -> Array:
        x = self.enter(x)
        for block in self.blocks:
            x = x + block(x)
        return self.head(x)


class LowRank(nb.Module):
    """A frozen layer with a low-rank correction whose second factor begins at zero."""

    def __init__(self) -> None:
        self.base = nb.Linear(2, 32)
        self.down = nb.Linear(32, 4, with_bias=False)
        self.up = nb.Linear(4, 32, with_bias=False, weight_initializer=nb.Zeros())
        self.act, self.head = nb.ReLU(), nb.Linear(32, 4)
        self.base.requires_grad_(False)

    def forward(self, x: Array) -> Array:
        h = self.base(x)
        return self.head(self.act(h + self.up(self.down(h))))


class Gated(nb.Module):
    """Eight experts, one of which answers for each row."""

    def __init__(self) -> None:
        self.gate = nb.Linear(2, 8)
        self.experts = [nb.Linear(2, 16) for _ in range(8)]
        self.act, self.head = nb.ReLU(), nb.Linear(16, 4)

    def forward(self, x: Array) -> Array:
        scores = jax.nn.softmax(self.gate(x))
        chosen = jax.nn.one_hot(scores.argmax(-1), 8) * scores
        mixed = sum(chosen[:, k : k + 1] * expert(x) for k, expert in enumerate(self.experts))
        return self.head(self.act(mixed))


def _padded(
    rng: np.random.Generator, x: Array, y: Array, xv: Array, yv: Array
) -> tuple[Array, ...]:
    x, xv = x.copy(), xv.copy()
    x[:, 7:], xv[:, 7:] = 0, 0
    return x, (x.sum((1, 2)) > 0).astype(np.int32), xv, (xv.sum((1, 2)) > 0).astype(np.int32)


def _noisy(rng: np.random.Generator, x: Array, y: Array, xv: Array, yv: Array) -> tuple[Array, ...]:
    y = np.where(rng.random(len(y)) < 0.15, rng.integers(0, 4, len(y)), y).astype(np.int32)
    return x, y, xv, yv


def _restarts(step: Any) -> Any:
    return 1e-4 + 5e-3 * 0.5 * (1 + jnp.cos(jnp.pi * (step % 60) / 60))


def _one_cycle(step: Any) -> Any:
    return 1e-2 * jnp.where(step < 60, step / 60, jnp.maximum(0.0, (240 - step) / 180))


def _heavy(kind: str, seed: int) -> Any:
    rng = np.random.default_rng(seed)

    def logs(number: int, loss: float) -> dict[str, float]:
        draw = rng.lognormal(0, 1.0) if kind == "lognormal" else rng.gamma(1.0)
        return {"loss": float((0.2 + np.exp(-number / 80)) * draw)}

    return logs


def _gan(number: int, loss: float) -> dict[str, float]:
    rng = np.random.default_rng(number)
    return {
        "d_loss": 0.69 + 0.05 * rng.normal(),
        "g_loss": 0.7 + 0.1 * np.sin(number / 20) + 0.05 * rng.normal(),
    }


def _binary(prediction: Array, target: Array) -> Array:
    return nb.binary_cross_entropy(prediction, target[:, None].astype(jnp.float32))


def _healthy() -> Iterator[tuple[str, Training]]:
    for name, task in TASKS.items():
        yield f"{name}, another seed", task.but(seed=1)
        yield f"{name}, a third seed", task.but(seed=2)
    yield "residual branches that begin at zero", RINGS.but(model=Residual)
    yield (
        "residual branches, twelve blocks",
        RINGS.but(model=functools.partial(Residual, 12, False), optimizer=adam(1e-3)),
    )
    yield (
        "transformer with a zero branch",
        TEXT.but(model=functools.partial(Transformer, zero_init=True)),
    )
    yield "low-rank correction", RINGS.but(model=LowRank, optimizer=adam(1e-2))
    yield "wide ReLU layer", RINGS.but(model=functools.partial(perceptron, 2, 4, 256))
    yield "dropout 0.9", RINGS.but(model=lambda: dropped(nb.Dropout, 0.9, 256), steps=400)
    yield "dropout 0.1, images", IMAGES.but(model=functools.partial(Convolutional, True, 0.1))
    yield "experts with a top-1 gate", RINGS.but(model=Gated)
    yield "padded sequences", SEQUENCES.but(data=with_data(SEQUENCES, _padded))
    yield "warm restarts", RINGS.but(optimizer=adam(_restarts))
    yield "one cycle", RINGS.but(optimizer=adam(_one_cycle))
    yield "log-normal loss", TABLE.but(logs=_heavy("lognormal", 0))
    yield "gamma loss", TABLE.but(logs=_heavy("gamma", 1))
    yield "two adversaries", TABLE.but(logs=_gan)
    yield "noisy labels", RINGS.but(data=with_data(RINGS, _noisy))
    yield "SGD with momentum", TABLE.but(optimizer=sgd(0.05, momentum=0.9))
    yield "SGD, images", IMAGES.but(optimizer=sgd(0.1, momentum=0.9))
    yield "the whole data as one batch", TABLE.but(batch=1000, optimizer=adam(1e-2), steps=300)
    yield "batches of eight", RINGS.but(batch=8)
    yield "tanh", TABLE.but(model=functools.partial(perceptron, 8, 1, act=nb.Tanh))
    yield "deep tanh", RINGS.but(model=deep(5, nb.Tanh))
    yield (
        "sigmoid and binary cross-entropy",
        SEQUENCES.but(
            model=lambda: nb.Sequential(
                nb.Flatten(), nb.Linear(24, 32), nb.ReLU(), nb.Linear(32, 1), nb.Sigmoid()
            ),
            loss=_binary,
            score=False,
        ),
    )
    yield (
        "narrow bottleneck",
        COPIES.but(
            model=lambda: nb.Sequential(nb.Linear(10, 3), nb.Linear(3, 10)), optimizer=adam(1e-2)
        ),
    )
    yield "AdamW", IMAGES.but(optimizer=lambda: nb.AdamW(lr=3e-3, weight_decay=0.01))
    yield "clipping at 1", TEXT.but(optimizer=adam(3e-3, clip_norm=1.0))
    yield "a long run", RINGS.but(steps=700, optimizer=adam(1e-3))
    yield (
        "frozen first layer",
        RINGS.but(
            before=lambda m, o: m[0].requires_grad_(False),
            model=functools.partial(perceptron, width=64),
        ),
    )
    yield "a batch of another length now and then", TABLE.but(batch=100)


HEALTHY: tuple[tuple[str, Training], ...] = tuple(_healthy())
