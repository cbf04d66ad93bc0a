"""The table of rules against optax: kernels, dtypes and subclasses."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import optax
import pytest

import nbmodule as nb

from jax_settings import with_mixed_dtypes


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
