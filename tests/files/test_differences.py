from __future__ import annotations

import jax
import ml_dtypes
import numpy as np
import pytest

from nbmodule.files.chains import flatten_levels
from nbmodule.files.differences import compare_rows


def kinds(first, second):
    trees = (dict(flatten_levels(tree, what="tree")) for tree in (first, second))
    return {row.path: row.kind for row in compare_rows(*trees).rows}


ONES, FLAGS = np.ones(2), np.array([1, 0, 1])
SMALL = [ml_dtypes.bfloat16, ml_dtypes.int4, ml_dtypes.float8_e4m3fn, bool, np.uint64, np.complex64]


@pytest.mark.parametrize(
    ("one", "other", "kind"),
    [
        ({"w": np.ones(3)}, {"w": np.ones(3)}, "equal"),
        (ONES, np.ones(2, np.float32), "dtype"),
        (np.zeros(2), np.zeros((2, 1)), "shape"),
        ("x", "y", "values"),
        (None, None, "equal"),
        ({}, {}, "equal"),
        (np.array([1.0]), np.array([1.05]), "values"),
        (np.array([np.nan]), np.array([np.nan]), "equal"),
        (np.array([np.nan]), np.array([1.0]), "values"),
        (np.array([0.0]), np.array([-0.0]), "equal"),
        (jax.random.key(0), jax.random.key(0), "equal"),
        (jax.random.key(0), jax.random.key(1), "values"),
        (jax.numpy.ones(2), np.ones(2, np.float32), "equal"),
        *((FLAGS.astype(dtype), FLAGS.astype(dtype), "equal") for dtype in SMALL),
        *((FLAGS.astype(dtype), np.ones(3).astype(dtype), "values") for dtype in SMALL),
    ],
)
def test_each_place_has_its_kind(one, other, kind):
    first, second = {"a": one, "old": 1}, {"a": other, "new": 2}
    found = kinds(first, second)
    (place,) = found.keys() - {"old", "new"}
    assert found == {place: kind, "old": "only in first", "new": "only in second"}


def test_arrays_are_compared_to_the_end_and_differences_counted():
    a = np.zeros((3, 1 << 20), np.float32)  # larger than a slab
    b = a.copy()
    b[-1, -1] = 2
    for one, other, largest in [(a, b, 2), *((FLAGS.astype(d), np.ones(3, d), 1) for d in SMALL)]:
        (row,) = compare_rows({"w": one}, {"w": other}).rows
        assert row.detail == f"1 of {one.size} elements differ, by up to {largest}"
