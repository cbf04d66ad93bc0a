"""The best point of a logged series: to keep the model's state there, and to stop without one."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from nbmodule.base.format import is_better_when_higher
from nbmodule.errors import ArgumentError
from nbmodule.live.run.history import History


class Best(NamedTuple):
    """The best point of a series, with the model's state there."""

    step: int
    value: float
    state: dict[str, Any]


def improves(series: str, value: float, best: Best | None) -> bool:
    """Return True if a value of a series is better than the best so far; NaN never is."""
    if math.isnan(value) or best is None:
        return not math.isnan(value)
    return value > best.value if is_better_when_higher(series) else value < best.value


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
    if isinstance(patience, bool) or not isinstance(patience, int) or patience < 1:
        raise ArgumentError(f"patience must be a number of points from 1, got {patience!r}.")
    sign = -1.0 if is_better_when_higher(series) else 1.0

    def has_not_improved(history: History) -> bool:
        if series not in history:
            return False
        values = sign * history[series].values.astype(np.float64)
        values = np.where(np.isfinite(values), values, np.inf)
        if len(values) <= patience:
            return False
        return bool(values[-patience:].min() > values[:-patience].min() - max(least, 1e-300))

    return has_not_improved
