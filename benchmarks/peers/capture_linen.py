"""Flax linen, `capture_intermediates`."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from benchmarks.models import attend
from benchmarks.peers.capture import Variants, steps


class Attention(nn.Module):
    heads: int

    @nn.compact
    def __call__(self, x: Any) -> Any:
        width = x.shape[-1]
        return nn.Dense(width)(attend(nn.Dense(3 * width)(x), self.heads))


class FeedForward(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        return nn.Dense(x.shape[-1])(nn.gelu(nn.Dense(4 * x.shape[-1])(x)))


class Block(nn.Module):
    heads: int

    @nn.compact
    def __call__(self, x: Any) -> Any:
        x = x + Attention(self.heads)(nn.LayerNorm()(x))
        return x + FeedForward()(nn.LayerNorm()(x))


class Transformer(nn.Module):
    layers: int
    width: int
    heads: int
    vocabulary: int
    context: int

    @nn.compact
    def __call__(self, x: Any) -> Any:
        tokens = nn.Embed(self.vocabulary, self.width)
        h = tokens(x) + nn.Embed(self.context, self.width)(jnp.arange(x.shape[0]))
        for _ in range(self.layers):
            h = Block(self.heads)(h)
        return tokens.attend(nn.LayerNorm()(h))


class MLP(nn.Module):
    depth: int
    width: int

    @nn.compact
    def __call__(self, x: Any) -> Any:
        for _ in range(self.depth):
            x = nn.relu(nn.Dense(self.width)(x))
        return x


def _steps(net: Any, x: Any, target: Any) -> Variants:
    variables = net.init(jax.random.key(0), x)

    def capturing(params: Any, x: Any) -> Any:
        return net.apply(params, x, capture_intermediates=True, mutable="intermediates")

    return steps("linen", "capture_intermediates", variables, net.apply, capturing, x, target)


def transformer(size: dict[str, int], tokens: Any) -> Variants:
    net = Transformer(
        size["layers"], size["width"], size["heads"], size["vocabulary"], size["context"]
    )
    return _steps(net, tokens, None)


def mlp(depth: int, width: int, x: Any) -> Variants:
    return _steps(MLP(depth, width), x, 1.0)
