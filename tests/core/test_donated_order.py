"""What a donated step writes takes the memory of what it replaces: XLA copies no more than in the
step of raw JAX.
"""

from __future__ import annotations

import re
from collections import Counter

import jax
import jax.numpy as jnp
import optax
import pytest

import nbmodule as nb

WIDTH = 64
X = jnp.ones((8, WIDTH))


def copies(compiled) -> int:
    """How many arrays of the shape of a weight are copied as a whole."""
    text = compiled.as_text()
    return Counter(re.findall(r"= f32\[(\S+?)\]\S* copy\(", text[text.index("ENTRY") :]))[
        f"{WIDTH},{WIDTH}"
    ]


def of_raw_jax(transformation):
    weights = [jax.random.normal(jax.random.key(i), (WIDTH, WIDTH)) for i in range(4)]

    def loss(weights):
        x = X
        for w in weights:
            x = jax.nn.relu(x @ w)
        return (x**2).mean()

    def step(weights, state):
        value, grads = jax.value_and_grad(loss)(weights)
        updates, state = transformation.update(grads, state, weights)
        return optax.apply_updates(weights, updates), state, value

    state = transformation.init(weights)
    return jax.jit(step, donate_argnums=(0, 1)).lower(weights, state).compile()


@pytest.mark.parametrize(
    ("optimizer", "transformation"),
    [
        (lambda: nb.SGD(0.1, momentum=0.9), optax.sgd(0.1, momentum=0.9)),
        (lambda: nb.Adam(1e-3), optax.adam(1e-3)),
        (lambda: nb.AdamW(1e-3), optax.adamw(1e-3)),
        (lambda: nb.Optax(optax.adam(1e-3)), optax.adam(1e-3)),
    ],
    ids=["SGD with momentum", "Adam", "AdamW", "Optax"],
)
@pytest.mark.parametrize("is_first", [True, False], ids=["first step", "later step"])
@pytest.mark.parametrize("form", ["closure", "arguments"])
def test_a_donated_step_copies_no_more_weights_than_that_of_raw_jax(
    optimizer, transformation, is_first, form
):
    model = nb.Sequential(
        *[layer for _ in range(4) for layer in (nb.Linear(WIDTH, WIDTH, bias=False), nb.ReLU())]
    )
    optimizer = optimizer()

    def step(model, optimizer):
        value, grads = nb.value_and_grad(lambda m: (m(X) ** 2).mean())(model)
        optimizer.update(model, grads)
        return value

    run = (
        nb.jit(step, donate=True)
        if form == "arguments"
        else nb.jit(lambda: step(model, optimizer), donate=True)
    )
    given = (model, optimizer) if form == "arguments" else ()
    if not is_first:
        run(*given)
        run(*given)
    assert copies(run.lower(*given).compile()) <= copies(of_raw_jax(transformation))
