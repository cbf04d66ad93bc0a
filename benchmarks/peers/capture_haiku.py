"""Haiku, a method interceptor that collects what is returned."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import haiku as hk
import jax
import jax.numpy as jnp

from benchmarks.models import attend
from benchmarks.peers.capture import Variants, steps


class Attention(hk.Module):
    def __init__(self, heads: int) -> None:
        super().__init__()
        self.heads = heads

    def __call__(self, x: Any) -> Any:
        return hk.Linear(x.shape[-1])(attend(hk.Linear(3 * x.shape[-1])(x), self.heads))


class FeedForward(hk.Module):
    def __call__(self, x: Any) -> Any:
        return hk.Linear(x.shape[-1])(jax.nn.gelu(hk.Linear(4 * x.shape[-1])(x)))


class Block(hk.Module):
    def __init__(self, heads: int) -> None:
        super().__init__()
        self.heads = heads

    def __call__(self, x: Any) -> Any:
        x = x + Attention(self.heads)(hk.LayerNorm(-1, True, True)(x))
        return x + FeedForward()(hk.LayerNorm(-1, True, True)(x))


def _steps(forward: Callable[[Any], Any], x: Any, target: Any) -> Variants:
    net = hk.without_apply_rng(hk.transform(forward))

    def capturing(params: Any, x: Any) -> Any:
        captured: list[Any] = []

        def keep(call: Any, args: Any, kwargs: Any, context: Any) -> Any:
            y = call(*args, **kwargs)
            if context.method_name == "__call__":
                captured.append(y)
            return y

        with hk.intercept_methods(keep):
            return net.apply(params, x), captured

    return steps(
        "haiku",
        "intercept_methods",
        net.init(jax.random.key(0), x),
        net.apply,
        capturing,
        x,
        target,
    )


def transformer(size: dict[str, int], tokens: Any) -> Variants:
    def forward(x: Any) -> Any:
        embedding = hk.Embed(size["vocabulary"], size["width"])
        h = embedding(x) + hk.Embed(size["context"], size["width"])(jnp.arange(x.shape[0]))
        for _ in range(size["layers"]):
            h = Block(size["heads"])(h)
        return hk.LayerNorm(-1, True, True)(h) @ embedding.embeddings.T

    return _steps(forward, tokens, None)


def mlp(depth: int, width: int, x: Any) -> Variants:
    def forward(x: Any) -> Any:
        for _ in range(depth):
            x = jax.nn.relu(hk.Linear(width)(x))
        return x

    return _steps(forward, x, 1.0)
