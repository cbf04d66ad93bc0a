"""Convolutions, images channel-last by default."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from jax import Array
from jax.typing import DTypeLike
from jaxtyping import Inexact

from nbmodule.base.kinds import DeviceLike, KeyLike
from nbmodule.errors import ArgumentError
from nbmodule.nn.affine import value_of
from nbmodule.nn.functional import convolution as conv
from nbmodule.nn.functional.windows import Padding, Sizes
from nbmodule.nn.initializers import GlorotUniform, InitializerLike, Zeros
from nbmodule.nn.layer import (
    DATA_FORMATS,
    ArrayLike,
    FunctionLayer,
    data_format_of,
    flag,
    initializer,
    keys,
    padding_of,
    size,
    sizes,
    unusual,
)


class _Convolution(FunctionLayer):
    """What all convolutions share: a weight of shape `(out_channels, *kernel_size, in_channels /
    groups)`, and a bias.
    """

    _axes: ClassVar[int]
    _options = ("stride", "padding", "dilation", "groups", "data_format")
    _usual: ClassVar[dict[str, int]] = {"groups": 1}
    """Arguments of this kind that `repr` shows where they are others."""

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
        weight_initializer: InitializerLike | None = None,
        bias_initializer: InitializerLike | None = None,
        key: KeyLike | None = None,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
        v: Mapping[str, Any] | None = None,
    ) -> None:
        name = type(self).__name__
        self.in_channels = size(name, "in_channels", in_channels)
        self.out_channels = size(name, "out_channels", out_channels)
        self.groups = size(name, "groups", groups)
        for what, channels in (("in_channels", in_channels), ("out_channels", out_channels)):
            if channels % self.groups:
                raise ArgumentError(
                    f"{name}: {what}={channels} cannot be divided into {self.groups} groups."
                )
        self.kernel_size = sizes(name, "kernel_size", kernel_size, self._axes)
        self.stride = sizes(name, "stride", stride, self._axes)
        self.dilation = sizes(name, "dilation", dilation, self._axes)
        self.padding = padding_of(name, padding, self._axes)
        self.data_format = data_format_of(name, self._axes, data_format)
        self.with_bias = flag(name, "with_bias", with_bias)
        self._make(name, weight_initializer, bias_initializer, key, device, dtype)
        super().__init__(device=device, dtype=dtype, v=v)

    def _make(
        self,
        name: str,
        weights: object,
        biases: object,
        key: KeyLike | None,
        device: DeviceLike | None,
        dtype: DTypeLike | None,
    ) -> None:
        area = 1
        for n in self.kernel_size:
            area *= n
        fan_in, fan_out = (
            area * self.in_channels // self.groups,
            area * self.out_channels // self.groups,
        )
        shape, first, second = self._weight_shape(), *keys(key, 2)
        weights = initializer(name, "weight_initializer", weights, GlorotUniform())
        self.weight = weights.create_variables(shape, device, fan_out, fan_in, dtype, key=first)
        self.bias = None
        if self.with_bias:
            biases = initializer(name, "bias_initializer", biases, Zeros())
            self.bias = biases.create_variables(
                (self.out_channels,), device, fan_out, fan_in, dtype, key=second
            )

    def _weight_shape(self) -> tuple[int, ...]:
        return (self.out_channels, *self.kernel_size, self.in_channels // self.groups)

    def forward(self, x: Inexact[ArrayLike, "..."]) -> Inexact[Array, "..."]:
        return self._call_function(x, self.weight.value, value_of(self.bias))

    def brief(self) -> str:
        """For displays: `1 → 16, 3×3`."""
        return f"{self.in_channels} → {self.out_channels}, {'×'.join(map(str, self.kernel_size))}"

    def _channels(self) -> str:
        return f"{self.in_channels}, {self.out_channels}"

    def extra_repr(self) -> str:
        parts = [f"{self._channels()}, kernel_size={_short(self.kernel_size)}"]
        for name, usual in (("stride", 1), ("padding", 0), ("dilation", 1), *self._usual.items()):
            value = _short(getattr(self, name))
            if value != usual:
                parts.append(f"{name}={value!r}")
        further = unusual(self, data_format=DATA_FORMATS[self._axes][0])
        return ", ".join([*parts, f"with_bias={self.bias is not None}"]) + further


def _short(value: object) -> Any:
    return (
        value[0]
        if isinstance(value, tuple) and value and all(part == value[0] for part in value)
        else value
    )


_ARGUMENTS = """

    Args:
        in_channels: Channels of the inputs.
        out_channels: Channels of the outputs.
        kernel_size: A number, or one for each axis.
        stride: Steps of the kernel.
        padding: Zeros added at each side: a number, one for each axis, pairs, or 'SAME' or 'VALID'.
        dilation: Steps between the values that the kernel reads.
        groups: Number of groups of channels that are convolved apart.
        with_bias: Whether a bias is added.
        data_format: {formats}; channels are last by default.
        weight_initializer: Of `weight`, shape `(out_channels, *kernel_size, in_channels / groups)`; `GlorotUniform()`
            by default, with the kernel's area counted in both fans.
        bias_initializer: Of `bias`; `Zeros()` by default.
        key: Key for the initial values; by default the next of the default stream.
        device: Device of the variables.
        dtype: Dtype of the variables.
        v: Variables to use instead of fresh ones, `{{'w': ..., 'b': ...}}`.

    Example:
        >>> import jax.numpy as jnp
        >>> import nbmodule as nb
        >>> nb.{name}(3, 8, 3, padding=1)(jnp.ones({shape})).shape
        {result}
    """


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

    _usual: ClassVar[dict[str, int]] = {"depth_multiplier": 1}

    def __init__(
        self, channels: int, kernel_size: Sizes, *, depth_multiplier: int = 1, **options: Any
    ) -> None:
        channels = size("DepthwiseConv2d", "channels", channels)
        self.depth_multiplier = size("DepthwiseConv2d", "depth_multiplier", depth_multiplier)
        if "groups" in options:
            raise ArgumentError(
                "DepthwiseConv2d has one group for each channel: groups= cannot be given."
            )
        super().__init__(
            channels, channels * depth_multiplier, kernel_size, groups=channels, **options
        )

    def _channels(self) -> str:
        return str(self.in_channels)


class _Transposed(_Convolution):
    """Transposed convolutions; see `Conv2d` for the arguments."""

    _options = (*_Convolution._options, "output_padding")
    _usual: ClassVar[dict[str, int]] = {"output_padding": 0, "groups": 1}

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        *,
        output_padding: Sizes = 0,
        **options: Any,
    ) -> None:
        self.output_padding = sizes(
            type(self).__name__, "output_padding", output_padding, self._axes, least=0
        )
        super().__init__(in_channels, out_channels, kernel_size, **options)


class ConvTranspose1d(_Transposed):
    _axes, _function = 1, staticmethod(conv.conv_transpose1d)


class ConvTranspose2d(_Transposed):
    _axes, _function = 2, staticmethod(conv.conv_transpose2d)


class ConvTranspose3d(_Transposed):
    _axes, _function = 3, staticmethod(conv.conv_transpose3d)


_EXAMPLES = {
    1: ("(2, 9, 3)", "(2, 9, 8)"),
    2: ("(2, 9, 9, 3)", "(2, 9, 9, 8)"),
    3: ("(2, 5, 5, 5, 3)", "(2, 5, 5, 5, 8)"),
}
for _kind in (Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d):
    _what = "The transpose of a convolution" if issubclass(_kind, _Transposed) else "A convolution"
    _kind.__doc__ = (
        f"{_what} over {_kind._axes} ax{'is' if _kind._axes == 1 else 'es'}."
        + _ARGUMENTS.format(
            formats=" or ".join(map(repr, DATA_FORMATS[_kind._axes])),
            name=_kind.__name__,
            shape=_EXAMPLES[_kind._axes][0],
            result=_EXAMPLES[_kind._axes][1],
        )
    )
