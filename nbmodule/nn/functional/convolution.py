"""Convolution and its transpose over one to three spatial axes.

Weights have the layout `(out_channels, *kernel, in_channels / groups)`, whatever the layout of the
images. As in all libraries of the field the kernel is not flipped: this is correlation.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from jax import lax
from jaxtyping import Array, Inexact

from nbmodule.base.format import describe_shape
from nbmodule.base.promotion import widened
from nbmodule.errors import ArgumentError, ShapeError
from nbmodule.nn.checks import check_rank, check_shape, size, sizes
from nbmodule.nn.functional.windows import (
    Padding,
    Pairs,
    Sizes,
    channel_axis,
    check_fit,
    flat_batch,
    for_axes,
    pad,
    pairs,
    resolve,
    spatial_axes,
)
from nbmodule.nn.kernel import ArrayLike, along, kernel, promoted

_OPTIONS = ("stride", "padding", "dilation", "groups", "data_format")
# a depthwise kernel up to this size is a sum of shifted products, 2 to 10 times faster than XLA's
# on the CPU
_FEW_TAPS = 64


def _convolve(  # noqa: D417 - `n` comes from `for_axes`
    n: int,
    x: Inexact[Array, "*_images _in_channels"],
    weight: Inexact[Array, "out_channels *kernel group_channels"],
    bias: Inexact[Array, " out_channels"] | None = None,
    *,
    stride: Sizes = 1,
    padding: Padding = 0,
    dilation: Sizes = 1,
    groups: int = 1,
    data_format: str = "",
) -> Inexact[Array, "*_new_images _out_channels"]:
    """Convolve $images: each output is a weighted sum of the inputs under the kernel.

    In two dimensions `y[h, w, o] = bias[o] + sum over i, j, c of weight[o, i, j, c] * x[h * stride
    + i * dilation, w * stride + j * dilation, c]`.

    Args:
        x: Values with $axes, and any number of leading axes.
        weight: Kernels, `(out_channels, *kernel, in_channels / groups)`.
        bias: Added to each output channel.
        stride: Step of the kernel, one number or one for each axis.
        padding: Zeros at each side: a number, one for each axis, a pair (before, after) for each
            axis, `VALID` for none, or `SAME` for as many outputs as inputs, divided by the stride
            and rounded up.
        dilation: Distance of the places that the kernel reads.
        groups: Number of groups of channels that are convolved apart; as many as channels make it
            depthwise.
        data_format: $formats; channels are last by default.

    Raises:
        ShapeError: If channels do not fit together or the kernel is larger than the padded input.

    Example:
        >>> $name(jnp.ones((2, *5, 1)), jnp.ones((4, *3, 1))).shape
        (2, *3, 4)

    Source: LeCun et al. (1989), Backpropagation applied to handwritten zip code recognition.
    """
    axes = _check_shapes(x, weight, bias, n, groups, data_format)
    strides, dilations = sizes("stride", stride, n), sizes("dilation", dilation, n)
    window = _window(weight, dilations)
    edges = resolve(pairs(padding, n), tuple(x.shape[axis] for axis in axes), window, strides)
    check_fit(x, axes, edges, window)
    x, weight, bias = promoted(x, weight, bias)
    channels_last = data_format.endswith("C")
    taps = math.prod(weight.shape[1:-1])
    if groups > 1 and weight.shape[-1] == 1 and taps <= _FEW_TAPS and channels_last:
        y = _depthwise(pad(x, axes, edges, 0), weight, axes, strides, dilations)
    else:
        y = _general(x, weight, strides, edges, (1,) * n, dilations, groups, data_format)
    return _with_bias(y, bias, data_format)


def _transpose(  # noqa: D417 - `n` comes from `for_axes`
    n: int,
    x: Inexact[Array, "*_images _in_channels"],
    weight: Inexact[Array, "out_channels *kernel group_channels"],
    bias: Inexact[Array, " out_channels"] | None = None,
    *,
    stride: Sizes = 1,
    padding: Padding = 0,
    output_padding: Sizes = 0,
    dilation: Sizes = 1,
    groups: int = 1,
    data_format: str = "",
) -> Inexact[Array, "*_new_images _out_channels"]:
    """Spread each value of $images by a kernel, which makes them larger.

    The map is the transpose of the convolution with the same stride, padding and dilation. An axis
    of size `n` becomes `(n - 1) * stride + dilation * (kernel - 1) + 1 - padding before - padding
    after + output_padding`.

    Args:
        x: Values with $axes, and any number of leading axes.
        weight: Kernels, `(out_channels, *kernel, in_channels / groups)`, as for `conv2d`. PyTorch's
            `(in_channels, out_channels / groups, ...)` has the two ends exchanged.
        bias: Added to each output channel.
        stride: Distance of the inputs in the output.
        padding: Cut off at each side of the output: a number, one for each axis, a pair for each
            axis, `VALID` for none, or `SAME` for outputs of `n * stride`.
        output_padding: Added at the end, less than stride or dilation; it chooses among the sizes
            that a convolution with this stride maps to the same.
        dilation: Distance of the places to which the kernel writes.
        groups: Number of groups of channels that are convolved apart.
        data_format: $formats; channels are last by default.

    Raises:
        ShapeError: If channels do not fit together or nothing would be left.

    Example:
        >>> $name(jnp.ones((2, *4, 1)), jnp.ones((3, *2, 1)), stride=2).shape
        (2, *8, 3)

    Source: Zeiler, Krishnan, Taylor and Fergus (2010), Deconvolutional networks.
    """
    axes = _check_shapes(x, weight, bias, n, groups, data_format)
    strides, dilations = sizes("stride", stride, n), sizes("dilation", dilation, n)
    extra = sizes("output_padding", output_padding, n, least=0)
    if any(e >= max(s, d) for e, s, d in zip(extra, strides, dilations, strict=True)):
        raise ArgumentError(
            f"output_padding must be less than stride or dilation, got "
            f"{output_padding!r} with stride {stride!r} and dilation {dilation!r}."
        )
    window = _window(weight, dilations)
    cut = _cut(pairs(padding, n), window, strides)
    edges = tuple(
        (w - 1 - before, w - 1 - after + e) for w, (before, after), e in zip(window, cut, extra)
    )
    size = [
        (x.shape[a] - 1) * s + 1 + sum(p) - w + 1
        for a, s, p, w in zip(axes, strides, edges, window, strict=True)
    ]
    if min(size) < 1:
        raise ShapeError(
            f"padding {padding!r} leaves nothing of x {describe_shape(x)} under a "
            f"window of {list(window)}."
        )
    x, weight, bias = promoted(x, weight, bias)
    flipped = lax.rev(weight, tuple(range(1, n + 1)))
    y = _general(x, flipped, (1,) * n, edges, strides, dilations, groups, data_format)
    return _with_bias(y, bias, data_format)


conv1d, conv2d, conv3d = for_axes("conv", _convolve, static=_OPTIONS)


@kernel(static=("stride", "padding", "dilation", "data_format"))
def depthwise_conv2d(
    x: Inexact[ArrayLike, "*batch _height _width _channels"],
    weight: Inexact[ArrayLike, "out_channels kernel_height kernel_width 1"],
    bias: Inexact[ArrayLike, " out_channels"] | None = None,
    *,
    stride: Sizes = 1,
    padding: Padding = 0,
    dilation: Sizes = 1,
    data_format: str = "NHWC",
) -> Inexact[Array, "*batch _new_height _new_width _out_channels"]:
    """Convolve each channel of an image by kernels of its own: `conv2d` with as many groups as
    channels.

    Args:
        x: Images, with any number of leading axes.
        weight: Kernels, `(channels * multiplier, kernel_height, kernel_width, 1)`; the outputs of a
            channel are neighbors.
        bias: Added to each output channel.
        stride: Step of the kernel, one number or one for each axis.
        padding: As in `conv2d`.
        dilation: Distance of the pixels that the kernel reads.
        data_format: `NHWC`, or `NCHW` with channels before height and width.

    Raises:
        ShapeError: if channels do not fit together or the kernel is larger than the padded input.

    Example:
        >>> x = jnp.ones((3, 3, 2)) * jnp.array([1.0, 10.0])
        >>> depthwise_conv2d(x, jnp.ones((2, 3, 3, 1)))
        Array([[[ 9., 90.]]], dtype=float32)

    Source: Chollet (2017), arXiv:1610.02357.
    """
    spatial_axes(x, data_format, 2)
    options = {"stride": stride, "padding": padding, "dilation": dilation}
    groups = x.shape[channel_axis(x.ndim, data_format)]
    return _convolve(2, x, weight, bias, **options, groups=groups, data_format=data_format)


conv_transpose1d, conv_transpose2d, conv_transpose3d = for_axes(
    "conv_transpose", _transpose, static=(*_OPTIONS, "output_padding")
)


def _window(weight: Array, dilations: tuple[int, ...]) -> tuple[int, ...]:
    """Return the number of pixels that the kernel spans on each axis."""
    return tuple(d * (k - 1) + 1 for d, k in zip(dilations, weight.shape[1:-1], strict=True))


def _with_bias(y: Array, bias: Array | None, data_format: str) -> Array:
    return y if bias is None else y + along(bias, channel_axis(y.ndim, data_format), y.ndim)


def _cut(padding: str | Pairs, window: tuple[int, ...], strides: tuple[int, ...]) -> Pairs:
    """Return the cut on both sides; SAME cuts as much as the convolution from `n * stride` to `n`
    would pad.
    """
    if padding == "VALID":
        return ((0, 0),) * len(window)
    if padding == "SAME":
        totals = [w - s for w, s in zip(window, strides, strict=True)]
        # a stride above the window leaves a gap at the end, which is a negative cut
        return tuple((max(t, 0) // 2, t - max(t, 0) // 2) for t in totals)
    assert not isinstance(padding, str)
    return padding


def _check_shapes(
    x: Array, weight: Array, bias: Array | None, n: int, groups: int, data_format: str
) -> tuple[int, ...]:
    """Refuse shapes that do not fit together; give the spatial axes."""
    axes = spatial_axes(x, data_format, n)
    kernel_axes = "kernel" if n == 1 else "*kernel"
    axes_of_weight = f"(out_channels, {kernel_axes}, in_channels / groups)"
    check_rank("weight", weight, axes_of_weight, n + 2, n + 2)
    groups = size("groups", groups)
    channels = x.shape[channel_axis(x.ndim, data_format)]
    if channels != weight.shape[-1] * groups:
        times = f" times {groups} groups" if groups > 1 else ""
        raise ShapeError(
            f"x must have {weight.shape[-1] * groups} channels (weight "
            f"{describe_shape(weight)}{times}), got {channels} in x {describe_shape(x)}, "
            f"read as {data_format}."
        )
    if weight.shape[0] % groups:
        raise ShapeError(
            f"{groups} groups must divide the {weight.shape[0]} output channels of "
            f"weight {describe_shape(weight)}."
        )
    if 0 in weight.shape[1:-1]:
        raise ShapeError(f"the kernel must not be empty, got weight {describe_shape(weight)}.")
    check_shape("bias", bias, weight.shape[:1], "one for each output channel")
    return axes


def _general(
    x: Array,
    weight: Array,
    strides: tuple[int, ...],
    padding: Pairs,
    stretch: tuple[int, ...],
    dilations: tuple[int, ...],
    groups: int,
    data_format: str,
) -> Array:
    """Convolve images with any number of leading axes, stretched by zeros between the pixels."""
    flat, batch = flat_batch(x, len(data_format) - 1)
    kernel_format = "O" + data_format.replace("N", "").replace("C", "") + "I"
    y = lax.conv_general_dilated(
        flat,
        weight,
        strides,
        padding,
        lhs_dilation=stretch,
        rhs_dilation=dilations,
        dimension_numbers=(data_format, kernel_format, data_format),
        feature_group_count=groups,
    )
    return y if len(batch) == 1 else lax.reshape(y, (*batch, *y.shape[1:]))


def _depthwise(
    x: Array,
    weight: Array,
    axes: tuple[int, ...],
    strides: tuple[int, ...],
    dilations: tuple[int, ...],
) -> Array:
    """The sum over the kernel's places of shifted images times one number for each channel."""
    dtype = x.dtype
    wide = widened(dtype)  # half precision is summed in float32, as everywhere
    x, weight = lax.convert_element_type(x, wide), lax.convert_element_type(weight, wide)
    channels, kernel_shape = x.shape[-1], weight.shape[1:-1]
    places = lax.reshape(weight, (channels, weight.shape[0] // channels, math.prod(kernel_shape)))
    x = lax.expand_dims(x, (x.ndim,))  # the outputs of a channel
    total: Any = 0
    for tap, index in enumerate(np.ndindex(kernel_shape)):
        shifted = x
        for axis, i, length, stride, dilation in zip(axes, index, kernel_shape, strides, dilations):
            end = x.shape[axis] - dilation * (length - 1 - i)
            shifted = lax.slice_in_dim(shifted, i * dilation, end, stride, axis)
        total = total + shifted * places[..., tap]
    return lax.reshape(total.astype(dtype), (*total.shape[:-2], weight.shape[0]))
