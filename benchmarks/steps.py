"""One donated Adam step of any model and any loss: by hand in JAX with optax, and with modules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import optax

import nbmodule as nb

Loss = Callable[[Any, Any], Any]


def raw_step(
    p: Any,
    forward: Callable[[Any, Any], Any],
    loss_of: Loss,
    x: Any,
    target: Any,
    rate: float = 1e-3,
) -> Callable[[], Any]:
    """`forward(p, x)` and `loss_of(y, target)`; `p` is copied, since the step takes its memory."""
    optimizer = optax.adam(rate)
    p = jax.tree.map(lambda leaf: leaf.copy(), p)
    state = [p, optimizer.init(p)]

    def step(p: Any, s: Any, x: Any, target: Any) -> Any:
        loss, grads = jax.value_and_grad(lambda p: loss_of(forward(p, x), target))(p)
        updates, s = optimizer.update(grads, s, p)
        return optax.apply_updates(p, updates), s, loss

    compiled = jax.jit(step, donate_argnums=(0, 1))

    def call() -> Any:
        state[0], state[1], loss = compiled(*state, x, target)
        return loss

    return call


def module_step(
    model: Any, loss_of: Loss, x: Any, target: Any, rate: float = 1e-3
) -> Callable[[], Any]:
    """The model in the closure of the step, as in a notebook."""
    optimizer = nb.Adam(rate)

    def step(x: Any, target: Any) -> Any:
        loss, grads = nb.value_and_grad(lambda m: loss_of(m(x), target))(model)
        optimizer.update(model, grads)
        return loss

    compiled = nb.jit(step, donate=True)
    return lambda: compiled(x, target)
