"""Whole training steps where arithmetic decides: what the modules add to the same network written
by hand in JAX.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

import nbmodule as nb
from benchmarks.models import Encoder, raw_transformer, raw_transformer_forward
from benchmarks.steps import module_step, raw_step
from benchmarks.timing import Table, interleave, once

TEXT = {"layers": 6, "width": 256, "heads": 8, "vocabulary": 256, "context": 128}


def run(quick: bool = False) -> list[Table]:
    return [_images(quick), _text(quick)]


class Convolutions(nb.Module):
    def __init__(self) -> None:
        self.conv0 = nb.Conv2d(1, 16, 3, padding="SAME")
        self.conv1 = nb.Conv2d(16, 32, 3, padding="SAME")
        self.pool, self.head = nb.MaxPool2d(2), nb.Linear(7 * 7 * 32, 10)

    def forward(self, x: Any) -> Any:
        x = self.pool(nb.relu(self.conv0(x)))
        x = self.pool(nb.relu(self.conv1(x)))
        return self.head(x.reshape(len(x), -1))


def raw_convolutions(p: Any, x: Any) -> Any:
    for w, b in p["convolutions"]:
        x = (
            jax.lax.conv_general_dilated(
                x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
            )
            + b
        )
        n, h, w, c = x.shape
        x = (
            jax.nn.relu(x).reshape(n, h // 2, 2, w // 2, 2, c).max((2, 4))
        )  # four times faster than reduce_window here
    w, b = p["head"]
    return x.reshape(len(x), -1) @ w + b


def _images(quick: bool) -> Table:
    def normal(seed: int, *shape: int) -> Any:
        return 0.1 * jax.random.normal(jax.random.key(seed), shape)

    p = {
        "convolutions": [
            (normal(0, 3, 3, 1, 16), jnp.zeros(16)),
            (normal(1, 3, 3, 16, 32), jnp.zeros(32)),
        ],
        "head": (normal(2, 7 * 7 * 32, 10), jnp.zeros(10)),
    }
    x, labels = normal(3, 64, 28, 28, 1), jnp.arange(64) % 10
    variants = {
        "raw JAX": raw_step(p, raw_convolutions, raw_cross_entropy, x, labels),
        "nb.jit, donate": module_step(Convolutions(), nb.cross_entropy, x, labels),
    }
    return _timed("Donated Adam step, two convolutions, batch 64 of 28 x 28", variants, quick)


def _text(quick: bool) -> Table:
    x = jax.random.randint(jax.random.key(0), (4, TEXT["context"]), 0, TEXT["vocabulary"])
    labels = jnp.roll(x, -1, axis=1)
    p = jax.tree.map(
        lambda a: 0.02 * jax.random.normal(jax.random.key(a.size), a.shape), raw_transformer(**TEXT)
    )

    def forward(p: Any, x: Any) -> Any:
        return jax.vmap(lambda row: raw_transformer_forward(p, row, TEXT["heads"]))(x)

    variants = {
        "raw JAX": raw_step(p, forward, raw_cross_entropy, x, labels),
        "nb.jit, donate": module_step(Encoder(**TEXT), nb.cross_entropy, x, labels),
    }
    return _timed(
        "Donated Adam step, transformer of 6 layers, width 256, 4 x 128 tokens", variants, quick
    )


def raw_cross_entropy(logits: Any, labels: Any) -> Any:
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


def _timed(title: str, variants: dict[str, Callable[[], Any]], quick: bool) -> Table:
    first = {name: once(fn) for name, fn in variants.items()}
    table = interleave(
        title,
        variants,
        "raw JAX",
        targets={"nb.jit, donate": 1.02},
        rounds=7 if quick else 25,
        seconds=0.05,
    )
    for row in table.rows:
        row.more["first call s"] = first[row.name]
    return table
