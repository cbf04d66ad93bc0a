"""Equinox: models are frozen dataclasses, compiled by `filter_jit`."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from benchmarks.models import mean_square


class MLP(eqx.Module):
    layers: list

    def __init__(self, depth: int, width: int) -> None:
        self.layers = [
            eqx.nn.Linear(width, width, key=key)
            for key in jax.random.split(jax.random.key(0), depth)
        ]

    def __call__(self, x: Any) -> Any:
        for layer in self.layers:
            x = jax.nn.relu(jax.vmap(layer)(x))
        return x


class Affine(eqx.Module):
    w: jax.Array
    b: jax.Array

    def __call__(self, x: Any) -> Any:
        return x * self.w + self.b


class Null(eqx.Module):
    def __call__(self, x: Any) -> Any:
        return x


class Chain(eqx.Module):
    layers: list


def chain(count: int, w: Any, b: Any) -> Any:
    return Chain([Affine(w, b) for _ in range(count)])


def dispatch(count: int, x: Any) -> dict[str, Any]:
    model = chain(count, jnp.ones(4), jnp.ones(4))
    step = eqx.filter_jit(lambda m, x: x + 1, keep_unused=True)
    return {"equinox, filter_jit": lambda: step(model, x)}


def train(depth: int, width: int, x: Any, target: Any) -> dict[str, Any]:
    optimizer = optax.adam(1e-3)
    model = jax.tree.map(jnp.array, MLP(depth, width))
    state = [model, optimizer.init(eqx.filter(model, eqx.is_array))]

    @eqx.filter_jit(donate="all-except-first")
    def step(data: Any, m: Any, s: Any) -> Any:
        loss, grads = eqx.filter_value_and_grad(lambda m: mean_square(m(data[0]), data[1]))(m)
        updates, s = optimizer.update(grads, s, eqx.filter(m, eqx.is_array))
        return eqx.apply_updates(m, updates), s, loss

    def call() -> Any:
        state[0], state[1], loss = step((x, target), *state)
        return loss

    return {"equinox, filter_jit": call}
