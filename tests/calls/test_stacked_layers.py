"""Stacks of layers that a scan or a map goes through are seen under their own paths."""

import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb

from jax_settings import FLOAT


class Deep(nb.Module):
    def __init__(self):
        self.blocks = nb.stack(lambda: nb.Sequential(nb.Linear(3, 3), nb.Tanh()), 4)
        self.heads = nb.stack(lambda: nb.Linear(3, 2), 5)

    def forward(self, x):
        x, _ = nb.scan(lambda x, block: (block(x), None), x, self.blocks)
        return nb.vmap(lambda head: head(x))(self.heads)


def by_hand(model, x):
    returns = {"blocks.0": [], "blocks": []}
    linear = model.blocks[0]
    for w, b in zip(np.asarray(linear.weight()), np.asarray(linear.bias())):
        returns["blocks.0"].append(x @ w.T + b)
        x = np.tanh(returns["blocks.0"][-1])
        returns["blocks"].append(x)
    heads = zip(np.asarray(model.heads.weight()), np.asarray(model.heads.bias()))
    returns["heads"] = [x @ w.T + b for w, b in heads]
    return {path: np.stack(rows) for path, rows in returns.items()}


@pytest.fixture
def model():
    return Deep()


X = np.random.default_rng(0).normal(size=(2, 3)).astype(FLOAT)


@pytest.mark.parametrize("how", [lambda f: f, nb.jit], ids=["eager", "compiled"])
@pytest.mark.parametrize("argument", [False, True], ids=["closure", "argument"])
def test_returns_of_stacked_layers_are_stacked_under_their_paths(model, how, argument):
    call = (lambda f: f(model, jnp.asarray(X))) if argument else (lambda f: f(jnp.asarray(X)))
    function = how((lambda m, x: m(x)) if argument else (lambda x: model(x)))
    with nb.track(model) as calls:
        call(function)
    for path, expected in by_hand(model, X).items():
        np.testing.assert_allclose(calls[path].returns, expected, rtol=1e-5, atol=1e-6)


def test_stacked_layers_can_be_chosen_and_replaced(model):
    with nb.track(model, only="blocks.*") as calls:
        model(jnp.asarray(X))
    assert {call.path for call in calls} == {"blocks.0", "blocks.1"}
    out = model(jnp.asarray(X), replace_submod_rets={"blocks": lambda y: 0 * y})
    np.testing.assert_allclose(
        out, np.asarray(model.heads.bias())[:, None] + np.zeros((5, 2, 2)), rtol=1e-6
    )


def test_gradients_by_returns_of_stacked_layers_are_stacked(model):
    with nb.track(model, gradients=True) as calls:
        nb.grad(lambda model: model(jnp.asarray(X)).sum())(model)
    expected = np.broadcast_to(np.asarray(model.heads.weight()).sum((0, 1)), (2, 3))
    np.testing.assert_allclose(calls["blocks"].gradient[-1], expected, rtol=1e-5)
