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


def batches_of(draws, inputs, outputs, *, integers=None):
    """One batch for each step: inputs and targets."""
    x = [
        draws.integers(0, integers, inputs) if integers else draws.normal(size=inputs)
        for _ in range(STEPS)
    ]
    return [
        (
            jnp.asarray(a, int if integers else "float32"),
            jnp.asarray(draws.normal(size=outputs), "float32"),
        )
        for a in x
    ]


def trained(model, batches, **kwargs):
    """Losses of the steps on a wrapped model, outputs of the first step, and its gradients by
    chain.
    """
    optimizer = nb.SGD(RATE)

    @nb.jit
    def step(x, target):
        def loss(model):
            y = model(x, **kwargs)
            return loss_of(y, target), y

        (value, y), grads = nb.value_and_grad(loss, has_aux=True)(model)
        optimizer.update(model, grads)
        return value, y, dict(grads.cont_to_iterator())

    made = [step(*batch) for batch in batches]
    return [float(value) for value, *_ in made], *made[0][1:]


def plainly_trained(apply, params, state, batches):
    """The same on `apply(params, state, x)`, which gives outputs and the next state; also the last
    parameters and state.
    """

    @jax.jit
    def step(params, state, x, target):
        def loss(params):
            y, new = apply(params, state, x)
            return loss_of(y, target), (new, y)

        (value, (new, y)), grads = jax.value_and_grad(loss, has_aux=True)(params)
        return jax.tree.map(lambda p, g: p - RATE * g, params, grads), new, (value, y, grads)

    made = []
    for batch in batches:
        params, state, found = step(params, state, *batch)
        made.append(found)
    return [float(value) for value, *_ in made], *made[0][1:], params, state


def assert_close(found, wanted, rtol=1e-5, atol=1e-6):
    """Trees of arrays agree to rounding."""
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=rtol, atol=atol), found, wanted)


def assert_trained_alike(wrapped, apply, params, state, batches, chain_of):
    """A wrapped model is trained with the numbers of its framework; return the last parameters and
    state there.

    Args:
        chain_of: The chain in `v` of a parameter by its key path.
    """
    losses, y, grads, last, last_state = plainly_trained(apply, params, state, batches)
    found, found_y, found_grads = trained(wrapped, batches)
    assert_close((found, found_y), (losses, y))
    for keys, leaf in jax.tree_util.tree_flatten_with_path(grads)[0]:
        assert_close(found_grads[chain_of(keys)], leaf, rtol=1e-4)
    return last, last_state


def assert_viewed(model, args, expected):
    """An unconverted model is viewed with the numbers of its framework."""
    view = nb.inspect(model, *args)  # by nb.track and nb.graph
    found, wanted = (
        jax.tree.leaves(tree)
        for tree in (view.calls[next(iter(view.calls.paths))].returns, expected)
    )
    assert_close(found, [np.asarray(array) for array in wanted], rtol=2e-4, atol=1e-5)
    rows = {row.path: row for row in nb.summary(model, *args)}
    parts = [path for path in view.calls.paths if path]
    assert rows[""].calls == 1 and rows[""].flops > 0
    assert all(rows[path].calls and view.graph.find(path).operations for path in parts[:1])
    assert nb.first_nonfinite(model, *args) is None
