"""Options of the optimizers: their defaults and checks, changes between steps, and the program that a
step compiles to.
"""

from __future__ import annotations

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import nbmodule as nb

from jax_settings import with_mixed_dtypes


def test_lars_takes_a_plain_step_where_a_variable_is_zero():
    optimizer = nb.LARS(0.1, momentum=0.0)
    new = optimizer.step({"w": jnp.zeros(2)}, {"w": jnp.ones(2)})
    np.testing.assert_allclose(new["w"], [-0.1, -0.1], rtol=1e-6)


def test_adam_has_the_defaults_of_the_field():
    assert repr(nb.Adam()) == "Adam(lr=0.001, beta1=0.9, beta2=0.999, epsilon=1e-08)"
    assert nb.Adam().epsilon == inspect.signature(optax.adam).parameters["eps"].default
    assert inspect.signature(nb.adam_update).parameters["epsilon"].default == 1e-7


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


def test_a_changed_option_is_used_from_the_next_step_on(net, gradients, reference, agree):
    optimizer = nb.SGD(0.1)
    update = nb.jit(lambda g: optimizer.update(net, g))
    update(gradients(0))
    assert list(optimizer.state.keys()) == ["count"]
    expected = reference(optax.sgd(0.1, 0.9), net.v, [gradients(1), gradients(2)])
    optimizer.momentum = 0.9
    update(gradients(1))
    update(gradients(2))
    agree(net.v, expected)
    with pytest.raises(nb.ArgumentError, match="momentum must be"):
        optimizer.momentum = 2.0


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
