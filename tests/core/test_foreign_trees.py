"""Variables given to functions of other libraries, which take arrays alone: the error names the fix."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb


def test_a_function_of_lax_asks_for_the_array():
    variable = nb.Parameter(jnp.eye(2))
    with pytest.raises(ValueError, match="explicitly convert your object"):
        jax.lax.exp(variable)
    np.testing.assert_array_equal(jax.lax.add(variable(), 1.0), np.eye(2) + 1)


def test_tree_at_replaces_a_leaf_of_a_model():
    model = nb.Linear(2, 3)
    changed = eqx.tree_at(lambda m: m.weight.value, model, jnp.zeros((3, 2)))
    np.testing.assert_array_equal(changed(jnp.ones(2)), np.asarray(model.bias()))


def test_tree_at_of_a_variable_names_the_leaf_that_it_wants():
    with pytest.raises(
        AttributeError, match=r"holds a _LeafWrapper in place of its array.*m\.weight\.value"
    ):
        eqx.tree_at(lambda m: m.weight, nb.Linear(2, 3), jnp.zeros((3, 2)))
