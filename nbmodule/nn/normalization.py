"""Normalization layers; see the functions of the same name for the formulas."""

from __future__ import annotations

import functools
from typing import Any, Unpack

import jax
import numpy as np
from jax import Array
from jax.typing import DTypeLike
from jaxtyping import Float

from nbmodule.base.format import describe_shape
from nbmodule.base.kinds import DeviceLike, as_flag
from nbmodule.core.variables.placement import find_device, find_dtype
from nbmodule.core.variables.variable import Buffer
from nbmodule.errors import ArgumentError, ArgumentTypeError, ShapeError
from nbmodule.nn.checks import check_choice, check_number, rate
from nbmodule.nn.checks import size as whole_number
from nbmodule.nn.functional import normalization as functions
from nbmodule.nn.functional.windows import FORMATS, Sizes, channel_axis
from nbmodule.nn.initializers import Ones, Zeros
from nbmodule.nn.kernel import plain
from nbmodule.nn.layer import (
    ArrayLike,
    FunctionLayer,
    VariableOptions,
    WeightedLayer,
    data_format_of,
    value_of,
)


class NormOptions(VariableOptions, total=False):
    """Options of a normalization layer."""

    eps: float
    affine: bool


class _Norm(WeightedLayer):
    """A layer with a gain and an offset for each feature; either may be None."""

    weight: Any

    def __init__(
        self,
        shape: tuple[int, ...],
        with_bias: bool = True,
        *,
        eps: float = 1e-5,
        affine: bool = True,
        **options: Unpack[VariableOptions],
    ) -> None:
        self.eps = check_number("eps", eps, least=0)
        self.affine = as_flag("affine", affine)
        weight = shape if self.affine else None
        bias = weight if with_bias else None
        super().__init__(weight, bias, (shape[-1], shape[-1]), (Ones(), Zeros()), **options)


class _OfLastAxes(_Norm):
    normalized_shape: tuple[int, ...]

    _shown, _brief = "normalized_shape eps= affine=", "{normalized_shape}"

    def _check_shape(self, passed: Sizes) -> tuple[int, ...]:
        sizes = passed if isinstance(passed, (tuple, list)) else (passed,)
        return tuple(whole_number("normalized_shape", n) for n in sizes)


class LayerNorm(_OfLastAxes):
    """Normalizes over the last axes: `(x - mean) / sqrt(var + eps) * new_std * weight + bias`.

    Args:
        normalized_shape: Size of the last axis, or sizes of the last axes.
        eps: Added to the variance, in squared units of the input.
        new_std: Standard deviation after normalization, before `weight`.
        affine: Whether `weight` is trained.
        with_bias: Whether `bias` is trained too.
        weight_initializer: Of `weight`; ones by default.
        bias_initializer: Of `bias`; zeros by default.
        key: Key for the initial values.
        device: Device of the variables.
        dtype: Dtype of the variables.
        v: Parameters to use instead of fresh ones.

    Example:
        >>> import jax.numpy as jnp
        >>> import nbmodule as nb
        >>> nb.LayerNorm(2)(jnp.array([[1.0, 3.0]])).round(3)
        Array([[-1.,  1.]], dtype=float32)

    Source: Ba, Kiros and Hinton (2016), arXiv:1607.06450.
    """

    _function = staticmethod(functions.layer_norm)

    def __init__(
        self,
        normalized_shape: Sizes,
        *,
        new_std: float = 1.0,
        with_bias: bool = True,
        **options: Unpack[NormOptions],
    ) -> None:
        self.normalized_shape = shape = self._check_shape(normalized_shape)
        self.new_std = check_number("new_std", new_std, least=0)
        self.with_bias = as_flag("with_bias", with_bias)
        super().__init__(shape, self.with_bias, **options)

    def forward(self, x: Float[ArrayLike, "..."]) -> Float[Array, "..."]:
        return self._call_function(x, value_of(self.weight), value_of(self.bias))


class RMSNorm(_OfLastAxes):
    """Divides by the root mean square of the last axes: `x / sqrt(mean(x**2) + eps) * weight`.

    Args:
        normalized_shape: Size of the last axis, or sizes of the last axes.
        eps: Added to the mean square, in squared units of the input.
        affine: Whether `weight` is trained.
        weight_initializer: Of `weight`; ones by default.
        key: Key for the initial values.
        device: Device of the variables.
        dtype: Dtype of the variables.
        v: Parameters to use instead of fresh ones.

    Example:
        >>> import jax.numpy as jnp
        >>> import nbmodule as nb
        >>> nb.RMSNorm(2)(jnp.array([1.0, 7.0])).round(1)
        Array([0.2, 1.4], dtype=float32)

    Source: Zhang and Sennrich (2019), arXiv:1910.07467.
    """

    _without = ("bias_initializer",)

    def __init__(
        self,
        normalized_shape: Sizes,
        *,
        eps: float = 1e-6,
        affine: bool = True,
        **options: Unpack[VariableOptions],
    ) -> None:
        self.normalized_shape = shape = self._check_shape(normalized_shape)
        super().__init__(shape, False, eps=eps, affine=affine, **options)

    def forward(self, x: Float[ArrayLike, "..."]) -> Float[Array, "..."]:
        weight = value_of(self.weight)
        return functions.rms_norm(x, weight, normalized_shape=self.normalized_shape, eps=self.eps)


