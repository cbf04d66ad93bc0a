"""Each optimizer against optax step by step, and against numbers worked out by hand."""

from __future__ import annotations

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import nbmodule as nb

from jax_settings import with_mixed_dtypes

# optimizer; variable; two gradients; the variable after each
BY_HAND = {
    # mw = 1, then 2 + 0.5 * 1 = 2.5
    "momentum": (lambda: nb.SGD(0.1, 0.5), [1.0], [1.0], [2.0], [0.9], [0.65]),
    # moves 1 + 0.5 * 1 = 1.5, then 2 + 0.5 * 2.5 = 3.25
    "nesterov": (
        lambda: nb.SGD(0.1, 0.5, nesterov=True), [1.0], [1.0], [2.0], [0.85], [0.525],
    ),
    # the sign of 0.1 * -3, then mw = -0.03 and the sign of 0.9 * -0.03 + 0.1 * 1
    "lion": (lambda: nb.Lion(0.1, weight_decay=0.0), [1.0], [-3.0], [1.0], [1.1], [1.0]),
    # |w| = 5, |g| = 10: the gradient is halved and times 0.1; mw = (0.3, 0.4) is all of the first
    # move. Then |w| = 4.5 and the move along (1, 0) is 0.1 * 4.5, and 0.9 of the last move.
    "lars": (
        lambda: nb.LARS(0.1, trust_coefficient=1.0),
        [3.0, 4.0], [6.0, 8.0], [2.0, 0.0], [2.7, 3.6], [2.7 - 0.45 - 0.27, 3.6 - 0.36],
    ),
    # mw = 0.1, vw = 0.001, both corrected to 1: the move is lr. Then g = 2: mw = 0.29, vw =
    # 0.004999; corrected 0.29 / 0.19 = 1.526316 and 0.004999 / 0.001999 = 2.500750, whose root is
    # 1.581376; the move is 0.965182 lr.
    "adam": (lambda: nb.Adam(0.1), [1.0], [1.0], [2.0], [0.9], [0.9 - 0.0965182]),
    # As Adam, and each step takes 0.1 * 0.5 of the variable off: 1 - 0.1 - 0.05 = 0.85; 0.85 -
    # 0.0965182 - 0.0425.
    "adamw": (
        lambda: nb.AdamW(0.1, weight_decay=0.5), [1.0], [1.0], [2.0], [0.85], [0.7109818],
    ),
    # Adam's first direction is (1, 1), of length sqrt(2); the variable has length 5: the move is
    # 0.1 * 5 / sqrt(2) each. The same gradient again gives the same direction; the length is now
    # sqrt(2.646447**2 + 3.646447**2) = 4.505605.
    "lamb": (
        lambda: nb.LAMB(0.1), [3.0, 4.0], [1.0, 2.0], [1.0, 2.0],
        [3 - 0.3535534, 4 - 0.3535534], [2.646447 - 0.3185944, 3.646447 - 0.3185944],
    ),
    # vw = 0.25 * 4 = 1: the move is 0.1 * 2 / 1. Then vw = 0.75 + 0.25 * 9 = 3: the move is 0.1 * 3
    # / sqrt(3).
    "rmsprop": (
        lambda: nb.RMSprop(0.1, decay=0.75, epsilon=0.0),
        [1.0], [2.0], [3.0], [0.8], [0.8 - 0.1732051],
    ),
    # vw = 9 then 9 + 16 = 25: the moves are 0.1 * 3 / 3 and 0.1 * 4 / 5.
    "adagrad": (
        lambda: nb.Adagrad(0.1, initial=0.0, epsilon=0.0), [1.0], [3.0], [4.0], [0.9], [0.82],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BY_HAND)
def test_two_steps_by_hand(name):
    make, v, first, second, one, two = BY_HAND[name]
    optimizer = make()
    after = optimizer.step({"w": jnp.array(v)}, {"w": jnp.array(first)})
    np.testing.assert_allclose(after["w"], one, rtol=1e-5)
    after = optimizer.step(after, {"w": jnp.array(second)})
    np.testing.assert_allclose(after["w"], two, rtol=1e-5)


def test_lars_takes_a_plain_step_where_a_variable_is_zero():
    optimizer = nb.LARS(0.1, momentum=0.0)
    new = optimizer.step({"w": jnp.zeros(2)}, {"w": jnp.ones(2)})
    np.testing.assert_allclose(new["w"], [-0.1, -0.1], rtol=1e-6)


def test_momentum_can_be_turned_on_later(net, gradients, reference, agree):
    optimizer = nb.SGD(0.1)
    optimizer.update(net, gradients(0))
    assert list(optimizer.state.keys()) == ["count"]
    expected = reference(optax.sgd(0.1, 0.9), net.v, [gradients(1), gradients(2)])
    optimizer.momentum = 0.9
    optimizer.update(net, gradients(1))
    optimizer.update(net, gradients(2))
    agree(net.v, expected)


def test_adam_has_the_defaults_of_the_field():
    assert repr(nb.Adam()) == "Adam(lr=0.001, beta1=0.9, beta2=0.999, epsilon=1e-08)"
    assert nb.Adam().epsilon == inspect.signature(optax.adam).parameters["eps"].default
    assert inspect.signature(nb.adam_update).parameters["epsilon"].default == 1e-7


def test_low_precision_variables_keep_their_dtype():
    new = nb.Adam(0.1).step({"w": jnp.ones(4, jnp.bfloat16)}, {"w": jnp.ones(4, jnp.bfloat16)})
    assert new["w"].dtype == jnp.bfloat16
    np.testing.assert_allclose(new["w"].astype("f"), 0.9, rtol=1e-2)


@pytest.mark.parametrize(
    ("name", "option", "wrong", "error", "message"),
    [
        ("Adam", "beta1", 1.0, nb.ArgumentError, "beta1 must be 0 or more and below 1"),
        ("Adam", "epsilon", -1.0, nb.ArgumentError, "epsilon must be 0 or more and finite"),
        ("AdamW", "weight_decay", np.nan, nb.ArgumentError, "finite, got nan"),
        ("Adam", "beta1", "0.9", nb.ArgumentTypeError, "beta1 must be a number, got str"),
        ("RMSprop", "centered", "yes", nb.ArgumentTypeError, "must be True or False"),
        *(
            ("SGD", "accumulate", x, nb.ArgumentError, "accumulate= must be an integer from 1")
            for x in (0, -1, 1.5, True, "2")
        ),
        *(
            ("SGD", "clip_norm", x, nb.ArgumentError, "the largest norm must be positive and fin")
            for x in (0.0, -1.0, np.nan, np.inf)
        ),
    ],
)
def test_options_that_make_no_sense_are_refused(name, option, wrong, error, message):
    with pytest.raises(error, match=message):
        getattr(nb, name)(**{option: wrong})


def test_a_changed_option_is_used_from_the_next_step_on(net, gradients, agree):
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


# -- compiled steps --
def test_a_compiled_step_holds_no_more_than_optax_does(net, gradients):
    """Beside the new count and the learning rate there is nothing in the program that plain optax
    would not have.
    """
    optimizer, transformation = nb.Adam(1e-2), optax.adam(1e-2)
    update = nb.jit(lambda g: optimizer.update(net, g), donate=True)
    update(gradients(0))
    params = net.v.cont_to_dict()

    def plain(params, state, grads):
        updates, state = with_mixed_dtypes(transformation.update)(grads, state, params)
        return optax.apply_updates(params, updates), state

    theirs = jax.jit(plain, donate_argnums=(0, 1)).lower(
        params, transformation.init(params), gradients(0).cont_to_dict()
    )
    ours = update.lower(gradients(0))
    count = lambda lowered: lowered.compile().as_text().count(" fusion(")
    assert count(ours) <= count(theirs)


@pytest.mark.parametrize(
    "make",
    [
        lambda: nb.Adam(nb.cosine_schedule(0.1, 100), clip_norm=1.0, accumulate=2),
        lambda: nb.AdamW(0.1),
        lambda: nb.LAMB(0.1),
        lambda: nb.Optax(optax.adam(optax.cosine_decay_schedule(0.1, 100))),
    ],
)
def test_dtypes_that_are_never_promoted_are_no_hindrance(make, net, make_net, gradients, agree):
    """Counts meet floats inside of optax, which raises by itself where JAX promotes nothing."""
    other, first, second = make_net(), make(), make()
    for i in range(3):
        first.update(net, gradients(i))
    with jax.numpy_dtype_promotion("strict"):
        for i in range(3):
            second.update(other, gradients(i))
    agree(other.v, net.v)


def test_a_subclass_may_add_to_the_step(net, gradients, agree):
    class Floored(nb.Adam):
        def _step(self, v, grads):
            return super()._step(v, grads).cont_map(lambda leaf, _: jnp.maximum(leaf, 0.0))

    optimizer, start = Floored(1e-2, accumulate=2), net.v
    for i in range(4):
        optimizer.update(net, gradients(i))
    assert all((leaf >= 0).all() for leaf in jax.tree.leaves(net.v))
    assert int(optimizer.count) == 2
    plain = nb.Adam(1e-2).step(start, gradients(0))
    floored = plain.cont_map(lambda leaf, _: jnp.maximum(leaf, 0.0))
    agree(Floored(1e-2).step(start, gradients(0)), floored)
