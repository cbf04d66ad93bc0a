"""Gradients of the loss by each return and by each parameter, through every transform."""

import jax
import numpy as np
import pytest

import nbmodule as nb
from nbmodule import track


def squares(model, x):
    return (model(x) ** 2).sum()


def rows(model, x):
    return nb.vmap(lambda row: (model(row) ** 2).sum())(x).sum()


def steps(model, x):
    return nb.scan(lambda c, row: (c + (model(row) ** 2).sum(), None), 0.0, x)[0]


def both(model, x):
    return nb.vmap(
        lambda row: nb.scan(lambda c, r: (c + (model(r) ** 2).sum(), None), 0.0, row[None])[0]
    )(x).sum()


def deep(model, x):
    def row(x):
        return nb.scan(lambda c, r: (c + (model(r) ** 2).sum(), None), 0.0, x[None])[0]

    return nb.jit(lambda x: nb.vmap(nb.checkpoint(row))(x).sum())(x)


def branch(model, x):
    return nb.cond(x.sum() < 1, lambda x: (model(x) ** 2).sum(), lambda x: model.stem(x).sum(), x)


LOSSES = {
    "plain": squares,
    "vmap": rows,
    "scan": steps,
    "scan in vmap": both,
    "cond": branch,
    "scan in checkpoint in vmap in jit": deep,
    "checkpoint": lambda model, x: nb.checkpoint(squares)(model, x),
    "jit within": lambda model, x: nb.jit(squares)(model, x),
}


@pytest.fixture
def hand(net, x):
    """Gradients by returns, by differentiating what comes after each of them."""

    def after(name):
        head, first, second = net.head, net.blocks[0], net.blocks[1]
        return {
            "head": lambda h: (h**2).sum(),
            "blocks.1": lambda h: (head(h) ** 2).sum(),
            "blocks.0": lambda h: (head(second(h)) ** 2).sum(),
            "stem": lambda h: (head(second(first(h))) ** 2).sum(),
        }[name]

    values = {"stem": net.stem(x)}
    values["blocks.0"] = net.blocks[0](values["stem"])
    values["blocks.1"] = net.blocks[1](values["blocks.0"])
    values["head"] = net.head(values["blocks.1"])
    return {name: jax.jacrev(after(name))(value) for name, value in values.items()}


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
