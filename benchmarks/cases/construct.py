"""Making a model: what each framework costs by itself, and with its initial values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from benchmarks import peers
from benchmarks.models import GPT, MLP, Affine, Chain, Transformer, raw_mlp
from benchmarks.timing import Table, interleave


def run(quick: bool = False) -> list[Table]:
    w, b, rounds = jnp.ones(4), jnp.ones(4), 5 if quick else 9
    affine = {
        "nbmodule": lambda: Chain([Affine(w, b) for _ in range(100)]),
        **peers.chains(100, w, b),
    }
    raw = "raw JAX, jax.random for each leaf"
    mlp = {
        raw: lambda: raw_mlp(100, 8),
        "nbmodule": lambda: MLP(100, 8),
        "nbmodule, values drawn": lambda: MLP(100, 8).v,
        **peers.mlps(100, 8),
    }
    gpt = {
        "nbmodule": lambda: Transformer(**GPT),
        "nbmodule, values drawn": lambda: Transformer(**GPT).v,
    }
    return [
        _table("100 layers from given arrays", affine, "nbmodule", rounds),
        _table("MLP of depth 100, width 8", mlp, raw, rounds),
        _table("Transformer of 12 layers, width 16", gpt, "nbmodule", rounds),
    ]


def _table(title: str, builders: dict[str, Callable[[], Any]], floor: str, rounds: int) -> Table:
    """Time functions that build models, without waiting for their arrays."""
    variants = {name: lambda build=build: (build(), 0)[1] for name, build in builders.items()}
    return interleave(title, variants, floor, rounds=rounds, seconds=0.001, warm=1, by="cpu")
