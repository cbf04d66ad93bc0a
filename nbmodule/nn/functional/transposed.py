"""Transposed convolution: the gradient of a convolution by its input, used to make images larger."""

from __future__ import annotations

from jax import lax
from jaxtyping import Array, Inexact

from nbmodule.base.format import describe_shape
from nbmodule.errors import ArgumentError, ShapeError
from nbmodule.nn.functional.convolution import check_convolution, general
from nbmodule.nn.functional.primitives import along, promoted
from nbmodule.nn.functional.windows import Padding, Pairs, Sizes, channel_axis, pairs, sizes
from nbmodule.nn.kernel import kernel

_OPTIONS = ("stride", "padding", "output_padding", "dilation", "groups", "data_format")


@kernel(static=_OPTIONS)
def conv_transpose1d(
    x: Inexact[Array, "*batch _width _in_channels"],
    weight: Inexact[Array, "out_channels kernel group_channels"],
    bias: Inexact[Array, " out_channels"] | None = None,
    *,
    stride: Sizes = 1,
    padding: Padding = 0,
    output_padding: Sizes = 0,
    dilation: Sizes = 1,
    groups: int = 1,
    data_format: str = "NWC",
) -> Inexact[Array, "*batch _new_width _out_channels"]:
    """Spread each value of a sequence by a kernel; as `conv_transpose2d`, with one spatial axis.

    Args:
        x: Inputs, with any number of leading axes.
        weight: Kernels, `(out_channels, kernel, in_channels / groups)`.
        bias: Added to each output channel.
        stride: Distance of the inputs in the output.
        padding: As in `conv_transpose2d`.
        output_padding: What is added at the end.
        dilation: Distance of the places to which the kernel writes.
        groups: Number of groups of channels that are convolved apart.
        data_format: `NWC`, or `NCW` with channels before the width.

    Raises:
        ShapeError: if channels do not fit together or nothing would be left.

    Example:
        >>> conv_transpose1d(jnp.array([[1.0], [3.0]]), jnp.ones((1, 2, 1)), stride=2)[..., 0]
        Array([1., 1., 3., 3.], dtype=float32)
    """
    return _spread(
        "conv_transpose1d",
        x,
        weight,
        bias,
        1,
        stride,
        padding,
        output_padding,
        dilation,
        groups,
        data_format,
    )


@kernel(static=_OPTIONS)
def conv_transpose2d(
    x: Inexact[Array, "*batch _height _width _in_channels"],
    weight: Inexact[Array, "out_channels kernel_height kernel_width group_channels"],
    bias: Inexact[Array, " out_channels"] | None = None,
    *,
    stride: Sizes = 1,
    padding: Padding = 0,
    output_padding: Sizes = 0,
    dilation: Sizes = 1,
    groups: int = 1,
    data_format: str = "NHWC",
) -> Inexact[Array, "*batch _new_height _new_width _out_channels"]:
    """Spread each pixel by a kernel, which makes images larger.

    The map is the transpose of `conv2d` with the same stride, padding and dilation. An axis of size
    `n` becomes `(n - 1) * stride + dilation * (kernel - 1) + 1 - padding before - padding after +
    output_padding`.

    Args:
        x: Images, with any number of leading axes.
        weight: Kernels, `(out_channels, kernel_height, kernel_width, in_channels / groups)`, as for
            `conv2d`. PyTorch's `(in_channels, out_channels / groups, ...)` has the two ends
            exchanged.
        bias: Added to each output channel.
        stride: Distance of the input pixels in the output.
        padding: What is cut off around the output: a number, one for each axis, a pair for each
            axis, `VALID` for none, or `SAME` for outputs of `n * stride`.
        output_padding: What is added at the end, less than stride or dilation; it chooses among the
            sizes that `conv2d` with this stride maps to the same.
        dilation: Distance of the pixels to which the kernel writes.
        groups: Number of groups of channels that are convolved apart.
        data_format: `NHWC`, or `NCHW` with channels before height and width.

    Raises:
        ShapeError: if channels do not fit together or nothing would be left.

    Example:
        >>> conv_transpose2d(jnp.ones((2, 2, 1)), jnp.ones((1, 3, 3, 1)), stride=2, padding="SAME").shape
        (4, 4, 1)

    Source: Zeiler, Krishnan, Taylor and Fergus (2010), Deconvolutional networks.
    """
    return _spread(
        "conv_transpose2d",
        x,
        weight,
        bias,
        2,
        stride,
        padding,
        output_padding,
        dilation,
        groups,
        data_format,
    )


