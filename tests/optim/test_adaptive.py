"""Adam and its kin, against optax step by step and against numbers worked out by hand."""

from __future__ import annotations

import inspect

import jax.numpy as jnp
import numpy as np
import optax
import pytest

import nbmodule as nb

from jax_settings import with_mixed_dtypes

PAIRS = {
    "adam": (lambda: nb.Adam(1e-2), lambda: optax.adam(1e-2)),
    "adam, other options": (
        lambda: nb.Adam(1e-2, 0.5, 0.7, 1e-2),
        lambda: optax.adam(1e-2, 0.5, 0.7, 1e-2),
    ),
    "adamw": (lambda: nb.AdamW(1e-2), lambda: optax.adamw(1e-2)),
    "adamw, strong decay": (
        lambda: nb.AdamW(1e-2, weight_decay=0.3),
        lambda: optax.adamw(1e-2, weight_decay=0.3),
    ),
    "lamb": (lambda: nb.LAMB(1e-2), lambda: optax.lamb(1e-2)),
    "lamb, decay": (
        lambda: nb.LAMB(1e-2, weight_decay=0.1),
        lambda: optax.lamb(1e-2, weight_decay=0.1),
    ),
    "rmsprop": (lambda: nb.RMSprop(1e-2), lambda: optax.rmsprop(1e-2)),
    "rmsprop, all": (
        lambda: nb.RMSprop(1e-2, 0.8, 1e-3, 0.9, nesterov=True, centered=True, eps_in_sqrt=False),
        lambda: optax.rmsprop(
            1e-2, 0.8, 1e-3, centered=True, momentum=0.9, nesterov=True, eps_in_sqrt=False
        ),
    ),
    "adagrad": (lambda: nb.Adagrad(1e-2), lambda: optax.adagrad(1e-2)),
    "adagrad from 0.5": (lambda: nb.Adagrad(1e-2, initial=0.5), lambda: optax.adagrad(1e-2, 0.5)),
}


@pytest.mark.parametrize("name", PAIRS)
def test_five_steps_agree_with_optax(name, steps_agree):
    steps_agree(*PAIRS[name])


def test_two_steps_of_adam_by_hand():
    # mw = 0.1, vw = 0.001, both corrected to 1: the move is lr. Then g = 2: mw = 0.29, vw =
    # 0.004999; corrected
    # 0.29 / 0.19 = 1.526316 and 0.004999 / 0.001999 = 2.500750, whose root is 1.581376; the move is
    # 0.965182 lr.
    optimizer = nb.Adam(0.1)
    v = optimizer.step({"w": jnp.array([1.0])}, {"w": jnp.array([1.0])})
    np.testing.assert_allclose(v["w"], [0.9], rtol=1e-6)
    v = optimizer.step(v, {"w": jnp.array([2.0])})
    np.testing.assert_allclose(v["w"], [0.9 - 0.0965182], rtol=1e-5)
    np.testing.assert_allclose(optimizer.state.mw.w, [0.29], rtol=1e-6)
    np.testing.assert_allclose(optimizer.state.vw.w, [0.004999], rtol=1e-5)


def test_two_steps_of_adamw_by_hand():
    # As Adam, and each step takes 0.1 * 0.5 of the variable off: 1 - 0.1 - 0.05 = 0.85; 0.85 -
    # 0.0965182 - 0.0425.
    optimizer = nb.AdamW(0.1, weight_decay=0.5)
    v = optimizer.step({"w": jnp.array([1.0])}, {"w": jnp.array([1.0])})
    np.testing.assert_allclose(v["w"], [0.85], rtol=1e-6)
    v = optimizer.step(v, {"w": jnp.array([2.0])})
    np.testing.assert_allclose(v["w"], [0.7109818], rtol=1e-5)


def test_two_steps_of_lamb_by_hand():
    # Adam's first direction is (1, 1), of length sqrt(2); the variable has length 5: the move is
    # 0.1 * 5 / sqrt(2) each.
    optimizer = nb.LAMB(0.1)
    v = optimizer.step({"w": jnp.array([3.0, 4.0])}, {"w": jnp.array([1.0, 2.0])})
    np.testing.assert_allclose(v["w"], [3 - 0.3535534, 4 - 0.3535534], rtol=1e-5)
    # The same gradient again gives the same direction; the length is now sqrt(2.646447**2 +
    # 3.646447**2) = 4.505605.
    v = optimizer.step(v, {"w": jnp.array([1.0, 2.0])})
    np.testing.assert_allclose(v["w"], [2.646447 - 0.3185944, 3.646447 - 0.3185944], rtol=1e-5)


