"""How two trees differ: keys in pairs, the kinds of leaves, and how far numbers are apart."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from nbmodule.base.trees import numbers_apart, refuse_other_names, structure_difference, widened
from nbmodule.errors import MissingKeysError, UnexpectedKeysError

ARRAYS = hnp.arrays(
    np.float32, 6, elements=st.sampled_from([0.0, 1.0, -1.0, 1.001, 3e38, np.inf, -np.inf, np.nan])
)


@settings(max_examples=60)
@given(ARRAYS, ARRAYS, st.sampled_from([0.0, 1e-2, 1.0]), st.sampled_from([0.0, 1e-2]))
def test_numbers_agree_where_numpy_says_they_are_close(a, b, rtol, atol):
    a, b = widened(a, b)
    apart, agree = numbers_apart(a, b, rtol, atol)
    np.testing.assert_array_equal(agree, np.isclose(a, b, rtol=rtol, atol=atol, equal_nan=True))
    finite = np.isfinite(a) & np.isfinite(b)
    np.testing.assert_array_equal(apart[finite], np.abs(a[finite] - b[finite]))
    assert set(apart[~finite]) <= {0.0, np.inf}


def test_large_integers_and_complex_numbers_are_widened_before_they_are_subtracted():
    integers = np.array([250], np.uint8), np.array([255], np.uint8)
    for pair in (integers, (np.array([3j], np.complex64), np.array([4.0], np.float32))):
        assert numbers_apart(*widened(*pair), 0.0, 0.0)[0].tolist() == [5.0]


def test_other_names_are_refused_with_what_is_left_alone():
    refuse_other_names("load", {"w": 1, "b": 2}, ["b", "w"], "Nothing")
    both = r"^load: unexpected keys: v.\nMissing as well: b.\nNothing was changed. "
    with pytest.raises(UnexpectedKeysError, match=both):
        refuse_other_names("load", ["w", "b"], ["v", "w"], "Nothing")
    missing = r"^load: missing keys: b.\nNo variable was changed. .* Rename it.$"
    with pytest.raises(MissingKeysError, match=missing):
        refuse_other_names("load", ["w", "b"], ["w"], "No variable", "Rename it.")


# -- differences in words --
def test_missing_unexpected_and_reshaped_chains_are_listed():
    shared = {"a/b": jnp.ones(64)}
    expected = {"a/w": jnp.ones((64, 3)), "layers/v0/weight": jnp.ones(2), "x": jnp.ones(1)}
    found = {"a/w": jnp.ones((3, 64)), "layers/v0/wieght": jnp.ones(2), "y": jnp.ones(1)}
    assert structure_difference(shared | expected, shared | found) == (
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
