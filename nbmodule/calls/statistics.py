"""Statistics of an array, reduced where it lies and while it is computed.

On a CPU, XLA is fast only at reductions that stand alone: sum, extremes, a dot product. So these are what is asked of an array
in its own shape, 0.5 ns per element together; the host makes figures of them when somebody looks. That is right for an array that
is finite and whose mean is not far larger than its deviation; any other one is reduced once more, with care. The histogram is of
a sample, since comparing each element with each edge would cost more than the layer that made it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from nbmodule.core.boxes.frame import current_log
from nbmodule.core.recording.parcel import StaticLeaf

BINS = 16
SAMPLE = 512
"""Elements, evenly spaced, that the histogram counts."""
WHOLE = 256
"""Elements up to which an array leaves as it is, and is reduced when somebody looks: that costs less than a reduction."""
_STEEP = 0.01
"""Least variance, in squares of the mean, at which sums of squares in float32 still tell it to four digits."""


class Statistics(NamedTuple):
    """An array in numbers. Mean to max are over the finite elements, NaN where there are none."""

    size: int
    mean: float
    std: float
    min: float
    max: float
    zeros: float
    """Share of elements that are exactly zero."""
    nan: int
    inf: int
    histogram: tuple[int, ...]
    """Counts of equal intervals from `min` to `max`, over at most 512 evenly spaced elements."""

    @staticmethod
    def of(figures: Sequence[Any]) -> Statistics:
        """Statistics from a plain list of their figures."""
        return Statistics._make((*figures[:-1], tuple(figures[-1])))

    @property
    def nonfinite(self) -> int:
        """How many elements are NaN or infinite."""
        return self.nan + self.inf


def reduce_tree(tree: Any) -> list[Any]:
    """Reduce each array of a PyTree; what holds no numbers becomes None."""
    return [_reduced(leaf) for leaf in jax.tree.leaves(tree)]


def _reduced(leaf: Any) -> Any:
    if not hasattr(leaf, "dtype") or not hasattr(leaf, "shape") or leaf.size == 0:
        return StaticLeaf(None)
    if not (jnp.issubdtype(leaf.dtype, jnp.number) or leaf.dtype == jnp.bool_):
        return StaticLeaf(None)
    if leaf.size <= WHOLE:
        return (leaf, StaticLeaf(None))
    return (*_reduce(leaf), StaticLeaf(leaf.size))


@jax.jit
def _reduce_alone(x: jax.Array) -> tuple[jax.Array, ...]:
    return _reduction(x)


def _reduce(x: Any) -> tuple[Any, ...]:
    """Reduce an array; a traced one that several calls return only once."""
    if not isinstance(x, Tracer):
        return _reduce_alone(x)
    log = current_log()
    if log is None:
        return _reduction(x)
    if id(x) not in log.derived:
        log.derived[id(x)] = (x, _reduction(x))
    return log.derived[id(x)][1]


def _reduction(x: Any) -> tuple[Any, ...]:
    """Plain sums, careful figures (all zero where they are not needed), and for each element of a sample its interval."""
    x = jax.lax.stop_gradient(jnp.abs(x) if jnp.iscomplexobj(x) else x)
    x = x.astype(jnp.float64 if x.dtype == jnp.float64 else jnp.float32)
    low, high, square = x.min(), x.max(), _dot(x, x)
    sums = jnp.stack([x.sum(), square, low, high, _count(x == 0, x.dtype)])
    mean = sums[0] / x.size
    is_plain = jnp.isfinite(square) & (square / x.size >= (1 + _STEEP) * mean * mean)
    careful = jax.lax.cond(is_plain, lambda x: jnp.zeros(7, x.dtype), _with_care, x)
    low, high = jnp.where(is_plain, low, careful[2]), jnp.where(is_plain, high, careful[3])
    return sums, careful, _intervals(x, low, high)


def _dot(x: Any, y: Any) -> Any:
    axes = tuple(range(x.ndim))
    return jax.lax.dot_general(x, y, ((axes, axes), ((), ())), precision="highest")


def _count(mask: Any, dtype: Any) -> Any:
    """How many hold; by rows, which XLA does faster than all at once, and in floats."""
    return mask.astype(dtype).sum(axis=-1).sum()


def _with_care(x: Any) -> Any:
    """Mean, deviation, extremes over finite elements, in two passes and scaled so that no square overflows; NaN, infinite, zero."""
    finite = jnp.isfinite(x)
    count, nan, zeros = (_count(mask, x.dtype) for mask in (finite, jnp.isnan(x), x == 0))
    low, high = jnp.where(finite, x, jnp.inf).min(), jnp.where(finite, x, -jnp.inf).max()
    scale = jnp.maximum(jnp.maximum(-low, high), jnp.finfo(x.dtype).tiny)
    scaled = jnp.where(finite, x / scale, 0)
    mean = scaled.sum() / count
    apart = jnp.where(finite, scaled - mean, 0)
    deviation = jnp.sqrt(_dot(apart, apart) / count)
    return jnp.stack([mean * scale, deviation * scale, low, high, nan, x.size - count - nan, zeros])


def _intervals(x: Any, low: Any, high: Any) -> Any:
    """Of evenly spaced elements the interval that each lies in; `BINS` for those that are not finite."""
    sample = x.reshape(-1)[:: max(1, -(-x.size // SAMPLE))]
    width = jnp.where(high > low, high - low, 1)
    place = jnp.clip((sample - low) / width * BINS, 0, BINS - 1)
    return jnp.where(jnp.isfinite(sample), place, BINS).astype(jnp.uint8)


# -- on the host -------------------------------------------------------------------------------------
def read_statistics(parts: Any) -> Statistics | None:
    """Make statistics of what came out of `reduce_tree` for one array; rows of `vmap` and `scan` are put together."""
    if isinstance(parts, Statistics):
        return parts
    if not isinstance(parts, (tuple, list)):
        return None
    if len(parts) == 2:
        return _read_whole(np.asarray(parts[0]))
    sums, careful, places, size = parts
    size = size.static.value if isinstance(size, StaticLeaf) else int(size)
    figures, zeros, nan, inf = _figures(np.asarray(sums, np.float64), np.asarray(careful, np.float64), size)
    histograms = np.stack(
        [np.bincount(row, minlength=BINS + 1)[:BINS] for row in np.asarray(places).reshape(len(figures), -1)]
    )
    finite = size - nan - inf
    rows = finite > 0
    total, all_nan, all_inf = size * len(figures), int(nan.sum()), int(inf.sum())
    share = float(zeros.sum()) / total
    if not rows.any():
        return Statistics(total, math.nan, math.nan, math.nan, math.nan, share, all_nan, all_inf, (0,) * BINS)
    mean, deviation, low, high = figures[rows].T
    weight = finite[rows] / finite[rows].sum()
    with np.errstate(all="ignore"):
        middle = float((weight * mean).sum())
        spread = float(np.sqrt((weight * (deviation**2 + (mean - middle) ** 2)).sum()))
    histogram = _put_together(histograms[rows], low, high)
    return Statistics(total, middle, spread, float(low.min()), float(high.max()), share, all_nan, all_inf, histogram)


def _figures(sums: np.ndarray, careful: np.ndarray, size: int) -> tuple[np.ndarray, ...]:
    """For each row mean, deviation, minimum and maximum; counts of zero, NaN and infinite elements."""
    sums, careful = sums.reshape(-1, 5), careful.reshape(-1, 7)
    with np.errstate(all="ignore"):
        mean = sums[:, 0] / size
        deviation = np.sqrt(np.maximum(sums[:, 1] / size - mean**2, 0))
    plain = np.stack([mean, deviation, sums[:, 2], sums[:, 3]], axis=1)
    is_plain = np.logical_not(careful.any(axis=1))  # careful figures of zeros alone are counted as zeros at least
    figures = np.where(is_plain[:, None], plain, careful[:, :4])
    return figures, np.where(is_plain, sums[:, 4], careful[:, 6]), careful[:, 4], careful[:, 5]


def _read_whole(x: np.ndarray) -> Statistics:
    wide = (np.abs(x) if np.iscomplexobj(x) else x).astype(np.float64).reshape(-1)
    finite = wide[np.isfinite(wide)]
    nan = int(np.isnan(wide).sum())
    zeros, inf = float((wide == 0).sum() / wide.size), wide.size - finite.size - nan
    if not finite.size:
        return Statistics(wide.size, math.nan, math.nan, math.nan, math.nan, zeros, nan, inf, (0,) * BINS)
    low, high = float(finite.min()), float(finite.max())
    with np.errstate(all="ignore"):
        places = np.clip((finite - low) / (high - low if high > low else 1) * BINS, 0, BINS - 1).astype(int)
        mean, std = float(finite.mean()), float(finite.std())
    histogram = tuple(map(int, np.bincount(places, minlength=BINS)))
    return Statistics(wide.size, mean, std, low, high, zeros, nan, inf, histogram)


def _put_together(counts: np.ndarray, low: np.ndarray, high: np.ndarray) -> tuple[int, ...]:
    """Histograms of several rows as one: each interval goes to where its middle lies."""
    if len(counts) == 1:
        return tuple(map(int, counts[0]))
    bottom, top = low.min(), high.max()
    middles = low[:, None] + (high - low)[:, None] * (np.arange(BINS) + 0.5) / BINS
    with np.errstate(all="ignore"):
        places = np.clip((middles - bottom) / (top - bottom if top > bottom else 1) * BINS, 0, BINS - 1).astype(int)
    found = np.bincount(places.reshape(-1), counts.reshape(-1), BINS)
    return tuple(map(int, found))


def statistics_of(x: Any) -> Statistics | None:
    """The statistics of one array.

    Example:
        >>> import numpy as np
        >>> from nbmodule.calls.statistics import statistics_of
        >>> s = statistics_of(np.array([0.0, 2.0, np.nan], np.float32))
        >>> s.mean, s.std, s.max, s.nonfinite
        (1.0, 1.0, 2.0, 1)
    """
    return read_statistics(reduce_tree([x])[0])
