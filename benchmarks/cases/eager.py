"""Eager calls: what the base class adds to a bare method, layers against plain `jax.numpy`, and the
time to trace.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import jaxpr_as_fun

import nbmodule as nb
from benchmarks import peers
from benchmarks.models import (
    GPT,
    MLP,
    Encoder,
    Null,
    Transformer,
    raw_mlp,
    raw_mlp_forward,
    raw_transformer,
    raw_transformer_forward,
)
from benchmarks.timing import Table, interleave


def run(quick: bool = False) -> list[Table]:
    return [_bare(quick), _layers(quick), _tracing(quick)]


def _hundred(fn: Callable[[Any], Any], x: Any) -> Callable[[], int]:
    def call() -> int:
        for _ in range(100):
            fn(x)
        return 0

    return call


def _bare(quick: bool) -> Table:
    class Bare:
        def forward(self, x: Any) -> Any:
            return x

    x, bare, module = jnp.ones(4), Bare(), Null()
    variants = {
        "100 bare methods": _hundred(bare.forward, x),
        "100 modules": _hundred(module, x),
        **peers.null(x, _hundred),
    }
    table = interleave(
        "Call of a module that returns its argument, 100 times",
        variants,
        "100 bare methods",
        rounds=9 if quick else 21,
        by="cpu",
    )
    floor = next(row.cpu_us for row in table.rows if row.name == "100 bare methods")
    for row in table.rows:
        row.more["µs over bare, each"] = (row.cpu_us - floor) / 100
    table.note = "Allowed: 1 µs over a bare method."
    return table


def _layers(quick: bool) -> Table:
    p, model, x = raw_mlp(100, 8), MLP(100, 8), jnp.ones((2, 8))
    variants = {
        "plain jnp and jax.nn": lambda: raw_mlp_forward(p, x),
        "nb.Linear and nb.ReLU": lambda: model(x),
        **peers.eager_mlp(100, 8, x),
    }
    targets = {"nb.Linear and nb.ReLU": 0.2}
    return interleave(
        "Eager forward, 100 layers of width 8",
        variants,
        "plain jnp and jax.nn",
        targets=targets,
        rounds=7 if quick else 15,
        by="cpu",
    )


def _tracing(quick: bool) -> Table:
    library, own, x = Encoder(**GPT).eval(), Transformer(**GPT), jnp.zeros(8, int)
    p = raw_transformer(**GPT)
    variants = {
        "plain jnp and jax.nn": lambda: (
            jax.make_jaxpr(lambda p, x: raw_transformer_forward(p, x, GPT["heads"]))(p, x),
            0,
        )[1],
        "nb.TransformerEncoder": lambda: _traced(library, x),
        "modules around attention in plain jnp": lambda: _traced(own, x),
        "the encoder's operations alone, by JAX": _replay(library, x),
    }
    targets = {"nb.TransformerEncoder": 0.6}
    return interleave(
        "Tracing a transformer of 12 layers",
        variants,
        "plain jnp and jax.nn",
        targets=targets,
        rounds=5 if quick else 9,
        by="cpu",
    )


def _traced(model: Any, x: Any) -> int:
    """Trace a function that nothing was compiled for: what stands in its closure is another thing
    each time.
    """
    new = object()
    nb.jit(lambda m, x: (new, m(x))[1]).eval_shape(model, x)
    return 0


def _replay(model: Any, x: Any) -> Callable[[], int]:
    program = nb.jit(lambda m, x: m(x)).trace(model, x).jaxpr
    arrays = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in program.in_avals]
    return lambda: (jax.make_jaxpr(jaxpr_as_fun(program))(*arrays), 0)[1]
