"""An array in numbers: one record, made from its elements on the host, and put together from those
of several arrays.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

BINS = 16


class Statistics(NamedTuple):
    """An array in numbers. Mean to max are over the finite elements, NaN where there are none."""

    size: int
    mean: float
    std: float
    """So that `mean**2 + std**2` is the mean square of all finite elements, also where the mean is
    of a sample.
    """
    min: float
    max: float
    zeros: float = 0.0
    """Share of elements that are exactly zero."""
    nan: int = 0
    """Number of elements that are NaN, of all, also where the rest is of a sample."""
    inf: int = 0
    """Number of infinite elements, likewise."""
    histogram: tuple[int, ...] = ()
    """Counts of equal intervals from `min` to `max`, over a sample of larger arrays; empty where no
    element is finite.
    """
    sampled: int = 0
    """Of how many elements mean, min, max, zeros and histogram are; 0 where they (all but the
    histogram) are of all.
    """
    min_at: tuple[int, ...] | None = None
    max_at: tuple[int, ...] | None = None
    """Indices of the first lowest and highest element, where they were looked for."""

    @staticmethod
    def of(figures: Sequence[Any]) -> Statistics:
        """Statistics from a plain list of their figures."""
        sampled = (*figures[9:10], 0)[0]  # older files lack it
        return Statistics._make((*figures[:8], tuple(figures[8]), sampled, None, None))

    @property
    def nonfinite(self) -> int:
        """Number of elements that are NaN or infinite."""
        return self.nan + self.inf

    @property
    def zero_count(self) -> int:
        """Number of elements that are zero; of a sample, never all if others differ."""
        count = round(self.zeros * self.size)
        return min(count, self.size - 1) if self.sampled and self.std > 0 else count


def statistics_of_elements(x: np.ndarray, bins: int = BINS, *, places: bool = False) -> Statistics:
    """The statistics of all elements of an array of the host; of complex ones, of their sizes.

    Args:
        x: Numbers.
        bins: Number of intervals of the histogram.
        places: Whether the indices of the extremes are found, too.

    Example:
        >>> s = statistics_of_elements(np.array([0.0, 2.0, np.nan]), places=True)
        >>> s.mean, s.zero_count, s.max_at
        (1.0, 1, (1,))
    """
    flat = (np.abs(x) if np.iscomplexobj(x) else x).reshape(-1)
    flat = flat if flat.dtype.kind == "f" else flat.astype(np.float64)
    is_finite = np.isfinite(flat)
    count, nan = int(np.count_nonzero(is_finite)), int(np.count_nonzero(np.isnan(flat)))
    inf = flat.size - count - nan
    zeros = int(np.count_nonzero(flat == 0)) / max(flat.size, 1)
    if not count:
        return without_values(flat.size, zeros, nan, inf)
    finite = flat if count == flat.size else flat[is_finite]
    ends = [int(finite.argmin()), int(finite.argmax())]
    low, high = (float(finite[end]) for end in ends)
    mean, std, counts = low, 0.0, [count, *[0] * (bins - 1)]
    if high > low:  # the mean of equal numbers is off by a rounding
        exponent = exponent_of(low, high)
        scaled = np.multiply(finite, math.ldexp(1.0, -exponent), dtype=np.float64)
        reach = (math.ldexp(low, -exponent), math.ldexp(high, -exponent))
        # The counts of np.histogram, which finds the interval of each element: ten times slower.
        below = [
            int(np.count_nonzero(scaled < edge)) for edge in np.linspace(*reach, bins + 1)[1:-1]
        ]
        counts = np.diff([0, *below, count]).tolist()
        middle = scaled.mean()
        scaled -= middle  # in place: a new array for each step would take most of the time
        spread = math.sqrt(np.square(scaled, out=scaled).mean())
        mean, std = (math.ldexp(float(y), exponent) for y in (middle, spread))
    result = Statistics(flat.size, mean, std, low, high, zeros, nan, inf, tuple(counts))
    if not places:
        return result
    ends = ends if count == flat.size else np.flatnonzero(is_finite)[ends].tolist()
    min_at, max_at = (tuple(map(int, np.unravel_index(end, x.shape))) for end in ends)
    return result._replace(min_at=min_at, max_at=max_at)


def exponent_of(low: float, high: float) -> int:
    """Return the power of two by which numbers of this range are divided before they are squared:
    squares then keep their digits, and sums of them are finite. So is the inverse of the power.
    """
    return max(math.frexp(max(-low, high))[1], -1022)


def place_between(x: Any, low: Any, high: Any) -> Any:
    """Return positions between `low` (0) and `high` (1), also where their distance overflows."""
    with np.errstate(all="ignore"):
        if np.any(np.isinf(high - low)):
            x, low, high = x / 2, low / 2, high / 2
        return (x - low) / np.where(high > low, high - low, 1)


def without_values(size: int, zeros: float, nan: int, inf: int) -> Statistics:
    """Return statistics without any finite element."""
    return Statistics(size, math.nan, math.nan, math.nan, math.nan, zeros, nan, inf)


def join_statistics(parts: Sequence[Statistics]) -> Statistics:
    """The statistics of several arrays as one; of which each counts by its finite elements.

    Example:
        >>> both = join_statistics(
        ...     [
        ...         statistics_of_elements(np.array([1.0, 3.0])),
        ...         statistics_of_elements(np.array([5.0])),
        ...     ]
        ... )
        >>> both.size, both.mean, both.max
        (3, 3.0, 5.0)
    """
    if len(parts) == 1:
        return parts[0]
    size, nan, inf = (sum(getattr(part, name) for part in parts) for name in ("size", "nan", "inf"))
    zeros = sum(part.zeros * part.size for part in parts) / max(size, 1)
    existing = [part for part in parts if not math.isnan(part.mean)]
    if not existing:
        return without_values(size, zeros, nan, inf)
    weights = [max(part.size - part.nonfinite, 1) for part in existing]
    means, deviations = [part.mean for part in existing], [part.std for part in existing]
    mean, std = joined_moments(weights, means, deviations)
    low, high = min(part.min for part in existing), max(part.max for part in existing)
    sampled = 0
    if any(part.sampled for part in existing):
        sampled = sum(part.sampled or part.size for part in existing)
    histogram = join_histograms(existing, low, high)
    return Statistics(size, mean, std, low, high, zeros, nan, inf, histogram, sampled)


def joined_moments(weight: Any, mean: Any, std: Any) -> tuple[float, float]:
    """Mean and deviation of several arrays as one, each of so many elements.

    Example:
        >>> joined_moments([1, 1], [0.0, 2e200], [0.0, 0.0])
        (1e+200, 1e+200)
    """
    weight, mean, std = (np.asarray(x, np.float64) for x in (weight, mean, std))
    exponent = exponent_of(0.0, float(max(np.abs(mean).max(), std.max())))
    weight, mean, std = weight / weight.sum(), np.ldexp(mean, -exponent), np.ldexp(std, -exponent)
    with np.errstate(all="ignore"):
        middle = float(weight @ mean)
        spread = float(np.sqrt(weight @ (std**2 + (mean - middle) ** 2)))
    return math.ldexp(middle, exponent), math.ldexp(spread, exponent)


def join_histograms(parts: Sequence[Statistics], low: float, high: float) -> tuple[int, ...]:
    """Histograms over their own intervals as one from `low` to `high`; the elements of an interval
    are spread evenly.
    """
    bins, total = max(len(p.histogram) for p in parts), sum(sum(p.histogram) for p in parts)
    if not high > low:
        return (total, *[0] * (bins - 1))
    along = np.arange(1, bins) / bins
    edges = low * (1 - along) + high * along
    below = np.sum([_count_below(part, edges) for part in parts], axis=0)
    return tuple(np.diff(np.rint([0, *below, total])).astype(int).tolist())


def _count_below(part: Statistics, edges: np.ndarray) -> np.ndarray:
    counts = np.cumsum([0, *part.histogram])
    if not part.max > part.min:
        return np.where(edges > part.min, counts[-1], 0)
    places = place_between(edges, part.min, part.max) * len(part.histogram)
    return np.interp(places, np.arange(len(counts)), counts)
