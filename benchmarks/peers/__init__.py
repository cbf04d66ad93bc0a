"""Columns of other frameworks, each where it is installed; a file for each of them.

A file has a class `Null`, a function `chain`, and `MLP`, `dispatch` and `train` where its framework
is timed with them.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

NAMES = ("equinox", "nnx", "inox", "penzai")


def _installed() -> dict[str, Any]:
    found = {}
    for name in NAMES:
        try:
            found[name] = importlib.import_module(f"benchmarks.peers.{name}_")
        except ImportError:
            continue
    return found


def _merged(what: str, *args: Any) -> dict[str, Any]:
    peers = (peer for peer in _installed().values() if hasattr(peer, what))
    return {name: fn for peer in peers for name, fn in getattr(peer, what)(*args).items()}


def dispatch(count: int, x: Any) -> dict[str, Any]:
    return _merged("dispatch", count, x)


def train(depth: int, width: int, x: Any, target: Any) -> dict[str, Any]:
    return _merged("train", depth, width, x, target)


def null(x: Any, hundred: Callable[..., Any]) -> dict[str, Any]:
    peers = _installed().items()
    return {f"100 {name} modules": hundred(peer.Null(), x) for name, peer in peers}


def mlps(depth: int, width: int) -> dict[str, Callable[[], Any]]:
    """Functions that build an MLP."""
    peers = {name: peer.MLP for name, peer in _installed().items() if hasattr(peer, "MLP")}
    return {name: lambda build=build: build(depth, width) for name, build in peers.items()}


def eager_mlp(depth: int, width: int, x: Any) -> dict[str, Any]:
    models = {name: build() for name, build in mlps(depth, width).items()}
    return {name: lambda model=model: model(x) for name, model in models.items()}


def chains(count: int, w: Any, b: Any) -> dict[str, Callable[[], Any]]:
    """Functions that build a chain of layers, each with two arrays."""
    peers = _installed().items()
    return {name: lambda peer=peer: peer.chain(count, w, b) for name, peer in peers}


def trees(count: int) -> dict[str, Any]:
    return {name: build() for name, build in chains(count, jnp.ones(4), jnp.ones(4)).items()}
