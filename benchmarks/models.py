"""The models that several cases time: in raw JAX over nested dicts, and as modules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

import nbmodule as nb

GPT = {"layers": 12, "width": 16, "heads": 2, "vocabulary": 32, "context": 8}


def attend(qkv: Any, heads: int) -> Any:
    """Causal attention over `qkv`, shape `[tokens, 3 * width]`."""
    tokens, width = qkv.shape[0], qkv.shape[1] // 3
    q, k, v = (
        a.reshape(tokens, heads, width // heads).transpose(1, 0, 2) for a in jnp.split(qkv, 3, -1)
    )
    scores = jnp.where(jnp.tril(jnp.ones((tokens, tokens), bool)), q @ k.transpose(0, 2, 1), -1e9)
    return (jax.nn.softmax(scores, -1) @ v).transpose(1, 0, 2).reshape(tokens, width)


def mean_square(y: Any, target: Any) -> Any:
    return jnp.mean((y - target) ** 2)


# -- raw JAX --
def raw_linear(key: Any, inputs: int, outputs: int) -> dict[str, Any]:
    first, second = jax.random.split(key)
    limit = inputs**-0.5
    return {
        "w": jax.random.uniform(first, (inputs, outputs), minval=-limit, maxval=limit),
        "b": jax.random.uniform(second, (outputs,), minval=-limit, maxval=limit),
    }


def raw_mlp(depth: int, width: int) -> dict[str, Any]:
    return {
        "layers": [
            raw_linear(key, width, width) for key in jax.random.split(jax.random.key(0), depth)
        ]
    }


def raw_mlp_forward(p: dict[str, Any], x: Any) -> Any:
    for layer in p["layers"]:
        x = jax.nn.relu(x @ layer["w"] + layer["b"])
    return x


def raw_affine(count: int) -> dict[str, Any]:
    return {"layers": [{"w": jnp.ones(4), "b": jnp.ones(4)} for _ in range(count)]}


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


def raw_transformer_forward(
    p: dict[str, Any], x: Any, heads: int, tell: Callable[[Any], Any] = lambda y: y
) -> Any:
    """Return the scores; `tell` is called with each value that a layer gives."""

    def linear(q: Any, y: Any) -> Any:
        return tell(y @ q["w"] + q["b"])

    def norm(q: Any, y: Any) -> Any:
        centered = y - y.mean(-1, keepdims=True)
        scale = jax.lax.rsqrt((centered**2).mean(-1, keepdims=True) + 1e-6)
        return tell(centered * scale * q["s"] + q["b"])

    h = tell(p["tok"][x]) + tell(p["pos"][jnp.arange(x.shape[0])])
    for b in p["blocks"]:
        h = h + tell(linear(b["proj"], attend(linear(b["qkv"], norm(b["ln1"], h)), heads)))
        inner = tell(jax.nn.gelu(linear(b["fc"], norm(b["ln2"], h))))
        h = tell(h + linear(b["out"], inner))
    return norm(p["lnf"], h) @ p["tok"].T


# -- modules --
class Affine(nb.Module):
    def __init__(self, w: Any, b: Any) -> None:
        self.w, self.b = nb.Parameter(w), nb.Parameter(b)

    def forward(self, x: Any) -> Any:
        return x * self.w.value + self.b.value


class Null(nb.Module):
    def forward(self, x: Any) -> Any:
        return x


class Chain(nb.Module):
    def __init__(self, layers: list[Any]) -> None:
        self.layers = layers

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
        return x


class MLP(nb.Module):
    def __init__(self, depth: int, width: int) -> None:
        self.layers = [nb.Linear(width, width) for _ in range(depth)]
        self.relu = nb.ReLU()

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = self.relu(layer(x))
        return x


class Attention(nb.Module):
    def __init__(self, width: int, heads: int) -> None:
        self.heads = heads
        self.qkv, self.proj = nb.Linear(width, 3 * width), nb.Linear(width, width)

    def forward(self, x: Any) -> Any:
        return self.proj(attend(self.qkv(x), self.heads))


class FeedForward(nb.Module):
    def __init__(self, width: int) -> None:
        self.fc = nb.Linear(width, 4 * width)
        self.gelu = nb.GELU(approximate=True)
        self.out = nb.Linear(4 * width, width)

    def forward(self, x: Any) -> Any:
        return self.out(self.gelu(self.fc(x)))


class Block(nb.Module):
    def __init__(self, width: int, heads: int) -> None:
        self.ln1 = nb.LayerNorm(width)
        self.attn = Attention(width, heads)
        self.ln2 = nb.LayerNorm(width)
        self.mlp = FeedForward(width)

    def forward(self, x: Any) -> Any:
        x = x + self.attn(self.ln1(x))
        return x + self.mlp(self.ln2(x))


class Encoder(nb.Module):
    """The same GPT from the library's own encoder."""

    def __init__(self, layers: int, width: int, heads: int, vocabulary: int, context: int) -> None:
        self.tok, self.pos = nb.Embedding(vocabulary, width), nb.Embedding(context, width)
        self.encoder = nb.TransformerEncoder(
            layers,
            width,
            heads,
            norm_first=True,
            dropout_rate=0.0,
            activation=nb.GELU(approximate=True),
        )

    def forward(self, x: Any) -> Any:
        h = self.tok(x) + self.pos(jnp.arange(x.shape[-1]))
        return self.encoder(h, is_causal=True) @ self.tok.weight().T


class Transformer(nb.Module):
    """A small GPT with tied embeddings."""

    def __init__(self, layers: int, width: int, heads: int, vocabulary: int, context: int) -> None:
        self.tok, self.pos = nb.Embedding(vocabulary, width), nb.Embedding(context, width)
        self.blocks, self.lnf = [Block(width, heads) for _ in range(layers)], nb.LayerNorm(width)

    def forward(self, x: Any) -> Any:
        h = self.tok(x) + self.pos(jnp.arange(x.shape[0]))
        for block in self.blocks:
            h = block(h)
        return self.lnf(h) @ self.tok.weight().T
