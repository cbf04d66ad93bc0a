"""Numbers on their way to a page: arrays as bytes, single numbers as JSON that every reader takes."""

from __future__ import annotations

import base64
import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nbmodule.live.run.series import Curve


def base64_of(array: ArrayLike, dtype: str) -> str:
    """Write the bytes of an array, little-endian, in letters.

    Example:
        >>> base64_of([1.0], 'f4')
        'AACAPw=='
    """
    return base64.b64encode(
        np.ascontiguousarray(array, np.dtype(dtype).newbyteorder("<")).tobytes()
    ).decode()


def points_of(curve: Curve) -> dict[str, str]:
    """Give a curve as base64: `s` are the steps (float64, exact up to 2^53), `v` the values
    (float32).
    """
    return {"s": base64_of(curve.steps, "f8"), "v": base64_of(to_float32(curve.values), "f4")}


def to_float32(values: NDArray[Any]) -> NDArray[np.float32]:
    """Round to float32; what is too large becomes infinite without a warning."""
    with np.errstate(over="ignore"):
        return values.astype(np.float32)


def json_number(value: float | None) -> float | str | None:
    """Give a number as JSON knows it; what is not finite becomes a text that `Number()` of
    JavaScript reads back.

    Example:
        >>> json_number(0.5), json_number(float('nan')), json_number(float('-inf'))
        (0.5, 'NaN', '-Infinity')
    """
    if value is None:
        return None
    value = float(value)
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def heights_of(bins: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Scale counts of a histogram to 0 ... 255 of its highest; what is not known becomes 0."""
    top = np.nan_to_num(bins, nan=0.0).max(axis=-1, keepdims=True)
    return np.nan_to_num(255 * bins / np.maximum(top, 1e-30), nan=0.0).round().astype(np.uint8)
