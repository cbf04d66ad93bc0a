"""Normalization by mean and variance, over the batch, the features or groups of channels.

Statistics are computed in float32 at least, and the result has the dtype of `x`, so that
normalization may stand in a network of half precision with its own variables in float32.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import jax.numpy as jnp
from jax import lax
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from nbmodule.base.format import describe_shape
from nbmodule.base.promotion import widened_array
from nbmodule.errors import ShapeError
from nbmodule.nn.checks import check_axis, check_choice, check_number, check_shape
from nbmodule.nn.checks import size as whole_number
from nbmodule.nn.functional.windows import FORMATS, channel_axis, pad, slide
from nbmodule.nn.kernel import ArrayLike, along, kernel, promoted


@kernel(static=("eps", "axis"))
def batch_norm(
    x: Float[ArrayLike, "..."],
    mean: Float[ArrayLike, " channels"],
    var: Float[ArrayLike, " channels"],
    weight: Float[ArrayLike, " channels"] | None = None,
    bias: Float[ArrayLike, " channels"] | None = None,
    *,
    eps: float = 1e-5,
    axis: int = -1,
) -> Float[Array, "..."]:
    """Normalize each channel by given statistics: `(x - mean) / sqrt(var + eps) * weight + bias`.

    Args:
        x: Values of any shape.
        mean: Mean of each channel, as remembered.
        var: Variance of each channel.
        weight: Gain of each channel.
        bias: Offset of each channel.
        eps: Added to the variance, in squared units of `x`.
        axis: Channel axis of `x`.

    Raises:
        ShapeError: if there are not as many statistics as channels.

    Example:
        >>> batch_norm(
        ...     jnp.array([[3.0, 4.0]]), jnp.array([1.0, 0.0]), jnp.array([4.0, 1.0]), eps=0.0
        ... )
        Array([[1., 4.]], dtype=float32)

    Source: Ioffe and Szegedy (2015), arXiv:1502.03167.
    """
    axis = _check_channels(x, axis, mean=mean, var=var, weight=weight, bias=bias)
    check_number("eps", eps, least=0)
    wide = widened_array(x)
    mean, var = (along(lax.convert_element_type(s, wide.dtype), axis, x.ndim) for s in (mean, var))
    return _affine((wide - mean) * lax.rsqrt(var + eps), weight, bias, axis, x.dtype)


@kernel(static=("momentum", "eps", "axis", "axis_name"))
def batch_norm_train(
    x: Float[ArrayLike, "..."],
    running_mean: Float[ArrayLike, " channels"] | None = None,
    running_var: Float[ArrayLike, " channels"] | None = None,
    weight: Float[ArrayLike, " channels"] | None = None,
    bias: Float[ArrayLike, " channels"] | None = None,
    *,
    momentum: float = 0.1,
    eps: float = 1e-5,
    axis: int = -1,
    axis_name: object = None,
) -> tuple[Float[Array, "..."], Float[Array, " channels"], Float[Array, " channels"]]:
    """Normalize each channel by its own mean and variance over all other axes, and move the
    remembered statistics on.

    The biased variance normalizes, the unbiased one (divided by n - 1) is remembered:
    `new = (1 - momentum) * old + momentum * batch`.

    Args:
        x: Values of any shape.
        running_mean: Remembered mean.
        running_var: Remembered variance.
        weight: Gain of each channel.
        bias: Offset of each channel.
        momentum: Share of this batch in what is remembered.
        eps: Added to the variance, in squared units of `x`.
        axis: Channel axis of `x`.
        axis_name: Name of a mapped axis (`vmap`, `shard_map`) over which statistics are shared too.

    Returns:
        The normalized values; the new remembered mean and variance, or those of the batch where
        none are given. An empty batch has nothing to be learned from: what is remembered stays as
        it is.

    Raises:
        ShapeError: if there are not as many statistics as channels, or there is one value for each
            channel only.

    Example:
        >>> y, mean, var = batch_norm_train(
        ...     jnp.array([[1.0], [3.0]]), jnp.zeros(1), jnp.ones(1), eps=0.0
        ... )
        >>> y[:, 0], mean, var
        (Array([-1.,  1.], dtype=float32), Array([0.2], dtype=float32), Array([1.1], dtype=float32))

    Source: Ioffe and Szegedy (2015), arXiv:1502.03167.
    """
    axis = _check_channels(
        x, axis, running_mean=running_mean, running_var=running_var, weight=weight, bias=bias
    )
    check_number("eps", eps, least=0)
    check_number("momentum", momentum, least=0, most=1)
    others = tuple(i for i in range(x.ndim) if i != axis)
    count = math.prod(x.shape[i] for i in others) * (
        1 if axis_name is None else lax.axis_size(axis_name)
    )
    if count == 0:
        mean, var = _unmoved(x, axis, running_mean, running_var)
        return _affine(x, weight, bias, axis, x.dtype), mean, var
    if count < 2:
        raise ShapeError(
            f"x must have more than one value for each channel to learn from, got "
            f"{describe_shape(x)}."
        )
    wide = widened_array(x)
    mean, var = _moments(wide, others, axis_name)
    y = _affine((wide - mean) * lax.rsqrt(var + eps), weight, bias, axis, x.dtype)
    mean, var = (lax.reshape(moment, (x.shape[axis],)) for moment in (mean, var))
    unbiased = var * (count / (count - 1))
    return y, _moved(running_mean, mean, momentum), _moved(running_var, unbiased, momentum)


@kernel(static=("normalized_shape", "eps", "new_std"))
def layer_norm(
    x: Float[ArrayLike, "..."],
    weight: Float[ArrayLike, "..."] | None = None,
    bias: Float[ArrayLike, "..."] | None = None,
    *,
    normalized_shape: int | Sequence[int] | None = None,
    eps: float = 1e-5,
    new_std: float = 1.0,
) -> Float[Array, "..."]:
    """Normalize over the last axes: `(x - mean) / sqrt(var + eps) * new_std * weight + bias`.

    Args:
        x: Values of any shape.
        weight: Gains, of the shape of the normalized axes.
        bias: Offsets, of the shape of the normalized axes.
        normalized_shape: Sizes of the normalized axes; by default those of `weight` or `bias`, else
            the last axis.
        eps: Added to the variance, in squared units of `x`.
        new_std: Standard deviation after normalization, before `weight`.

    Raises:
        ShapeError: if `x` does not end with the normalized shape.

    Example:
        >>> layer_norm(jnp.array([1.0, 3.0]), eps=0.0)
        Array([-1.,  1.], dtype=float32)

    Source: Ba, Kiros and Hinton (2016), arXiv:1607.06450.
    """
    axes = _check_last(x, weight, bias, normalized_shape)
    check_number("eps", eps, least=0)
    wide = widened_array(x)
    mean, var = _moments(wide, axes)
    y = (wide - mean) * lax.rsqrt(var + eps)
    return _scaled(y * new_std if new_std != 1 else y, weight, bias, x.dtype)


@kernel(static=("normalized_shape", "eps"))
def rms_norm(
    x: Float[ArrayLike, "..."],
    weight: Float[ArrayLike, "..."] | None = None,
    *,
    normalized_shape: int | Sequence[int] | None = None,
    eps: float = 1e-6,
) -> Float[Array, "..."]:
    """Divide each feature vector by its root mean square, then scale it: `x / sqrt(mean(x**2) +
    eps) * weight`.

    Args:
        x: Values to normalize, feature axis last.
        weight: Gain of each feature.
        normalized_shape: Sizes of the normalized axes; by default those of `weight`, else the last
            axis.
        eps: Added to the mean square, in squared units of `x`; keeps a zero vector at zero.

    Raises:
        ShapeError: if `x` does not end with the normalized shape.

    Example:
        >>> rms_norm(jnp.array([1.0, 7.0]), jnp.ones(2)).round(1)
        Array([0.2, 1.4], dtype=float32)

    Source: Zhang and Sennrich (2019), arXiv:1910.07467.
    """
    axes = _check_last(x, weight, None, normalized_shape)
    check_number("eps", eps, least=0)
    wide = widened_array(x)
    return _scaled(
        wide * lax.rsqrt(jnp.mean(wide * wide, axes, keepdims=True) + eps), weight, None, x.dtype
    )


@kernel(static=("num_groups", "eps", "data_format"))
def group_norm(
    x: Float[ArrayLike, "..."],
    num_groups: int,
    weight: Float[ArrayLike, " channels"] | None = None,
    bias: Float[ArrayLike, " channels"] | None = None,
    *,
    eps: float = 1e-5,
    data_format: str | None = None,
) -> Float[Array, "..."]:
    """Normalize each group of channels over its channels and all spatial axes.

    Args:
        x: Images, sequences or vectors.
        num_groups: Number of groups of neighboring channels.
        weight: Gain of each channel.
        bias: Offset of each channel.
        eps: Added to the variance, in squared units of `x`.
        data_format: `NC`, `NWC`, `NHWC`, `NDHWC`, or `NCW`, `NCHW`, `NCDHW`; N stands for any
            number of leading axes. By default the first axis is the batch, the last one the
            channels, all between are spatial.

    Raises:
        ShapeError: if the groups do not divide the channels.

    Example:
        >>> group_norm(jnp.array([[1.0, 3.0, 10.0, 30.0]]), 2).round(3)
        Array([[-1.,  1., -1.,  1.]], dtype=float32)

    Source: Wu and He (2018), arXiv:1803.08494.
    """
    spatial, axis = _image_axes(x, data_format)
    _check_channels(x, axis, weight=weight, bias=bias)
    check_number("eps", eps, least=0)
    groups = whole_number("num_groups", num_groups)
    channels = x.shape[axis]
    if channels % groups:
        raise ShapeError(
            f"{groups} groups must divide the {channels} channels of x {describe_shape(x)}."
        )
    wide = widened_array(x)
    parts = lax.reshape(wide, (*x.shape[:axis], groups, channels // groups, *x.shape[axis + 1 :]))
    within = tuple(i + (i > axis) for i in spatial) + (axis + 1,)
    mean, var = _moments(parts, within)
    y = lax.reshape((parts - mean) * lax.rsqrt(var + eps), x.shape)
    return _affine(y, weight, bias, axis, x.dtype)


@kernel(static=("eps", "data_format"))
def instance_norm(
    x: Float[ArrayLike, "..."],
    weight: Float[ArrayLike, " channels"] | None = None,
    bias: Float[ArrayLike, " channels"] | None = None,
    *,
    eps: float = 1e-5,
    data_format: str | None = None,
) -> Float[Array, "..."]:
    """Normalize each channel of each image over its spatial axes.

    Args:
        x: Images or sequences.
        weight: Gain of each channel.
        bias: Offset of each channel.
        eps: Added to the variance, in squared units of `x`.
        data_format: As in `group_norm`.

    Raises:
        ShapeError: if there is one value for each channel only.

    Example:
        >>> instance_norm(jnp.array([[[1.0, 5.0], [3.0, 9.0]]])).round(3)
        Array([[[-1., -1.],
                [ 1.,  1.]]], dtype=float32)

    Source: Ulyanov, Vedaldi and Lempitsky (2016), arXiv:1607.08022.
    """
    spatial, axis = _image_axes(x, data_format)
    _check_channels(x, axis, weight=weight, bias=bias)
    check_number("eps", eps, least=0)
    if math.prod(x.shape[i] for i in spatial) < 2:
        raise ShapeError(
            f"x must have more than one pixel, got {describe_shape(x)}, "
            f"read as {data_format or 'N...C'}."
        )
    wide = widened_array(x)
    mean, var = _moments(wide, spatial)
    return _affine((wide - mean) * lax.rsqrt(var + eps), weight, bias, axis, x.dtype)


@kernel(static=("size", "alpha", "beta", "k", "axis"))
def local_response_norm(
    x: Float[ArrayLike, "*shape"],
    size: int,
    *,
    alpha: float = 1e-4,
    beta: float = 0.75,
    k: float = 1.0,
    axis: int = -1,
) -> Float[Array, "*shape"]:
    """Divide each value by a power of the mean square of its neighbors among the channels.

    `x / (k + alpha * mean of x**2 over size channels) ** beta`; beyond the first and last channel
    zeros are counted.

    Args:
        x: Values of any shape.
        size: Number of neighboring channels, itself included.
        alpha: Factor of the mean square.
        beta: Exponent.
        k: Added to the mean square.
        axis: Channel axis of `x`.

    Example:
        >>> local_response_norm(jnp.array([2.0, 0.0]), 2, alpha=1.0, beta=1.0).round(3)
        Array([0.667, 0.   ], dtype=float32)

    Source: Krizhevsky, Sutskever and Hinton (2012), ImageNet classification with deep convolutional
    neural networks.
    """
    axis = check_axis(axis, x.ndim)
    size = whole_number("size", size)
    wide = widened_array(x)
    squares = pad(wide * wide, (axis,), ((size // 2, (size - 1) // 2),), 0)
    y = wide / (k + alpha / size * slide(squares, axis, size, 1, 1, lax.add)) ** beta
    return lax.convert_element_type(y, x.dtype)


def _check_channels(x: Array, axis: int, **vectors: Array | None) -> int:
    axis = check_axis(axis, x.ndim)
    for name, vector in vectors.items():
        why = f"one for each channel on axis {axis} of x {describe_shape(x)}"
        check_shape(name, vector, (x.shape[axis],), why)
    return axis


def _check_last(
    x: Array, weight: Array | None, bias: Array | None, shape: object
) -> tuple[int, ...]:
    """The axes that are normalized: the last ones."""
    affine = [v for v in (weight, bias) if v is not None]
    if shape is None:
        shape = affine[0].shape if affine else x.shape[-1:]
    shape = (
        tuple(shape)
        if isinstance(shape, Sequence)
        else (whole_number("normalized_shape", shape, least=0),)
    )
    if not shape or x.ndim < len(shape) or tuple(x.shape[-len(shape) :]) != shape:
        raise ShapeError(
            f"x must end with the normalized shape {list(shape)}, got {describe_shape(x)}."
        )
    check_shape("weight", weight, shape, "the normalized shape")
    check_shape("bias", bias, shape, "the normalized shape")
    return tuple(range(x.ndim - len(shape), x.ndim))


def _image_axes(x: Array, data_format: str | None) -> tuple[tuple[int, ...], int]:
    """Spatial axes and channel axis."""
    if x.ndim == 0:
        raise ShapeError(f"x must have channels, got {describe_shape(x)}.")
    if data_format is None:
        return tuple(range(1, x.ndim - 1)), x.ndim - 1
    check_choice("data_format", data_format, FORMATS)
    rank = len(data_format) - 1
    if x.ndim < rank:
        raise ShapeError(
            f"x must have axes (*batch, {', '.join(data_format[1:])}), got {describe_shape(x)}."
        )
    axis = channel_axis(x.ndim, data_format)
    return tuple(i for i in range(x.ndim - rank, x.ndim) if i != axis), axis


def _moments(x: Array, axes: tuple[int, ...], axis_name: object = None) -> tuple[Array, Array]:
    """Mean and biased variance, with the reduced axes kept."""
    mean = jnp.mean(x, axes, keepdims=True)
    if axis_name is not None:
        mean = lax.pmean(mean, axis_name)
    centered = x - mean
    var = jnp.mean(centered * centered, axes, keepdims=True)
    return mean, var if axis_name is None else lax.pmean(var, axis_name)


def _unmoved(x: Array, axis: int, *remembered: Array | None) -> list[Array]:
    """Return the running statistics after an empty batch: the old ones, or zeros."""
    return [jnp.zeros(x.shape[axis], x.dtype) if old is None else old for old in remembered]


def _moved(old: Array | None, new: Array, momentum: float) -> Array:
    """Return a running statistic after a batch; no gradient passes through it."""
    new = lax.stop_gradient(new)
    if old is None:
        return new
    before, new = promoted(old, new)
    return lax.convert_element_type((1 - momentum) * before + momentum * new, old.dtype)


def _affine(
    y: Array, weight: Array | None, bias: Array | None, axis: int, dtype: DTypeLike
) -> Array:
    weight, bias = (None if v is None else along(v, axis, y.ndim) for v in (weight, bias))
    return _scaled(y, weight, bias, dtype)


def _scaled(y: Array, weight: Array | None, bias: Array | None, dtype: DTypeLike) -> Array:
    y, weight, bias = promoted(y, weight, bias)
    y = y if weight is None else y * weight
    return lax.convert_element_type(y if bias is None else y + bias, dtype)
