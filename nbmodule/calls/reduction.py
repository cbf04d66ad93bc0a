"""Statistics of arrays, reduced on their device, also inside compiled functions.

While tracing, the norm and the number of non-finite elements are of all elements, the other figures
of a sample (see `sampled`), so that the cost is that of the norm. Outside, or with `exact=True`,
all figures but the histogram are of all elements; a histogram of all of them would cost more than
the layer that computed them.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer

from nbmodule.base.foreign import ForeignArray
from nbmodule.base.statistics import (
    BINS,
    Statistics,
    join_statistics,
    statistics_of_elements,
    without_values,
)
from nbmodule.calls.sampled import SAMPLE, read_lightly, reduce_lightly
from nbmodule.core.recording.parcel import StaticLeaf
from nbmodule.core.variables.frame import current_log

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
