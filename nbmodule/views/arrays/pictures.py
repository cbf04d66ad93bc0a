"""Arrays made small enough to draw: overviews, grids of channels, heads, bars, a corner of values.

A large array is reduced by the mean of equal blocks, each element counted, where it lies: on another device by one
compiled function, on the host in place. What comes out is one byte per cell and the limits of the color scale.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from nbmodule.base.format import count_noun, format_number, plain
from nbmodule.views.arrays.arrays import facts_of, is_integer, to_host
from nbmodule.views.arrays.host_statistics import in_threads
from nbmodule.views.arrays.statistics import lies_elsewhere
from nbmodule.views.records.records import Picture

LARGEST_TILE = 120
"""Cells along one side of a single overview."""
LARGEST_SMALL_TILE = 48
"""Cells along one side of a tile in a grid."""
FIRST_TILES = 16
MOST_BARS = 256
LARGEST_WINDOW = 11
MOST_CLASSES = 10
MOST_COLORS = 4  # of an image, with opacity
NAN, PLUS, MINUS, FIRST, LAST = 0, 1, 2, 3, 255
LIMIT = 0.995


def picture_of(
    x: Any,
    *,
    kind: str | None = None,
    labels: Sequence[str] = (),
    tiles: int = FIRST_TILES,
    side: int | None = None,
    weights: bool = False,
) -> Picture:
    """Draw an array the way its number of axes suggests; what cannot be drawn becomes a picture of text.

    Args:
        x: Any value. Vectors become bars; matrices and longer vectors a heat map; with three and more axes a grid of
            tiles: `[B, H, W, C]` shows the channels of the first example, `[B, H, T, T]` its heads, `[B, T, F]` the examples.
        kind: 'heatmap', 'channels', 'kernels', 'heads' or 'bars', where the suggestion is wrong.
        labels: Names of the bars, or tokens along the axes of heads.
        tiles: How many tiles of a grid are drawn.
        side: Most cells along one side of a tile.
        weights: Whether `x` is a parameter: `[O, 3, 3, I]` and `[3, 3, I, O]` then show one tile for each pair of channels.

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
    kind = kind or kind_for(facts.shape, weights=weights)
    return _draw(x, kind, tuple(plain(t, 40) for t in labels), tiles, side, facts.text)


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
    """The axis at which the window of a convolution kernel begins: 0 or 1, the smaller window first; None for no kernel."""
    places = [k for k in (1, 0) if shape[k] == shape[k + 1] <= LARGEST_WINDOW]
    return min(places, key=lambda k: shape[k], default=None)


def _draw(x: Any, kind: str, labels: tuple[str, ...], tiles: int, side: int | None, of: str) -> Picture:
    notes: list[str] = []
    if kind == "bars":
        return _bars(to_host(jax.device_get(x)).reshape(-1), labels, of)
    x, total = _as_tiles(x, kind, tiles, notes)
    side = side or (LARGEST_TILE if x.shape[0] == 1 else LARGEST_SMALL_TILE)
    values, bad, block = reduce_blocks(x, side)
    if block != (1, 1):
        notes.append(f"mean of {block[0]} × {block[1]} blocks")
    if total > x.shape[0]:
        notes.append(f"{total - x.shape[0]} more")
    data, scale, limits, classes, clipped = quantize(values, bad, x.dtype)
    if clipped:
        notes.append(f"{clipped} clipped")
    about = f"{of} as {count_noun(x.shape[0], 'tile')} of {x.shape[1]} × {x.shape[2]}"
    kind = "channels" if kind == "kernels" else kind
    return Picture(
        kind, values.shape, data, scale, limits, classes, labels, of, _sentence(about, values, bad), (*notes,)
    )


def _sentence(about: str, values: np.ndarray, bad: np.ndarray) -> str:
    finite = values[bad == 0]
    with np.errstate(over="ignore"):
        mean = f"mean {format_number(float(finite.mean()), 3)}" if finite.size else "no finite values"
    wrong = int((bad > 0).sum())
    return f"{about}, {mean}, {count_noun(wrong, 'cell') if wrong else 'none'} non-finite"