class GroupNorm(_Norm):
    """Normalizes over groups of channels of each sample.

    Args:
        num_groups: Number of groups.
        num_channels: Number of channels, divisible by `num_groups`.
        eps: Added to the variance, in squared units of the input.
        affine: Whether `weight` and `bias` are trained.
        data_format: Such as 'NHWC' or 'NCHW', where N is any number of leading axes; by default the
            first axis is the batch, the last one the channels, and all between are spatial.
        weight_initializer: Of `weight`; ones by default.
        bias_initializer: Of `bias`; zeros by default.
        key: Key for the initial values.
        device: Device of the variables.
        dtype: Dtype of the variables.
        v: Parameters to use instead of fresh ones.

    Example:
        >>> import jax.numpy as jnp
        >>> import nbmodule as nb
        >>> nb.GroupNorm(2, 4)(jnp.ones((1, 3, 3, 4))).shape
        (1, 3, 3, 4)

    Source: Wu and He (2018), arXiv:1803.08494.
    """

    _shown = "num_groups num_channels eps= affine="
    _brief = "{num_channels} in {num_groups} groups"

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        *,
        data_format: str | None = None,
        **options: Unpack[NormOptions],
    ) -> None:
        self.num_groups = whole_number("num_groups", num_groups)
        self.num_channels = whole_number("num_channels", num_channels)
        if num_channels % num_groups:
            raise ArgumentError(
                f"{num_channels} channels cannot be divided into {num_groups} groups."
            )
        check_choice("data_format", data_format, (None, *FORMATS))
        self.data_format = data_format
        super().__init__((num_channels,), **options)

    def forward(self, x: Float[ArrayLike, "..."]) -> Float[Array, "..."]:
        _channel_axis("GroupNorm", x, self.data_format, self.num_channels)
        weight, bias = value_of(self.weight), value_of(self.bias)
        return functions.group_norm(
            x, self.num_groups, weight, bias, eps=self.eps, data_format=self.data_format
        )


class InstanceNorm(_Norm):
    """Normalizes each channel of each sample over its spatial axes.

    Args:
        num_features: Number of channels.
        eps: Added to the variance, in squared units of the input.
        affine: Whether `weight` and `bias` are trained.
        data_format: Such as 'NHWC' or 'NCHW', where N is any number of leading axes; by default the
            first axis is the batch, the last one the channels, and all between are spatial.
        weight_initializer: Of `weight`; ones by default.
        bias_initializer: Of `bias`; zeros by default.
        key: Key for the initial values.
        device: Device of the variables.
        dtype: Dtype of the variables.
        v: Parameters to use instead of fresh ones.

    Example:
        >>> import jax.numpy as jnp
        >>> import nbmodule as nb
        >>> nb.InstanceNorm(3)(jnp.ones((2, 4, 4, 3))).shape
        (2, 4, 4, 3)

    Source: Ulyanov, Vedaldi and Lempitsky (2016), arXiv:1607.08022.
    """

    _shown, _brief = "num_features eps= affine=", "{num_features}"

    def __init__(
        self,
        num_features: int,
        *,
        eps: float = 1e-5,
        affine: bool = False,
        data_format: str | None = None,
        **options: Unpack[VariableOptions],
    ) -> None:
        self.num_features = whole_number("num_features", num_features)
        check_choice("data_format", data_format, (None, *FORMATS))
        self.data_format = data_format
        super().__init__((num_features,), eps=eps, affine=affine, **options)

    def forward(self, x: Float[ArrayLike, "..."]) -> Float[Array, "..."]:
        _channel_axis("InstanceNorm", x, self.data_format, self.num_features)
        weight, bias = value_of(self.weight), value_of(self.bias)
        return functions.instance_norm(x, weight, bias, eps=self.eps, data_format=self.data_format)


