"""Statistics of arrays of any type and size, beside those of extended precision."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from nbmodule.calls.reduction import read_statistics, reduce_tree
from nbmodule.views.arrays.values import statistics_of, union_of

RANDOM = np.random.default_rng(0)
NOISE = RANDOM.normal(size=66_536)
SINGLE = {
    "faint": NOISE * 1e-25,
    "near the smallest normal": NOISE * 1e-35,
    "large": NOISE * 1e25,
    "ends": np.where(NOISE > 0, 3.3e38, -3.3e38),
    "equal": np.full(NOISE.size, 0.1),
    "far from zero": NOISE + 1e4,
}
DOUBLE = {
    "vanishing": NOISE * 1e-310,
    "smallest": np.where(NOISE > 0, 5e-324, 0.0),
    "large": NOISE * 1e200,
    "ends": np.where(NOISE > 0, 1.7e308, -1.7e308),
    "equal": np.full(NOISE.size, 1e300),
    "a few": NOISE[:7] * 1e200,
    "far from zero": NOISE * 1e-2 + 1e3,
    "sorted": np.linspace(-5, 1e4, 700_001),
    "late": np.concatenate([np.zeros(400_000), NOISE + 1e4]),
    "holes": np.where(RANDOM.uniform(size=NOISE.size) < 0.1, np.nan, NOISE),
    "infinities": np.where(NOISE > 2, np.inf, NOISE),
}
TYPES = "int64 uint8 float16 bool >f4 >f8 >i2 >i4 >i8 >u4 <f8 longdouble".split()
ARRAYS = {
    **{f"single, {kind}": x.astype(np.float32) for kind, x in SINGLE.items()},
    **{f"double, {kind}": x for kind, x in DOUBLE.items()},
    **{kind: (NOISE * 200).clip(0).astype(kind).reshape(8, -1) for kind in TYPES},
}


def true_figures(x):
    """Mean, deviation and histogram of the finite elements."""
    wide = x[np.isfinite(x)].astype(np.longdouble)
    low, high, mean = wide.min(), wide.max(), wide.mean()
    places = ((wide - low) / (high - low if high > low else 1) * 32).astype(int)
    deviation = np.sqrt(((wide - mean) ** 2).mean()) if high > low else 0.0
    return float(mean), float(deviation), np.bincount(np.minimum(places, 31), minlength=32)


def assert_measured(x, miscounted=0):
    (s,) = statistics_of([x])
    assert (s.size, s.nan, s.inf) == (x.size, np.isnan(x).sum(), np.isinf(x).sum())
    assert s.zero_count == (x == 0).sum()
    finite = x[np.isfinite(x)]
    assert sum(s.histogram) == finite.size
    if not finite.size:
        return
    mean, deviation, bins = true_figures(x)
    rel = 1e-6 if x.dtype == np.float64 else 1e-4
    room = max(deviation, 1e-30 * float(np.abs(finite.astype(np.longdouble)).max())) * rel
    assert (s.min, s.max) == (x[s.min_at], x[s.max_at]) == (finite.min(), finite.max())
    assert s.mean == pytest.approx(mean, rel=rel, abs=room)
    assert s.std == pytest.approx(deviation, rel=rel, abs=0)
    assert np.abs(np.subtract(s.histogram, bins)).sum() <= miscounted + x.size * 1e-3


@pytest.mark.parametrize("kind", ARRAYS)
def test_arrays_of_any_type_and_size_are_measured(kind):
    assert_measured(ARRAYS[kind])


@given(arrays(np.float32, st.integers(0, 40), elements=st.floats(width=32)))
def test_so_is_any_array_of_floats(x):
    assert_measured(x, miscounted=4)  # by rounding, on the border of two intervals


@pytest.mark.parametrize(
    "dtype", ["bfloat16", "float16", "int4", "uint8", "bool", "complex64", "float8_e4m3fn"]
)
def test_every_number_type_is_measured(dtype):
    (s,) = statistics_of([jnp.ones((3, 4), dtype)])
    assert (s.size, s.mean, s.min, s.max) == (12, 1, 1, 1)


def test_values_that_cannot_be_read_have_no_statistics():
    deleted = jnp.ones(3)
    deleted.delete()
    assert statistics_of([deleted, np.array(["a"]), "text", None]) == [None] * 4


@pytest.mark.parametrize("kind", SINGLE)
def test_returns_of_any_size_have_their_deviation_within_a_compiled_step(kind):
    x = SINGLE[kind].astype(np.float32)
    found = read_statistics((*jax.jit(lambda x: reduce_tree([x], exact=True)[0][:-1])(x), x.size))
    assert found.std == pytest.approx(true_figures(x)[1], rel=1e-3, abs=0)
    assert sum(n > 0 for n in found.histogram) > (1 if x.min() < x.max() else 0)


def test_gradients_of_torch_that_vanish_have_their_deviation():
    torch = pytest.importorskip("torch")
    from nbmodule.interop.torch_native.tensors import Copies, SeenTensor

    x = SINGLE["faint"].astype(np.float32)
    found = SeenTensor(torch.tensor(x), Copies()).reduced()
    assert found.std == pytest.approx(true_figures(x)[1], rel=1e-4)


def test_two_large_parts_of_a_complex_number_are_no_infinity():
    (found,) = statistics_of([np.array([3e38 + 3e38j, 0], np.complex64)])
    assert (found.inf, found.max) == (0, pytest.approx(3e38 * 2**0.5, rel=1e-6))
    (found,) = statistics_of([np.array([3 + 4j, 0], ">c8")])
    assert (found.max, found.mean) == (5, 2.5)


@pytest.mark.parametrize("factor", [1e-320, 1.0, 1e200, 1e307])
def test_joined_statistics_are_those_of_all_elements(factor):
    rng = np.random.default_rng(1)
    parts = [rng.normal(1, 1 + k, size=(50, 7 * k + 3)).clip(-9, 9) * factor for k in range(3)]
    whole = np.concatenate([x.ravel() for x in parts])
    found = union_of(statistics_of([*parts, np.array([np.nan, np.inf, 0])]))
    mean, std, _ = true_figures(np.append(whole, 0))
    assert (found.mean, found.std) == pytest.approx((mean, std), rel=1e-3, abs=0)
    assert (found.min, found.max) == (whole.min(), whole.max())
    assert (found.nan, found.inf, found.zero_count) == (1, 1, 1)
    counts, _ = np.histogram(whole / factor, len(found.histogram))
    assert np.abs(np.cumsum(found.histogram) - np.cumsum(counts)).max() < 0.1 * whole.size
    assert union_of([]) is None
