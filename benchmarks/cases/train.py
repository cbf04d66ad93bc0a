"""One donated Adam step: bound by dispatch at small sizes, by arithmetic at 3 x 1024."""

from __future__ import annotations

import jax

from benchmarks import peers
from benchmarks.models import MLP, mean_square, raw_mlp, raw_mlp_forward
from benchmarks.steps import module_step, raw_step
from benchmarks.timing import Table, interleave, once

SIZES = [
    ("10 leaves", 5, 4, 4),
    ("100 leaves", 50, 4, 4),
    ("1000 leaves", 500, 4, 4),
    ("3 x 1024, batch 256", 3, 1024, 256),
]


def run(quick: bool = False) -> list[Table]:
    return [_train(*size, quick) for size in SIZES if not quick or size[1] <= 50]


def _train(name: str, depth: int, width: int, batch: int, quick: bool) -> Table:
    x, target = (jax.random.normal(jax.random.key(seed), (batch, width)) for seed in (1, 2))
    variants = {
        "raw JAX, nested dicts": raw_step(
            raw_mlp(depth, width), raw_mlp_forward, mean_square, x, target
        ),
        "nb.jit, donate": module_step(MLP(depth, width), mean_square, x, target),
        **peers.train(depth, width, x, target),
    }
    first = {name: once(fn) for name, fn in variants.items()}
    bound = name.startswith("3 x")
    table = interleave(
        f"Donated Adam step, {name}",
        variants,
        "raw JAX, nested dicts",
        targets={"nb.jit, donate": 1.02 if bound else 1.0},
        rounds=9 if quick else 21,
        seconds=0.02,
        by="wall" if bound else "cpu",
    )
    for row in table.rows:
        row.more["first call s"] = first[row.name]
    return table