class _BatchNorm(_Norm):
    """Normalizes each channel by its mean and variance over the batch, and remembers both for
    evaluation.

    In training the statistics of the batch normalize (the biased variance) and move the buffers
    `running_mean` and
    `running_var` on: `new = (1 - momentum) * old + momentum * batch`, with the unbiased variance.
    After `eval()` the
    buffers normalize. Once exported (`nb.export_state`) it is called as `y, state = layer(x,
    state)`.

    Args:
        num_features: Number of channels.
        eps: Added to the variance, in squared units of the input.
        momentum: Share of a batch in what is remembered.
        affine: Whether `weight` (gain) and `bias` (offset) are trained.
        track_running_stats: Whether statistics are remembered; without, the batch's own are always
            used.
        data_format: $formats; channels are last by default.
        axis_name: A mapped axis over which statistics are shared too.
        weight_initializer: Of `weight`; ones by default.
        bias_initializer: Of `bias`; zeros by default.
        key: Key for the initial values.
        device: Device of the variables.
        dtype: Dtype of the variables.
        v: Parameters to use instead of fresh ones, `{'w': ..., 'b': ...}`.

    Example:
        >>> import jax.numpy as jnp
        >>> import nbmodule as nb
        >>> list(nb.$name(3).state_dict())
        ['bias', 'running_mean', 'running_var', 'weight']

    Source: Ioffe and Szegedy (2015), arXiv:1502.03167.
    """

    _state_names = ("running_mean", "running_var")
    running_mean: Any  # a Buffer, or its StateKey once exported
    running_var: Any

    _shown = "num_features eps= momentum= affine= track_running_stats="
    _brief = "{num_features}"

    def __init__(
        self,
        num_features: int,
        *,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        data_format: str | None = None,
        axis_name: object = None,
        **options: Unpack[VariableOptions],
    ) -> None:
        shape = (num_features,)
        self.num_features = whole_number("num_features", num_features)
        self.momentum = rate("momentum", momentum)
        self.axis_name = axis_name
        self.track_running_stats = as_flag("track_running_stats", track_running_stats)
        self.data_format = data_format_of(self._axes, data_format)
        if self.track_running_stats:
            placement = options.get("device"), options.get("dtype")
            self.running_mean = _filled(0, shape, *placement)
            self.running_var = _filled(1, shape, *placement)
        super().__init__(shape, eps=eps, affine=affine, **options)

    def forward(self, x: Float[ArrayLike, "..."], state: Any = None) -> Any:
        x, name = plain(x), type(self).__name__
        vectors = self._axes == 1 and len(getattr(x, "shape", ())) <= 2  # (N, C) in both layouts
        data_format = "NC" if vectors else self.data_format
        axis = _channel_axis(name, x, data_format, self.num_features)
        affine = value_of(self.weight), value_of(self.bias)
        options = {"eps": self.eps, "axis": axis}
        mean, var = self._read_state(state) if self.track_running_stats else (None, None)
        if not self.training and mean is not None:
            y = functions.batch_norm(x, mean, var, *affine, **options)
            return y if state is None else (y, state)
        moving = {"momentum": self.momentum, "axis_name": self.axis_name}
        y, *moments = functions.batch_norm_train(x, mean, var, *affine, **options, **moving)
        if mean is not None:
            state = self._write_state(state, moments)
        return y if state is None else (y, state)


class BatchNorm1d(_BatchNorm):
    _axes = 1


class BatchNorm2d(_BatchNorm):
    _axes = 2


class BatchNorm3d(_BatchNorm):
    _axes = 3


class LocalResponseNorm(FunctionLayer):
    """Divides each value by a power of the mean square of its neighbors among the channels.

    `x / (k + alpha * mean of x**2 over size channels) ** beta`; beyond the first and last channel
    zeros are counted.

    Args:
        size: Number of neighboring channels, itself included.
        alpha: Factor of the mean square.
        beta: Exponent.
        k: Added to the mean square.
        axis: Channel axis; the last by default.

    Example:
        >>> import jax.numpy as jnp
        >>> from nbmodule.nn.normalization import LocalResponseNorm
        >>> LocalResponseNorm(2, alpha=1.0, beta=1.0)(jnp.array([2.0, 0.0])).round(3)
        Array([0.667, 0.   ], dtype=float32)

    Source: Krizhevsky, Sutskever and Hinton (2012), ImageNet classification with deep convolutional
    neural networks.
    """

    _shown = "size alpha= beta= k="
    _function = staticmethod(functions.local_response_norm)

    def __init__(self, size: int, **options: Any) -> None:
        self.size = whole_number("size", size)
        self._store(**options)

    def forward(self, x: Float[ArrayLike, "..."]) -> Float[Array, "..."]:
        return self._call_function(x, self.size)


def _channel_axis(where: str, x: Array, data_format: str | None, channels: int) -> int:
    """Return the axis of the channels, the last one without a format; there must be as many as the
    layer has.
    """
    if not hasattr(x, "shape"):  # text, lists and dicts, and numbers, which have no axes
        raise ArgumentTypeError(f"{where}: x must be an array, got {type(x).__name__}.")
    rank, letters = len(x.shape), data_format or "C"
    axis = channel_axis(rank, letters)
    if rank < len(letters) or x.shape[axis] != channels:
        names = {"N": "*batch", "C": str(channels)}
        axes = ", ".join(names.get(letter, letter) for letter in data_format or "NC")
        raise ShapeError(f"{where}: x must have axes ({axes}), got {describe_shape(x)}.")
    return axis


def _filled(
    value: float, shape: tuple[int, ...], device: DeviceLike | None, dtype: DTypeLike | None
) -> Buffer:
    """Return a buffer that is filled when it is first read."""
    dtype = jax.dtypes.canonicalize_dtype(find_dtype(dtype) or float)
    draw = functools.partial(np.full, shape, value, dtype)
    return Buffer.pending(draw, shape, dtype, find_device(device))
