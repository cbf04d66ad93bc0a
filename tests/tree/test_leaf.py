"""What is asked of a single leaf."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nbmodule.tree import leaf


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (jnp.ones(2), np.ones(2, "float32"), True),
        (jnp.ones(2), jnp.ones(2, "float16"), False),
        (jnp.ones(2), jnp.ones((2, 1)), False),
        (jnp.array([jnp.nan]), jnp.array([jnp.nan]), True),
        (jnp.array([jnp.nan]), jnp.array([1.0]), False),
        (jax.random.key(0), jax.random.key(0), True),
        (jax.random.key(0), jax.random.key(1), False),
        (jnp.ones(()), 1.0, False),
        (1, 1.0, False),
        (True, 1, False),
        (float("nan"), float("nan"), True),
        ("a", "a", True),
        ([1, jnp.ones(1)], [1, jnp.ones(1)], True),
        ([1], (1,), False),
        ([1], [1, 2], False),
        ({"a": jnp.ones(1)}, {"a": jnp.ones(1)}, True),
        ({"a": 1}, {"b": 1}, False),
        (None, None, True),
        (np.array(["x", "y"]), np.array(["x", "y"]), True),
    ],
)
def test_leaves_are_equal_by_type_shape_dtype_and_elements(one, other, same):
    assert leaf.same_value(one, other) is same
    assert leaf.same_value(other, one) is same


@pytest.mark.parametrize(
    ("value", "axes"),
    [
        (jnp.ones(2), True),
        (jnp.ones(()), False),
        ([1], True),
        ("text", False),
        (1, False),
        (np.float32(1), False),
        (None, False),
    ],
)
def test_an_index_means_something_to_what_has_axes(value, axes):
    assert leaf.has_axes(value) is axes


def test_setting_at_an_index_leaves_the_leaf_as_it_is():
    array, items, pair = np.zeros(3), [1, 2], (1, 2)
    assert leaf.set_at_index(array, 0, 5).tolist() == [5, 0, 0]
    assert leaf.set_at_index(items, 0, 5) == [5, 2]
    assert leaf.set_at_index(pair, 0, 5) == (5, 2)
    assert (array.tolist(), items, pair) == ([0, 0, 0], [1, 2], (1, 2))
    with pytest.raises(TypeError):
        leaf.set_at_index(3, 0, 5)
