"""Pooling over one to three spatial axes: the largest or the mean value under a sliding window, and
means over parts of the image.
"""

from __future__ import annotations

from typing import Any, NamedTuple, SupportsIndex

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Real

from nbmodule.base.format import describe_shape
from nbmodule.base.promotion import widened, widened_array
from nbmodule.errors import ArgumentError, DtypeError, ShapeError
from nbmodule.nn.checks import sizes
from nbmodule.nn.functional.windows import (
    Padding,
    Pairs,
    Sizes,
    check_fit,
    for_axes,
    mix,
    pad,
    pairs,
    resolve,
    slide,
    spatial_axes,
)

_OPTIONS = ("kernel_size", "stride", "padding", "ceil_mode", "data_format")
_MAX_OPTIONS = (*_OPTIONS, "dilation")
_AVG_OPTIONS = (*_OPTIONS, "count_include_pad", "divisor_override")


def _max_pool(  # noqa: D417 - `n` comes from `for_axes`
    n: int,
    x: Real[Array, "*_images _channels"],
    kernel_size: Sizes,
    *,
    stride: Sizes | None = None,
    padding: Padding = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
    data_format: str = "",
) -> Real[Array, "*_new_images _channels"]:
    """Take the largest value under a window that slides over $images, channel by channel.

    Of equal values the first gets the gradient. Padding never wins.

    Args:
        x: Values with $axes, and any number of leading axes.
        kernel_size: Size of the window, one number or one for each axis.
        stride: Step of the window, by default its size.
        padding: At each side: a number, one for each axis, a pair (before, after) for each axis,
            `VALID` for none, or `SAME` for as many outputs as inputs, divided by the stride and
            rounded up. Numbers are at most half the window.
        dilation: Distance of the places that the window reads.
        ceil_mode: Also keep a last window that reaches over the end, if it begins inside of the
            input.
        data_format: $formats; channels are last by default.

    Raises:
        ShapeError: If the window is larger than the padded input.
        ArgumentError: If the padding is more than half the window.

    Example:
        >>> $name(jnp.ones((2, *8, 3)), 2).shape
        (2, *4, 3)

    Source: Weng, Ahuja and Huang (1992), Cresceptron.
    """
    if x.dtype == jnp.bool_:
        raise DtypeError(
            f"x must hold numbers, got {describe_shape(x)}. Convert it first: "
            'x.astype("uint8"); the largest is then 1 where any was true.'
        )
    axes = spatial_axes(x, data_format, n)
    windows = windows_of(x, axes, kernel_size, stride, padding, dilation, ceil_mode)
    least = -np.inf if jnp.issubdtype(x.dtype, jnp.floating) else jnp.iinfo(x.dtype).min
    x = pad(x, axes, tuple(window.reach for window in windows), least)
    for axis, window in reversed(list(zip(axes, windows, strict=True))):
        x = slide(x, axis, window.size, window.stride, window.dilation, _larger)
    return x


def _avg_pool(  # noqa: D417 - `n` comes from `for_axes`
    n: int,
    x: Float[Array, "*_images _channels"],
    kernel_size: Sizes,
    *,
    stride: Sizes | None = None,
    padding: Padding = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: float | None = None,
    data_format: str = "",
) -> Float[Array, "*_new_images _channels"]:
    """Take the mean under a window that slides over $images, channel by channel.

    Args:
        x: Values with $axes, and any number of leading axes.
        kernel_size: Size of the window, one number or one for each axis.
        stride: Step of the window, by default its size.
        padding: As in `max_pool2d`.
        ceil_mode: Also keep a last window that reaches over the end, if it begins inside of the
            input. Places beyond the padding are not counted.
        count_include_pad: Whether padding counts as zeros, or not at all.
        divisor_override: Divide the sum by this in place of the number of values.
        data_format: $formats; channels are last by default.

    Raises:
        ShapeError: If the window is larger than the padded input.
        ArgumentError: If the padding is more than half the window.

    Example:
        >>> $name(jnp.ones((2, *8, 3)), 2).shape
        (2, *4, 3)

    Source: Fukushima (1980), Neocognitron.
    """
    axes = spatial_axes(x, data_format, n)
    windows = windows_of(x, axes, kernel_size, stride, padding, 1, ceil_mode)
    divisor: Any = divisor_override
    if divisor_override is None:
        divisor = _counts(x, axes, windows, count_include_pad)
    elif divisor_override == 0:
        raise ArgumentError("divisor_override must not be zero.")
    total = pad(widened_array(x), axes, tuple(window.reach for window in windows), 0)
    for axis, window in reversed(list(zip(axes, windows, strict=True))):
        total = slide(total, axis, window.size, window.stride, 1, lax.add)
    return lax.convert_element_type(total / divisor, x.dtype)


