"""Gradient descent, Lion and LARS, against optax step by step and against numbers worked out by
hand.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import optax
import pytest

import nbmodule as nb

PAIRS = {
    "sgd": (lambda: nb.SGD(1e-2), lambda: optax.sgd(1e-2)),
    "momentum": (lambda: nb.SGD(1e-2, 0.9), lambda: optax.sgd(1e-2, 0.9)),
    "nesterov": (
        lambda: nb.SGD(1e-2, 0.9, nesterov=True),
        lambda: optax.sgd(1e-2, 0.9, nesterov=True),
    ),
    "decay": (
        lambda: nb.SGD(1e-2, 0.9, weight_decay=0.1),
        lambda: optax.chain(optax.add_decayed_weights(0.1), optax.sgd(1e-2, 0.9)),
    ),
    "lion": (lambda: nb.Lion(1e-2), lambda: optax.lion(1e-2)),
    "lars": (lambda: nb.LARS(1e-2), lambda: optax.lars(1e-2)),
    "lars, all": (
        lambda: nb.LARS(
            1e-2, 0.8, nesterov=True, weight_decay=0.1, trust_coefficient=0.1, epsilon=1e-3
        ),
        lambda: optax.lars(1e-2, 0.1, trust_coefficient=0.1, eps=1e-3, momentum=0.8, nesterov=True),
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_five_steps_agree_with_optax(name, steps_agree):
    steps_agree(*PAIRS[name])


def two_steps(optimizer, v, first, second):
    one = optimizer.step({"w": jnp.array(v)}, {"w": jnp.array(first)})
    two = optimizer.step(one, {"w": jnp.array(second)})
    return one["w"], two["w"]


def test_two_steps_of_momentum_by_hand():
    # mw = 1, then 2 + 0.5 * 1 = 2.5
    one, two = two_steps(nb.SGD(0.1, 0.5), [1.0], [1.0], [2.0])
    np.testing.assert_allclose([*one, *two], [0.9, 0.65], rtol=1e-6)


def test_two_steps_of_nesterov_by_hand():
    # moves 1 + 0.5 * 1 = 1.5, then 2 + 0.5 * 2.5 = 3.25
    one, two = two_steps(nb.SGD(0.1, 0.5, nesterov=True), [1.0], [1.0], [2.0])
    np.testing.assert_allclose([*one, *two], [0.85, 0.525], rtol=1e-6)


def test_two_steps_of_lion_by_hand():
    # the sign of 0.1 * -3, then mw = -0.03 and the sign of 0.9 * -0.03 + 0.1 * 1
    one, two = two_steps(nb.Lion(0.1, weight_decay=0.0), [1.0], [-3.0], [1.0])
    np.testing.assert_allclose([*one, *two], [1.1, 1.0], rtol=1e-6)


def test_two_steps_of_lars_by_hand():
    # |w| = 5, |g| = 10: the gradient is halved and times 0.1; mw = (0.3, 0.4) is all of the first
    # move. Then |w| = 4.5 and the move along (1, 0) is 0.1 * 4.5, and 0.9 of the last move.
    one, two = two_steps(nb.LARS(0.1, trust_coefficient=1.0), [3.0, 4.0], [6.0, 8.0], [2.0, 0.0])
    np.testing.assert_allclose(one, [2.7, 3.6], rtol=1e-6)
    np.testing.assert_allclose(two, [2.7 - 0.45 - 0.27, 3.6 - 0.36], rtol=1e-6)


def test_lars_takes_a_plain_step_where_a_variable_is_zero():
    optimizer = nb.LARS(0.1, momentum=0.0)
    np.testing.assert_allclose(
        optimizer.step({"w": jnp.zeros(2)}, {"w": jnp.ones(2)})["w"], [-0.1, -0.1], rtol=1e-6
    )


def test_descent_without_momentum_keeps_no_state(net, gradients):
    optimizer = nb.SGD(0.1)
    optimizer.update(net, gradients(0))
    assert list(optimizer.state.keys()) == ["count"]


def test_momentum_can_be_turned_on_later(net, gradients, reference, agree):
    optimizer = nb.SGD(0.1)
    optimizer.update(net, gradients(0))
    expected = reference(optax.sgd(0.1, 0.9), net.v, [gradients(1), gradients(2)])
    optimizer.momentum = 0.9
    optimizer.update(net, gradients(1))
    optimizer.update(net, gradients(2))
    agree(net.v, expected)
