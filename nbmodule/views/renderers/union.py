"""The statistics of several arrays as if they were one: what a folded row says of the rows within
it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from nbmodule.base.statistics import joined_moments, place_between
from nbmodule.views.records.records import ShownStatistics


def union_of(parts: Sequence[ShownStatistics]) -> ShownStatistics | None:
    """Join statistics. Mean, deviation, extremes and counts are exact; each bin is spread evenly
    over the new ones.

    Example:
        >>> one, other = ShownStatistics(2, 0, 1, -1, 1, bins=(1, 1)), ShownStatistics(2, 4, 1, 3, 5, nan=1, bins=(1,))
        >>> union_of([one, other])[:6], union_of([one, other]).bins
        ((4, 1.3333333333333333, 2.1343747458109497, -1, 5, 1), (2, 1))
    """
    parts = [part for part in parts if part.size]
    if not parts:
        return None
    counts = [sum(part.bins) for part in parts]
    filled = [
        (part, n) for part, n in zip(parts, counts, strict=True) if n and math.isfinite(part.mean)
    ]
    size, nan, inf, zero = (
        sum(getattr(part, name) for part in parts) for name in ("size", "nan", "inf", "zero")
    )
    if not filled:
        return ShownStatistics(size, math.nan, math.nan, math.nan, math.nan, nan, inf, zero)
    weights = [
        part.size - part.nan - part.inf for part, _ in filled
    ]  # of which a sample may have been binned
    mean, std = joined_moments(
        weights, [part.mean for part, _ in filled], [part.std for part, _ in filled]
    )
    low, high = min(part.low for part, _ in filled), max(part.high for part, _ in filled)
    sampled = sum(n for _, n in filled) if any(part.sampled for part in parts) else 0
    bins = _rebinned(
        [part for part, _ in filled], low, high, max(len(part.bins) for part, _ in filled)
    )
    return ShownStatistics(size, mean, std, low, high, nan, inf, zero, bins, sampled=sampled)


def _rebinned(
    parts: Sequence[ShownStatistics], low: float, high: float, count: int
) -> tuple[int, ...]:
    """Counts of the new bins: differences of how many elements lie below each edge, so that none is
    lost.
    """
    if not high > low:
        return (sum(sum(part.bins) for part in parts),)
    edges = [low * (1 - k / count) + high * (k / count) for k in range(1, count)]
    below = [
        0,
        *(round(sum(_below(part, edge) for part in parts)) for edge in edges),
        sum(sum(p.bins) for p in parts),
    ]
    return tuple(b - a for a, b in zip(below, below[1:], strict=False))


def _below(part: ShownStatistics, edge: float) -> float:
    """How many elements of one part lie below an edge, those of a bin spread evenly."""
    if edge >= part.high:
        return sum(part.bins)
    if edge <= part.low:
        return 0.0
    at = float(place_between(edge, part.low, part.high)) * len(part.bins)
    whole = min(int(at), len(part.bins) - 1)
    return sum(part.bins[:whole]) + (at - whole) * part.bins[whole]
