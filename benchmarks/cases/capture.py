"""What tracking costs: the same compiled training step untracked, with statistics, with all
returns; peers that capture returns.

The tracked step is another executable, the untracked one is the very same as if tracking did not
exist, so that its ratio is 1 by construction (asserted here and in `tests/calls/test_cost.py`).
Peers run their own model; *of its own* is the ratio to their own untracked step.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import nbmodule as nb
from benchmarks.models import MLP, Encoder, Transformer, mean_square
from benchmarks.peers import capture as peers
from benchmarks.timing import Table, interleave
from nbmodule import track

SIZE = {"layers": 12, "width": 256, "heads": 8, "vocabulary": 256, "context": 128}


def run(quick: bool = False) -> list[Table]:
    layers = 4 if quick else SIZE["layers"]
    model = Transformer(**{**SIZE, "layers": layers})
    tokens = jnp.asarray(np.random.default_rng(0).integers(0, SIZE["vocabulary"], SIZE["context"]))
    mlp, x = MLP(50, 8), jnp.ones((16, 8))
    rounds = 7 if quick else 15
    title = f"Tracking a training step, transformer of {layers} layers, width 256, 128 tokens"
    return [
        _table(
            title,
            model,
            lambda m, x: m(x).mean(),
            tokens,
            {"statistics": 1.05, "all returns": 1.15},
            rounds,
            0.2,
            peers.transformer({**SIZE, "layers": layers}, tokens),
        ),
        _table(
            "Tracking a training step, MLP of 50 layers of width 8",
            mlp,
            lambda m, x: mean_square(m(x), 1.0),
            x,
            {"statistics": 1.15, "all returns": 1.15},
            rounds * 3,
            0.02,
            peers.mlp(50, 8, x),
        ),
        *_statistics(quick),
    ]


def _step(loss: Callable[..., Any]) -> Any:
    @nb.jit
    def step(model: Any, x: Any) -> Any:
        value, gradients = nb.value_and_grad(loss)(model, x)
        model.v = model.v - gradients * 1e-6
        return value

    return step


def _table(
    title: str,
    model: Any,
    loss: Any,
    x: Any,
    targets: dict[str, float],
    rounds: int,
    seconds: float,
    others: peers.Variants,
) -> Table:
    """The untracked step is one program; each tracked variant enters its context around each of its
    steps.
    """
    step = _step(loss)
    program = step.lower(model, x).as_text()

    def tracked(**options: Any) -> Callable[[], Any]:
        watching = track(model, last=1, **options)

        def once() -> Any:
            with watching:
                return step(model, x)

        return once

    variants = {
        "untracked": lambda: step(model, x),
        "statistics": tracked(returns="stats"),
        "all returns": tracked(),
        "statistics and gradients": tracked(returns="stats", gradients=True),
        **others,
    }
    note = "A context is entered and left around each step, as a recorder does."
    table = interleave(
        title, variants, "untracked", targets=targets, rounds=rounds, seconds=seconds, note=note
    )
    if step.lower(model, x).as_text() != program:
        raise AssertionError(
            "the step that is not tracked is another program than before it was ever tracked"
        )
    times = {row.name: row.us for row in table.rows}
    for row in table.rows:
        peer = row.name.partition(",")[0]
        own = times.get(f"{peer}, untracked", times.get(f"{peer}, forward alone"))
        if own is not None:
            row.more["of its own"] = row.us / own
    return table


def _statistics(quick: bool) -> list[Table]:
    """A pass and a step of an encoder, watched and not; *first* is the time of tracing and
    compiling, of all threads.
    """
    shape = {"layers": 2 if quick else 6, "heads": 8, "vocabulary": 256, "context": 64}
    text = jnp.asarray(np.random.default_rng(0).integers(0, 256, (8, 64)))
    forward = lambda m, x: m(x).mean()  # noqa: E731
    passes = {width: (Encoder(width=width, **shape).eval(), width) for width in (256, 16)}
    title = f"Statistics of returns, transformer of {shape['layers']} layers, 8 x 64 tokens"
    return [
        *(
            _watched(
                f"{title}: forward pass, width {width}",
                lambda: nb.jit(forward),
                model,
                text,
                {"returns": "stats"},
                1.04 if width > 16 else 1.3,
                quick,
            )
            for model, width in passes.values()
        ),
        _watched(
            f"{title}: training step with gradients, width 256",
            lambda: _step(forward),
            passes[256][0],
            text,
            {"returns": "stats", "gradients": True},
            1.04,
            quick,
        ),
    ]


def _watched(
    title: str,
    make: Callable[[], Any],
    model: Any,
    x: Any,
    options: dict[str, Any],
    target: float,
    quick: bool,
) -> Table:
    plain, other = make(), make()
    watching = track(model, last=1, **options)

    def watched() -> Any:
        with watching:
            return other(model, x)

    first = {"plain": _first(lambda: plain(model, x)), "watched": _first(watched)}
    table = interleave(
        title,
        {"plain": lambda: plain(model, x), "watched": watched},
        "plain",
        targets={"watched": target},
        rounds=9 if quick else 21,
        seconds=0.1,
        clock=time.process_time,
        note="cpu is the time of the whole process; *first* is what tracing and compiling took, over that of the plain one (at most 1.5).",
    )
    for row in table.rows:
        row.more["first"] = first[row.name] / first["plain"]
    return table


def _first(fn: Callable[[], Any]) -> float:
    """Seconds of all threads for a first call."""
    start = time.process_time()
    jax.block_until_ready(fn())
    return time.process_time() - start
