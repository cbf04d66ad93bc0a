"""`v - lr * grads` over many small leaves."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import nbmodule as nb
from benchmarks.timing import Table, interleave, once

RATE = 0.1


def tree(count: int, seed: int) -> dict[str, Any]:
    values = np.random.RandomState(seed).randn(count, 8).astype(np.float32)
    return {
        f"l{i}": {"w": jnp.asarray(values[2 * i]), "b": jnp.asarray(values[2 * i + 1])}
        for i in range(count // 2)
    }


def run(quick: bool = False) -> list[Table]:
    return [_arithmetic(count, quick) for count in (100, 1000, *(() if quick else (10_000,)))]


def _arithmetic(count: int, quick: bool) -> Table:
    v, g = tree(count, 0), tree(count, 1)
    cv, cg = nb.Container(v), nb.Container(g)
    leaves, grads = jax.tree.leaves(v), jax.tree.leaves(g)
    fused = jax.jit(lambda v, g: [a - RATE * b for a, b in zip(v, g)])
    variants = {
        "eager jax.tree.map": lambda: jax.tree.map(lambda a, b: a - RATE * b, v, g),
        "Container": lambda: jax.tree.leaves(cv - RATE * cg),
    }
    if count <= 1000:
        variants["one jax.jit over a flat list"] = lambda: fused(leaves, grads)
    first = {name: once(fn) for name, fn in variants.items()}
    targets = {"Container": 0.5} if count == 1000 else {}
    table = interleave(
        f"v - lr * grads, {count} leaves",
        variants,
        "eager jax.tree.map",
        targets=targets,
        rounds=5 if count > 1000 or quick else 15,
        seconds=0.02,
        warm=1,
        by="cpu",
    )
    for row in table.rows:
        row.more["first call s"] = first[row.name]
    if count == 10_000:
        table.note = "The first call of a Container at 10,000 leaves may take 1 s."
    return table
