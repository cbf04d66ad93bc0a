"""Activations: smooth ones, those that act along an axis (softmax and the gates), and those that
are straight above zero (ReLU and its relatives).

The last keep NaN, so that a fault shows where it arises, and have a finite gradient everywhere,
also where the exponential of a large positive input, which is not used, would overflow. At a kink
the gradient is that of PyTorch.
"""

from __future__ import annotations

import math

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Real

from nbmodule.base.format import describe_shape
from nbmodule.errors import ArgumentError, ShapeError
from nbmodule.nn.checks import check_axis, check_number
from nbmodule.nn.kernel import ArrayLike, along, kernel, promoted, where


@kernel
def sigmoid(x: Float[ArrayLike, "*shape"]) -> Float[Array, "*shape"]:
    """Squeeze values into 0 ... 1: `1 / (1 + exp(-x))`.

    Example:
        >>> sigmoid(jnp.array([-100.0, 0.0, 1.0]))
        Array([0.   , 0.5  , 0.731], dtype=float32)
    """
    return lax.logistic(x)


@kernel
def log_sigmoid(x: Float[ArrayLike, "*shape"]) -> Float[Array, "*shape"]:
    """Compute the logarithm of the sigmoid, `-log(1 + exp(-x))`, exact also where the sigmoid
    underflows.

    Example:
        >>> log_sigmoid(jnp.array([-100.0, 0.0]))
        Array([-100.   ,   -0.693], dtype=float32)
    """
    return -softplus(-x)


@kernel(static=("eps",))
def logit(x: Float[ArrayLike, "*shape"], *, eps: float | None = None) -> Float[Array, "*shape"]:
    """Invert the sigmoid: `log(x / (1 - x))`; NaN outside of 0 ... 1.

    Args:
        x: Probabilities.
        eps: If given, `x` is first clipped to `eps ... 1 - eps`, and has no gradient beyond.

    Example:
        >>> logit(jnp.array([0.25, 0.5, 1.0]), eps=1e-3)
        Array([-1.0986123,  0.       ,  6.906768 ], dtype=float32)
    """
    if eps is not None:
        check_number("eps", eps, least=0, most=0.5)
        x = where(x < eps, eps, where(x > 1 - eps, 1 - eps, x))
    return lax.log(x) - lax.log1p(-x)


@kernel
def tanh(x: Float[ArrayLike, "*shape"]) -> Float[Array, "*shape"]:
    """Squeeze values into -1 ... 1 by the hyperbolic tangent.

    Example:
        >>> tanh(jnp.array([-100.0, 0.0, 1.0]))
        Array([-1.   ,  0.   ,  0.762], dtype=float32)
    """
    return lax.tanh(x)


@kernel
def softsign(x: Float[ArrayLike, "*shape"]) -> Float[Array, "*shape"]:
    """Squeeze values into -1 ... 1 slowly: `x / (1 + |x|)`.

    Example:
        >>> softsign(jnp.array([-3.0, 1.0]))
        Array([-0.75,  0.5 ], dtype=float32)

    Source: Bergstra et al. (2009), Quadratic polynomials learn better image features.
    """
    return x / (1 + lax.abs(x))


@kernel(static=("beta",))
def softplus(x: Float[ArrayLike, "*shape"], *, beta: float = 1.0) -> Float[Array, "*shape"]:
    """Smooth the ReLU: `log(1 + exp(beta * x)) / beta`, without overflow for large `x`.

    Args:
        x: Values of any shape.
        beta: Sharpness, above zero; the larger, the closer to `relu`.

    Example:
        >>> softplus(jnp.array([-100.0, 0.0, 100.0]))
        Array([  0.   ,   0.693, 100.   ], dtype=float32)

    Source: Dugas, Bengio, Belisle, Nadeau and Garcia (2001), Incorporating second-order functional
    knowledge.
    """
    check_number("beta", beta, above=0)
    if beta != 1:
        x = x * beta
    # max(x, 0) + log1p(exp(-|x|)), both taken from the right at zero, where their gradients then
    # add up to the true half
    y = where(x >= 0, x, 0) + lax.log1p(lax.exp(where(x >= 0, -x, x)))
    return y / beta if beta != 1 else y


@kernel
def silu(x: Float[ArrayLike, "*shape"]) -> Float[Array, "*shape"]:
    """Gate values by their own sigmoid: `x * sigmoid(x)`, also known as swish.

    Example:
        >>> silu(jnp.array([-1.0, 0.0, 2.0]))
        Array([-0.26894143,  0.        ,  1.761594  ], dtype=float32)

    Source: Elfwing, Uchibe and Doya (2018), arXiv:1702.03118.
    """
    return x * lax.logistic(x)


@kernel
def mish(x: Float[ArrayLike, "*shape"]) -> Float[Array, "*shape"]:
    """Gate values smoothly: `x * tanh(softplus(x))`.

    Example:
        >>> mish(jnp.array([-1.0, 0.0, 2.0]))
        Array([-0.30340144,  0.        ,  1.943959  ], dtype=float32)

    Source: Misra (2020), arXiv:1908.08681.
    """
    return x * lax.tanh(softplus(x))


