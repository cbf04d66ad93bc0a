"""Peers that capture what submodules return, where they are installed: each beside its own untracked step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

Variants = dict[str, Callable[[], Any]]


def transformer() -> Variants:
    return {}


def mlp() -> Variants:
    """The MLP of 50 layers of width 8 in linen, and in raw JAX with a host callback for each layer."""
    return {**_linen(), **_callback()}


def _linen() -> Variants:
    try:
        import flax.linen as nn
    except ImportError:
        return {}

    class Net(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            for _ in range(50):
                x = nn.relu(nn.Dense(8)(x))
            return x

    net, x = Net(), jnp.ones((16, 8))
    variables = net.init(jax.random.key(0), x)

    def loss(params: Any, capture: bool) -> Any:
        if capture:
            y, state = net.apply(params, x, capture_intermediates=True)
            return jnp.mean((y - 1) ** 2), state
        return jnp.mean((net.apply(params, x) - 1) ** 2), ()

    def step(params: Any, capture: bool) -> Any:
        (value, state), grads = jax.value_and_grad(loss, has_aux=True)(params, capture)
        return value, state, jax.tree.map(lambda p, g: p - 1e-6 * g, params, grads)

    step = jax.jit(step, static_argnums=1)
    return {
        "linen, untracked": lambda: step(variables, False),
        "linen, capture_intermediates": lambda: step(variables, True),
    }


def _callback() -> Variants:
    weights = [jax.random.normal(key, (8, 8)) / 3 for key in jax.random.split(jax.random.key(0), 50)]
    x = jnp.ones((16, 8))

    def loss(weights: Any, watch: bool) -> Any:
        y = x
        for w in weights:
            y = jax.nn.relu(y @ w)
            if watch:
                jax.debug.callback(lambda value: None, y)
        return jnp.mean((y - 1) ** 2)

    step = jax.jit(lambda w, watch: jax.value_and_grad(loss)(w, watch), static_argnums=1)
    return {
        "raw JAX, untracked": lambda: step(weights, False),
        "raw JAX, jax.debug.callback": lambda: step(weights, True),
    }
