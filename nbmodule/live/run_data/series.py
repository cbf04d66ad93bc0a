"""One number over the steps: kept compactly, reduced to a drawing; its best point, its outliers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np
from numpy.typing import ArrayLike, NDArray

from nbmodule.base.curves import Curve
from nbmodule.base.format import (
    count_noun,
    format_count,
    format_number,
    group_of,
    is_better_when_higher,
    printable_repr,
)
from nbmodule.base.kinds import is_whole
from nbmodule.errors import ArgumentError

if TYPE_CHECKING:
    from jax.typing import DTypeLike

    from nbmodule.live.run_data.history import History

_FIRST_ROOM = 64
MOST_OUTLIERS = 8
WINDOW = 64
"""Losses before a step that its loss is compared with."""
PART = 16
"""Losses that are compared with the same earlier ones."""
_FAR = 8.0
"""Deviations (of the median, scaled as a standard deviation) from which a loss is an outlier."""
_LARGER = 1.25
"""How many times the median an outlier is at least."""


class Series:
    """One logged number over the steps.

    Points are kept in two arrays that grow by half their length: 12 bytes for a point that was
    logged as float32, 16 for a Python number (float64). Steps are whole numbers in the order in
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
        self.best: tuple[int, float] | None = None
        """Step and value of the best point: the smallest, for the name of a score the largest."""
        self.first_nonfinite: tuple[int, float] | None = None
        """Step and value of the first point that is not finite; None if all are."""
        self._steps: NDArray[Any] = np.empty(0, np.int64)
        self._values: NDArray[Any] = np.empty(0, np.float32)

    def extend(self, steps: ArrayLike, values: ArrayLike) -> None:
        """Add points; the values become float64 unless all so far are float32 or smaller."""
        new_steps, new_values = np.asarray(steps, np.int64), np.asarray(values)
        if new_values.dtype.kind != "f" or new_values.dtype.itemsize > 4:
            new_values = new_values.astype(np.float64, copy=False)
        if not len(new_steps):
            return
        begin, end = self._size, self._size + len(new_steps)
        self._steps = _with_room(self._steps, end, np.int64)
        self._values = _with_room(self._values, end, new_values.dtype)
        self._steps[begin:end], self._values[begin:end] = new_steps, new_values
        self._size = end
        self._note_best(new_steps, new_values)

    def cut(self, step: int) -> None:
        """Forget the points of this step and later ones."""
        steps, values = self.since(0)
        is_early = steps < step
        self._steps, self._values = steps[is_early], values[is_early]
        self._size, self.best, self.first_nonfinite = len(self._steps), None, None
        self._note_best(*self.since(0))

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

    def _note_best(self, steps: NDArray[Any], values: NDArray[Any]) -> None:
        finite = np.isfinite(values)
        if self.first_nonfinite is None and not finite.all():
            first = int(finite.argmin())
            self.first_nonfinite = int(steps[first]), float(values[first])
        if not finite.any():
            return
        sign = 1.0 if is_better_when_higher(self.name) else -1.0
        i = int(np.where(finite, sign * values, -np.inf).argmax())
        value = float(values[i])
        if self.best is None or sign * value > sign * self.best[1]:
            self.best = int(steps[i]), value

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


