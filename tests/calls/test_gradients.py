"""Gradients of the loss by each return and by each parameter, through every transform."""

import jax
import numpy as np
import pytest

import nbmodule as nb
from nbmodule import track


def squares(model, x):
    return (model(x) ** 2).sum()


def steps(model, x):
    return nb.scan(lambda c, row: (c + squares(model, row), None), 0.0, x)[0]


def deep(model, x):
    return nb.jit(nb.vmap(nb.checkpoint(lambda row: steps(model, row[None]))))(x).sum()


LOSSES = {
    "plain": squares,
    "vmap": lambda model, x: nb.vmap(lambda row: squares(model, row))(x).sum(),
    "scan": steps,
    "scan in vmap": lambda model, x: nb.vmap(lambda row: steps(model, row[None]))(x).sum(),
    "cond": lambda model, x: nb.cond(
        x.sum() < 1, lambda x: squares(model, x), lambda x: model.stem(x).sum(), x
    ),
    "scan in checkpoint in vmap in jit": deep,
    "checkpoint": lambda model, x: nb.checkpoint(squares)(model, x),
    "jit within": lambda model, x: nb.jit(squares)(model, x),
}


@pytest.fixture
def hand(net, x):
    """Gradients by returns, by differentiating the layers after each of them."""
    layers = {"stem": net.stem, "blocks.0": net.blocks[0], "blocks.1": net.blocks[1]}
    layers["head"] = net.head
    found, after = {}, list(layers.values())

    def loss(h):
        for layer in after:
            h = layer(h)
        return (h**2).sum()

    for name, layer in layers.items():
        x, after = layer(x), after[1:]
        found[name] = jax.grad(loss)(x)
    return found


def assert_gradients_are(calls, hand):
    for name, wanted in hand.items():
        found = [call for call in calls if call.path == name and call.gradient is not None]
        np.testing.assert_allclose(
            np.reshape(found[-1].gradient, wanted.shape), wanted, rtol=1e-4, atol=1e-5
        )


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "jit"])
@pytest.mark.parametrize("kind", LOSSES)
def test_gradients_by_returns_equal_those_by_hand(kind, compiled, net, x, hand):
    run = lambda x: nb.value_and_grad(LOSSES[kind])(net, x)
    run = nb.jit(run) if compiled else run
    with track(net, gradients=True) as calls:
        value, grads = run(x)
    assert_gradients_are(calls, hand)
    for path, gradient in calls.gradients.items():
        np.testing.assert_allclose(
            gradient, grads.cont_at_key_chain(chain_of(net, path)), rtol=1e-5
        )
    untracked = nb.value_and_grad(LOSSES[kind])(net, x)
    np.testing.assert_allclose(value, untracked[0], rtol=1e-5)
    assert (abs(grads - untracked[1]) < 1e-4).cont_all_true()


def chain_of(net, path):
    from nbmodule.core.structure.walk import plan_of

    return "/".join(
        next(place.chain for place in plan_of(net).places.values() if place.name == path)
    )


def test_gradients_by_a_container_are_known_by_path(net, x):
    with track(net, gradients=True) as calls:
        _, grads = nb.execute_with_gradients(lambda v: (net(x, v=v) ** 2).sum(), net.v)
    np.testing.assert_array_equal(calls.gradients["head.weight"], grads.head.w)


def test_statistics_of_gradients_are_reduced_inside(net, x):
    step = nb.jit(lambda x: nb.grad(squares)(net, x))
    with track(net, gradients=True) as whole:
        step(x)
    with track(net, returns="stats", gradients=True) as calls:
        step(x)
    assert calls["head"].gradient is None
    np.testing.assert_allclose(
        calls["head"].gradient_statistics.max, np.max(whole["head"].gradient), rtol=1e-5
    )
    np.testing.assert_allclose(
        calls.gradients["stem.weight"].mean,
        np.mean(whole.gradients["stem.weight"]),
        rtol=1e-4,
        atol=1e-6,
    )
