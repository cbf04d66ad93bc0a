"""Flax NNX: mutable models, compiled by `nnx.jit`, or as split state by `jax.jit`."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import nnx

from benchmarks.models import mean_square


class MLP(nnx.Module):
    def __init__(self, depth: int, width: int) -> None:
        rngs = nnx.Rngs(0)
        self.layers = nnx.List([nnx.Linear(width, width, rngs=rngs) for _ in range(depth)])

    def __call__(self, x: Any) -> Any:
        for layer in self.layers:
            x = jax.nn.relu(layer(x))
        return x


class Affine(nnx.Module):
    def __init__(self, w: Any, b: Any) -> None:
        self.w, self.b = nnx.Param(w), nnx.Param(b)

    def __call__(self, x: Any) -> Any:
        return x * self.w + self.b


class Null(nnx.Module):
    def __call__(self, x: Any) -> Any:
        return x


class Chain(nnx.Module):
    def __init__(self, layers: list[Any]) -> None:
        self.layers = nnx.List(layers)


def chain(count: int, w: Any, b: Any) -> Any:
    return Chain([Affine(w, b) for _ in range(count)])


def dispatch(count: int, x: Any) -> dict[str, Any]:
    model = chain(count, jnp.ones(4), jnp.ones(4))
    step = nnx.jit(lambda m, x: x + 1, keep_unused=True)
    definition, state = nnx.split(model)
    pure = jax.jit(lambda s, x: (nnx.merge(definition, s), x + 1)[1], keep_unused=True)
    return {
        "nnx.jit": lambda: step(model, x),
        "nnx, split state and jax.jit": lambda: pure(state, x),
    }


def train(depth: int, width: int, x: Any, target: Any) -> dict[str, Any]:
    model = MLP(depth, width)
    optimizer = nnx.Optimizer(model, optax.adam(1e-3), wrt=nnx.Param)

    @nnx.jit(donate_argnums=(0, 1))
    def step(model: Any, optimizer: Any, x: Any, target: Any) -> Any:
        loss, grads = nnx.value_and_grad(lambda m: mean_square(m(x), target))(model)
        optimizer.update(model, grads)
        return loss

    return {"nnx.jit": lambda: step(model, optimizer, x, target)}
