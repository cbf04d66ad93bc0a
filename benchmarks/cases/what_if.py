"""What if: from a hand on a slider to what the page draws; all heads of a small GPT ablated one by
one, beside as many batched forwards.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import nbmodule as nb
from benchmarks.timing import Table, interleave
from nbmodule.interventions.what_if import WhatIf
from nbmodule.views.panels.intervention_views import answered

HAND_MS = 100
SIZE = {"layers": 12, "width": 192, "heads": 12, "length": 32}


def run(quick: bool = False) -> list[Table]:
    """A table for the slider, one for the sweep."""
    return [_slider(quick), _sweep(quick)]


def _transformer(layers: int, width: int, heads: int) -> Any:
    embed, head = nb.Embedding(64, width), nb.Linear(width, 64)
    return nb.Sequential(
        embed, nb.TransformerEncoder(layers, width, heads, dropout_rate=0.0, norm_first=True), head
    ).eval()


def _tokens(rows: int, length: int) -> Any:
    return jnp.asarray(np.random.default_rng(0).integers(0, 64, (rows, length)), jnp.int32)


def _turned(found: WhatIf) -> Any:
    """A function that moves the slider by itself: what the kernel does between the message of the
    page and its answer.
    """
    at = [0]

    def turn() -> Any:
        at[0] += 1
        return answered(found, "turn", {"at": 0, "number": (at[0] % 40) / 20})

    return turn


def _slider(quick: bool) -> Table:
    digits = nb.Sequential(
        nb.Conv2d(1, 16, 3), nb.ReLU(), nb.MaxPool2d(2), nb.Flatten(), nb.Linear(144, 10)
    ).eval()
    reader, tokens = _transformer(2 if quick else 6, 256, 8), _tokens(1, 64)
    place = next(
        name for name, module in reader.named_modules() if isinstance(module, nb.MultiHeadAttention)
    )
    first = nb.what_if(digits, jnp.ones((8, 8, 8, 1)), {"0": nb.scale_by(0.5, channel=3)}, metric=4)
    second = nb.what_if(reader, tokens, {place: nb.scale_by(0.5, head=3)}, metric=(0, -1, 4))
    ways = {
        "digits network: slider to answer": _turned(first),
        "6-layer transformer of width 256: slider to answer": _turned(second),
    }
    found = interleave(
        "A slider of `nb.what_if`",
        ways,
        rounds=3 if quick else 7,
        seconds=0.2,
        warm=2,
        note=f"One run of the model, the changes of all modules, and what the page draws. Target: {HAND_MS} ms from hand to picture.",
    )
    for row in found.rows:
        row.more = {"target ms": HAND_MS, "met": "yes" if row.us / 1e3 < HAND_MS else "no"}
    return found


def _sweep(quick: bool) -> Table:
    layers, heads = (2, 4) if quick else (SIZE["layers"], SIZE["heads"])
    model, tokens = _transformer(layers, SIZE["width"], heads), _tokens(1, SIZE["length"])
    many, call = _tokens(16, SIZE["length"]), nb.jit(lambda x: model(x))
    batches = -(-layers * heads // 16)

    def forwards() -> None:
        for _ in range(batches):
            jax.block_until_ready(call(many))

    ways = {
        f"nb.sweep: {layers} × {heads} heads": lambda: nb.sweep(
            model, tokens, "heads", metric=(0, -1, 4)
        ),
        f"{batches} forwards of 16 rows": forwards,
    }
    return interleave(
        f"Each of {layers * heads} heads set to zero, one by one",
        ways,
        rounds=3,
        seconds=0.2,
        warm=1,
        note="The sweep is one compiled call of 16 runs at a time.",
    )
