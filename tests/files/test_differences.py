from __future__ import annotations

import jax
import ml_dtypes
import numpy as np
import pytest

from nbmodule.files.differences import compare_trees


def kinds(first, second, **options):
    return {row.path: row.kind for row in compare_trees(first, second, **options).rows}


def test_each_place_has_its_kind():
    first = {
        "a": {"w": np.ones(3), "b": np.ones(2, np.float32)},
        "old": 1,
        "v": np.zeros(2),
        "t": "x",
        "n": None,
        "e": {},
    }
    second = {
        "a": {"w": np.ones(3), "b": np.ones(2)},
        "new": 2,
        "v": np.zeros((2, 1)),
        "t": "y",
        "n": None,
        "e": {},
    }
    assert kinds(first, second) == {
        ("a/w"): ("equal"), ("a/b"): ("dtype"), ("old"): ("only in first"), ("v"): ("shape"), ("t"): ("values"), ("n"): ("equal"), ("e"): ("equal"),
        "new": "only in second",
    }  # fmt: skip


def test_the_text_names_what_differs_and_by_how_much():
    comparison = compare_trees(
        {"w": np.array([1.0, 2, 3]), "x": np.ones(2)},
        {"w": np.array([1.0, 2.5, -3]), "x": np.ones(2)},
    )
    assert (
        str(comparison)
        == "~ w  float64[3]  2 of 3 elements differ, by up to 6\n1 of 2 places are equal"
    )
    assert not comparison.is_equal
    assert compare_trees({"w": np.ones(2)}, {"w": np.ones(2)}).is_equal


@pytest.mark.parametrize(
    ("x", "y", "expected"),
    [
        (1.0, 1.05, "values"),
        (np.nan, np.nan, "equal"),
        (np.nan, 1.0, "values"),
        (0.0, -0.0, "equal"),
    ],
)
def test_numbers_are_compared(x, y, expected):
    assert kinds({"w": np.array([x])}, {"w": np.array([y])}) == {"w": expected}


@pytest.mark.parametrize(
    "dtype",
    [ml_dtypes.bfloat16, ml_dtypes.int4, ml_dtypes.float8_e4m3fn, bool, np.uint64, np.complex64],
)
def test_every_dtype_is_compared_by_value(dtype):
    a, b = np.array([1, 0, 1]).astype(dtype), np.array([1, 1, 1]).astype(dtype)
    row = compare_trees({"w": a}, {"w": b}).rows[0]
    assert (row.kind, row.detail) == ("values", "1 of 3 elements differ, by up to 1")
    assert kinds({"w": a}, {"w": a.copy()}) == {"w": "equal"}


def test_keys_and_jax_arrays_are_compared_by_value():
    first = {"k": jax.random.key(0), "w": jax.numpy.ones(2)}
    assert kinds(first, {"k": jax.random.key(0), "w": np.ones(2, np.float32)}) == {
        "k": "equal",
        "w": "equal",
    }
    assert kinds(first, {"k": jax.random.key(1), "w": jax.numpy.zeros(2)}) == {
        "k": "values",
        "w": "values",
    }


def test_arrays_larger_than_a_slab_are_compared_to_the_end():
    a = np.zeros((3, 1 << 20), np.float32)
    b = a.copy()
    b[-1, -1] = 2
    assert (
        compare_trees({"w": a}, {"w": b}).rows[0].detail
        == f"1 of {a.size} elements differ, by up to 2"
    )
