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
from benchmarks.models import GPT, MLP, Encoder, Null, Transformer, attend, raw_mlp, raw_mlp_forward
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


def raw_transformer(
    layers: int, width: int, heads: int, vocabulary: int, context: int
) -> dict[str, Any]:
    def linear(i: int, o: int) -> dict[str, Any]:
        return {"w": jnp.ones((i, o)), "b": jnp.zeros(o)}

    def norm() -> dict[str, Any]:
        return {"s": jnp.ones(width), "b": jnp.zeros(width)}

    def block():
        return {
            "ln1": norm(),
            "qkv": linear(width, 3 * width),
            "proj": linear(width, width),
            "ln2": norm(),
            "fc": linear(width, 4 * width),
            "out": linear(4 * width, width),
        }

    return {
        "tok": jnp.ones((vocabulary, width)),
        "pos": jnp.ones((context, width)),
        "blocks": [block() for _ in range(layers)],
        "lnf": norm(),
    }


def raw_transformer_forward(p: dict[str, Any], x: Any, heads: int) -> Any:
    def linear(q: Any, y: Any) -> Any:
        return y @ q["w"] + q["b"]

    def norm(q: Any, y: Any) -> Any:
        mean = y.mean(-1, keepdims=True)
        return (y - mean) * jax.lax.rsqrt(((y - mean) ** 2).mean(-1, keepdims=True) + 1e-6) * q[
            "s"
        ] + q["b"]

    h = p["tok"][x] + p["pos"][jnp.arange(x.shape[0])]
    for b in p["blocks"]:
        h = h + linear(b["proj"], attend(linear(b["qkv"], norm(b["ln1"], h)), heads))
        h = h + linear(b["out"], jax.nn.gelu(linear(b["fc"], norm(b["ln2"], h))))
    return norm(p["lnf"], h) @ p["tok"].T
