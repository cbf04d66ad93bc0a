"""Dropout: values or whole channels are set to zero at random, and the rest is scaled so that the
mean stays.

A key is given as its two words `uint32[2]`, what a random stream gives, or as a JAX key. The
numbers are those of `jax.random.bernoulli`.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from nbmodule.base.format import describe_shape
from nbmodule.base.kinds import KeyLike
from nbmodule.errors import ArgumentError, ArgumentTypeError
from nbmodule.nn.checks import check_axis, check_floating, check_number
from nbmodule.nn.functional.windows import for_axes, spatial_axes
from nbmodule.nn.kernel import ArrayLike, kernel, where

_SELU_FLOOR = -1.7580993408473766  # the SELU of minus infinity


@kernel(static=("shared_axes",), numbers=("rate",))
def dropout(
    x: Float[ArrayLike, "*shape"],
    rate: float | Float[ArrayLike, ""],
    key: KeyLike,
    *,
    shared_axes: tuple[int, ...] = (),
) -> Float[Array, "*shape"]:
    """Set each value to zero with probability `rate`, and divide the others by `1 - rate`.

    Args:
        x: Values of any shape.
        rate: From 0, which changes nothing, to 1, which leaves nothing. An array may change from
            step to step without a new compile.
        key: Key data `uint32[2]`, or a JAX key.
        shared_axes: Axes along which all values share one fate.

    Raises:
        ArgumentError: if the rate is no probability.

    Example:
        >>> dropout(jnp.ones(8), 0.5, jax.random.key(0))
        Array([0., 0., 2., 2., 0., 2., 2., 0.], dtype=float32)

    Source: Srivastava, Hinton, Krizhevsky, Sutskever and Salakhutdinov (2014), Dropout.
    """
    return _dropped(x, rate, key, shared_axes)


def _channel_dropout(  # noqa: D417 - `n` comes from `for_axes`
    n: int,
    x: Float[Array, "*shape"],
    rate: float | Float[Array, ""],
    key: KeyLike,
    *,
    data_format: str = "",
) -> Float[Array, "*shape"]:
    """Set each channel of each input to zero with probability `rate`, and divide the others by `1 -
    rate`.

    Args:
        x: Values with $axes, and any number of leading axes, each of which has a fate of its own.
        rate: From 0, which changes nothing, to 1, which leaves nothing.
        key: Key data `uint32[2]`, or a JAX key.
        data_format: $formats; channels are last by default.

    Example:
        >>> $name(jnp.ones((2, *2, 3)), 0.5, jax.random.key(0)).shape
        (2, *2, 3)

    Source: Tompson, Goroshin, Jain, LeCun and Bregler (2015), arXiv:1411.4280.
    """
    return _dropped(x, rate, key, spatial_axes(x, data_format, n))


dropout1d, dropout2d, dropout3d = for_axes(
    "dropout", _channel_dropout, static=("data_format",), numbers=("rate",)
)


@kernel(static=("rate",))
def alpha_dropout(
    x: Float[ArrayLike, "*shape"], rate: float, key: KeyLike
) -> Float[Array, "*shape"]:
    """Drop values before or after a SELU, so that mean 0 and variance 1 stay: dropped ones become
    the SELU's floor.

    Args:
        x: Values of any shape, of mean 0 and variance 1.
        rate: From 0, which changes nothing, to 1, which leaves nothing.
        key: Key data `uint32[2]`, or a JAX key.

    Example:
        >>> alpha_dropout(jnp.zeros(4), 0.5, jax.random.key(0)).round(3)
        Array([-0.77900004, -0.77900004,  0.77900004,  0.77900004], dtype=float32)

    Source: Klambauer, Unterthiner, Mayr and Hochreiter (2017), arXiv:1706.02515.
    """
    keep_rate = _keep_rate(rate)
    if keep_rate is None:
        return x
    if keep_rate == 0:
        return lax.full_like(x, 0)
    scale = 1 / math.sqrt(keep_rate * (1 + (1 - keep_rate) * _SELU_FLOOR**2))
    kept = where(_kept(key, keep_rate, x.shape), x, _SELU_FLOOR)
    return scale * kept - scale * _SELU_FLOOR * (1 - keep_rate)


def _dropped(x: Array, rate: float | Array, key: KeyLike, shared_axes: tuple[int, ...]) -> Array:
    shared = {check_axis(axis, x.ndim) for axis in shared_axes}
    keep_rate = _keep_rate(rate)
    if keep_rate is None:
        return x
    keep_shape = tuple(1 if i in shared else size for i, size in enumerate(x.shape))
    keep = _kept(key, keep_rate, keep_shape)
    if isinstance(keep_rate, jax.Array):
        divisor: Any = lax.convert_element_type(where(keep_rate > 0, keep_rate, 1), x.dtype)
    else:
        divisor = keep_rate or 1
    return where(keep, x / divisor, 0)


def _keep_rate(rate: float | Array) -> Any:
    """The probability to keep a value; None if all are kept."""
    if isinstance(rate, jax.Array):
        if rate.ndim:
            raise ArgumentError(f"rate must be one number, got {describe_shape(rate)}.")
        check_floating("rate", rate)
        return 1 - lax.convert_element_type(rate, jnp.float32)
    check_number("rate", rate, least=0, most=1)
    return None if rate == 0 else 1.0 - float(rate)


def _kept(key: KeyLike, keep_rate: float | Array, shape: tuple[int, ...]) -> Array:
    """`jax.random.bernoulli` without its detour over floating numbers: 23 random bits below a whole
    number.
    """
    words = jax.random.bits(_typed(key), shape, jnp.uint32) >> np.uint32(9)
    if isinstance(keep_rate, jax.Array):
        return words < lax.convert_element_type(lax.ceil(keep_rate * 2.0**23), jnp.uint32)
    return words < np.uint32(math.ceil(float(np.float32(keep_rate)) * 2**23))


def _typed(key: Any) -> Any:
    dtype, shape = getattr(key, "dtype", None), getattr(key, "shape", None)
    if dtype is not None and jnp.issubdtype(dtype, jax.dtypes.prng_key) and shape == ():
        return key
    if dtype == np.uint32 and shape == (2,):
        return jax.random.wrap_key_data(key, impl="threefry2x32")
    got = type(key).__name__ if dtype is None else describe_shape(key)
    raise ArgumentTypeError(f"key must be one JAX key, or its data uint32[2], got {got}.")
