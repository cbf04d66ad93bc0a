"""What one compiled call costs by number of leaves: the body ignores the model, so every leaf
crosses and nothing is computed.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

import nbmodule as nb
from benchmarks import peers
from benchmarks.models import Affine, Chain, raw_affine
from benchmarks.timing import Table, interleave


def run(quick: bool = False) -> list[Table]:
    return [_dispatch(leaves, quick) for leaves in (10, 100, 1000, *(() if quick else (5000,)))]


def _dispatch(leaves: int, quick: bool) -> Table:
    x = jnp.ones(4)
    tree = raw_affine(leaves // 2)
    flat = jax.tree.leaves(tree)
    raw = jax.jit(lambda p, x: x + 1, keep_unused=True)
    model = Chain([Affine(jnp.ones(4), jnp.ones(4)) for _ in range(leaves // 2)])
    given = nb.jit(lambda m, x: x + 1, keep_unused=True)
    closed = nb.jit(lambda x: (model, x + 1)[1], keep_unused=True)
    variants = {
        "raw JAX, nested dicts": lambda: raw(tree, x),
        "raw JAX, flat list": lambda: raw(flat, x),
        "nb.jit, model as argument": lambda: given(model, x),
        "nb.jit, model in closure": lambda: closed(x),
        **peers.dispatch(leaves // 2, x),
    }
    targets = {"nb.jit, model as argument": 1.0, "nb.jit, model in closure": 1.0}
    title = f"Compiled call, {leaves} leaves"
    return interleave(
        title,
        variants,
        "raw JAX, nested dicts",
        targets=targets,
        rounds=9 if quick else 21,
        by="cpu",
    )
