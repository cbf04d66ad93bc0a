"""Flax NNX, `nnx.capture`, over split state in `jax.jit`."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from benchmarks.models import attend
from benchmarks.peers.capture import Variants, steps
from benchmarks.peers.nnx_ import MLP


class Attention(nnx.Module):
    def __init__(self, width: int, heads: int, rngs: Any) -> None:
        self.heads = heads
        self.qkv = nnx.Linear(width, 3 * width, rngs=rngs)
        self.proj = nnx.Linear(width, width, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        return self.proj(attend(self.qkv(x), self.heads))


class FeedForward(nnx.Module):
    def __init__(self, width: int, rngs: Any) -> None:
        self.fc = nnx.Linear(width, 4 * width, rngs=rngs)
        self.out = nnx.Linear(4 * width, width, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        return self.out(jax.nn.gelu(self.fc(x)))


class Block(nnx.Module):
    def __init__(self, width: int, heads: int, rngs: Any) -> None:
        self.ln1, self.ln2 = nnx.LayerNorm(width, rngs=rngs), nnx.LayerNorm(width, rngs=rngs)
        self.attn, self.mlp = Attention(width, heads, rngs), FeedForward(width, rngs)

    def __call__(self, x: Any) -> Any:
        x = x + self.attn(self.ln1(x))
        return x + self.mlp(self.ln2(x))


class Transformer(nnx.Module):
    def __init__(self, layers: int, width: int, heads: int, vocabulary: int, context: int) -> None:
        rngs = nnx.Rngs(0)
        self.tok = nnx.Embed(vocabulary, width, rngs=rngs)
        self.pos = nnx.Embed(context, width, rngs=rngs)
        self.blocks = nnx.List([Block(width, heads, rngs) for _ in range(layers)])
        self.lnf = nnx.LayerNorm(width, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        h = self.tok(x) + self.pos(jnp.arange(x.shape[0]))
        for block in self.blocks:
            h = block(h)
        return self.tok.attend(self.lnf(h))


def _steps(model: Any, x: Any, target: Any) -> Variants:
    definition, params = nnx.split(model)

    def plain(params: Any, x: Any) -> Any:
        return nnx.merge(definition, params)(x)

    def capturing(params: Any, x: Any) -> Any:
        made = nnx.merge(definition, params)
        y, captured = nnx.capture(made, nnx.Intermediate, method_outputs=nnx.Intermediate)(x)
        return y, nnx.to_pure_dict(captured)

    return steps("nnx", "capture", params, plain, capturing, x, target)


def transformer(size: dict[str, int], tokens: Any) -> Variants:
    return _steps(Transformer(**size), tokens, None)


def mlp(depth: int, width: int, x: Any) -> Variants:
    return _steps(MLP(depth, width), x, 1.0)
