"""Saying in words how two nested values differ."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

from nbmodule.base.format import describe_shape
from nbmodule.base.trees import structure_difference


def test_missing_unexpected_and_reshaped_chains_are_listed():
    expected = {
        "a/w": jnp.ones((64, 3)),
        "a/b": jnp.ones(64),
        "layers/v0/weight": jnp.ones(2),
        "x": jnp.ones(1),
    }
    found = {
        "a/w": jnp.ones((3, 64)),
        "a/b": jnp.ones(64),
        "layers/v0/wieght": jnp.ones(2),
        "y": jnp.ones(1),
    }
    assert structure_difference(expected, found) == (
        'missing: "layers/v0/weight" (is it "layers/v0/wieght"?), "x"\nunexpected: '
        '"layers/v0/wieght", "y"\nof another shape: "a/w" is float32[3, 64], not float32[64, 3]'
    )


def test_the_same_chains_and_shapes_are_no_difference():
    assert structure_difference({"a": (2, 3)}, {"a": jnp.ones((2, 3))}) is None
    assert (
        structure_difference({"a": jax.ShapeDtypeStruct((2,), "float32")}, {"a": jnp.ones(2)})
        is None
    )
    assert structure_difference({"a": None}, {"a": jnp.ones(2)}) is None
    assert structure_difference({}, {}) is None
    assert structure_difference({"a": 1}, {"a": "text"}) is None


def test_a_value_without_a_shape_in_the_place_of_an_array_is_a_difference():
    assert (
        structure_difference({"a": jnp.ones(2)}, {"a": None})
        == 'of another shape: "a" is None, not float32[2]'
    )
    assert (
        structure_difference({"a": jnp.ones(2)}, {"a": 1.5})
        == 'of another shape: "a" is float, not float32[2]'
    )


def test_long_lists_are_cut():
    text = structure_difference({f"k{index}": None for index in range(1234)}, {})
    assert text.startswith('missing: "k0", "k1"')
    assert text.endswith('"k9", … 1224 more')


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (jnp.ones((2, 3)), "float32[2, 3]"),
        (jnp.float32(1), "float32[]"),
        (("a", "b"), "tuple"),
        ([1], "list"),
        (None, "None"),
    ],
)
def test_values_are_written_as_dtype_and_shape(value, text):
    assert describe_shape(value) == text
