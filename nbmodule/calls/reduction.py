"""Statistics of arrays, reduced on their device, also inside compiled functions.

While tracing, the norm and the number of non-finite elements are of all elements, the other figures
of a sample (see `reduce_lightly`), so that the cost is that of the norm. Outside, or with
`exact=True`, all figures but the histogram are of all elements; a histogram of all of them would
cost more than the layer that computed them.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.core import Tracer

from nbmodule.base.foreign import ForeignArray
from nbmodule.base.kinds import Shaped
from nbmodule.base.statistics import (
    BINS,
    Statistics,
    join_statistics,
    statistics_of_elements,
    without_values,
)
from nbmodule.core.recording.parcel import StaticLeaf
from nbmodule.core.variables.frame import current_log

_RUNS, _RUN = 16, 32
# Elements in the sample.
SAMPLE = _RUNS * _RUN
# Elements of a row: counts of infinities and NaN up to this are exact in the 24 bits of a float32.
_LONGEST = 2047


class _Code(NamedTuple):
    """The codes that one element can add to the sum of its row: squares of powers of two."""

    most: float
    nan: float
    inf: float


_SINGLE = _Code(2.0**80, 2.0**100, 2.0**112)
_DOUBLE = _Code(2.0**800, 2.0**840, 2.0**852)
# Mean square below which squares have lost digits, or everything.
_FAINT = {np.float32: 1e-30, np.float64: 1e-290}
# Least mean square, in squares of the sample's mean, at which their difference says how far the
# elements lie apart.
_STEEP = 1.01
# Up to this number of elements an array is returned whole and reduced on access, which costs less
# than a reduction.
WHOLE = SAMPLE


def reduce_tree(tree: object, *, exact: bool = False) -> list[Any]:
    """Reduce each array of a PyTree; leaves without numbers become None.

    Args:
        tree: Arrays, traced or not.
        exact: Whether all figures are of all elements also while tracing.
    """
    return [_reduced(leaf, exact) for leaf in jax.tree.leaves(tree)]


def _reduced(leaf: Array, exact: bool) -> Any:
    if isinstance(leaf, ForeignArray):
        return leaf.reduced()
    if not hasattr(leaf, "dtype") or not hasattr(leaf, "shape") or leaf.size == 0:
        return StaticLeaf(None)
    if not (jnp.issubdtype(leaf.dtype, jnp.number) or leaf.dtype == jnp.bool_):
        return StaticLeaf(None)
    if leaf.size <= WHOLE:
        return (leaf, StaticLeaf(None))
    return (*_reduce(leaf, exact), StaticLeaf(leaf.size))


def _reduce(x: object, exact: bool) -> tuple[Any, ...]:
    """Reduce an array; a traced array that several calls return is reduced once."""
    if exact or not isinstance(x, Tracer):
        return _reduction(x)
    log = current_log()
    if log is None:
        return reduce_lightly(_real(x))
    if id(x) not in log.derived:
        log.derived[id(x)] = (x, reduce_lightly(_real(x)))
    return log.derived[id(x)][1]


def _real(x: Array) -> Any:
    """Return the array as real numbers of at least single precision, without gradient."""
    x = jax.lax.stop_gradient(jnp.abs(x) if jnp.iscomplexobj(x) else x)
    return x.astype(jnp.float64 if x.dtype == jnp.float64 else jnp.float32)


def _dot(x: Array, y: Array) -> Any:
    axes = tuple(range(x.ndim))
    return jax.lax.dot_general(x, y, ((axes, axes), ((), ())), precision="highest")


def _count(mask: Array, dtype: Any) -> Any:
    """Count the true elements, by rows and in floats, which XLA computes faster."""
    return mask.astype(dtype).sum(axis=-1).sum()


@jax.jit
def _reduction(x: Array) -> tuple[Any, ...]:
    """Return mean, deviation and extremes of finite elements, in two passes and scaled so that no
    square overflows; counts of NaN, infinities and zeros; the histogram interval of each element of
    a sample.
    """
    x = _real(x)
    finite = jnp.isfinite(x)
    count, nan, zeros = (_count(mask, x.dtype) for mask in (finite, jnp.isnan(x), x == 0))
    low, high = jnp.where(finite, x, jnp.inf).min(), jnp.where(finite, x, -jnp.inf).max()
    scale = jnp.maximum(jnp.maximum(-low, high), jnp.finfo(x.dtype).tiny)
    scaled = jnp.where(finite, _in_units(x, scale), 0)
    mean = scaled.sum() / count
    gap = jnp.where(finite, scaled - mean, 0)
    deviation = jnp.sqrt(_dot(gap, gap) / count)
    moments = jnp.stack([mean * scale, deviation * scale, low, high])
    return moments, jnp.stack([nan, x.size - count - nan, zeros]), _intervals(x, low, high)


def _in_units(x: Array, scale: Array) -> Any:
    """Return `x / scale`. XLA may multiply by `1 / scale` instead, which is zero for scales close
    to the largest number.
    """
    smaller = jnp.where(scale > 1, 0.125, 1).astype(x.dtype)
    return (x * smaller) / (scale * smaller)


def _intervals(x: Array, low: Any, high: Any) -> Any:
    """Return the histogram intervals of evenly spaced elements; `BINS` for non-finite ones."""
    sample = x.reshape(-1)[:: max(1, -(-x.size // SAMPLE))]
    scale = jnp.maximum(jnp.maximum(-low, high), jnp.finfo(x.dtype).tiny)
    # in units of that size, since the difference may overflow
    sample_in, low_in, high_in = (_in_units(y, scale) for y in (sample, low, high))
    width = jnp.where(high > low, high_in - low_in, 1)
    location = jnp.clip((sample_in - low_in) / width * BINS, 0, BINS - 1)
    return jnp.where(jnp.isfinite(sample), location, BINS).astype(jnp.uint8)


# -- on the host --
def read_statistics(parts: Any) -> Statistics | None:
    """Return the statistics of one array from `reduce_tree`; rows of `vmap` and `scan` are
    combined.
    """
    if isinstance(parts, Statistics):
        return parts
    if not isinstance(parts, (tuple, list)):
        return None
    if len(parts) == 2:
        return statistics_of_elements(np.asarray(parts[0]))
    size = parts[-1].value if isinstance(parts[-1], StaticLeaf) else int(parts[-1])
    if len(parts) == 3:
        return read_lightly(np.asarray(parts[0]), np.asarray(parts[1]), size)
    moments, counts, places = (np.asarray(part) for part in parts[:-1])
    rows = zip(moments.reshape(-1, 4), counts.reshape(-1, 3), places.reshape(moments.size // 4, -1))
    return join_statistics([_read_one(*row, size) for row in rows])


def _read_one(moments: np.ndarray, counts: np.ndarray, places: np.ndarray, size: int) -> Statistics:
    nan, inf, zeros = map(int, counts)
    if nan + inf == size:
        return without_values(size, zeros / size, nan, inf)
    histogram = tuple(map(int, np.bincount(places, minlength=BINS + 1)[:BINS]))
    mean, std, low, high = map(float, moments)
    return Statistics(size, mean, std, low, high, zeros / size, nan, inf, histogram)


# -- statistics at the cost of the norm ------------------------------------------------------------
@jax.jit
def reduce_lightly(x: Shaped) -> tuple[Any, Any]:
    """Return the encoded sums of rows and the sample of a real floating array that is larger than
    the sample.

    One pass sums the squares of each row. Squares are clipped to 2**80; a NaN adds 2**100 and an
    infinity 2**112. The sum of a row of at most 2,047 elements then encodes three numbers, which
    the host decodes exactly. All summands are squares, because XLA computes a sum of squares in one
    kernel on a CPU and writes other summands to memory first. The sample is 16 evenly spaced runs
    of 32 elements, which read whole cache lines. All figures of `statistics` would take about 16
    kernels for each array, these take at most three. The function is traced once for each shape and
    has few instructions, since a model has a hundred arrays.
    """
    code = _DOUBLE if x.dtype == jnp.float64 else _SINGLE
    rows, number = _rows_of(x), x.dtype.type
    most, nan, inf = map(math.sqrt, code)
    bad = lax.select(lax.ne(rows, rows), lax.full_like(rows, nan), lax.full_like(rows, inf))
    roots = lax.select(lax.is_finite(rows), lax.clamp(number(-most), rows, number(most)), bad)
    return lax.mul(roots, roots).sum(axis=-1), _sample_of(x)


def _rows_of(x: Any) -> Any:
    """Return the elements in rows, of trailing axes where possible, so that XLA can fuse the sum
    with the computation of the array.
    """
    length = 1
    for size in reversed(x.shape):
        if length * size > _LONGEST:
            break
        length *= size
    if length >= 64 or length == x.size:
        return x.reshape(-1, length)
    length = next((n for n in range(_LONGEST, 63, -1) if x.size % n == 0), 1024)
    flat = x.reshape(-1)
    return jnp.pad(flat, (0, -x.size % length)).reshape(-1, length)


def _sample_of(x: Any) -> Any:
    """Return 16 runs of elements, which begin in different columns where possible."""
    step, columns = x.size // _RUNS, x.shape[-1]
    if step >= 2 * columns and columns >= 2 * _RUN:
        shift = round(0.382 * columns)
        step += shift - step % columns - columns * (step % columns < shift)
    whole = lax.slice(x.reshape(-1), (0,), (step * _RUNS,))
    return whole.reshape(_RUNS, step)[:, :_RUN].reshape(-1)


def read_lightly(sums: np.ndarray, sample: np.ndarray, size: int) -> Statistics:
    """Return the statistics of a result of `reduce_lightly`; rows of `vmap` and `scan` are
    combined.
    """
    samples = sample.reshape(-1, SAMPLE)
    rows = zip(sums.reshape(len(samples), -1), samples)
    return join_statistics([_read_sample(owned, drawn, size) for owned, drawn in rows])


def _read_sample(sums: np.ndarray, sample: np.ndarray, size: int) -> Statistics:
    code = _DOUBLE if sums.dtype == np.float64 else _SINGLE
    infinite = np.floor(sums / sums.dtype.type(code.inf))
    remaining = sums - infinite * sums.dtype.type(code.inf)
    missing = np.floor(remaining / sums.dtype.type(code.nan))
    nan, inf = int(missing.sum()), int(infinite.sum())
    drawn = statistics_of_elements(sample)
    energy = float(sums.sum(dtype=np.float64)) / size
    is_exact = not nan + inf and energy > _FAINT[sums.dtype.type] and sums.max() < code.most
    std = drawn.std
    if is_exact and energy > _STEEP * drawn.mean**2:
        std = math.sqrt(energy - drawn.mean**2)
    return drawn._replace(size=size, std=std, nan=nan, inf=inf, sampled=SAMPLE)
