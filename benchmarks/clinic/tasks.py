"""Six healthy tasks over four architectures. Data is made here, so that nothing is downloaded."""

from __future__ import annotations

import functools
from typing import Any

import jax.numpy as jnp
import numpy as np

import nbmodule as nb
from benchmarks.clinic.training import Training

Array = Any


# -- rings: points of the plane, four classes, a multilayer perceptron --
def rings(rng: np.random.Generator, rows: int = 1200) -> tuple[Array, ...]:
    x = rng.normal(size=(rows, 2)).astype(np.float32)
    y = ((x[:, 0] * x[:, 1] > 0) + 2 * (np.hypot(*x.T) > 1.2)).astype(np.int32)
    return x[:1000], y[:1000], x[1000:], y[1000:]


def perceptron(
    inputs: int = 2, outputs: int = 4, width: int = 32, depth: int = 2, act: Any = nb.ReLU
) -> Any:
    layers: list[Any] = []
    for k in range(depth):
        layers += [nb.Linear(inputs if k == 0 else width, width), act()]
    return nb.Sequential(*layers, nb.Linear(width, outputs))


# -- blobs: small images of four shapes, a convolutional network --
def images(rng: np.random.Generator, rows: int = 900) -> tuple[Array, ...]:
    grid = np.stack(np.meshgrid(np.linspace(-1, 1, 8), np.linspace(-1, 1, 8)), -1)
    y = rng.integers(0, 4, rows).astype(np.int32)
    shapes = [
        np.exp(-4 * (grid**2).sum(-1)),
        (np.abs(grid[..., 0]) < 0.3),
        (np.abs(grid[..., 1]) < 0.3),
        (grid.sum(-1) > 0),
    ]
    x = np.stack([shapes[k].astype(np.float32) for k in y])[..., None]
    x = x * rng.uniform(0.6, 1.2, (rows, 1, 1, 1)) + rng.normal(size=x.shape) * 0.25
    x = x.astype(np.float32)
    return x[:800], y[:800], x[800:], y[800:]


class Convolutional(nb.Module):
    """Two convolutions with batch normalization, and a head."""

    def __init__(self, norm: bool = True, drop: float = 0.0, outputs: int = 4):
        self.conv1 = nb.Conv2d(1, 8, 3, padding=1)
        self.norm1 = nb.BatchNorm2d(8) if norm else nb.Identity()
        self.act1 = nb.ReLU()
        self.conv2 = nb.Conv2d(8, 16, 3, padding=1)
        self.act2 = nb.ReLU()
        self.drop = nb.Dropout(drop)
        self.head = nb.Linear(16, outputs)

    def forward(self, x: Array) -> Array:
        x = self.act1(self.norm1(self.conv1(x)))
        x = self.act2(self.conv2(x)).mean((1, 2))
        return self.head(self.drop(x))


# -- table: regression from eight columns --
def table(rng: np.random.Generator, rows: int = 1200) -> tuple[Array, ...]:
    x = rng.normal(size=(rows, 8)).astype(np.float32)
    y = (x[:, :1] - 2 * x[:, 1:2] * x[:, 2:3] + 0.1 * rng.normal(size=(rows, 1))).astype(np.float32)
    return x[:1000], y[:1000], x[1000:], y[1000:]


# -- text: next-character prediction, a transformer --
WORDS = b"the cat sat on the mat and the dog ran to the man who had a hat "


def text(rng: np.random.Generator, rows: int = 400, length: int = 16) -> tuple[Array, ...]:
    symbols = np.unique(np.frombuffer(WORDS, np.uint8))
    stream = np.searchsorted(symbols, np.frombuffer(WORDS * 60, np.uint8)).astype(np.int32)
    at = rng.integers(0, len(stream) - length - 1, rows)
    x = np.stack([stream[k : k + length] for k in at])
    y = np.stack([stream[k + 1 : k + length + 1] for k in at])
    return x[:340], y[:340], x[340:], y[340:]


SYMBOLS = len(set(WORDS))


class Transformer(nb.Module):
    """One block of causal attention over characters."""

    def __init__(self, width: int = 32, mask: Any = "causal", zero_init: bool = False):
        self.embed = nb.Embedding(SYMBOLS, width)
        self.position = nb.Parameter(
            0.1 * np.random.default_rng(0).normal(size=(16, width)).astype(np.float32)
        )
        self.norm1, self.norm2 = nb.LayerNorm(width), nb.LayerNorm(width)
        self.attention = nb.MultiHeadAttention(width, 4)
        self.up, self.act = nb.Linear(width, 2 * width), nb.GELU()
        self.down = nb.Linear(
            2 * width, width, **({"weight_initializer": nb.Zeros()} if zero_init else {})
        )
        self.head = nb.Linear(width, SYMBOLS)
        self.mask = mask

    def forward(self, tokens: Array) -> Array:
        length = tokens.shape[-1]
        x = self.embed(tokens) + self.position[:length]
        mask = {"causal": jnp.tril(jnp.ones((length, length), bool)), "none": None,
                "inverted": jnp.triu(jnp.ones((length, length), bool))}[self.mask]  # fmt: skip
        h = self.norm1(x)
        x = x + self.attention(h, h, h, mask=mask)
        x = x + self.down(self.act(self.up(self.norm2(x))))
        return self.head(x)


# -- sequences: does the sum of a sequence exceed zero, a recurrent network --
def sequences(rng: np.random.Generator, rows: int = 700) -> tuple[Array, ...]:
    x = rng.normal(size=(rows, 12, 2)).astype(np.float32)
    y = (x.sum((1, 2)) > 0).astype(np.int32)
    return x[:600], y[:600], x[600:], y[600:]


class Recurrent(nb.Module):
    """A GRU whose last state is classified."""

    def __init__(self) -> None:
        self.rnn = nb.GRU(2, 24)
        self.head = nb.Linear(24, 2)

    def forward(self, x: Array) -> Array:
        states = self.rnn(x)
        states = states[0] if isinstance(states, tuple) else states
        return self.head(states[:, -1])


# -- copies: an autoencoder of the table --
def copies(rng: np.random.Generator, rows: int = 1000) -> tuple[Array, ...]:
    hidden = rng.normal(size=(rows, 3))
    x = np.tanh(hidden @ np.random.default_rng(3).normal(size=(3, 10))).astype(np.float32)
    return x[:800], x[:800].copy(), x[800:], x[800:].copy()


RINGS = Training(rings, perceptron, score=True)
IMAGES = Training(images, Convolutional, score=True, optimizer=lambda: nb.Adam(lr=3e-3))
TABLE = Training(table, functools.partial(perceptron, 8, 1), nb.mse_loss)
TEXT = Training(text, Transformer, optimizer=lambda: nb.Adam(lr=3e-3), batch=32)
SEQUENCES = Training(sequences, Recurrent, score=True)
COPIES = Training(copies, functools.partial(perceptron, 10, 10), nb.mse_loss)
TASKS = {
    "rings": RINGS,
    "images": IMAGES,
    "table": TABLE,
    "text": TEXT,
    "sequences": SEQUENCES,
    "copies": COPIES,
}
