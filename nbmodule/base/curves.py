"""Points of a series over steps, and their reduction to a drawing."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Curve(NamedTuple):
    """Points of one series: `steps` (whole numbers) and `values` (float32 or float64) of one
    length.
    """

    steps: NDArray[np.integer]
    values: NDArray[np.floating]


def reduce_curve(curve: Curve, columns: int) -> Curve:
    """Reduce a curve to what a drawing of `columns` pixel columns can show.

    The lowest, the highest and the first non-finite point of each column are kept, and the first
    and last of the curve, so that a drawing looks the same. A short curve is returned unchanged.

    Example:
        >>> full = Curve(np.arange(100_000), np.sin(np.arange(100_000) / 1e4))
        >>> len(reduce_curve(full, 300).steps) <= 902
        True
    """
    steps, values = curve
    if len(steps) <= 2 * columns:
        return curve
    order = np.argsort(steps, kind="stable") if (np.diff(steps) < 0).any() else None
    if order is not None:
        steps, values = steps[order], values[order]
    span = (steps[-1] - steps[0]) or 1
    column = np.minimum((steps - steps[0]) / span * columns, columns - 1).astype(np.int64)
    starts = np.flatnonzero(np.diff(column, prepend=-1))
    finite = np.isfinite(values)
    is_kept = np.zeros(len(values), bool)
    is_kept[[0, -1]] = True
    for reduce, filler in ((np.minimum, np.inf), (np.maximum, -np.inf)):
        filled = values if finite.all() else np.where(finite, values, filler)
        extreme = np.repeat(reduce.reduceat(filled, starts), np.diff(starts, append=len(values)))
        is_kept |= _first_of_each(filled == extreme, starts) & finite
    if not finite.all():
        is_kept |= _first_of_each(~finite, starts)
    return Curve(steps[is_kept], values[is_kept])


def _first_of_each(mask: NDArray[np.bool_], starts: NDArray[np.integer]) -> NDArray[np.bool_]:
    """Keep the first True after each start and before the next."""
    counts = np.cumsum(mask)
    before = np.repeat(counts[starts] - mask[starts], np.diff(starts, append=len(mask)))
    return mask & (counts - before == 1)