def _with_room(array: NDArray[Any], needed: int, dtype: DTypeLike) -> NDArray[Any]:
    """Return an array with room for `needed` items and a dtype that holds both."""
    dtype = np.promote_types(array.dtype, dtype)
    if needed <= len(array) and dtype == array.dtype:
        return array
    grown = np.empty(max(_FIRST_ROOM, needed + needed // 2), dtype)
    grown[: len(array)] = array
    return grown


# -- the best point --


class Best(NamedTuple):
    """The best point of a series, with the model's state there."""

    step: int
    value: float
    state: dict[str, Any]


def no_improvement(
    series: str, *, patience: int = 10, least: float = 0.0
) -> Callable[[History], bool]:
    """Return a condition for `live.stop_when`: a series has not improved for some of its points.

    Args:
        series: Name of the series, such as `val_loss`. Scores (accuracy, F1) improve upward.
        patience: Points of the series without improvement after which the loop ends.
        least: Smallest change that counts as an improvement, in units of the series.

    Raises:
        ArgumentError: If `patience` is less than 1.

    Example:
        >>> import nbmodule as nb
        >>> with nb.Live(display=False) as live:
        ...     live.stop_when(nb.no_improvement("val_loss", patience=3)) and None
        ...     for i in live.steps(range(100)):
        ...         live.log(val_loss=max(5.0 - i, 0.0))
        >>> live.step
        9
    """
    if not is_whole(patience) or patience < 1:
        raise ArgumentError(f"patience must be at least 1 (points), got {patience!r}.")
    sign = -1.0 if is_better_when_higher(series) else 1.0

    def has_not_improved(history: History) -> bool:
        if series not in history:
            return False
        values = sign * history[series].since(0).values.astype(np.float64)
        values = np.where(np.isfinite(values), values, np.inf)
        if len(values) <= patience:
            return False
        return bool(values[-patience:].min() > values[:-patience].min() - max(least, 1e-300))

    return has_not_improved


# -- steps that stand out --


class Outlier(NamedTuple):
    """A step whose loss stands out, and its batch."""

    step: int
    loss: float
    usual: float
    """The median of the losses before it."""
    batch: Any

    @printable_repr
    def __repr__(self) -> str:
        loss, usual = format_number(self.loss), format_number(self.usual)
        return f"Outlier(step {format_count(self.step)}, loss {loss}, usual {usual})"


def _usual(before: Any) -> tuple[float, float]:
    """Return the median of losses, and the largest value that does not stand out."""
    before = before[np.isfinite(before)]
    middle = float(np.median(before)) if len(before) else math.nan
    if len(before) < PART // 2:
        return middle, math.inf
    spread = 1.4826 * float(np.median(np.abs(before - middle)))
    return middle, max(middle + _FAR * spread, middle + (_LARGER - 1) * abs(middle))


class Outliers(list[Outlier]):
    """The worst steps of a run.

    Args:
        room: Bytes that their batches may take; that of the worst step is always kept.

    Example:
        >>> from nbmodule.live.run_data.history import History
        >>> history = History()
        >>> for step in range(1, 40):
        ...     history.add(step, {"loss": 50.0 if step == 30 else 1.0 + step % 3 / 10})
        >>> outliers = Outliers()
        >>> for outlier in outliers.look(history):
        ...     outliers.keep(outlier, "its batch")
        >>> outliers
        1 step stands out: Outlier(step 30, loss 50, usual 1.1)
    """

    def __init__(self, room: int = 2**62) -> None:
        super().__init__()
        self._room = room
        self.is_over = False
        """True when the run is over: the first losses are then judged, however few they are."""
        self._judged = -(2**62)
        """The last step that was judged."""

    def look(self, history: History) -> list[Outlier]:
        """Return the steps that stand out among those since the last call, without batches.

        Losses are compared in parts of fixed positions, so that the result does not depend on when
        this is called.
        """
        name = next((s.name for s in history if is_training_loss(s.name)), None)
        if name is None:
            return []
        steps, values = history[name].since(0)
        if not len(values) or (len(values) < PART and not self.is_over):
            return []
        new: list[Outlier] = []
        first = int(np.searchsorted(steps, self._judged, "right"))
        for start in range(first - first % PART, len(values), PART):
            begin = max(start, first)
            part = values[begin : start + PART]
            # the first ones have none before them: they are compared with each other
            usual, limit = _usual(values[max(start - WINDOW, 0) : start or PART])
            finite = np.isfinite([values[begin - 1] if begin else 0.0, *part])
            # of losses that are not finite only the first: later ones were made from it
            for i in np.flatnonzero((finite[:-1] & ~finite[1:]) | (part > limit)).tolist():
                new.append(Outlier(int(steps[begin + i]), float(part[i]), usual, None))
        self._judged = int(steps[-1])
        return sorted(sorted(new, key=_badness)[:MOST_OUTLIERS])

    def keep(self, outlier: Outlier, batch: object) -> None:
        """Keep a step that stands out with its batch, if it is one of the worst."""
        self[:] = sorted([*self, outlier._replace(batch=batch)], key=_badness)[:MOST_OUTLIERS]
        while len(self) > 1 and self.nbytes > self._room:
            self.pop()

    @property
    def nbytes(self) -> int:
        """Bytes of their batches."""
        leaves: list[Any] = jax.tree.leaves([each.batch for each in self])
        return sum({id(leaf): getattr(leaf, "nbytes", 0) for leaf in leaves}.values())

    def cut(self, step: int) -> None:
        """Forget this step and later ones."""
        self[:] = [each for each in self if each.step < step]
        self._judged = min(self._judged, step - 1)

    @printable_repr
    def __repr__(self) -> str:
        count = len(self)
        verb, rows = "stands" if count == 1 else "stand", ", ".join(map(repr, self))
        return f"{count_noun(count, 'step')} {verb} out: {rows}" if count else "no step stands out"


def _badness(outlier: Outlier) -> tuple[bool, float]:
    """Sort key: not finite first, then furthest from the usual."""
    finite = math.isfinite(outlier.loss)
    return finite, -(outlier.loss - outlier.usual) if finite else 0.0


def is_training_loss(name: str) -> bool:
    """Return True for the name of a loss of the training."""
    group, role = group_of(name)
    return role == "train" and group.lower().endswith("loss")
