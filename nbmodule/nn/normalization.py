"""Normalization layers; see the functions of the same name for the formulas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jax import Array
from jax.typing import DTypeLike
from jaxtyping import Float

from nbmodule.base.kinds import DeviceLike, KeyLike
from nbmodule.errors import ArgumentError
from nbmodule.nn.affine import Affine, channel_axis, layout, number, value_of
from nbmodule.nn.batch_normalization import BatchNorm1d, BatchNorm2d, BatchNorm3d
from nbmodule.nn.functional import normalization
from nbmodule.nn.functional.checks import check_number
from nbmodule.nn.functional.windows import Sizes
from nbmodule.nn.initializers import InitializerLike
from nbmodule.nn.layer import ArrayLike, Layer, flag, integer, size, unusual, written
from nbmodule.nn.layer import size as whole


class LayerNorm(Affine):
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

    def __init__(
        self,
        normalized_shape: Sizes,
        *,
        eps: float = 1e-5,
        new_std: float = 1.0,
        affine: bool = True,
        with_bias: bool = True,
        weight_initializer: InitializerLike | None = None,
        bias_initializer: InitializerLike | None = None,
        key: KeyLike | None = None,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
        v: Mapping[str, Any] | None = None,
    ) -> None:
        self.normalized_shape = _shape("LayerNorm", normalized_shape)
        self.eps, self.new_std = (
            number("LayerNorm", "eps", eps),
            number("LayerNorm", "new_std", new_std),
        )
        self.affine, self.with_bias = (
            flag("LayerNorm", "affine", affine),
            flag("LayerNorm", "with_bias", with_bias),
        )
        self._make(
            self.normalized_shape,
            self.affine,
            self.with_bias,
            weight_initializer,
            bias_initializer,
            key,
            device,
            dtype,
        )
        super().__init__(device=device, dtype=dtype, v=v)

    def forward(self, x: Float[ArrayLike, "..."]) -> Float[Array, "..."]:
        return normalization.layer_norm(
            x,
            value_of(self.weight),
            value_of(self.bias),
            normalized_shape=self.normalized_shape,
            eps=self.eps,
            new_std=self.new_std,
        )

    def extra_repr(self) -> str:
        bias = "" if self.bias is not None or not self.affine else ", with_bias=False"
        usual = unusual(self, new_std=1.0) + bias
        return f"{self.normalized_shape}, eps={self.eps}, affine={self.affine}{usual}"

    def brief(self) -> str:
        """For displays: the normalized sizes."""
        return "×".join(map(str, self.normalized_shape))


class RMSNorm(Affine):
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

    def __init__(
        self,
        normalized_shape: Sizes,
        *,
        eps: float = 1e-6,
        affine: bool = True,
        weight_initializer: InitializerLike | None = None,
        key: KeyLike | None = None,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
        v: Mapping[str, Any] | None = None,
    ) -> None:
        self.normalized_shape = _shape("RMSNorm", normalized_shape)
        self.eps, self.affine = number("RMSNorm", "eps", eps), flag("RMSNorm", "affine", affine)
        self._make(
            self.normalized_shape, self.affine, False, weight_initializer, None, key, device, dtype
        )
        super().__init__(device=device, dtype=dtype, v=v)

    def forward(self, x: Float[ArrayLike, "..."]) -> Float[Array, "..."]:
        return normalization.rms_norm(
            x, value_of(self.weight), normalized_shape=self.normalized_shape, eps=self.eps
        )

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, affine={self.affine}"

    def brief(self) -> str:
        """For displays: the normalized sizes."""
        return "×".join(map(str, self.normalized_shape))


class GroupNorm(Affine):
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

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        *,
        eps: float = 1e-5,
        affine: bool = True,
        data_format: str | None = None,
        weight_initializer: InitializerLike | None = None,
        bias_initializer: InitializerLike | None = None,
        key: KeyLike | None = None,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
        v: Mapping[str, Any] | None = None,
    ) -> None:
        self.num_groups, self.num_channels = (
            size("GroupNorm", "num_groups", num_groups),
            size("GroupNorm", "num_channels", num_channels),
        )
        if num_channels % num_groups:
            raise ArgumentError(
                f"GroupNorm: {num_channels} channels cannot be divided into {num_groups} groups."
            )
        self.eps, self.affine = number("GroupNorm", "eps", eps), flag("GroupNorm", "affine", affine)
        self.data_format = layout("GroupNorm", data_format)
        self._make(
            (num_channels,),
            self.affine,
            True,
            weight_initializer,
            bias_initializer,
            key,
            device,
            dtype,
        )
        super().__init__(device=device, dtype=dtype, v=v)

    def forward(self, x: Float[ArrayLike, "..."]) -> Float[Array, "..."]:
        channel_axis("GroupNorm", x, self.data_format, self.num_channels)
        return normalization.group_norm(
            x,
            self.num_groups,
            value_of(self.weight),
            value_of(self.bias),
            eps=self.eps,
            data_format=self.data_format,
        )

    def extra_repr(self) -> str:
        usual = unusual(self, data_format=None)
        return (
            f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}{usual}"
        )

    def brief(self) -> str:
        """For displays: `8 in 2 groups`."""
        return (
            f"{self.num_channels} in {self.num_groups} group{'' if self.num_groups == 1 else 's'}"
        )


class InstanceNorm(Affine):
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

    def __init__(
        self,
        num_features: int,
        *,
        eps: float = 1e-5,
        affine: bool = False,
        data_format: str | None = None,
        weight_initializer: InitializerLike | None = None,
        bias_initializer: InitializerLike | None = None,
        key: KeyLike | None = None,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
        v: Mapping[str, Any] | None = None,
    ) -> None:
        self.num_features = size("InstanceNorm", "num_features", num_features)
        self.eps, self.affine = (
            number("InstanceNorm", "eps", eps),
            flag("InstanceNorm", "affine", affine),
        )
        self.data_format = layout("InstanceNorm", data_format)
        self._make(
            (num_features,),
            self.affine,
            True,
            weight_initializer,
            bias_initializer,
            key,
            device,
            dtype,
        )
        super().__init__(device=device, dtype=dtype, v=v)

    def forward(self, x: Float[ArrayLike, "..."]) -> Float[Array, "..."]:
        channel_axis("InstanceNorm", x, self.data_format, self.num_features)
        return normalization.instance_norm(
            x,
            value_of(self.weight),
            value_of(self.bias),
            eps=self.eps,
            data_format=self.data_format,
        )

    def extra_repr(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, "
            f"affine={self.affine}{unusual(self, data_format=None)}"
        )

    def brief(self) -> str:
        """For displays: the number of features."""
        return str(self.num_features)


class LocalResponseNorm(Layer):
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

    def __init__(
        self, size: int, *, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0, axis: int = -1
    ) -> None:
        self.size = whole("LocalResponseNorm", "size", size)
        for name, value in (("alpha", alpha), ("beta", beta), ("k", k)):
            check_number("LocalResponseNorm", name, value)
        self.alpha, self.beta, self.k, self.axis = (
            float(alpha),
            float(beta),
            float(k),
            integer("LocalResponseNorm", "axis", axis),
        )
        super().__init__()

    def forward(self, x: Float[ArrayLike, "..."]) -> Float[Array, "..."]:
        return normalization.local_response_norm(
            x, self.size, alpha=self.alpha, beta=self.beta, k=self.k, axis=self.axis
        )

    def extra_repr(self) -> str:
        numbers = f"alpha={written(self.alpha)}, beta={written(self.beta)}, k={written(self.k)}"
        return f"{self.size}, {numbers}{unusual(self, axis=-1)}"


def _shape(name: str, given: Any) -> tuple[int, ...]:
    return tuple(
        size(name, "normalized_shape", n)
        for n in (given if isinstance(given, (tuple, list)) else (given,))
    )


__all__ = [
    "BatchNorm1d",
    "BatchNorm2d",
    "BatchNorm3d",
    "GroupNorm",
    "InstanceNorm",
    "LayerNorm",
    "LocalResponseNorm",
]
__all__ += ["RMSNorm"]
