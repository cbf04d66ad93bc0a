"""Mean, deviation, extremes, non-finite counts and a histogram that counts every element.

Arrays in host memory (also those of the CPU backend) are read in place; those of other devices are
fetched together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeGuard

import jax
import numpy as np

from nbmodule.base.statistics import exponent_of, joined_moments, place_between
from nbmodule.views.arrays.values import metadata_of, readable_numbers
from nbmodule.views.records.records import ShownStatistics

BINS = 32


def statistics_of(arrays: Sequence[Any]) -> list[ShownStatistics | None]:
    """Reduce each array to its statistics; None where there are no numbers to read.

    Example:
        >>> (s,) = statistics_of([np.array([1.0, 3.0, np.nan], "float32")])
        >>> s.mean, s.std, s.low, s.high, s.nan
        (2.0, 1.0, 1.0, 3.0, 1)
    """
    readable = [x for x in arrays if metadata_of(x).is_readable]
    fetched = iter(jax.device_get(readable))
    return [
        statistics_on_host(next(fetched)) if metadata_of(x).is_readable else None for x in arrays
    ]


def is_remote(x: object) -> TypeGuard[jax.Array]:
    """Return True if reading an array copies it from another device."""
    return isinstance(x, jax.Array) and any(d.platform != "cpu" for d in x.sharding.device_set)


def without_values(size: int, nan: int, inf: int) -> ShownStatistics:
    """Return the statistics of an array without a finite element."""
    return ShownStatistics(size, math.nan, math.nan, math.nan, math.nan, nan, inf)


def statistics_on_host(x: object) -> ShownStatistics:
    """Reduce one array of numbers of the host.

    Example:
        >>> s = statistics_on_host(np.array([0.0, 1.0, 1.0, 3.0], "float32"))
        >>> s.mean, s.zero, s.high_at, sum(s.bins)
        (1.25, 1, (3,), 4)
    """
    values = readable_numbers(x)
    flat = values.reshape(-1)
    flat = flat if flat.dtype.kind == "f" else flat.astype(np.float64)
    finite = np.isfinite(flat)
    count, nan = int(np.count_nonzero(finite)), int(np.count_nonzero(np.isnan(flat)))
    inf, zero = flat.size - count - nan, flat.size - int(np.count_nonzero(flat))
    if not count:
        return without_values(flat.size, nan, inf)
    numbers = flat if count == flat.size else flat[finite]
    ends = [int(numbers.argmin()), int(numbers.argmax())]
    low, high = (float(numbers[end]) for end in ends)
    if count < flat.size:
        ends = np.flatnonzero(finite)[ends]
    mean, std, counts = low, 0.0, [count, *[0] * (BINS - 1)]
    if high > low:  # the mean of equal numbers would be off by a rounding
        exponent = exponent_of(low, high)  # so that no square and no sum is lost or infinite
        numbers = np.ldexp(numbers.astype(np.float64), -exponent)
        mean, std = (math.ldexp(float(x), exponent) for x in (numbers.mean(), numbers.std()))
        reach = (math.ldexp(low, -exponent), math.ldexp(high, -exponent))
        counts = np.histogram(numbers, BINS, reach)[0].tolist()
    low_at, high_at = (tuple(map(int, np.unravel_index(end, values.shape))) for end in ends)
    bins = tuple(counts)
    return ShownStatistics(flat.size, mean, std, low, high, nan, inf, zero, bins, low_at, high_at)


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