@kernel(static=("approximate",))
def gelu(x: Float[ArrayLike, "*shape"], *, approximate: bool = False) -> Float[Array, "*shape"]:
    """Gate values by the normal distribution: `x * P(N(0, 1) < x)`.

    Args:
        x: Values of any shape.
        approximate: Use `0.5 * x * (1 + tanh(sqrt(2/pi) * (x + 0.044715 * x**3)))`, as GPT-2 does,
            in place of the error function.

    Example:
        >>> gelu(jnp.array([-1.0, 0.0, 2.0]))
        Array([-0.15865527,  0.        ,  1.9544997 ], dtype=float32)

    Source: Hendrycks and Gimpel (2016), arXiv:1606.08415.
    """
    if approximate:
        inner = math.sqrt(2 / math.pi) * (x + 0.044715 * (x * x * x))
        return 0.5 * x * (1 + lax.tanh(inner))
    # erfc keeps its digits where 1 + erf would cancel
    return 0.5 * x * lax.erfc(x * -math.sqrt(0.5))


@kernel(static=("axis",))
def softmax(x: Float[ArrayLike, "*shape"], *, axis: int = -1) -> Float[Array, "*shape"]:
    """Turn logits into probabilities along an axis: `exp(x) / sum(exp(x))`.

    Args:
        x: Logits of any size; minus infinity gives probability zero.
        axis: Axis along which the probabilities add up to one.

    Example:
        >>> softmax(jnp.array([1000.0, 1000.0, -1000.0]))
        Array([0.5, 0.5, 0. ], dtype=float32)

    Source: Bridle (1990), Probabilistic interpretation of feedforward classification network
    outputs.
    """
    axis = check_axis(axis, x.ndim)
    if x.shape[axis] == 0:
        return x
    e = lax.exp(x - _peak(x, axis))
    return e / jnp.sum(e, axis, keepdims=True)


@kernel(static=("axis",))
def log_softmax(x: Float[ArrayLike, "*shape"], *, axis: int = -1) -> Float[Array, "*shape"]:
    """Compute the logarithm of softmax, `x - log(sum(exp(x)))`, exact also where softmax
    underflows.

    Example:
        >>> log_softmax(jnp.array([0.0, 1000.0]))
        Array([-1000.,     0.], dtype=float32)
    """
    axis = check_axis(axis, x.ndim)
    if x.shape[axis] == 0:
        return x
    x = x - _peak(x, axis)
    return x - lax.log(jnp.sum(lax.exp(x), axis, keepdims=True))


@kernel(static=("axis",))
def glu(x: Float[ArrayLike, "..."], *, axis: int = -1) -> Float[Array, "..."]:
    """Gate the first half of an axis by the second: `a * sigmoid(b)`.

    Raises:
        ShapeError: if the axis cannot be halved.

    Example:
        >>> glu(jnp.array([1.0, 2.0, 0.0, 100.0]))
        Array([0.5, 2. ], dtype=float32)

    Source: Dauphin, Fan, Auli and Grangier (2017), arXiv:1612.08083.
    """
    a, b = _halves(x, axis)
    return a * lax.logistic(b)


@kernel(static=("approximate", "axis"))
def geglu(
    x: Float[ArrayLike, "..."], *, axis: int = -1, approximate: bool = False
) -> Float[Array, "..."]:
    """Gate the first half of an axis by the GELU of the second: `a * gelu(b)`.

    Args:
        x: Values and gates.
        axis: Axis that holds the values, then the gates.
        approximate: As in `gelu`.

    Raises:
        ShapeError: if the axis cannot be halved.

    Example:
        >>> geglu(jnp.array([3.0, 2.0, 0.0, 100.0]))
        Array([  0., 200.], dtype=float32)

    Source: Shazeer (2020), arXiv:2002.05202.
    """
    a, b = _halves(x, axis)
    return a * gelu(b, approximate=approximate)


def _peak(x: Array, axis: int) -> Array:
    """The largest value, to be subtracted against overflow; the result does not depend on it, nor
    does the gradient.
    """
    return lax.stop_gradient(jnp.max(x, axis, keepdims=True))


def _halves(x: Array, axis: int) -> tuple[Array, Array]:
    axis = check_axis(axis, x.ndim)
    size = x.shape[axis]
    if size % 2:
        raise ShapeError(
            f"axis {axis} must have an even size, to be halved, got {describe_shape(x)}."
        )
    return lax.slice_in_dim(x, 0, size // 2, axis=axis), lax.slice_in_dim(
        x, size // 2, size, axis=axis
    )


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
        axis = check_axis(axis, x.ndim)
        if x.shape[axis] != weight.shape[0]:
            raise ShapeError(
                f"weight must hold one slope or {x.shape[axis]}, as many as x has channels "
                f"on axis {axis}, got {describe_shape(weight)} for x {describe_shape(x)}."
            )
        weight = along(weight, axis, x.ndim)
    else:
        raise ShapeError(f"weight must have one axis or none, got {describe_shape(weight)}.")
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
        raise ArgumentError("alpha must not be zero.")
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
