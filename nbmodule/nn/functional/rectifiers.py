"""Activations that are straight above zero: ReLU and its relatives.

Each keeps NaN, so that a fault shows where it arises, and has a finite gradient everywhere, also
where the exponential of a large positive input, which is not used, would overflow. At a kink the
gradient is that of PyTorch.
"""

from __future__ import annotations

from jax import lax
from jaxtyping import Array, Float, Real

from nbmodule.base.format import describe_shape
from nbmodule.errors import ArgumentError, ShapeError
from nbmodule.nn.checks import check_axis
from nbmodule.nn.functional.primitives import along, promoted, where
from nbmodule.nn.kernel import ArrayLike, kernel

_SELU_ALPHA = 1.6732632423543772848170429916717
_SELU_SCALE = 1.0507009873554804934193349852946


@kernel
def relu(x: Real[ArrayLike, "*shape"]) -> Real[Array, "*shape"]:
    """Set negative values to zero: `max(x, 0)`. The gradient at zero is zero.

    Example:
        >>> relu(jnp.array([-1.0, 0.0, 2.0]))
        Array([0., 0., 2.], dtype=float32)

    Source: Nair and Hinton (2010), Rectified linear units improve restricted Boltzmann machines.
    """
    return where(x <= 0, 0, x)


@kernel
def relu6(x: Real[ArrayLike, "*shape"]) -> Real[Array, "*shape"]:
    """Clip values to 0 ... 6: `min(max(x, 0), 6)`. The gradient at both bounds is zero.

    Example:
        >>> relu6(jnp.array([-1.0, 2.0, 7.0]))
        Array([0., 2., 6.], dtype=float32)

    Source: Krizhevsky (2010), Convolutional deep belief networks on CIFAR-10.
    """
    return where(x <= 0, 0, where(x >= 6, 6, x))


@kernel(static=("negative_slope",))
def leaky_relu(
    x: Float[ArrayLike, "*shape"], *, negative_slope: float = 0.01
) -> Float[Array, "*shape"]:
    """Scale negative values by a small slope: `x` above zero, `negative_slope * x` below.

    Args:
        x: Values of any shape.
        negative_slope: A Python number; `prelu` takes a trained one.

    Example:
        >>> leaky_relu(jnp.array([-2.0, 3.0]), negative_slope=0.1)
        Array([-0.2,  3. ], dtype=float32)

    Source: Maas, Hannun and Ng (2013), Rectifier nonlinearities improve neural network acoustic
    models.
    """
    return where(x > 0, x, x * negative_slope)


@kernel(static=("axis",))
def prelu(
    x: Float[ArrayLike, "*shape"], weight: Float[ArrayLike, "..."], *, axis: int = -1
) -> Float[Array, "*shape"]:
    """Scale negative values by a trained slope: `x` above zero, `weight * x` below.

    Args:
        x: Values of any shape.
        weight: One slope (no axes, or one item), or one for each channel.
        axis: Channel axis of `x`.

    Raises:
        ShapeError: if there are neither one slope nor as many as channels.

    Example:
        >>> prelu(jnp.array([[-1.0, -1.0]]), jnp.array([0.1, 0.5]))
        Array([[-0.1, -0.5]], dtype=float32)

    Source: He, Zhang, Ren and Sun (2015), arXiv:1502.01852.
    """
    x, weight = promoted(x, weight)
    if weight.size == 1:
        weight = lax.reshape(weight, ())
    elif weight.ndim == 1:
        axis = check_axis("prelu", axis, x.ndim)
        if x.shape[axis] != weight.shape[0]:
            raise ShapeError(
                f"prelu: weight must hold one slope or {x.shape[axis]}, as many as x has channels "
                f"on axis {axis}, got {describe_shape(weight)} for x {describe_shape(x)}."
            )
        weight = along(weight, axis, x.ndim)
    else:
        raise ShapeError(f"prelu: weight must have one axis or none, got {describe_shape(weight)}.")
    return where(x > 0, x, x * weight)


@kernel(static=("alpha",))
def elu(x: Float[ArrayLike, "*shape"], *, alpha: float = 1.0) -> Float[Array, "*shape"]:
    """Bend negative values towards `-alpha`: `x` above zero, `alpha * (exp(x) - 1)` below.

    Example:
        >>> elu(jnp.array([-1.0, 2.0]))
        Array([-0.632,  2.   ], dtype=float32)

    Source: Clevert, Unterthiner and Hochreiter (2016), arXiv:1511.07289.
    """
    return where(x > 0, x, alpha * _expm1_below_zero(x))


@kernel
def selu(x: Float[ArrayLike, "*shape"]) -> Float[Array, "*shape"]:
    """Apply an ELU that keeps mean 0 and variance 1 through layers: `1.0507 * elu(x,
    alpha=1.6733)`.

    Example:
        >>> selu(jnp.array([-1.0, 2.0]))
        Array([-1.1113307,  2.101402 ], dtype=float32)

    Source: Klambauer, Unterthiner, Mayr and Hochreiter (2017), arXiv:1706.02515.
    """
    return _SELU_SCALE * where(x > 0, x, _SELU_ALPHA * _expm1_below_zero(x))


@kernel(static=("alpha",))
def celu(x: Float[ArrayLike, "*shape"], *, alpha: float = 1.0) -> Float[Array, "*shape"]:
    """Apply an ELU without a kink: `x` above zero, `alpha * (exp(x / alpha) - 1)` below.

    Raises:
        ArgumentError: if `alpha` is zero.

    Example:
        >>> celu(jnp.array([-1.0, 2.0]), alpha=2.0)
        Array([-0.787,  2.   ], dtype=float32)

    Source: Barron (2017), arXiv:1704.07483.
    """
    if alpha == 0:
        raise ArgumentError("celu: alpha must not be zero.")
    negative = where(x > 0, 0, x)
    return where(x > 0, x, alpha * lax.expm1(negative / alpha))


@kernel
def hardsigmoid(x: Float[ArrayLike, "*shape"]) -> Float[Array, "*shape"]:
    """Approximate the sigmoid by straight lines: `relu6(x + 3) / 6`.

    Example:
        >>> hardsigmoid(jnp.array([-4.0, 0.0, 4.0]))
        Array([0. , 0.5, 1. ], dtype=float32)

    Source: Howard et al. (2019), arXiv:1905.02244.
    """
    return relu6(x + 3) / 6


@kernel
def hardswish(x: Float[ArrayLike, "*shape"]) -> Float[Array, "*shape"]:
    """Approximate SiLU by pieces: `x * relu6(x + 3) / 6`.

    Example:
        >>> hardswish(jnp.array([-4.0, 1.0, 4.0]))
        Array([-0.   ,  0.667,  4.   ], dtype=float32)

    Source: Howard et al. (2019), arXiv:1905.02244.
    """
    return x * relu6(x + 3) / 6


def _expm1_below_zero(x: Array) -> Array:
    """`exp(x) - 1` where x is negative, else zero: an overflow that is not chosen would make the
    gradient NaN.
    """
    return lax.expm1(where(x > 0, 0, x))
