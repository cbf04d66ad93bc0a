"""Statistics of arrays against NumPy: of all elements, and in a compiled program at the cost of a
norm, where each non-finite element is counted.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import nbmodule as nb
from nbmodule.calls.reduction import SAMPLE, read_statistics, reduce_tree

pytestmark = pytest.mark.not_under("nans", reason="makes NaN on purpose")


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


def mixed(size):
    x = np.random.default_rng(size).normal(3, 2, size).astype(np.float32)
    x[:: max(size // 7, 2)] = [np.nan, np.inf, -np.inf, 0, 0, 1, 2, 3, 4][size % 9]
    return x


ARRAYS = {
    **{f"{size} elements": mixed(size) for size in (1, 256, 257, 1023, 1024, 5000, 131072)},
    "one NaN of a million": WITH_NAN,
    "integers": np.arange(2000),
    "booleans": np.ones(1000, bool),
    **{f"all {v}": np.full(3000, v, np.float32) for v in (0, 1, -7.5, 1e38, 1e-30, np.nan, np.inf)},
    **{
        str(np.dtype(dtype)): jnp.asarray(DRAWN).astype(dtype)
        for dtype in (jnp.bfloat16, jnp.float16, jnp.int8, jnp.complex64)
    },
}


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays_of_any_kind_have_the_figures_of_numpy(name):
    x = np.asarray(ARRAYS[name])
    plain = np.abs(x) if x.dtype.kind == "c" else x.astype(np.float32)
    found = statistics_of(jnp.asarray(ARRAYS[name]))
    check(found, plain)
    check(read_statistics(jax.jit(lambda x: reduce_tree(x, exact=True))(ARRAYS[name])[0]), plain)
    if name.startswith("all"):
        assert not found.std > 1e-4 * abs(float(plain[0]))


def test_the_deviation_is_exact_far_from_zero():
    x = (1000 + DRAWN / 20).astype(np.float32)
    expected = x.astype(np.float64).std()
    np.testing.assert_allclose(statistics_of(jnp.asarray(x)).std, expected, rtol=1e-2)


@pytest.mark.parametrize(
    "values", [np.float32([0.5, -2.0]), np.float64([1e60, -3e60])], ids=["single", "double"]
)
def test_statistics_hold_where_numbers_have_64_bits(values):
    with jax.enable_x64(True):
        x = np.resize(values, (8, 144))
        check(statistics_of(jnp.asarray(x)), x)


# -- in a compiled program --
SHAPES = [(1,), (512,), (513,), (5003,), (3, 50_021), (7, 7, 3, 40), (5, 1, 2048), (1 << 17,)]
BACKGROUNDS = [(1, 0), (0, 0), (1e30, 0), (1e-5, 0), (1, 1e3)]  # deviation and mean
SHARES = [(0, 0), (1e-4, 1e-3), (0.3, 0.3), (0, 1), (1, 0), (0.999, 1e-3), (1e-3, 0.999)]

SUBNORMAL = pytest.param(
    1e-38,
    marks=pytest.mark.not_under("eager", reason="XLA on the CPU takes subnormal numbers for 0"),
)


def compiled():
    return jax.jit(lambda x: reduce_tree([x])[0])


def masks(rng, size):
    """Yield where elements are NaN and where infinite: one element, or many."""
    for at in {0, size - 1, *rng.integers(0, size, 4).tolist()}:
        alone = np.arange(size) == at
        yield from ((alone, ~alone & alone), (~alone & alone, alone))
    for nan, inf in SHARES:
        drawn = rng.random(size)
        yield drawn < nan, drawn > 1 - inf


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_each_value_that_is_not_finite_is_counted(shape, dtype):
    reduce, rng, size = compiled(), np.random.default_rng(0), int(np.prod(shape))
    largest = float(jnp.finfo(dtype).max)
    for (nan, inf), (scale, mean) in zip(masks(rng, size), itertools.cycle(BACKGROUNDS)):
        plain = (rng.normal(mean, 1, size) * scale).clip(-largest, largest)
        x = np.array(jnp.asarray(plain).astype(dtype))
        x[inf], x[nan] = np.copysign(np.inf, plain[inf]), np.nan
        found = read_statistics(reduce(jnp.asarray(x.reshape(shape))))
        figures = size, np.isnan(x).sum(), np.isinf(x).sum()
        assert (found.size, found.nan, found.inf) == figures, (scale, mean)


@pytest.mark.parametrize("scale", [3e38, 1e30, 1e15, 1.0, 1e-15, 1e-30, SUBNORMAL, 0.0])
def test_no_magnitude_is_taken_for_one_that_is_not_finite_and_the_norm_is_right(scale):
    x = (np.random.default_rng(2).uniform(0.25, 1, (40, 1000)) * scale).astype(np.float32)
    found = read_statistics(compiled()(jnp.asarray(x)))
    assert found.nonfinite == 0
    norm = np.sqrt(np.mean(x.astype(np.float64) ** 2))
    exact = scale in (1.0, 0.0)  # else of the sample
    np.testing.assert_allclose(
        np.hypot(found.mean, found.std), norm, rtol=1e-5 if exact else 0.1, atol=1e-42
    )


@pytest.mark.not_under("eager", reason="nothing is compiled, and statistics are of all elements")
def test_the_mean_square_is_of_all_elements_and_the_rest_of_a_sample():
    x = np.random.default_rng(3).normal(1, 2, (64, 32, 100)).astype(np.float32)
    x[40, 3, 7] = 1000
    found = read_statistics(compiled()(jnp.asarray(x)))
    assert found.sampled == SAMPLE
    assert sum(found.histogram) == SAMPLE
    np.testing.assert_allclose(
        found.mean**2 + found.std**2, np.mean(x.astype(np.float64) ** 2), rtol=1e-5
    )
    assert abs(found.mean - 1) < 0.4
    assert -10 < found.min < -2 and 4 < found.max < 12


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (4,), (256, 3)], ids=str)
@pytest.mark.parametrize("dtype", ["bool", "int8", "uint32", "complex64", "float16"])
def test_any_shape_and_dtype_has_statistics(shape, dtype):
    x = jnp.ones(shape, dtype)
    found = read_statistics(compiled()(x))
    figures = found and (found.size, found.mean, found.max, found.nonfinite)
    assert figures == ((x.size, 1, 1, 0) if x.size else None)


def test_one_bad_value_in_a_tracked_step_is_found_in_returns_and_gradients_through_scan_and_vmap():
    model = nb.Sequential(
        nb.Linear(64, 64), nb.Lambda(lambda x: jnp.where(x == x.max(), jnp.nan, x))
    )
    x = jnp.asarray(np.random.default_rng(6).normal(size=(5, 40, 64)).astype(np.float32))
    for step in (
        nb.jit(lambda x: nb.vmap(model)(x)),
        nb.jit(lambda x: nb.scan(lambda c, row: (c, model(row)), 0, x)),
    ):
        with nb.track(model, returns="stats") as calls:
            step(x)
        assert calls["1"].statistics.nan == 5
        assert calls["1"].statistics.size == 5 * 40 * 64
        assert calls["0"].statistics.nonfinite == 0


def test_double_precision_has_its_own_range():
    with jax.enable_x64(True):
        x = np.random.default_rng(5).normal(size=(50, 100)) * 1e60
        x[3, 4], x[5, 6], x[7, 8] = np.nan, np.inf, -np.inf
        found = read_statistics(compiled()(jnp.asarray(x)))
    assert (found.nan, found.inf) == (1, 2)