def _adaptive_avg_pool(  # noqa: D417 - `n` comes from `for_axes`
    n: int,
    x: Float[Array, "*_images _channels"],
    output_size: Sizes | tuple[SupportsIndex | None, ...],
    *,
    data_format: str = "",
) -> Float[Array, "*_new_images _channels"]:
    """Take means over parts of $images, so that the output has a given size.

    On an axis of size `n`, output `i` of `m` is the mean of places `floor(i * n / m)` to `ceil((i +
    1) * n / m) - 1`.

    Args:
        x: Values with $axes, and any number of leading axes.
        output_size: One size or one for each axis; None keeps the size of that axis; 1 takes the
            mean of the whole input.
        data_format: $formats; channels are last by default.

    Example:
        >>> $name(jnp.ones((2, *7, 3)), 4).shape
        (2, *4, 3)

    Source: He, Zhang, Ren and Sun (2014), arXiv:1406.4729.
    """
    axes = spatial_axes(x, data_format, n)
    if isinstance(output_size, tuple) and len(output_size) == n:
        output_size = tuple(
            x.shape[a] if size is None else size for a, size in zip(axes, output_size, strict=True)
        )
    new = sizes("output_size", output_size, n)
    if any(x.shape[axis] == 0 for axis in axes):
        raise ShapeError(f"x must have pixels, got {describe_shape(x)}.")
    for axis, size in zip(axes, new, strict=True):
        if x.shape[axis] % size == 0:
            parts = (*x.shape[:axis], size, x.shape[axis] // size, *x.shape[axis + 1 :])
            x = jnp.mean(lax.reshape(x, parts), axis + 1)
        else:
            x = mix(x, axis, _shares(x.shape[axis], size))
    return x


max_pool1d, max_pool2d, max_pool3d = for_axes("max_pool", _max_pool, static=_MAX_OPTIONS)


avg_pool1d, avg_pool2d, avg_pool3d = for_axes("avg_pool", _avg_pool, static=_AVG_OPTIONS)


adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d = for_axes(
    "adaptive_avg_pool", _adaptive_avg_pool, static=("output_size", "data_format")
)


class _Window(NamedTuple):
    """The window on one axis."""

    size: int
    stride: int
    dilation: int
    edges: tuple[int, int]  # padding before and after
    reach: tuple[int, int]  # the padding, and as much more as a last window needs in `ceil_mode`


def windows_of(
    x: Array,
    axes: tuple[int, ...],
    kernel_size: object,
    stride: object,
    padding: object,
    dilation: object,
    ceil_mode: bool,
) -> list[_Window]:
    """Return the window on each axis, checked."""
    n = len(axes)
    windows = sizes("kernel_size", kernel_size, n)
    strides = windows if stride is None else sizes("stride", stride, n)
    dilations = sizes("dilation", dilation, n)
    spans = tuple(d * (w - 1) + 1 for d, w in zip(dilations, windows, strict=True))
    lengths = tuple(x.shape[axis] for axis in axes)
    margins = pairs(padding, n)
    edges = resolve(margins, lengths, spans, strides)
    is_wide = any(max(pair) > span // 2 for pair, span in zip(edges, spans, strict=True))
    if is_wide and not isinstance(margins, str):
        raise ArgumentError(
            f"padding must be at most half the window, got {padding!r} for a "
            f"window of {list(spans)}."
        )
    # in `ceil_mode` the first window may reach over the end, as the last one may
    over = strides if ceil_mode else (1,) * n
    inside = tuple(max(span - step + 1, 1) for span, step in zip(spans, over, strict=True))
    check_fit(x, axes, edges, inside, spans)
    reach = _reach(lengths, edges, spans, strides) if ceil_mode else edges
    return list(map(_Window, windows, strides, dilations, edges, reach))


def _reach(
    lengths: tuple[int, ...], edges: Pairs, spans: tuple[int, ...], strides: tuple[int, ...]
) -> Pairs:
    """Return the padding with as much more as a last window needs that begins before the padding at
    the end.
    """
    reach = []
    for length, (before, after), span, stride in zip(lengths, edges, spans, strides, strict=True):
        size = length + before + after
        last = -(-(size - span) // stride) * stride
        if last >= length + before:
            last -= stride
        reach.append((before, after + max(last + span - size, 0)))
    return tuple(reach)


def _counts(x: Array, axes: tuple[int, ...], windows: list[_Window], include_padding: bool) -> Any:
    """Return how many pixels each window holds: one number where all are alike, else a constant
    that broadcasts.
    """
    total = np.ones((1,) * x.ndim)
    for axis, window in zip(axes, windows, strict=True):
        before, after = window.edges if include_padding else (0, 0)
        start, length = window.reach[0], x.shape[axis]
        counted = np.zeros(sum(window.reach) + length)
        counted[start - before : start + length + after] = 1
        views = np.lib.stride_tricks.sliding_window_view(counted, window.size)
        others = [i for i in range(x.ndim) if i != axis]
        total = total * np.expand_dims(views.sum(-1)[:: window.stride], others)
    if (total == total.flat[0]).all():
        return float(total.flat[0])
    return total.astype(widened(x.dtype))


def _larger(a: Array, b: Array) -> Array:
    """Return the larger of two, the first of equal ones, and NaN where there is one."""
    return lax.select((b > a) | (b != b), b, a)


def _shares(size: int, parts: int) -> np.ndarray:
    """The share of each pixel in each mean; neighboring parts may overlap by a pixel."""
    shares = np.zeros((parts, size))
    for i in range(parts):
        first, last = i * size // parts, -(-(i + 1) * size // parts)
        shares[i, first:last] = 1 / (last - first)
    return shares
