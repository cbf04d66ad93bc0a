"""Pictures for readers without scripts: PNG of tiles, SVG of bars and curves, each with its own
light background.
"""

from __future__ import annotations

import base64
import colorsys
import struct
import zlib
from collections.abc import Iterable, Sequence

import numpy as np

from nbmodule.base.curves import Curve, reduce_curve
from nbmodule.base.format import format_count, format_number
from nbmodule.views.arrays.pictures import HUES, MOST_BARS, PHASE_LEVELS
from nbmodule.views.arrays.scales import FIRST, LAST
from nbmodule.views.records.records import HistoryRecord, Picture
from nbmodule.views.renderers.html import Markup, tag


def png_of(pixels: np.ndarray, palette: Sequence[tuple[int, int, int]]) -> bytes:
    r"""Encode rows of palette indices as a PNG.

    Args:
        pixels: `uint8[height, width]`, indices into the palette.
        palette: Red, green and blue of up to 256 colors.

    Example:
        >>> png_of(np.zeros((2, 3), np.uint8), [(255, 255, 255)])[:8]
        b'\x89PNG\r\n\x1a\n'
    """
    height, width = pixels.shape
    lines = np.zeros((height, width + 1), np.uint8)  # each line begins with its filter, 0: none
    lines[:, 1:] = pixels
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    colors = bytes(part for color in palette for part in color)
    chunks = (
        _chunk(b"IHDR", header),
        _chunk(b"PLTE", colors),
        _chunk(b"IDAT", zlib.compress(lines.tobytes(), 9)),
        _chunk(b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


BLUE, ORANGE, MAGENTA, MARK = (17, 88, 168), (199, 78, 8), (214, 20, 190), (20, 20, 20)
CLASSES = (
    "#0072b2 #e69f00 #009e73 #d55e00 #cc79a7 #56b4e9 #8c6bb1 #a6761d #666666 #b2df8a"
).split()
LINES = ("#0072b2", "#c2570c", "#00805f", "#b0478a", "#8a6d00", "#3182bd", "#7454a6", "#5f6670")
SVG = "http://www.w3.org/2000/svg"


def image_of(picture: Picture) -> Markup:
    """Draw a picture as one `img` with its legend."""
    if picture.kind == "text":
        return tag("div", picture.about)
    limits = " … ".join(format_number(end, 3) for end in picture.limits)
    style = "max-width:100%"
    if picture.kind != "bars":
        codes, cell = _grid(picture)
        style += f";width:{codes.shape[1] * cell}px;image-rendering:pixelated;background:#fff"
    image = tag("img", src=image_source(picture), alt=picture.about, style=style)
    words = ", ".join([limits, *picture.notes])
    return tag("div", image, tag("div", words, style="font-size:11px;opacity:.75"))


def image_source(picture: Picture) -> str:
    """Return a picture as the address of an image, without its legend; empty for a text."""
    if picture.kind == "text":
        return ""
    if picture.kind == "bars":
        return address_of("image/svg+xml", _bars(picture).encode())
    return address_of("image/png", png_of(_grid(picture)[0], palette(picture)))


def address_of(kind: str, data: bytes) -> str:
    """Return data as the address of an image that needs no file."""
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def palette(picture: Picture) -> list[tuple[int, int, int]]:
    """The colors of the 256 bytes on a light page; `views/frontend/picture.js` has the same."""
    scale = picture.scale
    colors = [MAGENTA, MARK, MARK]
    if scale == "classes" and set(picture.classes) <= {"False", "True"}:
        return [*colors, *(_mix(BLUE, 1 if c == "True" else 0.12) for c in picture.classes)]
    for code in range(FIRST, LAST + 1):
        at = (code - FIRST) / (LAST - FIRST)
        if scale == "classes":
            text = CLASSES[(code - FIRST) % len(CLASSES)]
            colors.append((int(text[1:3], 16), int(text[3:5], 16), int(text[5:], 16)))
        elif scale == "phase":
            hue, level = divmod(code - FIRST, PHASE_LEVELS)
            colors.append(_mix(_hue(hue), level / (PHASE_LEVELS - 1)))
        elif scale == "signed":
            colors.append(_mix(BLUE, 1 - 2 * at) if at < 0.5 else _mix(ORANGE, 2 * at - 1))
        else:
            colors.append(_mix(BLUE, at))
    return colors


def _hue(hue: int) -> tuple[int, int, int]:
    """The full color of a phase: 0 is red, a third of a turn green."""
    red, green, blue = colorsys.hls_to_rgb((hue / HUES + 0.5) % 1, 0.5, 0.85)
    return round(255 * red), round(255 * green), round(255 * blue)


def _mix(color: tuple[int, int, int], share: float) -> tuple[int, int, int]:
    share = max(0.0, min(1.0, share)) ** 0.85
    red, green, blue = (round(255 + (part - 255) * share) for part in color)
    return red, green, blue


def tile_picture(picture: Picture) -> tuple[np.ndarray, np.ndarray]:
    """Arrange tiles in rows, with gaps between them.

    Returns:
        The code of each cell, and where there is a cell rather than a gap.

    Example:
        >>> codes, is_cell = tile_picture(
        ...     Picture("channels", (2, 1, 2), bytes([3, 4, 5, 6]), "positive")
        ... )
        >>> codes[is_cell].tolist(), is_cell.shape
        ([3, 4, 5, 6], (1, 5))
    """
    n, height, width = picture.shape
    across = min(n, 8 if n > 16 else 4)
    down, gap = -(-n // across), 0 if n == 1 else max(1, round(max(height, width) / 16))
    codes = np.zeros((down * (height + gap) - gap, across * (width + gap) - gap), np.uint8)
    is_cell = np.zeros(codes.shape, bool)
    for k, tile in enumerate(np.frombuffer(picture.data, np.uint8).reshape(picture.shape)):
        y, x = (k // across) * (height + gap), (k % across) * (width + gap)
        codes[y : y + height, x : x + width] = tile
        is_cell[y : y + height, x : x + width] = True
    return codes, is_cell


def _grid(picture: Picture) -> tuple[np.ndarray, int]:
    """Lay out the tiles on the background, and choose the pixels per cell."""
    codes, is_cell = tile_picture(picture)
    ground = FIRST + (LAST - FIRST) // 2 if picture.scale == "signed" else FIRST
    most = 320 if picture.shape[0] == 1 else 72
    return np.where(is_cell, codes, np.uint8(ground)), max(1, most // max(picture.shape[1:]))


def _svg(width: float, height: float, *inside: Markup) -> Markup:
    ground = tag("rect", width="100%", height="100%", fill="#fff")
    size = {"width": width, "height": height, "viewBox": f"0 0 {width} {height}"}
    return tag("svg", ground, *inside, xmlns=SVG, **size, font_family="sans-serif", font_size="11")


def _bars(picture: Picture) -> Markup:
    count = picture.shape[0]
    values = struct.unpack(f"<{count}f", picture.data)
    low, high = picture.limits
    if count > MOST_BARS:
        points = [(float(k), v) for k, v in enumerate(values) if abs(v) < float("inf")]
        return _svg(420, 100, *([_line(points, points, LINES[0], 420, 100)] if points else []))
    span = (high - low) or 1.0
    step = max(2.0, min(18.0, 420 / count))
    zero = 80 - (0 - low) / span * 80
    parts = []
    for k, v in enumerate(values):
        is_finite = abs(v) < float("inf")
        y = 80 - (v - low) / span * 80 if is_finite else 0.0
        color = "#d614be" if not is_finite else "#c74e08" if low < 0 <= v else "#1158a8"
        tall = max(abs(y - zero), 0.5) if is_finite else 80
        x, top, width = k * step, min(y, zero) if is_finite else 0, step * 0.85
        size = {"width": f"{width:.1f}", "height": f"{tall:.1f}"}
        parts.append(tag("rect", x=f"{x:.1f}", y=f"{top:.1f}", **size, fill=color))
    return _svg(round(count * step), 80, *parts)


def curve_image(history: HistoryRecord, width: int = 640, height: int = 200) -> Markup:
    """Draw the series of a history as one `img`, each series on its own scale of values if they
    differ in unit.
    """
    parts: list[Markup] = []
    for k, series in enumerate(history.series[:8]):
        whole = Curve(np.array(series.steps), np.array(series.values))
        points = _finite_points(*reduce_curve(whole, width // 2))
        color, y = LINES[k], 14 + 14 * k
        last = format_number(series.values[-1]) if series.values else "no values yet"
        parts.append(
            tag("text", f"{series.name} {last}", x=width - 8, y=y, fill=color, text_anchor="end")
        )
        if points:
            alike = [s for s in history.series if series.unit and s.unit == series.unit]
            shared = [p for s in alike or [series] for p in _finite_points(s.steps, s.values)]
            parts.append(_line(points, shared, color, width, height))
    if not history.series:
        parts.append(tag("text", "no values yet", x=10, y=20, fill="#5f6670"))
    steps = [s for series in history.series for s in series.steps]
    if steps:
        span = " to ".join(format_count(int(end)) for end in (min(steps), max(steps)))
        has_one_scale = len({s.unit or s.name for s in history.series}) == 1
        about = f"{history.axis} {span}" + ("" if has_one_scale else ", each on its own scale")
        parts.append(tag("text", about, x=8, y=height - 6, fill="#5f6670"))
    names = ", ".join(s.name for s in history.series)
    source = address_of("image/svg+xml", _svg(width, height, *parts).encode())
    about = f"{history.name}: {names or 'no values yet'}"
    return tag("img", src=source, alt=about, style="max-width:100%")


def _finite_points(steps: Iterable[float], values: Iterable[float]) -> list[tuple[float, float]]:
    pairs = zip(steps, values, strict=True)
    return [(step, value) for step, value in pairs if abs(value) < float("inf")]


def _line(
    points: Sequence[tuple[float, float]],
    shared: Sequence[tuple[float, float]],
    color: str,
    width: int,
    height: int,
) -> Markup:
    """Draw points as a line on the axes of all `shared` points."""
    xs, ys = zip(*shared, strict=True)
    left, bottom = min(xs), min(ys)
    wide, tall = (max(xs) - left) or 1.0, (max(ys) - bottom) or 1.0
    points_ = [
        f"{8 + (x - left) / wide * (width - 16):.1f},"
        f"{height - 24 - (y - bottom) / tall * (height - 40):.1f}"
        for x, y in points
    ]
    return tag("polyline", points=" ".join(points_), fill="none", stroke=color, stroke_width="1.5")
