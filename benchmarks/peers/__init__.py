"""Columns of other frameworks, each where it is installed; a file for each of them."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

NAMES = ("equinox", "nnx", "inox", "penzai")


def _installed() -> list[Any]:
    found = []
    for name in NAMES:
        try:
            found.append(importlib.import_module(f"benchmarks.peers.{name}_"))
        except ImportError:
            continue
    return found


def _collect(what: str) -> Callable[..., dict[str, Any]]:
    def gather(*args: Any) -> dict[str, Any]:
        return {
            name: fn
            for peer in _installed()
            if hasattr(peer, what)
            for name, fn in getattr(peer, what)(*args).items()
        }

    return gather


dispatch, train, null = _collect("dispatch"), _collect("train"), _collect("null")
eager_mlp, trees = _collect("eager_mlp"), _collect("trees")
construct_affine, construct_mlp, construct_gpt = (
    _collect("construct_affine"),
    _collect("construct_mlp"),
    _collect("construct_gpt"),
)
