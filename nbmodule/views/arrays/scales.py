"""How values become one byte per cell: the scales of pictures, and the bytes of values that are not
finite.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

import numpy as np

from nbmodule.views.arrays.values import is_integer

MOST_CLASSES = 10
NAN, PLUS, MINUS, FIRST, LAST = 0, 1, 2, 3, 255
LIMIT = 0.995
DEEPEST = 1e-8
"""The foot of a logarithmic scale, as a share of the largest size, where the sizes reach farther down than that."""
SCALES = ("", "range", "log", "tiles")
"""What a reader can choose: symmetric around zero (or from zero), lowest to highest, logarithmic, each tile by itself."""


class Coded(NamedTuple):
    """Values as bytes, and what the bytes mean."""

    data: bytes
    scale: str
    """'signed', 'positive', 'classes', 'range', 'log' or 'logsigned'; see `Picture`."""
    limits: tuple[float, float]
    classes: tuple[str, ...] = ()
    clipped: int = 0
    """Cells beyond the limits, those in `extremes` left out: they are marked."""
    ends: tuple[float, ...] = ()
    """The end of the scale of each tile, where each has its own."""


def quantize(
    values: np.ndarray,
    bad: np.ndarray,
    dtype: Any,
    limit: float | None = None,
    extremes: Collection[int] = (),
    signed: bool = False,
    scale: str = "",
    low: float | None = None,
) -> Coded:
    """Give each cell one byte.

    Args:
        values: `[tile, row, column]`.
        bad: 0 where a value is finite, else 1 NaN, 2 +Inf, 3 -Inf.
        dtype: Of the array: few integers get separate colors.
        limit: The end of the scale, by default that of 99.5 % of the sizes; of 'range' and 'log'
            the highest.
        extremes: Cells that are marked, which do not count as clipped.
        signed: Whether the scale has a negative half though nothing is negative.
        scale: One of `SCALES`.
        low: The beginning of the scale 'range'.

    Example:
        >>> x = np.array([[[-3.0, 0.0, 1.0]]])
        >>> coded = quantize(x, np.zeros(x.shape), x.dtype, scale='range')
        >>> list(coded.data), coded.limits
        ([3, 192, 255], (-3.0, 1.0))
    """
    finite = values[bad == 0] if bad.any() else values.reshape(-1)
    classes = None if scale else _classes(finite, dtype)
    if classes is not None:
        code = np.searchsorted(classes, values) + FIRST
        limits = (float(classes[0]), float(classes[-1])) if classes.size else (0.0, 0.0)
        names = tuple(str(bool(c)) if dtype == np.bool_ else str(int(c)) for c in classes)
        return Coded(with_marks(code, bad), "classes", limits, names)
    if not finite.size:
        return Coded(with_marks(np.full(values.shape, FIRST), bad), "positive", (0.0, 0.0))
    if scale == "range":
        return _from_low_to_high(values, bad, finite, low, limit)
    if scale == "log":
        return _logarithmic(values, bad, finite, limit)
    if scale == "tiles" and len(values) > 1:
        ends = np.array(
            [_rounded(most_of(tile[wrong == 0])) for tile, wrong in zip(values, bad, strict=True)]
        )
    else:
        ends = np.array([_rounded(limit or most_of(finite))])
    return _around_zero(values, bad, finite, ends, extremes, signed)


def most_of(finite: np.ndarray) -> float:
    """Return the size below which 99.5 % of the values lie; the largest of few values, or if it is 0."""
    size = np.abs(finite)
    if not size.size:
        return 0.0
    few = size.size * (1 - LIMIT) < 1  # the share that may be clipped is less than one value
    return float(size.max()) if few else float(np.quantile(size, LIMIT)) or float(size.max())


def with_marks(code: np.ndarray, bad: np.ndarray) -> bytes:
    """The bytes of cells, those of what is not finite in their place."""
    code = code.astype(np.uint8)
    if bad.any():
        code = np.where(bad > 0, bad - 1, code)
    return code.astype(np.uint8).tobytes()


def _rounded(end: float) -> float:
    return float(f"{end:.4g}") if end else 0.0


def _around_zero(
    values: np.ndarray,
    bad: np.ndarray,
    finite: np.ndarray,
    ends: np.ndarray,
    extremes: Collection[int],
    signed: bool,
) -> Coded:
    """Zero in the middle, or at the beginning where nothing is negative; `ends` has one end for all
    tiles or one for each.
    """
    end = np.broadcast_to(ends[:, None, None], values.shape)
    high = float(ends.max())
    if high == 0:
        return Coded(with_marks(np.full(values.shape, FIRST), bad), "positive", (0.0, 0.0))
    signed = signed or bool((finite < 0).any())
    middle, half = ((FIRST + LAST) / 2, (LAST - FIRST) / 2) if signed else (FIRST, LAST - FIRST)
    code = np.rint(
        middle + half * np.clip(values.astype(np.float64) / np.where(end == 0, 1.0, end), -1, 1)
    )
    beyond = (np.abs(values) > end * 1.0005) & (bad == 0)
    clipped = int(beyond.sum()) - sum(bool(beyond.flat[k]) for k in extremes)
    limits = (-high if signed else 0.0, high)
    each = (*ends.tolist(),) if ends.size > 1 else ()
    return Coded(
        with_marks(code, bad), "signed" if signed else "positive", limits, (), clipped, each
    )


def _from_low_to_high(
    values: np.ndarray, bad: np.ndarray, finite: np.ndarray, low: float | None, high: float | None
) -> Coded:
    low = float(finite.min()) if low is None else low
    high = float(finite.max()) if high is None else high
    with np.errstate(over="ignore"):
        share = np.clip((values.astype(np.float64) - low) / ((high - low) or 1.0), 0, 1)
    return Coded(with_marks(np.rint(FIRST + (LAST - FIRST) * share), bad), "range", (low, high))


def _logarithmic(
    values: np.ndarray, bad: np.ndarray, finite: np.ndarray, limit: float | None
) -> Coded:
    """Equal steps of color for equal factors; zero has a byte of its own, below all sizes."""
    size = np.abs(values.astype(np.float64))
    known = np.abs(finite[finite != 0]).astype(np.float64)
    high = limit or (float(known.max()) if known.size else 0.0)
    low = max(float(known.min()), high * DEEPEST) if known.size else high
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.log(size / (low or 1.0)) / (np.log(high / low) if high > low else 1.0)
    share = np.where(size >= high, 1.0, np.clip(np.nan_to_num(share, posinf=1.0, neginf=0.0), 0, 1))
    signed = bool((finite < 0).any())
    steps = (LAST - FIRST) // 2 - 1 if signed else LAST - FIRST - 1
    away = np.where(size > 0, 1 + np.rint(steps * share), 0)
    code = (FIRST + LAST) // 2 + np.sign(values) * away if signed else FIRST + away
    return Coded(with_marks(code, bad), "logsigned" if signed else "log", (low, high))


def _classes(finite: np.ndarray, dtype: Any) -> np.ndarray | None:
    if not is_integer(dtype) or finite.size == 0:
        return None
    if float(finite.max()) - float(finite.min()) > 1000 or not np.array_equal(
        finite, np.rint(finite)
    ):
        return None
    classes = np.unique(finite)
    return classes if classes.size <= MOST_CLASSES else None
