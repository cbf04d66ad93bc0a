"""Values as one byte per cell: the scales of pictures, and the bytes of values that are not
finite.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

import numpy as np

from nbmodule.views.arrays.values import is_integer

MOST_CLASSES = 10
# The bytes of values; those below are NaN, +Inf and -Inf.
FIRST, LAST = 3, 255
LIMIT = 0.995
# The least size on a logarithmic scale, as a share of the largest.
DEEPEST = 1e-8
# The scales to choose from: symmetric around zero (or from zero), lowest to highest, logarithmic,
# each tile by itself.
SCALES = ("", "range", "log", "tiles")
# The ends of a scale, None where the values decide. A negative low end makes a scale signed.
Limits = tuple[float | None, float | None]


class EncodedValues(NamedTuple):
    """Values as bytes, and what the bytes mean.

    Attributes:
        scale: 'signed', 'positive', 'classes', 'range', 'log' or 'logsigned'; see `Picture`.
        clipped: Cells outside the limits, without those in `extremes`, which are marked.
        ends: The end of the scale of each tile, where they differ.
    """

    data: bytes
    scale: str
    limits: tuple[float, float] = (0.0, 0.0)
    classes: tuple[str, ...] = ()
    clipped: int = 0
    ends: tuple[float, ...] = ()


def quantize(
    values: np.ndarray,
    bad: np.ndarray,
    dtype: object,
    *,
    limits: Limits = (None, None),
    extremes: Collection[int] = (),
    scale: str = "",
) -> EncodedValues:
    """Give each cell one byte.

    Args:
        values: `[tile, row, column]`.
        bad: 0 where a value is finite, else 1 NaN, 2 +Inf, 3 -Inf.
        dtype: Of the array: few integers get separate colors.
        limits: The ends of the scale; by default those of 99.5 % of the sizes, or of all values for
            'range' and 'log'.
        extremes: Cells that are marked, which do not count as clipped.
        scale: One of `SCALES`.

    Example:
        >>> x = np.array([[[-3.0, 0.0, 1.0]]])
        >>> coded = quantize(x, np.zeros(x.shape), x.dtype, scale="range")
        >>> list(coded.data), coded.limits
        ([3, 192, 255], (-3.0, 1.0))
    """
    low, high = limits
    finite = values[bad == 0]
    classes = None if scale else _classes(finite, dtype)
    if classes is not None:
        code = np.searchsorted(classes, values) + FIRST
        names = tuple(str(bool(c)) if dtype == np.bool_ else str(int(c)) for c in classes)
        ends = float(classes[0]), float(classes[-1])
        return EncodedValues(with_marks(code, bad), "classes", ends, names)
    if not finite.size:
        return EncodedValues(with_marks(np.full(values.shape, FIRST), bad), "positive")
    if scale == "log":
        return _logarithmic(values, bad, finite, high)
    if scale == "range":
        lowest = float(finite.min()) if low is None else low
        highest = float(finite.max()) if high is None else high
        return _linear(values, bad, np.array([lowest]), np.array([highest]), scale, extremes)
    if scale == "tiles":
        ends = [most_of(tile[wrong == 0]) for tile, wrong in zip(values, bad, strict=True)]
    else:
        ends = [high or most_of(finite)]
    rounded = np.array([float(f"{end:.4g}") for end in ends])
    is_signed = rounded.any() and ((low is not None and low < 0) or bool((finite < 0).any()))
    name = "signed" if is_signed else "positive"
    return _linear(values, bad, -rounded if is_signed else 0 * rounded, rounded, name, extremes)


def most_of(finite: np.ndarray) -> float:
    """Return the size that 99.5 % of the values do not exceed; the largest, if few or that is 0."""
    size = np.abs(finite)
    if not size.size:
        return 0.0
    is_few = size.size * (1 - LIMIT) < 1  # less than one value may be clipped
    return (0.0 if is_few else float(np.quantile(size, LIMIT))) or float(size.max())


def with_marks(code: np.ndarray, bad: np.ndarray) -> bytes:
    """Return the bytes of cells, with those of values that are not finite in their positions."""
    return np.where(bad > 0, bad - 1, code.astype(np.uint8)).astype(np.uint8).tobytes()


def _linear(
    values: np.ndarray,
    bad: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    scale: str,
    extremes: Collection[int],
) -> EncodedValues:
    """Equal steps of color for equal differences; `low` and `high` have one end for all tiles, or
    one for each.
    """
    bottom, top = (end.astype(np.longdouble)[:, None, None] for end in (low, high))
    span = np.where(top > bottom, top - bottom, 1)  # of doubles it may be larger than they are
    share = (values.astype(np.longdouble) - bottom) / span
    beyond = (np.abs(share - 0.5) > 0.5005) & (bad == 0)
    clipped = int(beyond.sum()) - sum(bool(beyond.flat[k]) for k in extremes)
    data = with_marks(np.rint(FIRST + (LAST - FIRST) * np.clip(share, 0, 1)), bad)
    limits = (float(low.min()), float(high.max()))
    several = tuple(high.tolist()) if high.size > 1 else ()
    return EncodedValues(data, scale, limits, (), clipped, several)


def _logarithmic(
    values: np.ndarray, bad: np.ndarray, finite: np.ndarray, high: float | None
) -> EncodedValues:
    """Equal steps of color for equal factors; zero has a byte of its own, less than all sizes."""
    size = np.abs(values.astype(np.float64))
    sizes = np.abs(finite[finite != 0]).astype(np.float64)
    high = high or float(sizes.max(initial=0.0))
    low = max(float(sizes.min(initial=high)), high * DEEPEST)
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.log(size / (low or 1.0)) / (np.log(high / low) if high > low else 1.0)
    share = np.where(size >= high, 1.0, np.clip(np.nan_to_num(share, posinf=1.0, neginf=0.0), 0, 1))
    is_signed = bool((finite < 0).any())
    steps = (LAST - FIRST) // 2 - 1 if is_signed else LAST - FIRST - 1
    distance = np.where(size > 0, 1 + np.rint(steps * share), 0)
    code = (FIRST + LAST) // 2 + np.sign(values) * distance if is_signed else FIRST + distance
    return EncodedValues(with_marks(code, bad), "logsigned" if is_signed else "log", (low, high))


def _classes(finite: np.ndarray, dtype: Any) -> np.ndarray | None:
    """Return the distinct values of an array of few integers, also after a mean of blocks."""
    if not is_integer(dtype) or not finite.size:
        return None
    if float(finite.max()) - float(finite.min()) > 1000:
        return None
    classes = np.unique(finite)
    is_whole = classes.size <= MOST_CLASSES and np.array_equal(classes, np.rint(classes))
    return classes if is_whole else None
