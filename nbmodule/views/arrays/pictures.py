"""Arrays made small enough to draw: overviews, grids of channels, heads, bars, a corner of values.

A large array is reduced by the mean of blocks that are equal to within one row and column. A block
with an element far outside of what the others hold shows that element in place of its mean, and is
marked. The result is one byte per cell and the limits of the color scale.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from nbmodule.base.format import count_noun, format_number, plain
from nbmodule.base.kinds import Shaped
from nbmodule.views.arrays.scales import FIRST, EncodedValues, Limits, most_of, quantize, with_marks
from nbmodule.views.arrays.values import exact_bytes, holds_texts, metadata_of, readable_numbers
from nbmodule.views.records.records import Picture

# Cells along one side of a single overview.
LARGEST_TILE = 120
# Cells along one side of a tile in a grid.
LARGEST_SMALL_TILE = 48
FIRST_TILES = 16
MOST_BARS = 256
LARGEST_WINDOW = 11
MOST_COLORS = 4  # of an image, with opacity
HUES, PHASE_LEVELS = 36, 7  # of complex values: 252 colors in all
FIRST_OF_MANY = 64  # tiles of an array of five and more axes
# An extreme is so many times farther from the mean of its block than in nine blocks of ten.
FAR = 3.0
# How many extremes are named; all are counted.
MOST_EXTREMES = 64


def picture_of(
    x: Shaped,
    *,
    labels: Sequence[str] = (),
    tiles: int = FIRST_TILES,
    side: int | None = None,
    weights: bool = False,
    exact: int = 0,
    limits: tuple[float, float] | None = None,
    example: int = 0,
) -> Picture:
    """Draw an array the way its number of axes suggests, or the reason why it cannot be drawn.

    Args:
        x: Any value. Vectors become bars; matrices and longer vectors a heat map; with three and
            more axes a grid of tiles: `[B, H, W, C]` shows the channels of one example,
            `[B, H, T, T]` its heads, `[B, T, F]` the examples.
        labels: Names of the bars, or tokens along the axes of heads.
        tiles: How many tiles of a grid are drawn.
        side: Most cells along one side of a tile.
        weights: True for a parameter: `[O, 3, 3, I]` and `[3, 3, I, O]` then show one tile
            for each pair of channels.
        exact: Up to so many elements, the picture holds their values too, and a vector is drawn
            element by element.
        limits: The ends of the scale, for pictures that are to be compared; by default its own.
        example: Which example of a batch.

    Example:
        >>> picture = picture_of(np.arange(6.0).reshape(2, 3))
        >>> picture.kind, picture.shape, picture.limits
        ('heatmap', (1, 2, 3), (0.0, 5.0))
    """
    about = metadata_of(x)
    reason = about.value or about.error
    if about.shape is None or reason or 0 in about.shape:
        none = "no array" if about.shape is None else "no elements"
        return text_picture(about.text, reason or none)
    size = math.prod(about.shape)
    is_long_mask = about.dtype == "bool" and size > MOST_BARS  # colors say more than a line
    is_exact = len(about.shape) == 1 and size <= exact and not is_long_mask
    kind = "bars" if is_exact else kind_for(about.shape, weights=weights)
    names = tuple(plain(label, 40) for label in labels)
    if kind == "bars":
        return _bars(x, names, about.text, limits)
    values, axes, notes = _tiles_of(x, kind, tiles, example)
    count = len(values)
    picture = Picture(
        "channels" if kind == "kernels" else kind,
        labels=names,
        of=about.text,
        about=f"{about.text} as {count_noun(count, 'tile')}",
        notes=tuple(notes),
        axes=axes,
        lengths=tuple(about.shape[axis] for axis in axes),
    )
    side = side or (LARGEST_TILE if count == 1 else LARGEST_SMALL_TILE)
    return draw_tiles(values, side, picture, limits=limits or (None, None), exact=exact)


def text_picture(of: str, reason: str) -> Picture:
    """Stand in for a picture that cannot be drawn."""
    return Picture("text", of=of, about=f"{of}: {reason}", notes=(reason,))


def kind_for(shape: tuple[int, ...], *, weights: bool = False) -> str:
    """Suggest the kind of picture for a shape; leading axes of length 1 do not count."""
    if weights and len(shape) == 4 and _window(shape) is not None:
        return "kernels"
    rank = len(shape)
    while len(shape) > 1 and shape[0] == 1:
        shape = shape[1:]
    if len(shape) <= 1:
        return "bars" if not shape or shape[0] <= MOST_BARS else "heatmap"
    if len(shape) == 2:
        return "heatmap"
    is_sequence = rank == 3 and shape[-1] > MOST_COLORS  # (batch, time, features), else an image
    return "heads" if is_sequence or shape[-1] == shape[-2] > 1 else "channels"


def _window(shape: tuple[int, ...]) -> int | None:
    """Return the axis at which the window of a convolution kernel starts: 0 or 1, the smaller
    window first; None for no kernel.
    """
    starts = [k for k in (1, 0) if shape[k] == shape[k + 1] <= LARGEST_WINDOW]
    return min(starts, key=lambda k: shape[k], default=None)


# -- tiles --
def planes_of(x: Any, axes: Sequence[int], at: Sequence[int]) -> Any:
    """Return an array as `[tile, row, column]`.

    Args:
        x: The array, of two and more axes.
        axes: Which of them the rows, the columns and the tiles are; of several for tiles, these lie
            in rows of the last.
        at: For each axis the index, of which those of the other axes count.

    Example:
        >>> planes_of(np.arange(24).reshape(2, 3, 4), (2, 1), (1, 0, 0)).tolist()
        [[[12, 16, 20], [13, 17, 21], [14, 18, 22], [15, 19, 23]]]
    """
    part = x[tuple(slice(None) if axis in axes else k for axis, k in enumerate(at))]
    order = (*axes[2:], *axes[:2])
    turned = part.transpose([sorted(axes).index(axis) for axis in order])
    return turned.reshape(-1, *turned.shape[-2:])


def _tiles_of(
    x: Any, layout: str, most: int, example: int
) -> tuple[Any, tuple[int, ...], list[str]]:
    """Choose the axes of a picture; return its tiles, the axes, and what it leaves out."""
    last, notes = x.ndim - 1, []
    if x.ndim < 2:
        rows = int(x.size**0.5) if x.size > MOST_BARS else 1
        while x.size % rows:  # the nearest rectangle that holds exactly all elements
            rows -= 1
        columns = x.size // rows
        if rows > 1:
            notes.append(f"folded into {count_noun(rows, 'row')} of {columns}")
        return x.reshape(1, rows, columns), (0,)[: x.ndim], notes
    axes: tuple[int, ...] = (last - 2, last - 1, last)
    if x.ndim == 2:
        axes = (0, 1)
    elif x.ndim > 4 and layout != "heatmap":
        axes = (last - 1, last, *range(last - 1))
        most = max(most, FIRST_OF_MANY)
    elif layout in ("heads", "heatmap"):
        axes = (last - 1, last, last - 2)
        most = most if layout == "heads" else 1
    elif layout == "kernels":  # channels out first, or last
        axes = (1, 2, 0, 3) if _window(x.shape) == 1 else (0, 1, 2, 3)
    at = [0] * x.ndim
    count = x.shape[0]
    if 0 not in axes and count > 1:
        at[0] = min(example, count - 1)
        notes.append(f"sample {at[0]} of {count}" if at[0] else f"first of {count}")
    tiles = planes_of(x, axes, at)
    if len(tiles) > most:
        notes.append(f"{len(tiles) - most} more")
    return tiles[:most], axes, notes


def draw_tiles(
    x: Any,
    side: int,
    picture: Picture,
    *,
    limits: Limits = (None, None),
    origin: tuple[int, int] = (0, 0),
    scale: str = "",
    exact: int = 0,
) -> Picture:
    """Draw an array `[tile, row, column]` with at most `side` cells along each side of a tile.

    Args:
        x: The values.
        side: Most cells along one side.
        picture: All that is known without the values: the kind, the labels, which array and axes it
            is, the start of the sentence for readers who do not see it, what it leaves out.
        limits: The ends of the color scale; by default those of most cells.
        origin: Row and column of the array at which `x` begins.
        scale: One of `SCALES`; complex values always show their phase.
        exact: Up to so many elements, the picture holds their values too.
    """
    is_complex = np.dtype(x.dtype).kind == "c"
    draw = _phase if is_complex else functools.partial(_levels, dtype=x.dtype, scale=scale)
    blocks, coded, extremes = draw(x, side, limits=limits)
    words = [f"mean of {blocks.text} blocks"] if blocks.text else []
    if extremes:
        largest = format_number(max(extremes.values(), key=abs), 3)
        count = count_noun(len(extremes), "block")
        words.append(f"{count} marked: an extreme in place of the mean, up to {largest}")
    colors = coded._asdict()
    clipped = colors.pop("clipped")
    words += [*picture.notes, *([f"{clipped} clipped"] if clipped else [])]
    named = sorted(extremes, key=lambda k: -abs(extremes[k]))[:MOST_EXTREMES]
    rows, columns = blocks.means.shape[1:]
    about = f"{picture.about} of {rows} × {columns}{', phase as hue' if is_complex else ''}"
    picture = picture._replace(
        shape=blocks.means.shape,
        **colors,
        about=f"{about}, {_mean_in_words(blocks.mean, int((blocks.bad > 0).sum()))}",
        notes=tuple(words),
        extremes={k: extremes[k] for k in sorted(named)},
        window=(*origin, *x.shape[1:]),
    )
    if x.size > exact or picture.shape != x.shape:
        return picture
    data, code = exact_bytes(np.asarray(jax.device_get(x)))
    return picture._replace(exact=data, exact_type=code)


def _levels(
    x: object, side: int, *, limits: Limits, dtype: object, scale: str
) -> tuple[Blocks, EncodedValues, dict[int, float]]:
    """Color real values by a scale."""
    blocks = reduce_blocks(x, side)
    cells, extremes = blocks.with_extremes()
    low, high = limits
    if not scale:  # of the means alone: a few extremes would make all else pale
        high = high or most_of(blocks.means[blocks.bad == 0]) or None
    coded = quantize(cells, blocks.bad, dtype, limits=(low, high), extremes=extremes, scale=scale)
    return blocks, coded, extremes


def _phase(x: Any, side: int, *, limits: Limits) -> tuple[Blocks, EncodedValues, dict[int, float]]:
    """Color complex values: the phase as hue, the size as the strength of the color."""
    real, imaginary = reduce_blocks(x.real, side), reduce_blocks(x.imag, side)
    bad = np.where(real.bad > 0, real.bad, imaginary.bad)
    values = real.means.astype(np.float64) + 1j * imaginary.means
    size = np.abs(values)
    limit = float(f"{limits[1] or most_of(size[bad == 0]):.4g}")
    level = np.rint((PHASE_LEVELS - 1) * np.clip(size / (limit or 1.0), 0, 1))
    hue = np.rint((np.angle(values) / (2 * np.pi) + 0.5) * HUES) % HUES
    clipped = int((size[bad == 0] > limit * 1.0005).sum())
    data = with_marks(FIRST + PHASE_LEVELS * hue + level, bad)
    mean = float(np.mean(size[bad == 0])) if (bad == 0).any() else np.nan
    blocks = real._replace(means=size, bad=bad, mean=mean)
    return blocks, EncodedValues(data, "phase", (0.0, limit), clipped=clipped), {}


# -- blocks --
class Blocks(NamedTuple):
    """An array `[tile, row, column]` in blocks; each field is `[tile, block row, block column]`.

    Attributes:
        means: Of the finite elements; 0 where there are none.
        bad: 0 where all elements are finite, else 1 NaN, 2 +Inf, 3 -Inf.
        low: The lowest finite element, or +Inf.
        high: The highest finite element, or -Inf.
        shape: Rows and columns of the array.
        mean: Of all finite elements, NaN where there are none.
    """

    means: np.ndarray
    bad: np.ndarray
    low: np.ndarray
    high: np.ndarray
    shape: tuple[int, int]
    mean: float

    @property
    def text(self) -> str:
        """The size of the blocks in words, as `34…35 × 7`; '' where each element is a block."""
        if self.shape == self.means.shape[1:]:
            return ""
        sides = zip(self.shape, self.means.shape[1:], strict=True)
        return " × ".join(f"{n // k}…{n // k + 1}" if n % k else str(n // k) for n, k in sides)

    def with_extremes(self) -> tuple[np.ndarray, dict[int, float]]:
        """Return what each cell shows, and by cell the extremes that replace a mean.

        Nine blocks of ten say how far elements lie from the mean of their block. What lies several
        times farther in one of the others would vanish in its mean.
        """
        if not self.text:
            return self.means, {}
        with np.errstate(over="ignore", invalid="ignore"):
            up = self.high - self.means.astype(np.float64)
            down = self.means - self.low.astype(np.float64)
        distance = np.maximum(up, down)
        distance[~np.isfinite(distance)] = 0
        cells = np.flatnonzero(distance > FAR * np.quantile(distance, 0.9))
        values = self.means.copy()
        values.flat[cells] = np.where(up >= down, self.high, self.low).flat[cells]
        return values, {int(k): float(values.flat[k]) for k in cells if not self.bad.flat[k]}


def _mean_in_words(mean: float, wrong: int) -> str:
    """The mean, and how many cells are not finite, for readers who do not see the picture."""
    words = "no finite values" if math.isnan(mean) else f"mean {format_number(mean, 3)}"
    return f"{words}, {count_noun(wrong, 'cell') if wrong else 'none'} non-finite"


def block_edges(n: int, blocks: int) -> np.ndarray:
    """Return the start of each of so many blocks, and the end: their sizes differ by at most one.

    A thin block at the end would deviate more than the others, and look like a fault of the array.

    Example:
        >>> block_edges(10, 4).tolist()
        [0, 2, 5, 7, 10]
    """
    return np.arange(blocks + 1) * n // blocks


def reduce_blocks(x: Any, side: int) -> Blocks:
    """Reduce blocks of rows and columns until no side has more than `side` cells."""
    rows, columns = x.shape[1:]
    cells = tuple(-(-n // -(-n // side)) for n in (rows, columns))
    x = readable_numbers(jax.device_get(x))
    x = x if x.dtype == np.float64 else x.astype(np.float32, copy=False)
    with np.errstate(all="ignore"):
        finite = np.isfinite(x)
        mean = x.mean(where=finite, dtype=np.float64) if finite.any() else np.nan
        counts = _fold(np.add, finite.astype(np.float32), cells)
        means = _fold(np.add, np.where(finite, x, 0), cells) / np.maximum(counts, 1)
        low = _fold(np.minimum, np.where(finite, x, np.inf), cells)
        high = _fold(np.maximum, np.where(finite, x, -np.inf), cells)
        bad = np.zeros(counts.shape, np.uint8)
        if not finite.all():
            codes = np.where(np.isnan(x), 1, np.where(x > 0, 2, 3)).astype(np.uint8)
            bad = _fold(np.minimum, np.where(finite, np.uint8(4), codes), cells)
            bad[bad == 4] = 0
    return Blocks(np.nan_to_num(means), bad, low, high, (rows, columns), float(mean))


def _fold(reduce: np.ufunc, x: np.ndarray, cells: tuple[int, int]) -> np.ndarray:
    """Reduce each block of `[tile, row, column]` to one number."""
    for axis, count in ((1, cells[0]), (2, cells[1])):
        if count < x.shape[axis]:  # `reduceat` takes up to 30 times as long
            blocks = np.split(x, block_edges(x.shape[axis], count)[1:-1], axis=axis)
            x = np.stack([reduce.reduce(block, axis=axis) for block in blocks], axis=axis)
    return x


# -- bars and values --
def _bars(x: Any, labels: tuple[str, ...], of: str, limits: tuple[float, float] | None) -> Picture:
    notes = ["|x|"] if np.dtype(x.dtype).kind == "c" else []
    values = readable_numbers(jax.device_get(x)).reshape(-1).astype(np.float64)
    finite = values[np.isfinite(values)]
    low, high = limits or (float(finite.min(initial=0.0)), float(finite.max(initial=0.0)))
    with np.errstate(over="ignore"):
        data = values.astype("<f4").tobytes()
    mean = float(finite.mean()) if finite.size else np.nan
    words = _mean_in_words(mean, values.size - finite.size)
    about = f"{of} as {count_noun(values.size, 'bar')}, {words}"
    scale = "signed" if low < 0 else "positive"
    names = labels[: values.size]
    shape = (values.size,)
    return Picture("bars", shape, data, scale, (low, high), (), names, of, about, tuple(notes))


def corner_of(x: Any, side: int = 6) -> tuple[tuple[str, ...], ...]:
    """Write at most `side` x `side` values of the last two axes, at index 0 of the others."""
    about = metadata_of(x)
    if not (about.is_readable or holds_texts(x)) or about.shape is None or 0 in about.shape:
        return ()
    part = x[(0,) * max(x.ndim - 2, 0)]
    part = part[(slice(side),) * min(x.ndim, 2)]
    values = np.asarray(jax.device_get(part))
    if values.dtype.kind not in "iubcUS":
        values = readable_numbers(values)
    if about.shape == () and values.dtype.kind == "f":
        return ((f"{values.item():.7g}",),)  # it stands alone: all digits of a float32
    rows = values.reshape(-1, 1) if holds_texts(x) and values.ndim == 1 else np.atleast_2d(values)
    return tuple(tuple(_cell(v) for v in row) for row in rows)


def _cell(v: Any) -> str:
    code = np.asarray(v).dtype.kind
    if code in "US":
        return plain(repr(v.item()), 60)
    if code in "iub":
        return str(v)
    if code == "c":
        real, imaginary = format_number(v.real, 3), format_number(abs(v.imag), 3)
        return f"{real}{'-' if v.imag < 0 else '+'}{imaginary}j"
    return format_number(float(v))
