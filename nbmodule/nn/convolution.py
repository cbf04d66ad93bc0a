"""Convolutions, images channel-last by default."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Unpack

from jax import Array
from jaxtyping import Inexact

from nbmodule.base.kinds import as_flag
from nbmodule.errors import ArgumentError
from nbmodule.nn.checks import size, sizes
from nbmodule.nn.functional import convolution as conv
from nbmodule.nn.functional.windows import Padding, Sizes
from nbmodule.nn.layer import (
    ArrayLike,
    VariableOptions,
    WeightedLayer,
    data_format_of,
    padding_of,
    value_of,
)


class _Convolution(WeightedLayer):
    """$summary over $axes.

    Args:
        in_channels: Channels of the inputs.
        out_channels: Channels of the outputs.
        kernel_size: A number, or one for each axis.
        stride: Steps of the kernel.
        padding: Zeros added at each side: a number, one for each axis, pairs, or 'SAME' or 'VALID'.
        dilation: Steps between the values that the kernel reads.
        groups: Number of groups of channels that are convolved apart.
        with_bias: Whether a bias is added.
        data_format: $formats; channels are last by default.
        weight_initializer: Of `weight`, shape `(out_channels, *kernel_size, in_channels / groups)`;
            `GlorotUniform()`
            by default, with the kernel's area counted in both fans.
        bias_initializer: Of `bias`; `Zeros()` by default.
        key: Key for the initial values; by default the next of the default stream.
        device: Device of the variables.
        dtype: Dtype of the variables.
        v: Variables to use instead of fresh ones, `{'w': ..., 'b': ...}`.

    Example:
        >>> import jax.numpy as jnp
        >>> import nbmodule as nb
        >>> nb.$name(3, 8, 3, padding=1)(jnp.ones((2, *9, 3))).shape
        (2, *9, 8)
    """

    _words: ClassVar[dict[str, str]] = {"summary": "A convolution"}

    _shown = "in_channels out_channels kernel_size= with_bias="
    _brief = "{in_channels} → {out_channels}, {kernel_size}"

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        *,
        stride: Sizes = 1,
        padding: Padding = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        with_bias: bool = True,
        data_format: str | None = None,
        **options: Unpack[VariableOptions],
    ) -> None:
        self.in_channels = size("in_channels", in_channels)
        self.out_channels = size("out_channels", out_channels)
        self.groups = size("groups", groups)
        for what, channels in (("in_channels", in_channels), ("out_channels", out_channels)):
            if channels % self.groups:
                raise ArgumentError(
                    f"{what}={channels} cannot be divided into {self.groups} groups."
                )
        self.kernel_size = sizes("kernel_size", kernel_size, self._axes)
        self.stride = sizes("stride", stride, self._axes)
        self.dilation = sizes("dilation", dilation, self._axes)
        self.padding = padding_of(padding, self._axes)
        self.data_format = data_format_of(self._axes, data_format)
        self.with_bias = as_flag("with_bias", with_bias)
        area, bias = math.prod(self.kernel_size), (out_channels,) if self.with_bias else None
        weight = (self.out_channels, *self.kernel_size, self.in_channels // self.groups)
        fans = area * self.out_channels // self.groups, area * self.in_channels // self.groups
        super().__init__(weight, bias, fans, **options)

    def forward(self, x: Inexact[ArrayLike, "..."]) -> Inexact[Array, "..."]:
        return self._call_function(x, self.weight.value, value_of(self.bias))


class Conv1d(_Convolution):
    _axes, _function = 1, staticmethod(conv.conv1d)


class Conv2d(_Convolution):
    _axes, _function = 2, staticmethod(conv.conv2d)


class Conv3d(_Convolution):
    _axes, _function = 3, staticmethod(conv.conv3d)


class DepthwiseConv2d(_Convolution):
    """Convolves each channel by itself with `depth_multiplier` kernels.

    Args:
        channels: Channels of the inputs.
        kernel_size: A number, or one for each axis.
        depth_multiplier: Outputs for each input channel.
        **options: As for `Conv2d`, without `groups`.

    Example:
        >>> import jax.numpy as jnp
        >>> import nbmodule as nb
        >>> nb.DepthwiseConv2d(4, 3, padding="SAME")(jnp.ones((1, 8, 8, 4))).shape
        (1, 8, 8, 4)
    """

    _axes, _function = 2, staticmethod(conv.conv2d)

    _shown, _without = "channels kernel_size= with_bias=", ("groups",)

    def __init__(
        self, channels: int, kernel_size: Sizes, *, depth_multiplier: int = 1, **options: Any
    ) -> None:
        self.channels = size("channels", channels)
        self.depth_multiplier = size("depth_multiplier", depth_multiplier)
        super().__init__(
            channels, channels * depth_multiplier, kernel_size, groups=channels, **options
        )


class _Transposed(_Convolution):
    _words: ClassVar[dict[str, str]] = {"summary": "The transpose of a convolution"}

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        *,
        output_padding: Sizes = 0,
        **options: Any,
    ) -> None:
        self.output_padding = sizes("output_padding", output_padding, self._axes, least=0)
        super().__init__(in_channels, out_channels, kernel_size, **options)


class ConvTranspose1d(_Transposed):
    _axes, _function = 1, staticmethod(conv.conv_transpose1d)


class ConvTranspose2d(_Transposed):
    _axes, _function = 2, staticmethod(conv.conv_transpose2d)


class ConvTranspose3d(_Transposed):
    _axes, _function = 3, staticmethod(conv.conv_transpose3d)