@kernel(static=_OPTIONS)
def conv_transpose3d(
    x: Inexact[Array, "*batch _depth _height _width _in_channels"],
    weight: Inexact[Array, "out_channels kernel_depth kernel_height kernel_width group_channels"],
    bias: Inexact[Array, " out_channels"] | None = None,
    *,
    stride: Sizes = 1,
    padding: Padding = 0,
    output_padding: Sizes = 0,
    dilation: Sizes = 1,
    groups: int = 1,
    data_format: str = "NDHWC",
) -> Inexact[Array, "*batch _new_depth _new_height _new_width _out_channels"]:
    """Spread each voxel by a kernel; as `conv_transpose2d`, with three spatial axes.

    Args:
        x: Volumes, with any number of leading axes.
        weight: Kernels, `(out_channels, *kernel, in_channels / groups)`.
        bias: Added to each output channel.
        stride: Distance of the input voxels in the output.
        padding: As in `conv_transpose2d`.
        output_padding: What is added at the end.
        dilation: Distance of the voxels to which the kernel writes.
        groups: Number of groups of channels that are convolved apart.
        data_format: `NDHWC`, or `NCDHW` with channels before the spatial axes.

    Raises:
        ShapeError: if channels do not fit together or nothing would be left.

    Example:
        >>> conv_transpose3d(jnp.ones((2, 2, 2, 1)), jnp.ones((3, 2, 2, 2, 1)), stride=2).shape
        (4, 4, 4, 3)
    """
    return _spread(
        "conv_transpose3d",
        x,
        weight,
        bias,
        3,
        stride,
        padding,
        output_padding,
        dilation,
        groups,
        data_format,
    )


def _spread(
    name: str,
    x: Array,
    weight: Array,
    bias: Array | None,
    n: int,
    stride: Sizes,
    padding: Padding,
    output_padding: Sizes,
    dilation: Sizes,
    groups: int,
    data_format: str,
) -> Array:
    axes = check_convolution(name, x, weight, bias, n, groups, data_format)
    strides, dilations = sizes(name, "stride", stride, n), sizes(name, "dilation", dilation, n)
    extra = sizes(name, "output_padding", output_padding, n, least=0)
    if any(e >= max(s, d) for e, s, d in zip(extra, strides, dilations, strict=True)):
        raise ArgumentError(
            f"{name}: output_padding must be less than stride or dilation, got "
            f"{output_padding!r} with stride {stride!r} and dilation {dilation!r}."
        )
    window = tuple(d * (k - 1) + 1 for d, k in zip(dilations, weight.shape[1:-1], strict=True))
    edges = tuple(
        (w - 1 - before, w - 1 - after + e)
        for w, (before, after), e in zip(
            window, _cut(pairs(name, padding, n), window, strides), extra, strict=True
        )
    )
    size = [
        (x.shape[a] - 1) * s + 1 + sum(p) - w + 1
        for a, s, p, w in zip(axes, strides, edges, window, strict=True)
    ]
    if min(size) < 1:
        raise ShapeError(
            f"{name}: padding {padding!r} leaves nothing of x {describe_shape(x)} under a "
            f"window of {list(window)}."
        )
    x, weight, bias = promoted(x, weight, bias)
    flipped = lax.rev(weight, tuple(range(1, n + 1)))
    y = general(x, flipped, (1,) * n, edges, strides, dilations, groups, data_format)
    return y if bias is None else y + along(bias, channel_axis(y.ndim, data_format), y.ndim)


def _cut(padding: str | Pairs, window: tuple[int, ...], strides: tuple[int, ...]) -> Pairs:
    """What is cut off on both sides; SAME cuts as much as the convolution from `n * stride` to `n`
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
