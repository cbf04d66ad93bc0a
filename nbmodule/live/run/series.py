"""Holds one number over the steps, compactly, and reduces it to what a drawing can show."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nbmodule.base.format import is_better_when_higher

if TYPE_CHECKING:
    from jax.typing import DTypeLike

_FIRST_ROOM = 64


class Curve(NamedTuple):
    """Points of one series: `steps` (whole numbers) and `values` (float32 or float64) of one
    length.
    """

    steps: NDArray[np.integer]
    values: NDArray[np.floating]


class Series:
    """One logged number over the steps.

    Points are kept in two arrays that grow by half their length: 8 bytes for a point that was
    logged as float32, 12 for a Python number (float64). Steps are whole numbers in the order in
    which they were logged.

    Example:
        >>> loss = Series("loss")
        >>> loss.extend([1, 2, 3], [0.5, 0.25, 0.125])
        >>> len(loss), loss.last, loss.best
        (3, 0.125, (3, 0.125))
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._size = 0
        self._higher = is_better_when_higher(name)
        self._best: tuple[int, float] | None = None
        self._first_nonfinite: tuple[int, float] | None = None
        self._steps: NDArray[Any] = np.empty(0, np.int32)
        self._values: NDArray[Any] = np.empty(0, np.float32)

    def extend(self, steps: ArrayLike, values: ArrayLike) -> None:
        """Add points; the values become float64 unless all so far are float32 or smaller."""
        new_steps, new_values = np.asarray(steps, np.int64), np.asarray(values)
        if new_values.dtype.kind != "f" or new_values.dtype.itemsize > 4:
            new_values = new_values.astype(np.float64, copy=False)
        count = len(new_steps)
        if not count:
            return
        end = self._size + count
        step_type = np.int64 if max(new_steps.max(), -new_steps.min()) > 2**31 - 1 else np.int32
        self._steps = _with_room(self._steps, self._size, end, step_type)
        self._values = _with_room(self._values, self._size, end, new_values.dtype)
        self._steps[self._size : end] = new_steps
        self._values[self._size : end] = new_values
        self._size = end
        self._note_best(new_steps, new_values)

    def cut(self, step: int) -> None:
        """Forget the points of this step and later ones."""
        steps, values = self.since(0)
        is_early = steps < step
        steps, values = steps[is_early], values[is_early]
        self._size, self._best, self._first_nonfinite = len(steps), None, None
        self._steps, self._values = steps, values
        if self._size:
            self._note_best(steps, values)

    def since(self, position: int) -> Curve:
        """Return the points from a position on, as views."""
        end = self._size
        return Curve(self._steps[position:end], self._values[position:end])

    @property
    def steps(self) -> NDArray[np.integer]:
        """The steps, as a copy."""
        return self.since(0).steps.copy()

    @property
    def values(self) -> NDArray[np.floating]:
        """The values, as a copy."""
        return self.since(0).values.copy()

    @property
    def last(self) -> float:
        """The newest value, NaN before there is one."""
        return float(self._values[self._size - 1]) if self._size else math.nan

    @property
    def best(self) -> tuple[int, float] | None:
        """Step and value of the best point: the smallest, for the name of a score the largest."""
        return self._best

    @property
    def first_nonfinite(self) -> tuple[int, float] | None:
        """Step and value of the first point that is not finite; None if all are."""
        return self._first_nonfinite

    def _note_best(self, steps: NDArray[Any], values: NDArray[Any]) -> None:
        finite = np.isfinite(values)
        if self._first_nonfinite is None and not finite.all():
            first = int(finite.argmin())
            self._first_nonfinite = int(steps[first]), float(values[first])
        if not finite.any():
            return
        sign = 1.0 if self._higher else -1.0
        i = int(np.where(finite, sign * values, -np.inf).argmax())
        value = float(values[i])
        if self._best is None or sign * value > sign * self._best[1]:
            self._best = int(steps[i]), value

    @property
    def nbytes(self) -> int:
        """Memory held, in bytes."""
        return self._steps.nbytes + self._values.nbytes

    def __len__(self) -> int:
        return self._size

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.since(0).values, dtype=dtype)

    def __repr__(self) -> str:
        return f"Series({self.name!r}, {self._size:,} points, last {self.last:.4g})"


def _with_room(array: NDArray[Any], size: int, needed: int, dtype: DTypeLike) -> NDArray[Any]:
    """Return an array with room for `needed` items and a dtype that holds both."""
    dtype = np.promote_types(array.dtype, dtype)
    if dtype.itemsize < 4:
        dtype = np.dtype(np.float32)
    if needed <= len(array) and dtype == array.dtype:
        return array
    room = (
        len(array)
        if needed <= len(array)
        else max(_FIRST_ROOM, needed, len(array) + len(array) // 2)
    )
    grown = np.empty(room, dtype)
    grown[:size] = array[:size]
    return grown


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
    first, span = steps[0], max(int(steps[-1]) - int(steps[0]), 1)
    column = (
        np.minimum((steps - first) * columns // span, columns - 1)
        if span < 2**62 // columns
        else None
    )
    if column is None:
        column = ((steps - first) / span * columns).astype(np.int64).clip(0, columns - 1)
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
