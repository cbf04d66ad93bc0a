"""Inox: models are PyTrees; `inox.jit`, or `partition` and `jax.jit` as its manual trains."""

from __future__ import annotations

from typing import Any

import inox
import inox.nn as inn
import jax
import jax.numpy as jnp

from benchmarks.models import mean_square
from benchmarks.steps import raw_step


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


def chain(count: int, w: Any, b: Any) -> Any:
    return Chain([Affine(w, b) for _ in range(count)])


def dispatch(count: int, x: Any) -> dict[str, Any]:
    model = chain(count, jnp.ones(4), jnp.ones(4))
    step = inox.jit(lambda m, x: x + 1, keep_unused=True)
    _, arrays = model.partition()
    pure = jax.jit(lambda arrays, x: x + 1, keep_unused=True)
    return {
        "inox.jit": lambda: step(model, x),
        "inox, partition and jax.jit": lambda: pure(arrays, x),
    }


def train(depth: int, width: int, x: Any, target: Any) -> dict[str, Any]:
    static, parameters, others = MLP(depth, width).partition(inn.Parameter)
    forward = lambda p, x: static(p, others)(x)  # noqa: E731
    return {"inox, partition and jax.jit": raw_step(parameters, forward, mean_square, x, target)}
