"""What storing small leaves together would buy: one donated Adam step of raw JAX over each leaf,
over packs of eight, over one pack.

Nothing of nbmodule is in it. It is why the library stores each variable by itself: packs of eight
are faster to run and no slower to compile from some hundred leaves on, one pack of all takes four
times as long to compile; but a box would then be a place in an array that other boxes lie in too,
and handing one over, freezing, sharing, placing or donating it would concern its neighbors.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.timing import Table, interleave

SIDE = 16


def run(quick: bool = False) -> list[Table]:
    return [_table(leaves, quick) for leaves in (10, 100, *(() if quick else (1000,)))]


def _table(leaves: int, quick: bool) -> Table:
    sizes = {"each leaf": 1, "packs of eight": 8, "one pack": leaves}
    steps = {name: _step(leaves, size) for name, size in sizes.items()}
    first = {}
    for name, step in steps.items():
        start = time.process_time()
        step()
        first[name] = time.process_time() - start
    table = interleave(
        f"Donated Adam step over {leaves} leaves of 1 KiB",
        steps,
        "each leaf",
        rounds=9 if quick else 21,
        seconds=0.02,
        clock=time.process_time,
        note="cpu is the time of the whole process; *first call s* too.",
    )
    for row in table.rows:
        row.more["first call s"] = first[row.name]
    return table


def _step(leaves: int, size: int) -> Callable[[], Any]:
    """An Adam step whose gradients are cheap, over arrays that hold `size` leaves each."""
    counts = [min(size, leaves - start) for start in range(0, leaves, size)]

    def loss(packs: list[Any], x: Any) -> Any:
        parts = [
            part.reshape(SIDE, SIDE)
            for pack, count in zip(packs, counts, strict=True)
            for part in (lax.split(pack, [SIDE * SIDE] * count) if count > 1 else [pack])
        ]
        return 1e-3 * sum((part * part).sum() for part in parts) + (x @ parts[0]).mean()

    def update(packs: Any, means: Any, squares: Any, x: Any) -> Any:
        grads = jax.grad(loss)(packs, x)
        means = [0.9 * m + 0.1 * g for m, g in zip(means, grads, strict=True)]
        squares = [0.999 * s + 0.001 * g * g for s, g in zip(squares, grads, strict=True)]
        moved = [
            p - 1e-3 * m / (jnp.sqrt(s) + 1e-8)
            for p, m, s in zip(packs, means, squares, strict=True)
        ]
        return moved, means, squares

    compiled = jax.jit(update, donate_argnums=(0, 1, 2))
    x = jnp.ones((8, SIDE))
    state = [
        [jnp.full(SIDE * SIDE * count, value) for count in counts] for value in (0.1, 0.0, 0.0)
    ]

    def call() -> Any:
        state[:] = compiled(*state, x)
        return state

    return call
