"""The rules as pure functions: the same numbers as the classes, nothing kept, nothing written."""

from __future__ import annotations

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb

from jax_settings import FLOAT


@pytest.mark.parametrize(
    ("function", "cls", "options", "of_class"),
    [
        (nb.sgd_update, nb.SGD, {"weight_decay": 0.1}, {}),
        (nb.momentum_update, nb.SGD, {"nesterov": True}, {"momentum": 0.9}),
        (nb.adam_update, nb.Adam, {}, {}),
        (nb.adamw_update, nb.AdamW, {"weight_decay": 0.1}, {}),
        (nb.lamb_update, nb.LAMB, {}, {}),
        (nb.rmsprop_update, nb.RMSprop, {"eps_in_sqrt": False}, {}),
        (nb.adagrad_update, nb.Adagrad, {}, {"initial": 0.0}),
        (nb.lion_update, nb.Lion, {}, {}),
        (nb.lars_update, nb.LARS, {}, {}),
    ],
)
@pytest.mark.parametrize("compiled", [False, True])
def test_functions_do_what_the_classes_do(
    function, cls, options, of_class, compiled, net, gradients, agree
):
    optimizer, v, expected = cls(0.1, **options, **of_class), net.v, net.v
    names = inspect.signature(function).parameters
    slots = {name: v * 0 for name in ("mw", "vw") if name in names}

    def update(v, g, i, slots):
        step = {"step": i} if "step" in names else {}
        new = function(v, g, 0.1, **slots, **step, **options)
        return new if slots else (new,)

    update = jax.jit(update) if compiled else update
    for i in range(1, 4):
        v, *after = update(v, gradients(i), i, slots)
        slots = dict(zip(slots, after, strict=True))
        expected = optimizer.step(expected, gradients(i))
    agree(v, expected)
    for name, slot in slots.items():
        agree(slot, optimizer.state[name])


def test_an_update_does_not_change_its_arguments(net, gradients):
    v, zeros = net.v, net.v * 0
    before = np.array(v.bias)
    nb.adam_update(v, gradients(0), 0.1, zeros, zeros, 1)
    np.testing.assert_array_equal(net.bias, before)
    assert net.v is v


def test_a_learning_rate_may_be_traced_and_differentiated():
    # d/dlr (1 - lr * 3)^2 at 0
    v, grads = {"w": jnp.array(1.0)}, {"w": jnp.array(3.0)}
    loss = lambda **options: lambda lr: nb.sgd_update(v, grads, lr, **options)["w"] ** 2
    assert float(jax.grad(loss(stop_gradients=False))(0.0)) == -6.0
    assert float(jax.grad(loss())(0.0)) == 0.0


def test_integers_stay():
    v = {"w": jnp.ones(1), "table": jnp.arange(2)}
    new, mw = nb.momentum_update(v, v, 0.5, v)
    np.testing.assert_array_equal(new["table"], [0, 1])
    np.testing.assert_array_equal(mw["table"], [0, 1])


V, NO_STEP = {"w": jnp.ones(2)}, "step must be the number of the step"


@pytest.mark.parametrize(
    ("mw", "vw", "step", "options", "message"),
    [
        (V, {}, 1, {}, '(?s)cannot take a step of Adam: variables and vw differ.*missing: "w"'),
        ({"w": jnp.ones(3)}, V, 1, {}, rf'"w" is {FLOAT}\[2\], in mw it is {FLOAT}\[3\]'),
        (V, V, 1, {"beta1": -1.0}, "Adam: beta1 must be 0 or more"),
        (V, V, 1, {"lr": -0.1}, "a learning rate must be finite and at least 0"),
        (V, V, [1], {}, rf"{NO_STEP}.* of shape \[1\]"),
    ],
)
def test_wrong_arguments_are_named(mw, vw, step, options, message):
    with pytest.raises(ValueError, match=message):
        nb.adam_update(V, V, mw=mw, vw=vw, step=step, **({"lr": 0.1} | options))
