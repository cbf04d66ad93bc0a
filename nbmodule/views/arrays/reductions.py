"""Mean, deviation, extremes, non-finite counts and a histogram that counts every element.

Arrays in host memory (also those of the CPU backend) are read in place, in blocks that fit the
cache; those of other devices are fetched together.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeGuard

import jax
import numpy as np

from nbmodule.base.statistics import exponent_of, joined_moments, place_between
from nbmodule.views.arrays.values import metadata_of, readable_numbers
from nbmodule.views.records.records import ShownStatistics

BINS = 32
# Elements that are read at once.
BLOCK = 1 << 16


def statistics_of(arrays: Sequence[Any], bins: int = BINS) -> list[ShownStatistics | None]:
    """Reduce each array to its statistics; None where there are no numbers to read.

    Example:
        >>> (s,) = statistics_of([np.array([1.0, 3.0, np.nan], "float32")])
        >>> s.mean, s.std, s.low, s.high, s.nan
        (2.0, 1.0, 1.0, 3.0, 1)
    """
    readable = [x for x in arrays if metadata_of(x).is_readable]
    fetched = iter(jax.device_get(readable))
    return [
        statistics_on_host(next(fetched), bins) if metadata_of(x).is_readable else None
        for x in arrays
    ]


def is_remote(x: object) -> TypeGuard[jax.Array]:
    """Return True if reading an array copies it from another device."""
    return isinstance(x, jax.Array) and any(d.platform != "cpu" for d in x.sharding.device_set)


def without_values(size: int, nan: int, inf: int) -> ShownStatistics:
    """Return the statistics of an array without a finite element."""
    return ShownStatistics(size, math.nan, math.nan, math.nan, math.nan, nan, inf)


# -- on the host --
class _Part(NamedTuple):
    """The sums of one block, over its finite elements."""

    elements: int
    total: float
    low: float
    high: float
    low_at: int
    high_at: int
    nan: int
    zero: int


def statistics_on_host(x: object, bins: int = BINS) -> ShownStatistics:
    """Reduce one array of the host.

    Args:
        x: Any array that holds numbers.
        bins: How many equal intervals the histogram has.

    Example:
        >>> s = statistics_on_host(np.array([0.0, 1.0, 1.0, 3.0], "float32"), bins=3)
        >>> s.bins, s.mean, s.zero, s.high_at
        ((1, 2, 1), 1.25, 1, (3,))
    """
    values = readable_numbers(x)
    flat = values.reshape(-1)
    parts = _each_block(_sums, flat)
    count, nan, zero = (
        sum(getattr(part, k) for part in parts) for k in ("elements", "nan", "zero")
    )
    inf = flat.size - count - nan
    if not count:
        return without_values(flat.size, nan, inf)
    lowest, highest = (
        min(parts, key=lambda part: part.low),
        max(parts, key=lambda part: part.high),
    )
    low, high = lowest.low, highest.high
    exponent = exponent_of(low, high)
    if exponent:  # so that no square and no sum is lost or infinite
        scaled = statistics_on_host(np.ldexp(flat.astype(np.float64), -exponent), bins)
        mean, std = (math.ldexp(part, exponent) for part in (scaled.mean, scaled.std))
        counts = scaled.bins
    else:
        mean = sum(part.total for part in parts) / count
        spread = functools.partial(_spread, mean=mean, low=low, high=high, bins=bins)
        squares, histograms = zip(*_each_block(spread, flat), strict=True)
        std, counts = (sum(squares) / count) ** 0.5, np.sum(histograms, axis=0).tolist()
    if not high > low:  # the mean of equal numbers is off by a rounding
        mean, std = low, 0.0
    low_at, high_at = (
        tuple(map(int, np.unravel_index(at, values.shape)))
        for at in (lowest.low_at, highest.high_at)
    )
    counts = tuple(counts)
    return ShownStatistics(flat.size, mean, std, low, high, nan, inf, zero, counts, low_at, high_at)


def _each_block(work: Callable[[np.ndarray, int], Any], flat: np.ndarray) -> list[Any]:
    """Return `work(block, offset)` for each block of an array."""
    with np.errstate(all="ignore"):
        return [
            work(flat[start : start + BLOCK].astype(np.float64), start)
            for start in range(0, flat.size, BLOCK)
        ]


def _sums(block: np.ndarray, start: int) -> _Part:
    zero = block.size - int(np.count_nonzero(block))
    low_at, high_at = int(block.argmin()), int(block.argmax())
    low, high, nan = float(block[low_at]), float(block[high_at]), 0
    if math.isfinite(low) and math.isfinite(high):  # then all elements are: NaN is its own minimum
        count, total = block.size, float(np.add.reduce(block))
    else:
        finite = np.isfinite(block)
        count, total = int(np.count_nonzero(finite)), float(block[finite].sum())
        nan = int(np.count_nonzero(np.isnan(block)))
        low_at = int(np.where(finite, block, np.inf).argmin())
        high_at = int(np.where(finite, block, -np.inf).argmax())
        low = float(block[low_at]) if count else math.inf
        high = float(block[high_at]) if count else -math.inf
    return _Part(count, total, low, high, start + low_at, start + high_at, nan, zero)


def _spread(
    block: np.ndarray, _: int, mean: float, low: float, high: float, bins: int
) -> tuple[float, np.ndarray]:
    """Return the sum of squares around the mean, and the histogram, of one block."""
    if not math.isfinite(float(np.add.reduce(block))):
        block = block[np.isfinite(block)]
    difference = block - mean
    square = float(np.add.reduce(np.square(difference, out=difference)))
    scale = bins / (high - low) if high > low else 0.0
    codes = np.multiply(np.subtract(block, low, out=difference), scale, out=difference)
    codes = codes.astype(np.int32)
    return square, np.bincount(np.minimum(codes, bins - 1), minlength=bins)


# -- several arrays --
def union_of(parts: Sequence[ShownStatistics]) -> ShownStatistics | None:
    """Join the statistics of several arrays, as of one.

    Mean, deviation, extremes and counts are exact; the elements of a bin are spread evenly.

    Example:
        >>> one = ShownStatistics(2, 0, 1, -1, 1, bins=(1, 1))
        >>> both = union_of([one, ShownStatistics(2, 4, 1, 3, 5, nan=1, bins=(1,))])
        >>> both[:6], both.bins
        ((4, 1.3333333333333333, 2.1343747458109497, -1, 5, 1), (2, 1))
    """
    parts = [part for part in parts if part.size]
    if not parts:
        return None
    size, nan, inf, zero = (
        sum(getattr(part, name) for part in parts) for name in ("size", "nan", "inf", "zero")
    )
    filled = [part for part in parts if part.bins and math.isfinite(part.mean)]
    if not filled:
        return without_values(size, nan, inf)._replace(zero=zero)
    weights = [part.size - part.nan - part.inf for part in filled]
    mean, std = joined_moments(weights, [p.mean for p in filled], [p.std for p in filled])
    low, high = min(part.low for part in filled), max(part.high for part in filled)
    counted = sum(sum(part.bins) for part in filled)
    bins = max(len(part.bins) for part in filled) if high > low else 1
    along = np.arange(1, bins) / bins
    edges = low * (1 - along) + high * along
    cumulated = np.sum([_cumulated(part, edges) for part in filled], axis=0)
    counts = np.diff(np.rint([0, *cumulated, counted])).astype(int)
    sampled = counted if any(part.sampled for part in parts) else 0
    return ShownStatistics(
        size, mean, std, low, high, nan, inf, zero, tuple(counts.tolist()), sampled=sampled
    )


def _cumulated(part: ShownStatistics, edges: np.ndarray) -> np.ndarray:
    """Return how many elements are less than each edge, those of a bin spread evenly."""
    counts = np.cumsum([0, *part.bins])
    if not part.high > part.low:
        return np.where(edges > part.low, counts[-1], 0)
    places = place_between(edges, part.low, part.high) * len(part.bins)
    return np.interp(places, np.arange(len(counts)), counts)
