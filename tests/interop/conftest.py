"""Ten steps of plain gradient descent on a wrapped model, to be compared with the same steps in its
own framework.
"""

from __future__ import annotations

import os

os.environ.setdefault("KERAS_BACKEND", "jax")  # before Keras is imported anywhere

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb

STEPS, RATE = 10, 0.05


@pytest.fixture
def draws():
    return np.random.default_rng(0)


def loss_of(y, target):
    return jnp.mean((y - target) ** 2)


def batches_of(draws, *shapes):
    """Inputs and targets of these shapes for each step."""
    return [
        [jnp.asarray(draws.normal(size=shape), "float32") for shape in shapes] for _ in range(STEPS)
    ]


def trained(model, batches):
    """Losses of the steps on a wrapped model, outputs of the first step, and its gradients by
    chain.
    """
    optimizer = nb.SGD(RATE)

    @nb.jit
    def step(x, target):
        def loss(model):
            y = model(x)
            return loss_of(y, target), y

        (value, y), grads = nb.value_and_grad(loss, has_aux=True)(model)
        optimizer.update(model, grads)
        return value, y, dict(grads.cont_to_iterator())

    made = [step(*batch) for batch in batches]
    return [float(value) for value, *_ in made], *made[0][1:]


def assert_close(found, wanted, rtol=1e-5, atol=1e-6):
    """Trees of arrays agree to rounding."""
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=rtol, atol=atol), found, wanted)
