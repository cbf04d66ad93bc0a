"""Peers that capture what submodules return, where they are installed: each beside its own
untracked step.

Each builds the same two models, a transformer and an MLP, and takes a step of gradient descent;
PyTorch runs the forward pass alone.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import jax

from benchmarks.models import mean_square

Variants = dict[str, Callable[[], Any]]
NAMES = ("linen", "nnx", "haiku", "raw", "torch")


def transformer(size: dict[str, int], tokens: Any) -> Variants:
    """Columns for `Transformer(**size)`."""
    return _gathered(lambda peer: peer.transformer(size, tokens))


def mlp(depth: int, width: int, x: Any) -> Variants:
    """Columns for `MLP(depth, width)`."""
    return _gathered(lambda peer: peer.mlp(depth, width, x))


def _gathered(ask: Callable[[Any], Variants]) -> Variants:
    found: Variants = {}
    for name in NAMES:
        try:
            peer = importlib.import_module(f"benchmarks.peers.capture_{name}")
        except ImportError:
            continue
        found.update(ask(peer))
    return found


def steps(
    name: str,
    how: str,
    params: Any,
    plain: Callable[..., Any],
    capturing: Callable[..., Any],
    x: Any,
    target: Any = None,
) -> Variants:
    """A compiled step with and without capturing; `plain` gives the outputs, `capturing` also what
    it has captured.
    """

    def step(params: Any, x: Any, captures: bool) -> Any:
        def loss(params: Any) -> Any:
            y, captured = capturing(params, x) if captures else (plain(params, x), ())
            return (y.mean() if target is None else mean_square(y, target)), captured

        (value, captured), grads = jax.value_and_grad(loss, has_aux=True)(params)
        return value, captured, jax.tree.map(lambda p, g: p - 1e-6 * g, params, grads)

    compiled = jax.jit(step, static_argnums=2)
    return {
        f"{name}, untracked": lambda: compiled(params, x, False),
        f"{name}, {how}": lambda: compiled(params, x, True),
    }
