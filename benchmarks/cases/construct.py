"""Making a model: what each framework costs by itself, and with its initial values."""

from __future__ import annotations

import jax.numpy as jnp

from benchmarks import peers
from benchmarks.models import GPT, MLP, Affine, Chain, Transformer, raw_mlp
from benchmarks.timing import Table, interleave


def run(quick: bool = False) -> list[Table]:
    w, b, rounds = jnp.ones(4), jnp.ones(4), 5 if quick else 9
    bare = {
        "nbmodule": lambda: (Chain([Affine(w, b) for _ in range(100)]), 0)[1],
        **peers.construct_affine(100, w, b),
    }
    mlp = {
        "raw JAX, jax.random for each leaf": lambda: (raw_mlp(100, 8), 0)[1],
        "nbmodule": lambda: (MLP(100, 8), 0)[1],
        "nbmodule, values drawn": lambda: (MLP(100, 8).v, 0)[1],
        **peers.construct_mlp(100, 8),
    }
    gpt = {
        "nbmodule": lambda: (Transformer(**GPT), 0)[1],
        "nbmodule, values drawn": lambda: (Transformer(**GPT).v, 0)[1],
        **peers.construct_gpt(GPT),
    }
    return [
        interleave(
            "100 layers from given arrays",
            bare,
            "nbmodule",
            rounds=rounds,
            seconds=0.001,
            warm=1,
            by="cpu",
        ),
        interleave(
            "MLP of depth 100, width 8",
            mlp,
            "raw JAX, jax.random for each leaf",
            rounds=rounds,
            seconds=0.001,
            warm=1,
            by="cpu",
        ),
        interleave(
            "Transformer of 12 layers, width 16",
            gpt,
            "nbmodule",
            rounds=rounds,
            seconds=0.001,
            warm=1,
            by="cpu",
        ),
    ]