def test_two_steps_of_rmsprop_by_hand():
    # vw = 0.25 * 4 = 1: the move is 0.1 * 2 / 1. Then vw = 0.75 + 0.25 * 9 = 3: the move is 0.1 * 3
    # / sqrt(3).
    optimizer = nb.RMSprop(0.1, decay=0.75, epsilon=0.0)
    v = optimizer.step({"w": jnp.array([1.0])}, {"w": jnp.array([2.0])})
    np.testing.assert_allclose(v["w"], [0.8], rtol=1e-6)
    v = optimizer.step(v, {"w": jnp.array([3.0])})
    np.testing.assert_allclose(v["w"], [0.8 - 0.1732051], rtol=1e-5)


def test_two_steps_of_adagrad_by_hand():
    # vw = 9 then 9 + 16 = 25: the moves are 0.1 * 3 / 3 and 0.1 * 4 / 5.
    optimizer = nb.Adagrad(0.1, initial=0.0, epsilon=0.0)
    v = optimizer.step({"w": jnp.array([1.0])}, {"w": jnp.array([3.0])})
    np.testing.assert_allclose(v["w"], [0.9], rtol=1e-6)
    v = optimizer.step(v, {"w": jnp.array([4.0])})
    np.testing.assert_allclose(v["w"], [0.82], rtol=1e-6)


def test_adam_has_the_defaults_of_the_field():
    assert repr(nb.Adam()) == "Adam(lr=0.001, beta1=0.9, beta2=0.999, epsilon=1e-08)"
    assert nb.Adam().epsilon == inspect.signature(optax.adam).parameters["eps"].default
    assert inspect.signature(nb.adam_update).parameters["epsilon"].default == 1e-7


def test_low_precision_variables_keep_their_dtype():
    v = {"w": jnp.ones(4, jnp.bfloat16)}
    optimizer = nb.Adam(0.1)
    new = optimizer.step(v, {"w": jnp.ones(4, jnp.bfloat16)})
    assert new["w"].dtype == jnp.bfloat16
    np.testing.assert_allclose(new["w"].astype("f"), 0.9, rtol=1e-2)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: nb.Adam(beta1=1.0), "Adam: beta1 must be 0 or more, and below 1, got 1.0"),
        (lambda: nb.Adam(epsilon=-1e-8), "Adam: epsilon must be 0 or more, and finite, got -1e-08"),
        (
            lambda: nb.AdamW(weight_decay=float("nan")),
            "AdamW: weight_decay must be 0 or more, and finite, got nan",
        ),
    ],
)
def test_options_out_of_range_are_refused(make, message):
    with pytest.raises(nb.ArgumentError, match=message):
        make()


def test_options_of_another_type_are_refused():
    with pytest.raises(nb.ArgumentTypeError, match="Adam: beta1 must be a number, got str"):
        nb.Adam(beta1="0.9")
    with pytest.raises(
        nb.ArgumentTypeError, match="RMSprop: centered must be True or False, got 'yes'"
    ):
        nb.RMSprop(centered="yes")


def test_a_changed_option_is_used_from_the_next_step_on(net, gradients, reference, agree):
    optimizer = nb.Adam(1e-2)
    update = nb.jit(lambda g: optimizer.update(net, g))
    expected = net.v.cont_to_dict()
    update(gradients(0))
    optimizer.beta1 = 0.0
    update(gradients(1))
    first = optax.adam(1e-2)
    state = first.init(expected)
    for transformation, i in ((first, 0), (optax.adam(1e-2, 0.0), 1)):
        updates, state = with_mixed_dtypes(transformation.update)(
            gradients(i).cont_to_dict(), state, expected
        )
        expected = optax.apply_updates(expected, updates)
    agree(net.v, expected)
    with pytest.raises(nb.ArgumentError, match="beta1 must be"):
        optimizer.beta1 = 2.0


def test_adam_and_adamw_without_decay_take_the_same_steps():
    v, g = {"w": jnp.array([1.0, -2.0])}, {"w": jnp.array([1e-6, 3e-7])}
    a, b = nb.Adam(lr=0.1), nb.AdamW(lr=0.1, weight_decay=0.0)
    for _ in range(3):
        np.testing.assert_array_equal(a.step(v, g)["w"], b.step(v, g)["w"])
    assert nb.Adam().epsilon == nb.AdamW().epsilon == 1e-8
