import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from nbmodule.base.statistics import statistics_of_elements
from nbmodule.views.arrays.reductions import statistics_of

floats = arrays(np.float32, st.integers(1, 40), elements=st.floats(-1e3, 1e3, width=32))


@given(floats)
def test_the_numbers_are_those_of_numpy(x):
    (s,) = statistics_of([x])
    assert (s.min, s.max) == (x.min(), x.max())
    assert s.mean == pytest.approx(x.mean(dtype=np.float64), abs=1e-3, rel=1e-4)
    assert s.std == pytest.approx(x.std(dtype=np.float64), abs=2e-2, rel=1e-3)
    assert x[s.min_at] == x.min()
    assert x[s.max_at] == x.max()


@given(arrays(np.float32, st.integers(0, 40), elements=st.floats(width=32)))
def test_the_histogram_counts_every_element(x):
    (s,) = statistics_of([x])
    assert sum(s.histogram) + s.nan + s.inf == s.size == x.size


@pytest.mark.parametrize(
    "dtype", ["bfloat16", "float16", "int4", "uint8", "bool", "complex64", "float8_e4m3fn"]
)
def test_every_number_type_is_measured(dtype):
    (s,) = statistics_of([jnp.ones((3, 4), dtype)])
    assert (s.size, s.mean, s.min, s.max) == (12, 1, 1, 1)


def test_numbers_near_the_largest_float_do_not_warn():
    (s,) = statistics_of([np.float32([3e38, -3e38, 0])])
    assert sum(s.histogram) == 3


def test_what_has_no_values_has_no_statistics():
    deleted = jnp.ones(3)
    deleted.delete()
    assert statistics_of([deleted, np.array(["a"]), "text", None]) == [None] * 4


def large(kind):
    rng = np.random.default_rng(1)
    x = {
        "normal": rng.normal(size=700_001),
        "shifted": rng.normal(size=700_001) * 1e-2 + 1e3,
        "sorted": np.linspace(-5, 1e4, 700_001),
        "late": np.concatenate([np.zeros(400_000), rng.normal(size=300_001) + 1e4]),
        "constant": np.full(700_001, 3.25),
        "holes": np.where(rng.uniform(size=700_001) < 0.1, np.nan, rng.normal(size=700_001)),
        "wide": np.where(rng.uniform(size=700_001) < 0.5, 1e30, -1e30),
    }[kind]
    return x.astype("float32")


@pytest.mark.parametrize(
    "kind", ["normal", "shifted", "sorted", "late", "constant", "holes", "wide"]
)
def test_many_elements_are_reduced_as_numpy_does(kind):
    x = large(kind)
    s, wide = statistics_of_elements(x, 32, places=True), x.astype("float64")
    assert s.mean == pytest.approx(np.nanmean(wide), rel=1e-5, abs=1e-5 * np.nanmax(np.abs(wide)))
    assert s.std == pytest.approx(np.nanstd(wide), rel=1e-4, abs=1e-9)
    assert (s.min, s.max) == (np.nanmin(x), np.nanmax(x))
    assert (s.min_at, s.max_at) == ((np.nanargmin(x),), (np.nanargmax(x),))
    assert (s.nan, s.zero_count) == (np.isnan(x).sum(), (x == 0).sum())
    expected = (
        np.histogram(wide[np.isfinite(wide)], 32, (s.min, s.max))[0]
        if s.min < s.max
        else [x.size] + [0] * 31
    )
    assert sum(s.histogram) == x.size - s.nan
    assert np.abs(np.subtract(s.histogram, expected)).sum() <= x.size / 1e3


@pytest.mark.parametrize("dtype", ["int64", "uint8", "float64", "float16", "bool"])
def test_other_types_in_many_elements(dtype):
    x = (np.random.default_rng(3).uniform(size=(300, 1001)) * 200).astype(dtype)
    s = statistics_of_elements(x, 32, places=True)
    assert s.mean == pytest.approx(x.mean(dtype="float64"), rel=1e-5)
    assert s.std == pytest.approx(x.std(dtype="float64"), rel=1e-5)
    assert x[s.max_at] == x.max()
    assert sum(s.histogram) == x.size
