"""Statistics that are reduced inside, against NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from nbmodule.calls.reduction import read_statistics, reduce_tree


def statistics_of(x):
    return read_statistics(reduce_tree([x])[0])


def check(found, x):
    finite = x[np.isfinite(x)].astype(np.float64)
    assert found.size == x.size
    assert (found.nan, found.inf) == (np.isnan(x).sum(), np.isinf(x).sum())
    np.testing.assert_allclose(found.zeros, (x == 0).mean())
    if finite.size:
        scale = np.abs(finite).max() + 1e-30
        np.testing.assert_allclose(
            [found.mean, found.min, found.max],
            [finite.mean(), finite.min(), finite.max()],
            rtol=1e-5,
            atol=1e-5 * scale,
        )
        np.testing.assert_allclose(found.std, finite.std(), rtol=1e-3, atol=1e-4 * scale)
    else:
        assert np.isnan(found.mean)


@pytest.mark.parametrize("size", [1, 256, 257, 1023, 1024, 5000, 131072])
def test_figures_equal_those_of_numpy(size):
    x = np.random.default_rng(size).normal(3, 2, size).astype(np.float32)
    x[:: max(size // 7, 2)] = [np.nan, np.inf, -np.inf, 0, 0, 1, 2, 3, 4][size % 9]
    check(statistics_of(jnp.asarray(x)), x)
    check(read_statistics(jax.jit(lambda x: reduce_tree(x, exact=True))(x)[0]), x)


@given(
    hnp.arrays(
        np.float32,
        st.integers(1, 40),
        elements=st.floats(width=32, min_value=-1e6, max_value=1e6)
        | st.sampled_from([np.nan, np.inf]),
    )
)
def test_small_arrays_are_exact(x):
    check(statistics_of(x), x)


DRAWN = np.random.default_rng(0).normal(3, 2, 2000)
WITH_NAN = np.random.default_rng(0).normal(size=1_000_003).astype(np.float32)
WITH_NAN[654_321] = np.nan
ARRAYS = {
    "one NaN of a million": WITH_NAN,
    "integers": np.arange(2000),
    "booleans": np.ones(1000, bool),
    **{f"all {v}": np.full(3000, v, np.float32) for v in (0, 1, -7.5, 1e38, 1e-30, np.nan, np.inf)},
    **{
        str(np.dtype(dtype)): jnp.asarray(DRAWN).astype(dtype)
        for dtype in (jnp.bfloat16, jnp.float16, jnp.int8, jnp.complex64)
    },
}


@pytest.mark.not_under("nans", reason="makes NaN on purpose")
@pytest.mark.parametrize("name", ARRAYS)
def test_arrays_of_any_kind_have_the_figures_of_numpy(name):
    x = np.asarray(ARRAYS[name])
    plain = np.abs(x) if x.dtype.kind == "c" else x.astype(np.float32)
    found = statistics_of(jnp.asarray(ARRAYS[name]))
    check(found, plain)
    if name.startswith("all"):
        assert not found.std > 1e-4 * abs(float(plain[0]))


def test_the_deviation_is_exact_far_from_zero():
    x = (1000 + DRAWN / 20).astype(np.float32)
    expected = x.astype(np.float64).std()
    np.testing.assert_allclose(statistics_of(jnp.asarray(x)).std, expected, rtol=1e-2)


def test_empty_arrays_have_no_statistics():
    assert statistics_of(jnp.zeros((0, 3))) is None


@pytest.mark.parametrize(
    "values", [np.float32([0.5, -2.0]), np.float64([1e60, -3e60])], ids=["single", "double"]
)
def test_statistics_hold_where_numbers_have_64_bits(values):
    with jax.enable_x64(True):
        x = np.resize(values, (8, 144))
        check(statistics_of(jnp.asarray(x)), x)
