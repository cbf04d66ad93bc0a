"""Functions whose graphs the tests look at: a small transformer, and one with every kind of
nesting.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb


def layer_norm(x: jax.Array, gain: jax.Array, shift: jax.Array) -> jax.Array:
    mean = x.mean(-1, keepdims=True)
    deviation = jnp.sqrt(((x - mean) ** 2).mean(-1, keepdims=True) + 1e-5)
    return (x - mean) / deviation * gain + shift


def attention(p: dict[str, Any], x: jax.Array, heads: int) -> jax.Array:
    batch, length, width = x.shape
    with jax.named_scope("qkv"):
        q, k, v = jnp.split(x @ p["qkv"] + p["qkv_b"], 3, axis=-1)
    q, k, v = (
        t.reshape(batch, length, heads, width // heads).transpose(0, 2, 1, 3) for t in (q, k, v)
    )
    scores = q @ k.swapaxes(-1, -2) / jnp.sqrt(width // heads)
    mask = jnp.tril(jnp.ones((length, length), bool))
    weights = jax.nn.softmax(jnp.where(mask, scores, -jnp.inf), axis=-1)
    mixed = (weights @ v).transpose(0, 2, 1, 3).reshape(batch, length, width)
    with jax.named_scope("out"):
        return mixed @ p["out"] + p["out_b"]


def block(p: dict[str, Any], x: jax.Array, heads: int) -> jax.Array:
    with jax.named_scope("norm_1"):
        y = layer_norm(x, p["g1"], p["s1"])
    with jax.named_scope("attention"):
        x = x + attention(p, y, heads)
    with jax.named_scope("norm_2"):
        y = layer_norm(x, p["g2"], p["s2"])
    with jax.named_scope("mlp"):
        with jax.named_scope("up"):
            hidden = y @ p["up"] + p["up_b"]
        hidden = jax.nn.gelu(hidden)
        with jax.named_scope("down"):
            return x + (hidden @ p["down"] + p["down_b"])


def gpt(p: dict[str, Any], tokens: jax.Array, heads: int) -> jax.Array:
    with jax.named_scope("embed"):
        x = p["embed"][tokens] + p["position"][: tokens.shape[1]]
    for i, layer in enumerate(p["blocks"]):
        with jax.named_scope(f"blocks.{i}"):
            x = block(layer, x, heads)
    with jax.named_scope("norm"):
        x = layer_norm(x, p["gain"], p["shift"])
    with jax.named_scope("head"):
        return x @ p["embed"].T


def gpt_parameters(layers: int, width: int, vocabulary: int, length: int) -> dict[str, Any]:
    def of(*shape: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape, jnp.float32)

    def one() -> dict[str, Any]:
        vectors = {name: of(width) for name in ("g1", "s1", "g2", "s2", "out_b", "down_b")}
        matrices = {
            "qkv": of(width, 3 * width),
            "out": of(width, width),
            "up": of(width, 4 * width),
        }
        return {
            **vectors,
            **matrices,
            "down": of(4 * width, width),
            "qkv_b": of(3 * width),
            "up_b": of(4 * width),
        }

    ends = {
        "embed": of(vocabulary, width),
        "position": of(length, width),
        "gain": of(width),
        "shift": of(width),
    }
    return {**ends, "blocks": [one() for _ in range(layers)]}


@pytest.fixture(scope="session")
def make_gpt() -> Callable[..., tuple[Callable[..., jax.Array], tuple[Any, ...]]]:
    """A function `(layers, width) -> (forward, arguments)`; the arguments have shapes only."""

    def make(
        layers: int = 12,
        width: int = 768,
        heads: int = 12,
        vocabulary: int = 50257,
        length: int = 64,
    ):
        parameters = gpt_parameters(layers, width, vocabulary, length)
        tokens = jax.ShapeDtypeStruct((2, length), jnp.int32)

        def forward(p: dict[str, Any], tokens: jax.Array) -> jax.Array:
            return gpt(p, tokens, heads)

        return forward, (parameters, tokens)

    return make


@pytest.fixture
def returned():
    """A function that makes a tracked call of a path, given what it returned."""
    return lambda path, values: nb.Call(path, {"output": np.array(values, np.float32)})
