"""Arrays made small enough to draw: overviews, grids of channels, heads, bars, a corner of values.

A large array is reduced by the mean of blocks that are equal to within one row and column, each
element counted, where it lies: on another device by one compiled function, on the host in place. A
block with an element that stands out far beyond what the others hold shows that element in place of
its mean, and is marked. What comes out is one byte per cell and the limits of the color scale.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from nbmodule.base.format import count_noun, format_number, plain
from nbmodule.base.kinds import Shaped
from nbmodule.views.arrays.exact import exact_bytes
from nbmodule.views.arrays.host_statistics import in_threads
from nbmodule.views.arrays.reductions import lies_elsewhere
from nbmodule.views.arrays.scales import FIRST, most_of, quantize, with_marks
from nbmodule.views.arrays.values import facts_of, readable_numbers
from nbmodule.views.records.records import Picture

LARGEST_TILE = 120
"""Cells along one side of a single overview."""
LARGEST_SMALL_TILE = 48
"""Cells along one side of a tile in a grid."""
FIRST_TILES = 16
MOST_BARS = 256
LARGEST_WINDOW = 11
MOST_COLORS = 4  # of an image, with opacity
HUES, PHASE_LEVELS = 36, 7  # of complex values: 252 colors in all
FIRST_OF_MANY = 64  # tiles of an array of five and more axes
FAR = 3.0
"""An element stands out if it is so many times farther from the mean of its block than in nine blocks of ten."""
MOST_EXTREMES = 64
"""Of the elements that stand out, so many are named; all are counted."""


def picture_of(
    x: Shaped,
    *,
    kind: str | None = None,
    labels: Sequence[str] = (),
    tiles: int = FIRST_TILES,
    side: int | None = None,
    weights: bool = False,
    exact: int = 0,
    limits: tuple[float, float] | None = None,
) -> Picture:
    """Draw an array the way its number of axes suggests; what cannot be drawn becomes a picture of
    text.

    Args:
        x: Any value. Vectors become bars; matrices and longer vectors a heat map; with three and
            more axes a grid of
            tiles: `[B, H, W, C]` shows the channels of the first example, `[B, H, T, T]` its heads,
            `[B, T, F]` the examples.
        kind: 'heatmap', 'channels', 'kernels', 'heads' or 'bars', where the suggestion is wrong.
        labels: Names of the bars, or tokens along the axes of heads.
        tiles: How many tiles of a grid are drawn.
        side: Most cells along one side of a tile.
        exact: Up to so many elements, the picture holds their values too, for whoever points at
            them, and a vector is drawn element by element.
        weights: Whether `x` is a parameter: `[O, 3, 3, I]` and `[3, 3, I, O]` then show one tile
            for each pair of channels.
        limits: The ends of the scale, for pictures that are to be compared; by default its own.

    Example:
        >>> picture = picture_of(np.arange(6.0).reshape(2, 3))
        >>> picture.kind, picture.shape, picture.limits
        ('heatmap', (1, 2, 3), (0.0, 5.0))
    """
    facts = facts_of(x)
    if facts.unreadable or facts.shape is None:
        return text_picture(facts.text, facts.unreadable or "no array")
    if 0 in facts.shape:
        return text_picture(facts.text, "no elements")
    is_few = facts.dtype == "bool" and x.size > MOST_BARS  # colors say more than a line
    if kind is None and len(facts.shape) == 1 and x.size <= exact and not is_few:
        kind = "bars"  # a line where it is long
    kind = kind or kind_for(facts.shape, weights=weights)
    return _draw(
        x, kind, tuple(plain(t, 40) for t in labels), tiles, side, facts.text, limits, exact
    )


def text_picture(of: str, reason: str) -> Picture:
    """Stand in for a picture that cannot be drawn."""
    return Picture("text", of=of, about=f"{of}: {reason}", notes=(reason,))


def kind_for(shape: tuple[int, ...], *, weights: bool = False) -> str:
    """Suggest a kind of picture for a shape, after leading axes of length 1 are left out."""
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
    """The axis at which the window of a convolution kernel begins: 0 or 1, the smaller window
    first; None for no kernel.
    """
    places = [k for k in (1, 0) if shape[k] == shape[k + 1] <= LARGEST_WINDOW]
    return min(places, key=lambda k: shape[k], default=None)


def _draw(
    x: Any,
    kind: str,
    labels: tuple[str, ...],
    tiles: int,
    side: int | None,
    of: str,
    limits: tuple[float, float] | None = None,
    exact: int = 0,
) -> Picture:
    notes: list[str] = []
    if kind == "bars":
        bars = _bars(readable_numbers(jax.device_get(x)).reshape(-1), labels, of, exact)
        bars = bars._replace(notes=("|x|", *bars.notes)) if np.dtype(x.dtype).kind == "c" else bars
        return (
            bars
            if limits is None
            else bars._replace(limits=limits, scale="signed" if limits[0] < 0 else "positive")
        )
    lengths = tuple(x.shape)
    x, total, axes = _as_tiles(x, kind, tiles, notes)
    if total > x.shape[0]:
        notes.append(f"{total - x.shape[0]} more")
    side = side or (LARGEST_TILE if x.shape[0] == 1 else LARGEST_SMALL_TILE)
    about = f"{of} as {count_noun(x.shape[0], 'tile')}"
    low, high = limits or (0.0, None)
    picture = draw_tiles(
        x,
        side,
        "channels" if kind == "kernels" else kind,
        of=of,
        about=about,
        notes=notes,
        labels=labels,
        limit=high,
        signed=low < 0,
    )
    return with_exact(picture, x, exact)._replace(
        axes=axes, lengths=tuple(lengths[axis] for axis in axes)
    )


def with_exact(picture: Picture, x: Any, most: int) -> Picture:
    """Add the values themselves to a picture of `x`, where there are at most so many and each cell
    is one of them.
    """
    if x.size > most or picture.shape != x.shape:
        return picture
    exact, kind = exact_bytes(np.asarray(jax.device_get(x)))
    return picture._replace(exact=exact, exact_type=kind)


def draw_tiles(
    x: Any,
    side: int,
    kind: str,
    *,
    of: str,
    about: str,
    notes: Sequence[str] = (),
    labels: tuple[str, ...] = (),
    limit: float | None = None,
    signed: bool = False,
    origin: tuple[int, int] = (0, 0),
    scale: str = "",
    low: float | None = None,
) -> Picture:
    """Draw an array `[tile, row, column]` with at most `side` cells along each side of a tile.

    Args:
        x: The values.
        side: Most cells along one side.
        kind: What the page lays out: 'heatmap', 'channels' or 'heads'.
        of: The array in words.
        about: The beginning of the sentence for readers who do not see the picture.
        notes: What else the picture does not show.
        labels: Tokens along the axes.
        limit: The end of the color scale; by default that of most cells.
        signed: Whether the scale has a negative half though nothing is negative.
        origin: Row and column of the array at which `x` begins.
        scale: One of `SCALES`; complex values show their phase whatever is asked.
        low: The beginning of the scale 'range'.
    """
    if np.dtype(x.dtype).kind == "c":
        return _draw_phase(
            x,
            side,
            kind,
            of=of,
            about=about,
            notes=notes,
            labels=labels,
            limit=limit,
            origin=origin,
        )
    blocks = reduce_blocks(x, side)
    shown, extremes = blocks.with_extremes()
    if not scale:
        limit = limit or _limit_of(blocks)
    coded = quantize(shown, blocks.bad, x.dtype, limit, extremes, signed, scale, low)
    words = [f"mean of {blocks.said} blocks"] if blocks.said else []
    if extremes:
        largest = max(extremes.values(), key=abs)
        words.append(
            f"{count_noun(len(extremes), 'block')} marked: an extreme in place of the mean, up to {format_number(largest, 3)}"
        )
    words += notes
    words += [f"{coded.clipped} clipped"] if coded.clipped else []
    about = f"{about} of {shown.shape[1]} × {shown.shape[2]}"
    kept = sorted(extremes, key=lambda k: -abs(extremes[k]))[:MOST_EXTREMES]
    return Picture(
        kind,
        shown.shape,
        coded.data,
        coded.scale,
        coded.limits,
        coded.classes,
        labels,
        of,
        _sentence(about, blocks),
        (*words,),
        extremes={k: extremes[k] for k in sorted(kept)},
        window=(*origin, *x.shape[1:]),
        ends=coded.ends,
    )


def _draw_phase(
    x: Any,
    side: int,
    kind: str,
    *,
    of: str,
    about: str,
    notes: Sequence[str],
    labels: tuple[str, ...],
    limit: float | None,
    origin: tuple[int, int],
) -> Picture:
    """Draw complex values: the phase as hue, the size as how strong the color is."""
    real, imaginary = reduce_blocks(x.real, side), reduce_blocks(x.imag, side)
    bad = np.where(real.bad > 0, real.bad, imaginary.bad)
    values = real.means.astype(np.float64) + 1j * imaginary.means
    size = np.abs(values)
    good = size[bad == 0]
    limit = limit or most_of(good)
    limit = float(f"{limit:.4g}")
    level = np.rint((PHASE_LEVELS - 1) * np.clip(size / (limit or 1.0), 0, 1))
    hue = np.rint((np.angle(values) / (2 * np.pi) + 0.5) * HUES) % HUES
    words = [f"mean of {real.said} blocks"] if real.said else []
    clipped = int((good > limit * 1.0005).sum())
    return Picture(
        kind,
        values.shape,
        with_marks(FIRST + PHASE_LEVELS * hue + level, bad),
        "phase",
        (0.0, limit),
        (),
        labels,
        of,
        _sentence(
            f"{about} of {values.shape[1]} × {values.shape[2]}, phase as hue",
            real._replace(means=size, bad=bad),
        ),
        (*words, *notes, *([f"{clipped} clipped"] if clipped else [])),
        window=(*origin, *x.shape[1:]),
    )


def _sentence(about: str, blocks: Blocks) -> str:
    good = blocks.bad == 0
    wrong = int((~good).sum())
    with np.errstate(over="ignore", invalid="ignore"):
        weights = np.broadcast_to(blocks.sizes, good.shape)[good]
        mean = (
            float(np.average(blocks.means[good].astype(np.float64), weights=weights))
            if good.any()
            else None
        )
    said = "no finite values" if mean is None else f"mean {format_number(mean, 3)}"
    return f"{about}, {said}, {count_noun(wrong, 'cell') if wrong else 'none'} non-finite"


def _as_tiles(
    x: Array, kind: str, tiles: int, notes: list[str]
) -> tuple[Any, int, tuple[int, ...]]:
    """Bring an array to (tile, row, column); the choice of axes is written to the notes, and those
    of rows, columns, tiles given.
    """
    shape = tuple(x.shape)
    last = len(shape) - 1
    if len(shape) < 2:
        n = x.size
        rows = max(1, int(n**0.5) if n > MOST_BARS else 1)
        columns = -(-n // rows)
        while rows * columns != n and rows > 1:  # the nearest rectangle that holds exactly n
            rows -= 1
            columns = -(-n // rows)
        notes += [f"folded into {count_noun(rows, 'row')} of {columns}"] if rows > 1 else []
        return x.reshape(1, rows, columns), 1, (0,)[: len(shape)]
    if len(shape) == 2:
        return x.reshape(1, *shape), 1, (0, 1)
    if len(shape) > 4 and kind != "heatmap":
        x = x.reshape(-1, *shape[-2:])
        return x[: max(tiles, FIRST_OF_MANY)], x.shape[0], (last - 1, last, *range(last - 1))
    if kind == "heads" or (kind == "heatmap"):
        return *_leading_tiles(x, tiles if kind == "heads" else 1, notes), (
            last - 1,
            last,
            last - 2,
        )
    if kind == "kernels":
        if _window(shape) == 1:  # channels out first
            x = x.transpose(1, 2, 0, 3)
        axes = (1, 2, 0, 3) if _window(shape) == 1 else (0, 1, 2, 3)
        x = x.reshape(*x.shape[:2], -1)
        total, x = x.shape[-1], x[:, :, :tiles]
    else:
        if len(shape) > 3:
            notes += [f"first of {shape[0]}"] if shape[0] > 1 else []
            x = x[(0,) * (len(shape) - 3)]
        total, x = x.shape[-1], x[:, :, :tiles]
        axes = (last - 2, last - 1, last)
    module: Any = jnp if isinstance(x, jax.Array) else np
    return module.moveaxis(x, -1, 0), total, axes


def _leading_tiles(x: Array, tiles: int, notes: list[str]) -> tuple[Any, int]:
    while x.ndim > 3:
        if x.shape[0] > 1:
            notes.append(f"first of {x.shape[0]}")
        x = x[0]
    return x[:tiles], x.shape[0]


class Blocks(NamedTuple):
    """An array `[tile, row, column]` in blocks: each array below is `[tile, rows of blocks, columns
    of blocks]`.
    """

    means: np.ndarray
    """Of the finite elements; 0 where there are none."""
    bad: np.ndarray
    """0 where all elements are finite, else 1 NaN, 2 +Inf, 3 -Inf."""
    low: np.ndarray
    """The lowest finite element, or +Inf."""
    high: np.ndarray
    """The highest finite element, or -Inf."""
    shape: tuple[int, int]
    """Rows and columns of the array."""

    @property
    def sizes(self) -> np.ndarray:
        """How many elements each block has."""
        rows, columns = (
            np.diff(block_edges(n, k))
            for n, k in zip(self.shape, self.means.shape[1:], strict=True)
        )
        return np.outer(rows, columns)

    @property
    def said(self) -> str:
        """The size of the blocks in words, as `34…35 × 7`; '' where each element is a block."""
        if self.shape == self.means.shape[1:]:
            return ""
        sides = zip(self.shape, self.means.shape[1:], strict=True)
        return " × ".join(f"{n // k}…{n // k + 1}" if n % k else str(n // k) for n, k in sides)

    def with_extremes(self) -> tuple[np.ndarray, dict[int, float]]:
        """Give what each cell shows, and the extremes that are shown in place of a mean, by cell.

        Nine blocks of ten say how far elements lie from the mean of their block; what lies several
        times farther in one of the others would vanish in its mean.
        """
        if not self.said:
            return self.means, {}
        with np.errstate(over="ignore", invalid="ignore"):
            above, below = (
                self.high - self.means.astype(np.float64),
                self.means - self.low.astype(np.float64),
            )
        apart = np.maximum(above, below)
        apart[~np.isfinite(apart)] = 0
        cells = np.flatnonzero(apart > FAR * np.quantile(apart, 0.9))
        if not cells.size:
            return self.means, {}
        shown = self.means.copy()
        shown.flat[cells] = np.where(above >= below, self.high, self.low).flat[cells]
        bad = self.bad.reshape(-1)
        return shown, {int(k): float(shown.flat[k]) for k in cells if not bad[k]}


def block_edges(n: int, blocks: int) -> np.ndarray:
    """Where each of so many blocks begins, and the end: their sizes differ by one at most.

    A thin block at the end would deviate more than the others, and look like a fault of the array.

    Example:
        >>> block_edges(10, 4).tolist()
        [0, 2, 5, 7, 10]
    """
    return np.arange(blocks + 1) * n // blocks


def reduce_blocks(x: Any, side: int) -> Blocks:
    """Reduce blocks of rows and columns until no side has more than `side` cells."""
    rows, columns = x.shape[1:]
    cells = _blocks_for(rows, side), _blocks_for(columns, side)
    if lies_elsewhere(x) and x.size * x.dtype.itemsize > 1 << 20:
        parts = jax.device_get(_reduce_on_device(x, cells))
    else:
        parts = _reduce_on_host(readable_numbers(jax.device_get(x)), cells)
    return Blocks(*parts, (rows, columns))  # pyright: ignore[reportCallIssue] - four parts, as both reducers give


def _blocks_for(n: int, side: int) -> int:
    return -(-n // -(-n // side))


def _reduce_on_host(x: np.ndarray, cells: tuple[int, int]) -> tuple[np.ndarray, ...]:
    values = x if x.dtype == np.float64 else x.astype(np.float32, copy=False)
    with np.errstate(all="ignore"):
        sums = _fold(np.add, values, cells)
        if np.isfinite(sums).all():  # then every element is
            sizes = _fold(np.add, np.ones((1, *x.shape[1:]), np.float32), cells)
            low, high = (_fold(extreme, values, cells) for extreme in (np.minimum, np.maximum))
            return sums / sizes, np.zeros(sums.shape, np.uint8), low, high
    finite = np.isfinite(values)
    bad = np.full(values.shape, 4, np.uint8)
    bad[values == -np.inf], bad[values == np.inf], bad[np.isnan(values)] = 3, 2, 1
    bad = _fold(np.minimum, bad, cells)
    count = np.maximum(_fold(np.add, finite.astype(np.float32), cells), 1)
    with np.errstate(over="ignore"):
        means = _fold(np.add, np.where(finite, values, 0), cells) / count
    low = _fold(np.minimum, np.where(finite, values, np.inf), cells)
    high = _fold(np.maximum, np.where(finite, values, -np.inf), cells)
    return np.nan_to_num(means), np.where(bad == 4, 0, bad).astype(np.uint8), low, high


def _fold(reduce: np.ufunc, x: np.ndarray, cells: tuple[int, int]) -> np.ndarray:
    """Reduce each block of `[tile, row, column]` to one number."""
    rows, columns = x.shape[1:]
    if cells[0] < rows:  # whole rows at once are several times faster than `reduceat` along them
        out = np.empty((x.shape[0], cells[0], columns), x.dtype)
        in_threads(
            functools.partial(_fold_rows, reduce, x, out, block_edges(rows, cells[0])),
            cells[0],
            x.size,
        )
        x = out
    return (
        reduce.reduceat(x, block_edges(columns, cells[1])[:-1], axis=2) if cells[1] < columns else x
    )


def _fold_rows(
    reduce: np.ufunc, x: np.ndarray, out: np.ndarray, edges: np.ndarray, first: int, last: int
) -> None:
    for k in range(first, last):
        reduce.reduce(x[:, edges[k] : edges[k + 1]], axis=1, out=out[:, k])


@functools.partial(jax.jit, static_argnames="cells")
def _reduce_on_device(x: jax.Array, cells: tuple[int, int]) -> tuple[jax.Array, ...]:
    x = (jnp.abs(x) if jnp.iscomplexobj(x) else x).astype(jnp.float32)
    finite = jnp.isfinite(x)
    kind = jnp.where(jnp.isnan(x), 1, jnp.where(x == jnp.inf, 2, jnp.where(x == -jnp.inf, 3, 4)))
    worst = _fold_on_device(jnp.min, kind, cells, 4)
    count = _fold_on_device(jnp.sum, finite.astype(jnp.float32), cells, 0)
    means = _fold_on_device(jnp.sum, jnp.where(finite, x, 0), cells, 0) / jnp.maximum(count, 1)
    low = _fold_on_device(jnp.min, jnp.where(finite, x, jnp.inf), cells, jnp.inf)
    high = _fold_on_device(jnp.max, jnp.where(finite, x, -jnp.inf), cells, -jnp.inf)
    return means, jnp.where(worst == 4, 0, worst).astype(jnp.uint8), low, high


def _fold_on_device(
    reduce: Callable[..., Any], x: jax.Array, cells: tuple[int, int], filler: float
) -> jax.Array:
    """Reduce each block; a block that is one shorter than the longest is filled up."""
    for axis, count in ((1, cells[0]), (2, cells[1])):
        edges = block_edges(x.shape[axis], count)
        at = edges[:-1, None] + np.arange(np.diff(edges).max())
        inside = (at < edges[1:, None]).reshape(at.shape + (1,) * (2 - axis))
        x = jnp.where(inside, jnp.take(x, np.minimum(at, x.shape[axis] - 1), axis=axis), filler)
        x = reduce(x, axis=axis + 1)
    return x


def _limit_of(blocks: Blocks) -> float | None:
    """The end of the scale of the means alone: a few extremes would make all else pale."""
    return most_of(blocks.means[blocks.bad == 0]) or None


def _bars(values: np.ndarray, labels: tuple[str, ...], of: str, exact: int = 0) -> Picture:
    values, notes = values.astype(np.float64), []
    if values.size > max(MOST_BARS, exact):
        blocks = reduce_blocks(values.reshape(1, 1, -1), MOST_BARS)
        shown, extremes = blocks.with_extremes()
        marks = np.array([0, np.nan, np.inf, -np.inf])
        values = np.where(blocks.bad > 0, marks[blocks.bad], shown).reshape(-1)
        notes.append(f"mean of {blocks.said.rpartition(' ')[2]} neighbors")
        notes += (
            [f"{count_noun(len(extremes), 'bar')} at an extreme in place of the mean"]
            if extremes
            else []
        )
    finite = values[np.isfinite(values)]
    limits = (
        (float(min(finite.min(), 0)), float(max(finite.max(), 0))) if finite.size else (0.0, 0.0)
    )
    scale = "signed" if limits[0] < 0 else "positive"
    with np.errstate(over="ignore"):
        data = values.astype("<f4").tobytes()
    mean = f"mean {format_number(float(finite.mean()), 3)}" if finite.size else "no finite values"
    wrong = values.size - finite.size
    about = f"{of} as {count_noun(values.size, 'bar')}, {mean}, {count_noun(wrong, 'cell') if wrong else 'none'} non-finite"
    return Picture(
        "bars", (values.size,), data, scale, limits, (), labels[: values.size], of, about, (*notes,)
    )


def corner_of(x: Any, side: int = 6) -> tuple[tuple[str, ...], ...]:
    """Write at most `side` x `side` values of the last two axes, at index 0 of the others, as text."""
    facts = facts_of(x)
    is_text = getattr(getattr(x, "dtype", None), "kind", "") in ("U", "S")
    if (facts.unreadable and not is_text) or facts.shape is None or 0 in facts.shape:
        return ()
    part = x[(0,) * max(len(facts.shape) - 2, 0)] if len(facts.shape) > 2 else x
    part = (
        part[:side, :side]
        if len(part.shape) == 2
        else part[:side]
        if len(part.shape) == 1
        else part
    )
    values = np.asarray(jax.device_get(part))
    if values.dtype.kind not in "iubcUS":
        values = readable_numbers(values)
    if facts.shape == () and values.dtype.kind == "f":
        return ((f"{values.item():.7g}",),)  # it stands alone: all digits of a float32
    values = values.reshape(-1, 1) if is_text and values.ndim == 1 else np.atleast_2d(values)
    return tuple(tuple(_cell(v) for v in row) for row in values)


def _cell(v: Any) -> str:
    kind = np.asarray(v).dtype.kind
    if kind in "US":
        return plain(repr(v.item()), 60)
    if kind == "c":
        return f"{format_number(v.real, 3)}{'-' if v.imag < 0 else '+'}{format_number(abs(v.imag), 3)}j"
    if kind in "iub":
        return str(v)
    return format_number(float(v))
