"""Pooling: the largest or the mean value under a window that slides over one to three spatial axes."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Real

from nbmodule.base.format import describe_shape
from nbmodule.base.promotion import widened, widened_array
from nbmodule.errors import ArgumentError, DtypeError
from nbmodule.nn.functional.checks import check_flag, check_floating, check_number, check_real
from nbmodule.nn.functional.windows import (
    Padding,
    Pairs,
    Sizes,
    check_fit,
    pad,
    pairs,
    resolve,
    sizes,
    slide,
    spatial_axes,
)
from nbmodule.nn.kernel import kernel

_MAX_OPTIONS = ("kernel_size", "stride", "padding", "dilation", "ceil_mode", "data_format")
_AVG_OPTIONS = (
    "kernel_size",
    "stride",
    "padding",
    "ceil_mode",
    "count_include_pad",
    "divisor_override",
    "data_format",
)


@kernel(static=_MAX_OPTIONS)
def max_pool1d(
    x: Real[Array, "*batch _width _channels"],
    kernel_size: Sizes,
    *,
    stride: Sizes | None = None,
    padding: Padding = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
    data_format: str = "NWC",
) -> Real[Array, "*batch _new_width _channels"]:
    """Take the largest value under a window on a sequence; as `max_pool2d`, with one spatial axis.

    Args:
        x: Sequences, with any number of leading axes.
        kernel_size: Size of the window.
        stride: Step of the window, by default its size.
        padding: As in `max_pool2d`.
        dilation: Distance of the places that the window reads.
        ceil_mode: Also keep a last window that reaches over the end.
        data_format: `NWC`, or `NCW` with channels before the width.

    Example:
        >>> max_pool1d(jnp.array([[1.0], [4.0], [2.0], [3.0]]), 2)[:, 0]
        Array([4., 3.], dtype=float32)
    """
    return _max_pool(
        "max_pool1d", x, 1, kernel_size, stride, padding, dilation, ceil_mode, data_format
    )


@kernel(static=_MAX_OPTIONS)
def max_pool2d(
    x: Real[Array, "*batch _height _width _channels"],
    kernel_size: Sizes,
    *,
    stride: Sizes | None = None,
    padding: Padding = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
    data_format: str = "NHWC",
) -> Real[Array, "*batch _new_height _new_width _channels"]:
    """Take the largest value under a window that slides over an image, channel by channel.

    Of equal values the first, row by row, gets the gradient. Padding never wins.

    Args:
        x: Images, with any number of leading axes.
        kernel_size: Size of the window, one number or one for each axis.
        stride: Step of the window, by default its size.
        padding: Around the image: a number, one for each axis, a pair (before, after) for each
            axis, `VALID` for none, or `SAME` for as many outputs as inputs, divided by the stride
            and rounded up. Numbers are at most half the window.
        dilation: Distance of the pixels that the window reads.
        ceil_mode: Also keep a last window that reaches over the end, if it begins inside of the
            image.
        data_format: `NHWC`, or `NCHW` with channels before height and width.

    Raises:
        ShapeError: if the window is larger than the padded image.
        ArgumentError: if the padding is more than half the window.

    Example:
        >>> x = jnp.arange(16.0).reshape(4, 4, 1)
        >>> max_pool2d(x, 2)[..., 0]
        Array([[ 5.,  7.],
               [13., 15.]], dtype=float32)

    Source: Weng, Ahuja and Huang (1992), Cresceptron.
    """
    return _max_pool(
        "max_pool2d", x, 2, kernel_size, stride, padding, dilation, ceil_mode, data_format
    )


@kernel(static=_MAX_OPTIONS)
def max_pool3d(
    x: Real[Array, "*batch _depth _height _width _channels"],
    kernel_size: Sizes,
    *,
    stride: Sizes | None = None,
    padding: Padding = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
    data_format: str = "NDHWC",
) -> Real[Array, "*batch _new_depth _new_height _new_width _channels"]:
    """Take the largest value under a window in a volume; as `max_pool2d`, with three spatial axes.

    Args:
        x: Volumes, with any number of leading axes.
        kernel_size: Size of the window, one number or one for each axis.
        stride: Step of the window, by default its size.
        padding: As in `max_pool2d`.
        dilation: Distance of the voxels that the window reads.
        ceil_mode: Also keep a last window that reaches over the end.
        data_format: `NDHWC`, or `NCDHW` with channels before the spatial axes.

    Example:
        >>> max_pool3d(jnp.ones((4, 4, 4, 2)), (1, 2, 2)).shape
        (4, 2, 2, 2)
    """
    return _max_pool(
        "max_pool3d", x, 3, kernel_size, stride, padding, dilation, ceil_mode, data_format
    )


@kernel(static=_AVG_OPTIONS)
def avg_pool1d(
    x: Float[Array, "*batch _width _channels"],
    kernel_size: Sizes,
    *,
    stride: Sizes | None = None,
    padding: Padding = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: float | None = None,
    data_format: str = "NWC",
) -> Float[Array, "*batch _new_width _channels"]:
    """Take the mean under a window on a sequence; as `avg_pool2d`, with one spatial axis.

    Args:
        x: Sequences, with any number of leading axes.
        kernel_size: Size of the window.
        stride: Step of the window, by default its size.
        padding: As in `avg_pool2d`.
        ceil_mode: Also keep a last window that reaches over the end.
        count_include_pad: Whether padding counts as zeros, or not at all.
        divisor_override: Divide the sum by this.
        data_format: `NWC`, or `NCW` with channels before the width.

    Example:
        >>> avg_pool1d(jnp.array([[1.0], [4.0], [2.0], [3.0]]), 2)[:, 0]
        Array([2.5, 2.5], dtype=float32)
    """
    return _avg_pool(
        "avg_pool1d",
        x,
        1,
        kernel_size,
        stride,
        padding,
        ceil_mode,
        count_include_pad,
        divisor_override,
        data_format,
    )


@kernel(static=_AVG_OPTIONS)
def avg_pool2d(
    x: Float[Array, "*batch _height _width _channels"],
    kernel_size: Sizes,
    *,
    stride: Sizes | None = None,
    padding: Padding = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: float | None = None,
    data_format: str = "NHWC",
) -> Float[Array, "*batch _new_height _new_width _channels"]:
    """Take the mean under a window that slides over an image, channel by channel.

    Args:
        x: Images, with any number of leading axes.
        kernel_size: Size of the window, one number or one for each axis.
        stride: Step of the window, by default its size.
        padding: As in `max_pool2d`.
        ceil_mode: Also keep a last window that reaches over the end, if it begins inside of the
            image. What lies beyond the padding is not counted.
        count_include_pad: Whether padding counts as zeros, or not at all.
        divisor_override: Divide the sum by this in place of the number of pixels.
        data_format: `NHWC`, or `NCHW` with channels before height and width.

    Raises:
        ShapeError: if the window is larger than the padded image.
        ArgumentError: if the padding is more than half the window.

    Example:
        >>> avg_pool2d(jnp.arange(16.0).reshape(4, 4, 1), 2)[..., 0]
        Array([[ 2.5,  4.5],
               [10.5, 12.5]], dtype=float32)

    Source: Fukushima (1980), Neocognitron.
    """
    return _avg_pool(
        "avg_pool2d",
        x,
        2,
        kernel_size,
        stride,
        padding,
        ceil_mode,
        count_include_pad,
        divisor_override,
        data_format,
    )


@kernel(static=_AVG_OPTIONS)
def avg_pool3d(
    x: Float[Array, "*batch _depth _height _width _channels"],
    kernel_size: Sizes,
    *,
    stride: Sizes | None = None,
    padding: Padding = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: float | None = None,
    data_format: str = "NDHWC",
) -> Float[Array, "*batch _new_depth _new_height _new_width _channels"]:
    """Take the mean under a window in a volume; as `avg_pool2d`, with three spatial axes.

    Args:
        x: Volumes, with any number of leading axes.
        kernel_size: Size of the window, one number or one for each axis.
        stride: Step of the window, by default its size.
        padding: As in `max_pool2d`.
        ceil_mode: Also keep a last window that reaches over the end.
        count_include_pad: Whether padding counts as zeros, or not at all.
        divisor_override: Divide the sum by this in place of the number of voxels.
        data_format: `NDHWC`, or `NCDHW` with channels before the spatial axes.

    Example:
        >>> avg_pool3d(jnp.ones((4, 4, 4, 2)), 2).shape
        (2, 2, 2, 2)
    """
    return _avg_pool(
        "avg_pool3d",
        x,
        3,
        kernel_size,
        stride,
        padding,
        ceil_mode,
        count_include_pad,
        divisor_override,
        data_format,
    )


def _max_pool(
    name: str,
    x: Array,
    n: int,
    kernel_size: object,
    stride: object,
    padding: object,
    dilation: object,
    ceil_mode: bool,
    data_format: str,
) -> Array:
    check_real(name, x=x)
    if x.dtype == jnp.bool_:
        raise DtypeError(
            f"{name}: x must hold numbers, got {describe_shape(x)}. Convert it first: "
            'x.astype("uint8"); the largest is then 1 where '
            "any was true."
        )
    axes = spatial_axes(name, x, data_format, n)
    windows = sizes(name, "kernel_size", kernel_size, n)
    strides = windows if stride is None else sizes(name, "stride", stride, n)
    dilations = sizes(name, "dilation", dilation, n)
    spans = tuple(d * (w - 1) + 1 for d, w in zip(dilations, windows, strict=True))
    edges = _edges(name, x, axes, padding, spans, strides, ceil_mode)
    least = -np.inf if jnp.issubdtype(x.dtype, jnp.floating) else jnp.iinfo(x.dtype).min
    x = pad(x, axes, _reach(x, axes, edges, spans, strides, ceil_mode), least)
    for axis, window, step, spread in reversed(
        list(zip(axes, windows, strides, dilations, strict=True))
    ):
        x = slide(x, axis, window, step, spread, _larger)
    return x


def _larger(a: Array, b: Array) -> Array:
    """The larger of two, the first of equal ones, and NaN where there is one."""
    return lax.select((b > a) | (b != b), b, a)


def _avg_pool(
    name: str,
    x: Array,
    n: int,
    kernel_size: object,
    stride: object,
    padding: object,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: float | None,
    data_format: str,
) -> Array:
    check_floating(name, x=x)
    check_flag(name, "count_include_pad", count_include_pad)
    axes = spatial_axes(name, x, data_format, n)
    windows = sizes(name, "kernel_size", kernel_size, n)
    strides = windows if stride is None else sizes(name, "stride", stride, n)
    edges = _edges(name, x, axes, padding, windows, strides, ceil_mode)
    reach = _reach(x, axes, edges, windows, strides, ceil_mode)
    divisor: Any = divisor_override
    if divisor_override is None:
        divisor = _counts(x, axes, edges, reach, windows, strides, count_include_pad)
    else:
        check_number(name, "divisor_override", divisor_override)
        if divisor_override == 0:
            raise ArgumentError(f"{name}: divisor_override must not be zero.")
    total = pad(widened_array(x), axes, reach, 0)
    for axis, window, step in reversed(list(zip(axes, windows, strides, strict=True))):
        total = slide(total, axis, window, step, 1, lax.add)
    return lax.convert_element_type(total / divisor, x.dtype)


def _edges(
    name: str,
    x: Array,
    axes: tuple[int, ...],
    padding: object,
    spans: tuple[int, ...],
    strides: tuple[int, ...],
    ceil_mode: bool,
) -> Pairs:
    check_flag(name, "ceil_mode", ceil_mode)
    given = pairs(name, padding, len(axes))
    edges = resolve(given, tuple(x.shape[axis] for axis in axes), spans, strides)
    if not isinstance(given, str) and any(
        max(pair) > span // 2 for pair, span in zip(edges, spans, strict=True)
    ):
        raise ArgumentError(
            f"{name}: padding must be at most half the window, got {padding!r} for a "
            f"window of {list(spans)}."
        )
    over = (
        strides if ceil_mode else (1,) * len(axes)
    )  # the first window may reach over the end as a last one may
    check_fit(
        name,
        x,
        axes,
        edges,
        tuple(max(span - step + 1, 1) for span, step in zip(spans, over, strict=True)),
        spans,
    )
    return edges


def _reach(
    x: Array,
    axes: tuple[int, ...],
    edges: Pairs,
    spans: tuple[int, ...],
    strides: tuple[int, ...],
    ceil_mode: bool,
) -> Pairs:
    """The padding, and with `ceil_mode` as much more as a last window needs that begins before the
    padding at the end.
    """
    if not ceil_mode:
        return edges
    found = []
    for axis, (before, after), span, stride in zip(axes, edges, spans, strides, strict=True):
        size = x.shape[axis] + before + after
        last = -(-(size - span) // stride) * stride
        if last >= x.shape[axis] + before:
            last -= stride
        found.append((before, after + max(last + span - size, 0)))
    return tuple(found)


def _counts(
    x: Array,
    axes: tuple[int, ...],
    edges: Pairs,
    reach: Pairs,
    windows: tuple[int, ...],
    strides: tuple[int, ...],
    count_include_pad: bool,
) -> Any:
    """How many pixels each window holds: one number where all are alike, else a constant that
    broadcasts.
    """
    total = np.ones((1,) * x.ndim)
    for axis, asked, given, window, stride in zip(
        axes, edges, reach, windows, strides, strict=True
    ):
        before, after = asked if count_include_pad else (0, 0)
        held = np.zeros(sum(given) + x.shape[axis])
        held[given[0] - before : given[0] + x.shape[axis] + after] = 1
        count = np.lib.stride_tricks.sliding_window_view(held, window).sum(-1)[::stride]
        shape = [1] * x.ndim
        shape[axis] = len(count)
        total = total * count.reshape(shape)
    return (
        float(total.flat[0]) if (total == total.flat[0]).all() else total.astype(widened(x.dtype))
    )
