"""The norm of many arrays as one vector, and gradients cut to a largest one."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nbmodule as nb


@given(st.lists(st.floats(-100, 100, width=32), min_size=1, max_size=20), st.floats(0.01, 50))
def test_the_norm_is_never_above_the_largest_and_directions_stay(numbers, largest):
    grads = {"a": jnp.asarray(numbers, jnp.float32), "b": {"c": jnp.ones(())}}
    clipped = nb.clip_by_global_norm(grads, largest)
    norm = np.sqrt(np.sum(np.square(np.asarray(numbers, np.float64))) + 1)
    np.testing.assert_allclose(nb.global_norm(grads), norm, rtol=1e-5)
    assert float(nb.global_norm(clipped)) <= largest * (1 + 1e-5)
    scaled = np.asarray(numbers) * min(1.0, largest / norm)
    np.testing.assert_allclose(clipped["a"], scaled, rtol=1e-4, atol=1e-6)


@pytest.mark.not_under("nans", reason="makes NaN on purpose")
def test_nan_is_not_hidden():
    assert jnp.isnan(nb.clip_by_global_norm({"a": jnp.array([jnp.nan, 1.0])}, 1.0)["a"]).all()


def test_low_precision_is_added_up_in_float32():
    grads = {"a": jnp.ones(4096, jnp.bfloat16)}
    assert float(nb.global_norm(grads)) == 64.0
    assert nb.clip_by_global_norm(grads, 1.0)["a"].dtype == jnp.bfloat16


ONES, TITLE = {"a": jnp.ones(1)}, "the argument of clip_by_global_norm"


@pytest.mark.parametrize(
    ("grads", "norm", "error", "message"),
    [
        (ONES, -1.0, nb.ArgumentError, "the largest norm must be positive and finite, got -1.0"),
        (ONES, "1", nb.ArgumentTypeError, "the largest norm must be a number, got str"),
        (3, 1.0, nb.ArgumentTypeError, f"{TITLE} must be a Container or a dict of arrays, got int"),
    ],
)
def test_a_norm_that_makes_no_sense_is_refused(grads, norm, error, message):
    with pytest.raises(error, match=message):
        nb.clip_by_global_norm(grads, norm)
