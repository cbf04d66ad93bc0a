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
    zeros: float
    """Share of elements that are exactly zero."""
    nan: int
    """Number of elements that are NaN, of all, also where the rest is of a sample."""
    inf: int
    """Number of infinite elements, likewise."""
    histogram: tuple[int, ...]
    """Counts of equal intervals from `min` to `max`, over a sample of larger arrays."""
    sampled: int = 0
    """Of how many elements mean, min, max, zeros and histogram are; 0 where they (all but the
    histogram) are of all.
    """

    @staticmethod
    def of(figures: Sequence[Any]) -> Statistics:
        """Statistics from a plain list of their figures."""
        return Statistics._make((*figures[:8], tuple(figures[8]), *(figures[9:] or (0,))))

    @property
    def nonfinite(self) -> int:
        """Number of elements that are NaN or infinite."""
        return self.nan + self.inf


def statistics_of_elements(x: np.ndarray) -> Statistics:
    """The statistics of all elements of an array of the host.

    Example:
        >>> statistics_of_elements(np.array([0.0, 2.0, np.nan])).mean
        1.0
    """
    wide = (np.abs(x) if np.iscomplexobj(x) else x).astype(np.float64).reshape(-1)
    finite = wide[np.isfinite(wide)]
    nan = int(np.isnan(wide).sum())
    zeros, inf = float((wide == 0).sum() / max(wide.size, 1)), wide.size - finite.size - nan
    if not finite.size:
        return without_values(wide.size, zeros, nan, inf)
    low, high = float(finite.min()), float(finite.max())
    mean, std = mean_and_deviation(finite, low, high)
    places = np.clip(place_between(finite, low, high) * BINS, 0, BINS - 1).astype(int)
    histogram = tuple(map(int, np.bincount(places, minlength=BINS)))
    return Statistics(wide.size, mean, std, low, high, zeros, nan, inf, histogram)


def exponent_of(low: float, high: float) -> int:
    """Return the power of two by which numbers of this range are divided before they are squared:
    squares then keep their digits, and sums of them are finite.
    """
    return math.frexp(max(-low, high))[1]


def mean_and_deviation(finite: np.ndarray, low: float, high: float) -> tuple[float, float]:
    """Mean and deviation of float64 numbers between `low` and `high`, also where their sum or their
    squares are none.

    Example:
        >>> mean_and_deviation(np.array([1e200, 3e200]), 1e200, 3e200)
        (2e+200, 1e+200)
    """
    if not high > low:  # the mean of equal numbers is off by a rounding
        return low, 0.0
    exponent = exponent_of(low, high)
    scaled = np.ldexp(finite, -exponent)
    return math.ldexp(float(scaled.mean()), exponent), math.ldexp(float(scaled.std()), exponent)


def place_between(x: Any, low: Any, high: Any) -> Any:
    """Return positions between `low` (0) and `high` (1), also where their distance overflows."""
    with np.errstate(all="ignore"):
        if np.any(np.isinf(high - low)):
            x, low, high = x / 2, low / 2, high / 2
        return (x - low) / np.where(high > low, high - low, 1)


def without_values(size: int, zeros: float, nan: int, inf: int) -> Statistics:
    """Return statistics without any finite element."""
    return Statistics(size, math.nan, math.nan, math.nan, math.nan, zeros, nan, inf, (0,) * BINS)


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
    mean, std, low, high = np.array([part[1:5] for part in existing], np.float64).T
    finite = np.array([max(part.size - part.nonfinite, 1) for part in existing], np.float64)
    middle, spread = joined_moments(finite, mean, std)
    sampled = 0
    if any(part.sampled for part in existing):
        sampled = sum(part.sampled or part.size for part in existing)
    counts = np.array([part.histogram for part in existing], np.float64)
    histogram = join_histograms(counts, low, high)
    ends = float(low.min()), float(high.max())
    return Statistics(size, middle, spread, *ends, zeros, nan, inf, histogram, sampled)


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


def join_histograms(counts: np.ndarray, low: np.ndarray, high: np.ndarray) -> tuple[int, ...]:
    """Histograms of several rows over their own intervals as one: each interval goes to where its
    middle lies.
    """
    bottom, top = low.min(), high.max()
    along = (np.arange(BINS) + 0.5) / BINS
    middles = low[:, None] * (1 - along) + high[:, None] * along
    places = np.clip(place_between(middles, bottom, top) * BINS, 0, BINS - 1).astype(int)
    result = np.bincount(places.reshape(-1), counts.reshape(-1), BINS)
    return tuple(map(int, result))
