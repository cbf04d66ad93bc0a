"""Wrapped models are trained, and unconverted ones viewed, with the numbers of their framework."""

import jax
import jax.numpy as jnp
import pytest

from tests.interop.architectures import CASES, SHAPES, TRAINED, VIEWED
from tests.interop.conftest import RATE, assert_close, batches_of, loss_of, trained
from tests.wild.jax_verbs import VERBS, JaxWild, is_key

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:keras")


def trained_plainly(made, batches):
    """Train by JAX alone: losses, first output and gradients, last parameters and state."""

    @jax.jit
    def step(params, state, x, target):
        def loss(params):
            y, new = made.apply(params, state, x)
            return loss_of(y, target), (new, y)

        (value, (new, y)), grads = jax.value_and_grad(loss, has_aux=True)(params)
        return jax.tree.map(lambda p, g: p - RATE * g, params, grads), new, (value, y, grads)

    params, state, records = made.params, made.state, []
    for batch in batches:
        params, state, found = step(params, state, *batch)
        records.append(found)
    return [float(value) for value, *_ in records], *records[0][1:], (params, state)


def chain_of(keys):
    """Return the chain in `v` of a parameter by its key path."""
    if str(keys[-1]) == ".value":  # of a variable of NNX
        keys = keys[:-1]
    steps = [getattr(key, "name", getattr(key, "key", getattr(key, "idx", None))) for key in keys]
    steps = [f"v{step}" if isinstance(step, int) else step for step in steps]
    return "/".join(steps).replace("/~/", "/")


@pytest.mark.parametrize(("framework", "case"), CASES)
def test_outputs_gradients_and_ten_steps_agree_and_the_model_comes_back(framework, case, draws):
    batches = batches_of(draws, *SHAPES[case])
    made = TRAINED[framework](case, batches[0][0])
    losses, y, grads, last = trained_plainly(made, batches)
    found, found_y, found_grads = trained(made.wrapped, batches)
    assert_close((found, found_y), (losses, y))
    for keys, leaf in jax.tree_util.tree_flatten_with_path(grads)[0]:
        assert_close(found_grads[chain_of(keys)], leaf, rtol=1e-4)
    back = tuple(made.back(made.wrapped))
    found, wanted = ([x for x in jax.tree.leaves(t) if not is_key(x)] for t in (back, last))
    assert_close(found, wanted, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(("framework", "case"), CASES)
def test_an_unconverted_model_is_viewed_with_its_own_numbers(framework, case, draws):
    x = jnp.asarray(draws.normal(size=SHAPES[case][0]), "float32")
    wild = JaxWild(VIEWED[framework](case, x))
    for verb in ("inspect", "track", "summary", "graph", "nonfinite"):
        VERBS[verb](wild)
