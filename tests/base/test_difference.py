"""Saying in words how two nested values differ."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

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


@pytest.mark.parametrize(
    ("expected", "found", "words"),
    [
        ((2, 3), jnp.ones((2, 3)), None),
        (jax.ShapeDtypeStruct((2,), "float32"), jnp.ones(2), None),
        (None, jnp.ones(2), None),
        (1, "text", None),
        (jnp.ones(2), None, "None, not float32[2]"),
        (jnp.ones(2), 1.5, "float, not float32[2]"),
    ],
)
def test_values_differ_by_their_shapes_where_one_is_expected(expected, found, words):
    difference = None if words is None else f'of another shape: "a" is {words}'
    assert structure_difference({"a": expected}, {"a": found}) == difference


def test_long_lists_are_cut():
    text = structure_difference({f"k{index}": None for index in range(1234)}, {})
    assert text.startswith('missing: "k0", "k1"')
    assert text.endswith('"k9", … 1224 more')
