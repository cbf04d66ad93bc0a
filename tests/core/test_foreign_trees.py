"""Boxes in functions of others that know arrays and leaves alone: what they are told, in words that
help.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb

from jax_settings import FLOAT

LAX = {
    "dot": lambda b: jax.lax.dot(jnp.ones((2, 2)), b),
    "dot on the left": lambda b: jax.lax.dot(b, jnp.ones((2, 2))),
    "add": lambda b: jax.lax.add(b, 1.0),
    "exp": jax.lax.exp,
    "reshape": lambda b: jax.lax.reshape(b, (4,)),
    "concatenate": lambda b: jax.lax.concatenate([b, b], 0),
    "conv": lambda b: jax.lax.conv_general_dilated(b, b, (1,), "SAME"),
    "dynamic_slice": lambda b: jax.lax.dynamic_slice(b, (0, 0), (1, 1)),
}


@pytest.mark.parametrize("name", list(LAX))
@pytest.mark.parametrize("compiled", [False, True])
def test_a_function_of_lax_that_is_given_a_variable_asks_for_its_value(name, compiled):
    variable = nb.Parameter(jnp.eye(2))
    run = nb.jit(lambda: LAX[name](variable)) if compiled else lambda: LAX[name](variable)
    with pytest.raises(
        ValueError, match=rf"got the parameter {FLOAT}\[2, 2\].*`\.value`"
    ) as caught:
        run()
    assert "__jax_array__" not in str(caught.value)
    value = np.asarray(LAX["dot"](variable.value))
    np.testing.assert_array_equal(value, np.ones((2, 2)) @ np.eye(2))


def test_functions_of_jax_numpy_take_a_variable_as_ever():
    variable = nb.Parameter(jnp.arange(4.0).reshape(2, 2))
    np.testing.assert_array_equal(
        jnp.dot(variable, variable), np.arange(4.0).reshape(2, 2) @ np.arange(4.0).reshape(2, 2)
    )
    np.testing.assert_array_equal(jnp.asarray(variable), np.arange(4.0).reshape(2, 2))


def test_tree_at_replaces_a_leaf_of_a_model():
    model = nb.Linear(2, 3)
    changed = eqx.tree_at(lambda m: m.weight.value, model, jnp.zeros((3, 2)))
    np.testing.assert_array_equal(changed(jnp.ones(2)), np.asarray(model.bias()))


def test_tree_at_of_a_variable_names_the_leaf_that_it_wants():
    with pytest.raises(
        AttributeError, match=r"holds a _LeafWrapper in place of its array.*m\.weight\.value"
    ):
        eqx.tree_at(lambda m: m.weight, nb.Linear(2, 3), jnp.zeros((3, 2)))


def test_a_variable_says_which_attribute_neither_it_nor_its_array_has():
    with pytest.raises(AttributeError, match=rf'parameter {FLOAT}\[2\] has no attribute "shpae"'):
        nb.Parameter(jnp.ones(2)).shpae
