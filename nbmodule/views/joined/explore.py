"""One slice of an array as a page asks for it: which axes lie across and down, where on the others, and which part of it.

Each answer is reduced anew from the elements of the window, so that a closer look shows more, never larger pixels.
"""

from __future__ import annotations

import base64
from typing import Any

import jax
from jax import Array

from nbmodule.errors import ArgumentError
from nbmodule.views.arrays.arrays import facts_of, to_host
from nbmodule.views.arrays.pictures import draw_tiles, picture_of
from nbmodule.views.arrays.statistics import statistics_of
from nbmodule.views.forms.payload import picture_payload, statistics_payload

SIDE = 320
"""Most cells along one side of a picture."""
EXACT = 16_384
"""Elements of a window up to which their values are sent too."""


def slice_payload(x: Array, message: dict[str, Any]) -> dict[str, Any]:
    """Answer for one array.

    Args:
        x: The array.
        message: `down` and `across` name axes, `at` has an index for each axis, `window` the first and last row and column
            (exclusive), `same` is true for one color scale over all slices.

    Returns:
        What the page reads: the shape, the axes, the window, the picture, and the values where they are few.

    Raises:
        ArgumentError: if there is no such axis, or the values cannot be read.

    Example:
        >>> found = slice_payload(np.arange(24.0).reshape(2, 3, 4), {"at": [1, 0, 0], "window": [0, 2, 1, 4]})
        >>> found["axes"], found["window"], np.frombuffer(base64.b64decode(found["values"]), "<f4").tolist()
        ([1, 2], [0, 2, 1, 4], [13.0, 14.0, 15.0, 17.0, 18.0, 19.0])
    """
    facts = facts_of(x)
    if facts.unreadable or facts.shape is None:
        raise ArgumentError(f"{facts.text}: {facts.unreadable or 'no array'}")
    shape = facts.shape
    found: dict[str, Any] = {"shape": list(shape), "of": facts.text}
    if message.get("whole"):
        found["st"] = statistics_payload(statistics_of([x])[0])
    if len(shape) < 2 or 0 in shape:
        return found | {"picture": picture_payload(picture_of(x, weights=True))}
    down, across = _axes(shape, message)
    at = [min(max(int(k), 0), n - 1) for k, n in zip(message.get("at") or [0] * len(shape), shape, strict=True)]
    plane = x[tuple(slice(None) if axis in (down, across) else k for axis, k in enumerate(at))]
    if down > across:
        plane = plane.T
    window = _window(message.get("window"), plane.shape)
    part = plane[window[0] : window[1], window[2] : window[3]]
    about = f"{facts.text}, {part.shape[0]} × {part.shape[1]} of it as a tile"
    limit, origin = _limit(x) if message.get("same") else None, (window[0], window[2])
    picture = draw_tiles(part[None], SIDE, "heatmap", of=facts.text, about=about, limit=limit, origin=origin)
    picture = picture._replace(axes=(down, across), lengths=(shape[down], shape[across]))
    found |= {"axes": [down, across], "at": at, "window": window, "picture": picture_payload(picture)}
    if part.size <= EXACT:
        values = to_host(jax.device_get(part)).astype("<f4")
        found["values"] = base64.b64encode(values.tobytes()).decode()
    return found


def _axes(shape: tuple[int, ...], message: dict[str, Any]) -> tuple[int, int]:
    down, across = (int(message.get(name, k)) for name, k in (("down", len(shape) - 2), ("across", len(shape) - 1)))
    if down == across or not (0 <= down < len(shape) and 0 <= across < len(shape)):
        raise ArgumentError(f"axes {down} and {across}: expected two axes of {list(shape)}")
    return down, across


def _window(given: Any, shape: tuple[int, ...]) -> list[int]:
    rows, columns = shape
    first, last, left, right = (int(k) for k in given or (0, rows, 0, columns))
    first, left = min(max(first, 0), rows - 1), min(max(left, 0), columns - 1)
    return [first, max(min(last, rows), first + 1), left, max(min(right, columns), left + 1)]


def _limit(x: object) -> float | None:
    """The largest finite |x|, for one scale over all slices."""
    stats = statistics_of([x])[0]
    return None if stats is None or not stats.bins else max(abs(stats.low), abs(stats.high))