def _as_tiles(x: Any, kind: str, tiles: int, notes: list[str]) -> tuple[Any, int]:
    """Bring an array to (tile, row, column); the choice of axes is written to the notes."""
    shape = tuple(x.shape)
    if len(shape) < 2:
        n = x.size
        rows = max(1, int(n**0.5) if n > MOST_BARS else 1)
        columns = -(-n // rows)
        while rows * columns != n and rows > 1:  # the nearest rectangle that holds exactly n
            rows -= 1
            columns = -(-n // rows)
        return x.reshape(1, rows, columns), 1
    if len(shape) == 2:
        return x.reshape(1, *shape), 1
    if kind == "heads" or (kind == "heatmap"):
        return _leading_tiles(x, tiles if kind == "heads" else 1, notes)
    if kind == "kernels":
        if _window(shape) == 1:  # channels out first
            x = x.transpose(1, 2, 0, 3)
        x = x.reshape(*x.shape[:2], -1)
        total, x = x.shape[-1], x[:, :, :tiles]
    else:
        if len(shape) > 3:
            notes.append(f"first of {shape[0]}" if len(shape) == 4 else f"first of {' × '.join(map(str, shape[:-3]))}")
            x = x[(0,) * (len(shape) - 3)]
        total, x = x.shape[-1], x[:, :, :tiles]
    module: Any = jnp if isinstance(x, jax.Array) else np
    return module.moveaxis(x, -1, 0), total


def _leading_tiles(x: Any, tiles: int, notes: list[str]) -> tuple[Any, int]:
    while x.ndim > 3:
        if x.shape[0] > 1:
            notes.append(f"first of {x.shape[0]}")
        x = x[0]
    return x[:tiles], x.shape[0]


def reduce_blocks(x: Any, side: int) -> tuple[np.ndarray, np.ndarray, tuple[int, int]]:
    """Average equal blocks until no side has more than `side` cells.

    Returns:
        The means of the finite elements of each block; 0 where all are finite, else 1 NaN, 2 +Inf, 3 -Inf; the block.
    """
    block = (-(-x.shape[1] // side), -(-x.shape[2] // side))
    if lies_elsewhere(x) and x.size * x.dtype.itemsize > 1 << 20:
        means, bad = jax.device_get(_reduce_on_device(x, block))
        return means, bad, block
    return (*_reduce_on_host(to_host(jax.device_get(x)), block), block)


def _reduce_on_host(x: np.ndarray, block: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    values = x if x.dtype == np.float64 else x.astype(np.float32, copy=False)
    with np.errstate(all="ignore"):
        sums = _block_sums(values, block)
        if np.isfinite(sums).all():  # then every element is
            return sums / _block_sizes(values.shape, block), np.zeros(sums.shape, np.uint8)
    finite = np.isfinite(values)
    bad = np.full(values.shape, 4, np.uint8)
    bad[values == -np.inf], bad[values == np.inf], bad[np.isnan(values)] = 3, 2, 1
    for axis, step in ((1, block[0]), (2, block[1])):
        bad = np.minimum.reduceat(bad, np.arange(0, bad.shape[axis], step), axis=axis)
    count = np.maximum(_block_sums(finite.astype(np.float32), block), 1)
    with np.errstate(over="ignore"):
        means = _block_sums(np.where(finite, values, 0), block) / count
    return np.nan_to_num(means), np.where(bad == 4, 0, bad).astype(np.uint8)


def _reduced_shape(shape: tuple[int, ...], block: tuple[int, int]) -> tuple[int, ...]:
    return shape[0], -(-shape[1] // block[0]), -(-shape[2] // block[1])


def _block_sums(x: np.ndarray, block: tuple[int, int]) -> np.ndarray:
    if block[0] > 1:  # adding whole rows is several times faster than `reduceat` along them
        rows = _reduced_shape(x.shape, block)[1]
        out = np.empty((x.shape[0], rows, x.shape[2]), x.dtype)
        in_threads(functools.partial(_add_rows, x, out, block[0]), rows, x.size)
        x = out
    return np.add.reduceat(x, np.arange(0, x.shape[2], block[1]), axis=2) if block[1] > 1 else x


def _add_rows(x: np.ndarray, out: np.ndarray, step: int, first: int, last: int) -> None:
    for k in range(first, last):
        np.add.reduce(x[:, k * step : (k + 1) * step], axis=1, out=out[:, k])


def _block_sizes(shape: tuple[int, ...], block: tuple[int, int]) -> np.ndarray:
    sizes = [np.minimum(step, n - np.arange(0, n, step)) for n, step in zip(shape[1:], block, strict=True)]
    return np.outer(*sizes).astype(np.float32)


@functools.partial(jax.jit, static_argnames="block")
def _reduce_on_device(x: jax.Array, block: tuple[int, int]) -> tuple[jax.Array, jax.Array]:
    x = (jnp.abs(x) if jnp.iscomplexobj(x) else x).astype(jnp.float32)
    fill = [(0, 0)] + [(0, -n % step) for n, step in zip(x.shape[1:], block, strict=True)]
    inside = jnp.pad(jnp.ones(x.shape, bool), fill)
    tiles, rows, columns = _reduced_shape(x.shape, block)
    cut = (tiles, rows, block[0], columns, block[1])
    x, inside = jnp.pad(x, fill).reshape(cut), inside.reshape(cut)
    finite = jnp.isfinite(x) & inside
    kind = jnp.where(jnp.isnan(x), 1, jnp.where(x == jnp.inf, 2, jnp.where(x == -jnp.inf, 3, 4)))
    worst = kind.min((2, 4))
    means = jnp.where(finite, x, 0).sum((2, 4)) / jnp.maximum(finite.sum((2, 4)), 1)
    return means, jnp.where(worst == 4, 0, worst).astype(jnp.uint8)


def quantize(
    values: np.ndarray, bad: np.ndarray, dtype: Any, limit: float | None = None
) -> tuple[bytes, str, tuple[float, float], tuple[str, ...], int]:
    """Give each cell one byte: its bytes, the kind of scale, the limits, names of classes, how many cells were clipped.

    The end of the scale is `limit`, by default 99.5 % of the largest values.
    """
    finite = values[bad == 0] if bad.any() else values.reshape(-1)
    classes = _classes(finite, dtype)
    if classes is not None:
        code = np.searchsorted(classes, values) + FIRST
        limits = (float(classes[0]), float(classes[-1])) if classes.size else (0.0, 0.0)
        names = tuple(str(bool(c)) if dtype == np.bool_ else str(int(c)) for c in classes)
        return _with_marks(code, bad), "classes", limits, names, 0
    if not finite.size:
        return _with_marks(np.full(values.shape, FIRST), bad), "positive", (0.0, 0.0), (), 0
    size = np.abs(finite)
    limit = limit or float(np.quantile(size, LIMIT)) or float(size.max())
    limit = float(f"{limit:.4g}") if limit else 0.0
    signed = bool((finite < 0).any())
    low = -limit if signed else 0.0
    if limit == 0:
        code = np.full(values.shape, FIRST)
        return _with_marks(code, bad), "positive", (0.0, 0.0), (), 0
    middle, half = ((FIRST + LAST) / 2, (LAST - FIRST) / 2) if signed else (FIRST, LAST - FIRST)
    scaled = np.clip(values.astype(np.float64) / limit, -1, 1)
    code = np.rint(middle + half * scaled)
    clipped = int((size > limit * 1.0005).sum())
    return _with_marks(code, bad), "signed" if signed else "positive", (low, limit), (), clipped


def _classes(finite: np.ndarray, dtype: Any) -> np.ndarray | None:
    if not is_integer(dtype) or finite.size == 0:
        return None
    if float(finite.max()) - float(finite.min()) > 1000 or not np.array_equal(finite, np.rint(finite)):
        return None
    classes = np.unique(finite)
    return classes if classes.size <= MOST_CLASSES else None


def _with_marks(code: np.ndarray, bad: np.ndarray) -> bytes:
    code = code.astype(np.uint8)
    if bad.any():
        code = np.where(bad > 0, bad - 1, code)
    return code.astype(np.uint8).tobytes()


def _bars(values: np.ndarray, labels: tuple[str, ...], of: str) -> Picture:
    values = values.astype(np.float64)
    notes = ()
    if values.size > MOST_BARS:
        step = -(-values.size // MOST_BARS)
        starts = np.arange(0, values.size, step)
        values = np.add.reduceat(values, starts) / np.minimum(step, values.size - starts)
        notes = (f"mean of {step} neighbors",)
    finite = values[np.isfinite(values)]
    limits = (float(min(finite.min(), 0)), float(max(finite.max(), 0))) if finite.size else (0.0, 0.0)
    scale = "signed" if limits[0] < 0 else "positive"
    with np.errstate(over="ignore"):
        data = values.astype("<f4").tobytes()
    bad = (~np.isfinite(values)).astype(np.uint8)
    about = _sentence(f"{of} as {count_noun(values.size, 'bar')}", values, bad)
    return Picture("bars", (values.size,), data, scale, limits, (), labels[: values.size], of, about, notes)


def corner_of(x: Any, side: int = 6) -> tuple[tuple[str, ...], ...]:
    """Write at most `side` x `side` values of the last two axes, at index 0 of the others, as text."""
    facts = facts_of(x)
    if facts.unreadable or facts.shape is None or 0 in facts.shape:
        return ()
    part = x[(0,) * max(len(facts.shape) - 2, 0)] if len(facts.shape) > 2 else x
    part = part[:side, :side] if len(part.shape) == 2 else part[:side] if len(part.shape) == 1 else part
    values = np.asarray(jax.device_get(part))
    if values.dtype.kind not in "iubc":
        values = to_host(values)
    values = np.atleast_2d(values)
    return tuple(tuple(_cell(v) for v in row) for row in values)


def _cell(v: Any) -> str:
    kind = np.asarray(v).dtype.kind
    if kind == "c":
        return f"{format_number(v.real, 3)}{'-' if v.imag < 0 else '+'}{format_number(abs(v.imag), 3)}j"
    return str(v) if kind in "iub" else format_number(float(v))
