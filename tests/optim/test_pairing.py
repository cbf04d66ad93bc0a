"""Variables and gradients side by side, whatever they were given as."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import nbmodule as nb

from jax_settings import FLOAT, with_mixed_dtypes


def test_variables_in_a_dict_are_read_as_arrays():
    v = {"w": nb.Parameter([1.0, 2.0])}
    np.testing.assert_array_equal(nb.SGD(1.0).step(v, {"w": nb.Buffer([1.0, 1.0])})["w"], [0, 1])
    assert nb.SGD(1.0, inplace=True).step(v, {"w": jnp.ones(2)}) is v
    np.testing.assert_array_equal(v["w"], [0, 1])


def test_numbers_are_variables_too():
    np.testing.assert_allclose(nb.SGD(0.5).step({"w": 1.0}, {"w": 1.0})["w"], 0.5)


def test_a_name_with_a_slash_is_told_from_a_chain():
    v = {"a": [jnp.ones(1)], "a/v0": jnp.zeros(1)}
    new = nb.SGD(0.5).step(v, v)
    assert (new["a"][0], new["a/v0"]) == (0.5, 0.0)


ONES, TEXT = {"w": jnp.ones(2)}, {"w": "text"}
FLOAT0 = {"w": jax.grad(lambda w: w.sum().astype(float), allow_int=True)(jnp.arange(2))}
NO_DICT = "SGD cannot take a step: gradients must be a Container or a dict of arrays, got float"
OF_COMPLEX = f'the gradient of "w" is complex64, the variable is {FLOAT}'


@pytest.mark.parametrize(
    ("v", "grads", "error", "message"),
    [
        (TEXT, ONES, nb.ArgumentTypeError, "variables and gradients must be arrays, got str"),
        (ONES, 1.0, nb.ArgumentTypeError, NO_DICT),
        (ONES, {"w": jnp.ones(2, jnp.complex64)}, nb.DtypeError, OF_COMPLEX),
        (ONES, FLOAT0, nb.DtypeError, f'the gradient of "w" is .*the variable is {FLOAT}'),
    ],
)
def test_what_is_no_gradient_of_a_variable_is_refused(v, grads, error, message):
    with pytest.raises(error, match=message):
        nb.SGD(0.1).step(v, grads)


def test_a_gradient_of_another_precision_will_do():
    new = nb.Adam(0.1).step({"w": jnp.ones(2)}, {"w": jnp.ones(2, jnp.bfloat16)})
    assert new["w"].dtype == FLOAT
    np.testing.assert_allclose(new["w"], 0.9, rtol=1e-5)


def test_complex_variables_agree_with_optax():
    v = {"w": jnp.array([1 + 2j, -1j], jnp.complex64)}
    transformation = optax.adam(0.1)
    updates, _ = with_mixed_dtypes(transformation.update)(v, transformation.init(v), v)
    np.testing.assert_allclose(
        nb.Adam(0.1).step(v, v)["w"], optax.apply_updates(v, updates)["w"], rtol=1e-5
    )


def test_the_pair_of_value_and_grad_is_refused_with_the_fix(net):
    pair = nb.value_and_grad(lambda m: (m.bias**2).sum())(net)
    with pytest.raises(nb.ArgumentTypeError, match=r"Write value, grads = nb.value_and_grad"):
        nb.Adam(0.1).update(net, pair)
