"""One donated Adam step: bound by dispatch at small sizes, by arithmetic at 3 x 1024."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

import nbmodule as nb
from benchmarks import peers
from benchmarks.models import MLP, mean_square, raw_mlp, raw_mlp_forward
from benchmarks.timing import Table, interleave, once

SIZES = [
    ("10 leaves", 5, 4, 4),
    ("100 leaves", 50, 4, 4),
    ("1000 leaves", 500, 4, 4),
    ("3 x 1024, batch 256", 3, 1024, 256),
]


def run(quick: bool = False) -> list[Table]:
    return [_train(*size, quick) for size in SIZES if not quick or size[1] <= 50]


def raw_step(depth: int, width: int, x: Any, target: Any) -> Callable[[], Any]:
    p = jax.tree.map(jnp.array, raw_mlp(depth, width))
    optimizer = optax.adam(1e-3)
    state = [p, optimizer.init(p)]

    def step(p: Any, s: Any, x: Any, target: Any) -> Any:
        loss, grads = jax.value_and_grad(lambda p: mean_square(raw_mlp_forward(p, x), target))(p)
        updates, s = optimizer.update(grads, s, p)
        return optax.apply_updates(p, updates), s, loss

    compiled = jax.jit(step, donate_argnums=(0, 1))

    def call() -> Any:
        state[0], state[1], loss = compiled(*state, x, target)
        return loss

    return call


def module_step(depth: int, width: int, x: Any, target: Any) -> Callable[[], Any]:
    model, optimizer = MLP(depth, width), nb.Adam(1e-3)

    def step(x: Any, target: Any) -> Any:
        loss, grads = nb.value_and_grad(lambda m: mean_square(m(x), target))(model)
        optimizer.update(model, grads)
        return loss

    compiled = nb.jit(step, donate=True)
    return lambda: compiled(x, target)


def _train(name: str, depth: int, width: int, batch: int, quick: bool) -> Table:
    x, target = (jax.random.normal(jax.random.key(seed), (batch, width)) for seed in (1, 2))
    variants = {
        "raw JAX, nested dicts": raw_step(depth, width, x, target),
        "nb.jit, donate": module_step(depth, width, x, target),
        **peers.train(depth, width, x, target),
    }
    first = {name: once(fn) for name, fn in variants.items()}
    bound = name.startswith("3 x")
    table = interleave(
        f"Donated Adam step, {name}", variants, "raw JAX, nested dicts", targets={"nb.jit, donate": 1.02 if bound else 1.05},
        rounds=9 if quick else 21, seconds=0.02, by="wall" if bound else "cpu",
    )  # fmt: skip
    for row in table.rows:
        row.more["first call s"] = first[row.name]
    return table
