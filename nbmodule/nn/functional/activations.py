"""Smooth activations, and those that act along an axis: softmax and the gates."""

from __future__ import annotations

import math

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from nbmodule.base.format import describe_shape
from nbmodule.errors import ShapeError
from nbmodule.nn.checks import check_axis, check_number
from nbmodule.nn.functional.primitives import where
from nbmodule.nn.kernel import ArrayLike, kernel


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
        check_number("logit", "eps", eps, least=0, most=0.5)
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
    check_number("softplus", "beta", beta, above=0)
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
    axis = check_axis("softmax", axis, x.ndim)
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
    axis = check_axis("log_softmax", axis, x.ndim)
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
    a, b = _halves("glu", x, axis)
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
    a, b = _halves("geglu", x, axis)
    return a * gelu(b, approximate=approximate)


def _peak(x: Array, axis: int) -> Array:
    """The largest value, to be subtracted against overflow; the result does not depend on it, nor
    does the gradient.
    """
    return lax.stop_gradient(jnp.max(x, axis, keepdims=True))


def _halves(where_: str, x: Array, axis: int) -> tuple[Array, Array]:
    axis = check_axis(where_, axis, x.ndim)
    size = x.shape[axis]
    if size % 2:
        raise ShapeError(
            f"{where_}: axis {axis} must have an even size, to be halved, got {describe_shape(x)}."
        )
    return lax.slice_in_dim(x, 0, size // 2, axis=axis), lax.slice_in_dim(
        x, size // 2, size, axis=axis
    )
