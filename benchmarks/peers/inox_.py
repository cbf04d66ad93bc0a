"""Inox: models are PyTrees; `inox.jit`, or `partition` and `jax.jit` as its manual trains."""

from __future__ import annotations

from typing import Any

import inox
import inox.nn as inn
import jax
import jax.numpy as jnp
import optax

from benchmarks.models import mean_square


class MLP(inn.Module):
    def __init__(self, depth: int, width: int) -> None:
        self.layers = [
            inn.Linear(width, width, key=key) for key in jax.random.split(jax.random.key(0), depth)
        ]

    def __call__(self, x: Any) -> Any:
        for layer in self.layers:
            x = jax.nn.relu(layer(x))
        return x


class Affine(inn.Module):
    def __init__(self, w: Any, b: Any) -> None:
        self.w, self.b = inn.Parameter(w), inn.Parameter(b)

    def __call__(self, x: Any) -> Any:
        return x * self.w() + self.b()


class Null(inn.Module):
    def __call__(self, x: Any) -> Any:
        return x


class Chain(inn.Module):
    def __init__(self, layers: list[Any]) -> None:
        self.layers = layers


def dispatch(count: int, x: Any) -> dict[str, Any]:
    model = Chain([Affine(jnp.ones(4), jnp.ones(4)) for _ in range(count)])
    step = inox.jit(lambda m, x: x + 1, keep_unused=True)
    _, arrays = model.partition()
    pure = jax.jit(lambda arrays, x: x + 1, keep_unused=True)
    return {
        "inox.jit": lambda: step(model, x),
        "inox, partition and jax.jit": lambda: pure(arrays, x),
    }


def train(depth: int, width: int, x: Any, target: Any) -> dict[str, Any]:
    optimizer = optax.adam(1e-3)
    static, parameters, others = MLP(depth, width).partition(inn.Parameter)
    parameters = jax.tree.map(jnp.array, parameters)

    def step(p: Any, s: Any, x: Any, target: Any) -> Any:
        loss, grads = jax.value_and_grad(lambda p: mean_square(static(p, others)(x), target))(p)
        updates, s = optimizer.update(grads, s, p)
        return optax.apply_updates(p, updates), s, loss

    compiled = jax.jit(step, donate_argnums=(0, 1))
    state = [parameters, optimizer.init(parameters)]

    def call() -> Any:
        state[0], state[1], loss = compiled(*state, x, target)
        return loss

    return {"inox, partition and jax.jit": call}


def null(x: Any, hundred: Any) -> dict[str, Any]:
    return {"100 inox modules": hundred(Null(), x)}


def eager_mlp(depth: int, width: int, x: Any) -> dict[str, Any]:
    model = MLP(depth, width)
    return {"inox": lambda: model(x)}


def construct_affine(count: int, w: Any, b: Any) -> dict[str, Any]:
    return {"inox": lambda: (Chain([Affine(w, b) for _ in range(count)]), 0)[1]}


def construct_mlp(depth: int, width: int) -> dict[str, Any]:
    return {"inox": lambda: (MLP(depth, width), 0)[1]}


def trees(count: int) -> dict[str, Any]:
    return {"inox": Chain([Affine(jnp.ones(4), jnp.ones(4)) for _ in range(count)])}
