"""Statistics of an array, reduced where it lies and while it is computed.

A full reduction is what XLA does slowest on a CPU (9 ns per element and more), since it may not reorder sums. Here rows of
lanes are added up by a `scan`, which is vectorized: all six figures in one pass at 1 ns per element. The histogram is of a
sample, since comparing each element with each edge would cost more than the layer that made it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from nbmodule.core.parcel import Aside

BINS = 16
SAMPLE = 1024
"""Elements, evenly spaced, that the histogram counts."""
WHOLE = 256
"""Elements up to which an array leaves as it is, and is reduced when somebody looks: that costs less than a reduction."""
_LANES = 512


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
    """Counts of equal intervals from `min` to `max`, over at most 1,024 evenly spaced elements."""

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
        return Aside(None)
    if not (jnp.issubdtype(leaf.dtype, jnp.number) or leaf.dtype == jnp.bool_):
        return Aside(None)
    if leaf.size <= WHOLE:
        return (leaf, Aside(None))
    return (*_reduce(jax.lax.stop_gradient(leaf)), Aside(leaf.size))


@jax.jit
def _reduce_alone(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    return _reduction(x)


def _reduce(x: Any) -> tuple[Any, Any]:
    return _reduction(x) if isinstance(x, Tracer) else _reduce_alone(x)


def _reduction(x: Any) -> tuple[Any, Any]:
    """Mean, deviation, minimum and maximum; counts of NaN, infinite and zero elements, then of the histogram."""
    x = (jnp.abs(x) if jnp.iscomplexobj(x) else x).reshape(-1).astype(jnp.float32)
    shift = jnp.where(jnp.isfinite(x[0]), x[0], 0)  # keeps the deviation exact where the mean is far from zero
    if x.size < 2 * _LANES:
        sums = _added(x, shift)
    else:
        sums = jax.lax.platform_dependent(x, shift, cpu=_added_by_lanes, default=_added)
    total, square, low, high, zero, nan, inf = sums
    count = jnp.maximum(x.size - nan - inf, 1)
    mean = total / count
    deviation = jnp.sqrt(jnp.maximum(square / count - mean * mean, 0))
    empty = nan + inf == x.size
    figures = jnp.where(empty, jnp.nan, jnp.stack([mean + shift, deviation, low, high]))
    return figures, jnp.concatenate([jnp.stack([nan, inf, zero]), _histogram(x, low, high)])


def _parts(x: Any, shift: Any) -> tuple[Any, ...]:
    finite = jnp.isfinite(x)
    apart = jnp.where(finite, x - shift, 0)
    nan = jnp.isnan(x)
    return (
        apart, apart * apart, jnp.where(finite, x, jnp.inf), jnp.where(finite, x, -jnp.inf),
        (x == 0).astype(jnp.int32), nan.astype(jnp.int32), (~finite & ~nan).astype(jnp.int32),
    )  # fmt: skip


def _closed(parts: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(p.min() if i == 2 else p.max() if i == 3 else p.sum() for i, p in enumerate(parts))


def _added(x: Any, shift: Any) -> tuple[Any, ...]:
    return _closed(_parts(x, shift))


def _added_by_lanes(x: Any, shift: Any) -> tuple[Any, ...]:
    rows = x.size // _LANES

    def add(state: tuple[Any, ...], row: Any) -> tuple[Any, None]:
        return _joined(state, _parts(row, shift)), None

    first = _parts(x[:_LANES], shift)
    state, _ = jax.lax.scan(add, first, x[_LANES : rows * _LANES].reshape(rows - 1, _LANES))
    closed = _closed(state)
    return _joined(closed, _added(x[rows * _LANES :], shift)) if x.size % _LANES else closed


def _joined(a: tuple[Any, ...], b: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(
        jnp.minimum(p, q) if i == 2 else jnp.maximum(p, q) if i == 3 else p + q for i, (p, q) in enumerate(zip(a, b))
    )


def _histogram(x: Any, low: Any, high: Any) -> Any:
    sample = x[:: max(1, -(-x.size // SAMPLE))]
    width = jnp.where(high > low, high - low, 1)
    place = jnp.clip(((sample - low) / width * BINS).astype(jnp.int32), 0, BINS - 1)
    return jnp.zeros(BINS, jnp.int32).at[place].add(jnp.isfinite(sample).astype(jnp.int32))


# -- on the host -------------------------------------------------------------------------------------
def read_statistics(parts: Any) -> Statistics | None:
    """Make statistics of what came out of `reduce_tree` for one array; rows of `vmap` and `scan` are put together."""
    if isinstance(parts, Statistics):
        return parts
    if not isinstance(parts, (tuple, list)):
        return None
    if len(parts) == 2:
        return _read_whole(np.asarray(parts[0]))
    figures, counts, size = parts
    size = size.static.value if isinstance(size, Aside) else int(size)
    figures = np.asarray(figures, np.float64).reshape(-1, 4)
    counts = np.asarray(counts, np.int64).reshape(-1, 3 + BINS)
    finite = size - counts[:, 0] - counts[:, 1]
    rows = finite > 0
    total = size * len(counts)
    nan, inf, zero = (int(n) for n in counts[:, :3].sum(0))
    if not rows.any():
        return Statistics(total, math.nan, math.nan, math.nan, math.nan, zero / total, nan, inf, (0,) * BINS)
    mean, deviation, low, high = figures[rows].T
    weight = finite[rows] / finite[rows].sum()
    with np.errstate(all="ignore"):
        middle = float((weight * mean).sum())
        spread = float(np.sqrt((weight * (deviation**2 + (mean - middle) ** 2)).sum()))
    histogram = _put_together(counts[rows, 3:], low, high)
    return Statistics(total, middle, spread, float(low.min()), float(high.max()), zero / total, nan, inf, histogram)


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
