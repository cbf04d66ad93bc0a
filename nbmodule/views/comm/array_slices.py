"""A part of an array as a page asks for it: which axes lie across and down, which are tiles, where
on the others, how colored.

Each answer is reduced anew from the elements of the window, so that a closer look shows more, never
larger pixels.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax import Array

from nbmodule.base.format import format_count, format_number
from nbmodule.errors import ArgumentError
from nbmodule.views.arrays.pictures import (
    FIRST_TILES,
    LARGEST_SMALL_TILE,
    draw_tiles,
    picture_of,
    planes_of,
)
from nbmodule.views.arrays.scales import SCALES
from nbmodule.views.arrays.values import exact_text, metadata_of, readable_numbers, statistics_of
from nbmodule.views.records.records import Picture
from nbmodule.views.renderers.columns import picture_payload, statistics_payload

# Most cells along one side of a picture.
SIDE = 320
# Elements of a window up to which their values are sent too.
EXACT = 16_384
MOST_TILES = 512


def slice_payload(x: Array, message: dict[str, Any]) -> dict[str, Any]:
    """Answer for one array.

    Args:
        x: The array.
        message: `down` and `across` name axes, `tiles` those of which each index is a tile, `at`
            has an index for each axis, `window` the first and last row and column (exclusive),
            `count` how many tiles, `scale` one of `SCALES`, `limits` the ends of the scale, `same`
            is true for one scale over the whole array.

    Returns:
        What the page reads: the shape, the axes, the window, and the picture, with the values where
        they are few.

    Raises:
        ArgumentError: if there is no such axis, or the values cannot be read.

    Example:
        >>> found = slice_payload(
        ...     np.arange(24.0).reshape(2, 3, 4), {"at": [1, 0, 0], "window": [0, 2, 1, 4]}
        ... )
        >>> found["axes"], found["window"], found["picture"]["shape"]
        ([1, 2], [0, 2, 1, 4], [1, 2, 3])
    """
    about = metadata_of(x)
    if not about.is_readable or about.shape is None:
        raise ArgumentError(f"{about.text}: {about.value or about.error or 'no array'}")
    shape = about.shape
    data: dict[str, Any] = {"shape": list(shape), "of": about.text}
    if message.get("whole"):
        data["st"] = statistics_payload(statistics_of([x])[0])
    if len(shape) < 2 or 0 in shape:
        return data | {"picture": picture_payload(picture_of(x, weights=True, exact=EXACT))}
    axes, at = _axes(shape, message), _index(shape, message)
    tiles = axes[2:]
    planes = planes_of(x, axes, at)
    most = min(int(message.get("count") or FIRST_TILES), MOST_TILES)
    window = _window(message.get("window"), planes.shape[1:])
    part = planes[:most, window[0] : window[1], window[2] : window[3]]
    count, rows, columns = part.shape
    more = len(planes) - count
    words = f" as {count} tiles" if tiles else " as a tile"
    picture = Picture(
        "channels" if tiles else "heatmap",
        of=about.text,
        about=f"{about.text}, {rows} × {columns} of it{words}",
        notes=(f"{more} more",) if more else (),
        axes=axes,
        lengths=tuple(shape[axis] for axis in axes),
    )
    picture = draw_tiles(
        part,
        SIDE if count == 1 else max(LARGEST_SMALL_TILE, int(SIDE / count**0.5)),
        picture,
        limits=_limits(x, message),
        origin=(window[0], window[2]),
        scale=_scale(message),
        exact=EXACT,
    )
    return data | {
        "axes": list(axes[:2]),
        "tiles": list(tiles),
        "at": at,
        "window": window,
        "picture": picture_payload(picture),
    }


def cell_payload(x: Any, message: dict[str, Any]) -> dict[str, Any]:
    """Say exactly what one cell of a picture stands for: the element, or the mean and the extremes
    of its block.

    Args:
        x: The array.
        message: As for `slice_payload`; the `window` is the cell, and each axis that is not down or
            across has its index in `at`.

    Example:
        >>> x = np.arange(24.0).reshape(2, 3, 4)
        >>> (
        ...     cell_payload(x, {"at": [1, 0, 0], "window": [2, 3, 1, 2]}),
        ...     cell_payload(x, {"window": [0, 2, 0, 2]}),
        ... )
        ({'text': '21'}, {'text': 'mean 2.5, 0 … 5 of 4'})
    """
    shape = x.shape
    if len(shape) < 2:
        first, last = (int(k) for k in message["window"][2:])
        part = x[max(first, 0) : max(last, 1)] if shape else x
    else:
        axes = _axes(shape, message | {"tiles": []})
        (plane,) = planes_of(x, axes, _index(shape, message))
        first, last, left, right = _window(message.get("window"), plane.shape)
        part = plane[first:last, left:right]
    values = np.asarray(jax.device_get(part))
    if values.size == 1:
        return {"text": exact_text(values.reshape(-1)[0])}
    numbers = readable_numbers(values).astype(np.float64)
    finite = numbers[np.isfinite(numbers)]
    bad = {"NaN": np.isnan(numbers), "+Inf": numbers == np.inf, "−Inf": numbers == -np.inf}
    words = [f"{word} {mask.sum()}" for word, mask in bad.items() if mask.any()]
    if finite.size:
        low, high = (format_number(float(v)) for v in (finite.min(), finite.max()))
        words.insert(0, f"mean {format_number(float(finite.mean()), 6)}, {low} … {high}")
    size = "|x|: " if values.dtype.kind == "c" else ""
    return {"text": f"{size}{', '.join(words)} of {format_count(values.size)}"}


def _scale(message: dict[str, Any]) -> str:
    scale = str(message.get("scale") or "")
    if scale not in SCALES:
        raise ArgumentError(f"a page asked for the scale {scale!r}, which is not known")
    return scale


def _axes(shape: tuple[int, ...], message: dict[str, Any]) -> tuple[int, ...]:
    """The axes that are down, across and tiles."""
    sides = (message.get("down", len(shape) - 2), message.get("across", len(shape) - 1))
    chosen = tuple(map(int, (*sides, *(message.get("tiles") or ()))))
    if len({*chosen}) < len(chosen) or not all(0 <= axis < len(shape) for axis in chosen):
        raise ArgumentError(
            f"axes {', '.join(map(str, chosen))}: expected different axes of {list(shape)}"
        )
    return chosen


def _index(shape: tuple[int, ...], message: dict[str, Any]) -> list[int]:
    index = message.get("at") or [0] * len(shape)
    return [min(max(int(k), 0), n - 1) for k, n in zip(index, shape, strict=True)]


def _window(window: Any, shape: tuple[int, ...]) -> list[int]:
    rows, columns = shape
    first, last, left, right = (int(k) for k in window or (0, rows, 0, columns))
    first, left = min(max(first, 0), rows - 1), min(max(left, 0), columns - 1)
    return [first, max(min(last, rows), first + 1), left, max(min(right, columns), left + 1)]


def _limits(x: object, message: dict[str, Any]) -> tuple[float | None, float | None]:
    """The ends of the scale: those that are asked for, or those of the whole array; None lets the
    window decide.
    """
    limits = message.get("limits")
    if limits and not message.get("scale"):
        return float(limits[0]), float(limits[1]) or None
    stats = statistics_of([x])[0] if message.get("same") else None
    if stats is None or not stats.histogram or message.get("scale") == "tiles":
        return None, None
    if message.get("scale") == "range":
        return stats.min, stats.max
    return (-1.0 if stats.min < 0 else 0.0), max(abs(stats.min), abs(stats.max))
