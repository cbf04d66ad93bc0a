"""Losses of numbers against numbers, and the checks and the reduction that all losses share."""

from __future__ import annotations

import math

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Real

from nbmodule.base.format import describe_shape
from nbmodule.base.promotion import common_dtype, widened_array
from nbmodule.errors import ShapeError
from nbmodule.nn.checks import check_axis, check_choice, check_number
from nbmodule.nn.kernel import ArrayLike, kernel, where

REDUCTIONS = ("mean", "sum", "none")


def equal_pair(prediction: Array, target: Array) -> tuple[Array, Array]:
    """Prediction and target, of one shape; the target in the dtype of both."""
    if prediction.shape != target.shape:
        raise ShapeError(
            f"prediction and target must have the same shape, got {describe_shape(prediction)} and "
            f"{describe_shape(target)}; they are not broadcast.{_one_column(prediction, target)}"
        )
    dtype = common_dtype(prediction, target)
    return lax.convert_element_type(prediction, dtype), lax.convert_element_type(target, dtype)


def _one_column(prediction: Array, target: Array) -> str:
    """Return the fix for the commonest pair: one of them has an axis of one column, the other has
    not.
    """
    if prediction.shape == (*target.shape, 1):
        return (
            " Drop the column of the prediction, prediction[..., 0], or give the target one: "
            "target[..., None]."
        )
    if target.shape == (*prediction.shape, 1):
        return " Drop the column of the target: target[..., 0]."
    return ""


def reduce(values: Array, reduction: str, *, count: Array | int | None = None) -> Array:
    """Mean (over `count` if given), sum, or the values themselves.

    A mean is divided before it is rounded to the dtype of the values: the sum of many in half
    precision may be none of its numbers.
    """
    check_choice("reduction", reduction, REDUCTIONS)
    if reduction == "none":
        return values
    if reduction == "sum":
        return jnp.sum(values)
    total = jnp.sum(widened_array(values))
    mean = total / (math.prod(values.shape) if count is None else count)
    return lax.convert_element_type(mean, values.dtype)


@kernel(static=("reduction",))
def mse_loss(
    prediction: Float[ArrayLike, "*shape"],
    target: Real[ArrayLike, "*shape"],
    *,
    reduction: str = "mean",
) -> Float[Array, "..."]:
    """Compute the squared error: `(prediction - target) ** 2`.

    Args:
        prediction: Values of any shape.
        target: Values of the same shape.
        reduction: `mean`, `sum`, or `none` for the error of each value.

    Raises:
        ShapeError: if the shapes differ; they are not broadcast.
        ArgumentError: if the pair looks swapped.

    Example:
        >>> mse_loss(jnp.array([1.0, 2.0]), jnp.array([1.0, 4.0]))
        Array(2., dtype=float32)
    """
    prediction, target = equal_pair(prediction, target)
    difference = prediction - target
    return reduce(difference * difference, reduction)


@kernel(static=("reduction",))
def mae_loss(
    prediction: Float[ArrayLike, "*shape"],
    target: Real[ArrayLike, "*shape"],
    *,
    reduction: str = "mean",
) -> Float[Array, "..."]:
    """Compute the absolute error: `|prediction - target|`. The gradient at zero is zero.

    Args:
        prediction: Values of any shape.
        target: Values of the same shape.
        reduction: `mean`, `sum`, or `none` for the error of each value.

    Example:
        >>> mae_loss(jnp.array([1.0, 2.0]), jnp.array([1.0, 4.0]))
        Array(1., dtype=float32)
    """
    prediction, target = equal_pair(prediction, target)
    return reduce(_size(prediction - target), reduction)


@kernel(static=("delta", "reduction"))
def huber_loss(
    prediction: Float[ArrayLike, "*shape"],
    target: Real[ArrayLike, "*shape"],
    *,
    delta: float = 1.0,
    reduction: str = "mean",
) -> Float[Array, "..."]:
    """Compute an error that is squared near zero and straight beyond.

    `0.5 * d**2` where `|d| <= delta`, else `delta * (|d| - 0.5 * delta)`, with `d = prediction -
    target`.

    Args:
        prediction: Values of any shape.
        target: Values of the same shape.
        delta: Where the line begins, above zero, in units of the prediction.
        reduction: `mean`, `sum`, or `none` for the error of each value.

    Example:
        >>> huber_loss(jnp.array([0.0, 0.0]), jnp.array([1.0, 3.0]), reduction="none")
        Array([0.5, 2.5], dtype=float32)

    Source: Huber (1964), Robust estimation of a location parameter.
    """
    prediction, target = equal_pair(prediction, target)
    check_number("delta", delta, above=0)
    difference = prediction - target
    size = _size(difference)
    near = where(
        size <= delta, difference, 0
    )  # of what is far, the gradient of the square may be no number
    values = where(size <= delta, 0.5 * near * near, delta * (size - 0.5 * delta))
    return reduce(values, reduction)


@kernel(static=("full", "reduction"))
def log_poisson_loss(
    prediction: Float[ArrayLike, "*shape"],
    target: Real[ArrayLike, "*shape"],
    *,
    full: bool = False,
    reduction: str = "mean",
) -> Float[Array, "..."]:
    """Compute the negative log-likelihood of counts: `exp(prediction) - target * prediction`.

    Args:
        prediction: Logarithm of the expected count, of any shape.
        target: Counts, of the same shape.
        full: Also add Stirling's formula for the logarithm of `target!`, where the target is above
            one; it does not depend on the prediction.
        reduction: `mean`, `sum`, or `none` for the error of each value.

    Example:
        >>> log_poisson_loss(jnp.array([0.0]), jnp.array([3]))
        Array(1., dtype=float32)
    """
    prediction, target = equal_pair(prediction, target)
    values = lax.exp(prediction) - target * prediction
    if full:
        many = where(target > 1, target, 1)
        stirling = many * lax.log(many) - many + 0.5 * lax.log(2 * math.pi * many)
        values = values + where(target > 1, stirling, 0)
    return reduce(values, reduction)


@kernel(static=("axis", "eps"))
def cosine_similarity(
    x1: Float[ArrayLike, "*shape"],
    x2: Float[ArrayLike, "*shape"],
    *,
    axis: int = -1,
    eps: float = 1e-8,
) -> Float[Array, "..."]:
    """Compute the cosine of the angle between vectors: `x1 . x2 / (max(|x1|, eps) * max(|x2|,
    eps))`.

    Args:
        x1: Vectors along `axis`.
        x2: Vectors of the same shape.
        axis: Axis of the vectors' components.
        eps: Smallest norm; a zero vector gives zero.

    Example:
        >>> cosine_similarity(jnp.array([1.0, 0.0]), jnp.array([3.0, 4.0]))
        Array(0.6, dtype=float32)
    """
    x1, x2 = equal_pair(x1, x2)
    axis = check_axis(axis, x1.ndim)
    check_number("eps", eps, above=0)
    return lax.convert_element_type(_cosine(x1, x2, axis, eps), x1.dtype)


@kernel(static=("axis", "eps", "reduction"))
def cosine_loss(
    prediction: Float[ArrayLike, "*shape"],
    target: Float[ArrayLike, "*shape"],
    *,
    axis: int = -1,
    eps: float = 1e-8,
    reduction: str = "mean",
) -> Float[Array, "..."]:
    """Compute one minus the cosine of the angle between prediction and target, from 0 (same
    direction) to 2 (opposite).

    Args:
        prediction: Vectors along `axis`.
        target: Vectors of the same shape.
        axis: Axis of the vectors' components.
        eps: Smallest norm; a zero vector gives loss 1.
        reduction: `mean`, `sum`, or `none` for the loss of each vector.

    Example:
        >>> cosine_loss(jnp.array([[1.0, 0.0]]), jnp.array([[3.0, 4.0]]))
        Array(0.4, dtype=float32)
    """
    prediction, target = equal_pair(prediction, target)
    axis = check_axis(axis, prediction.ndim)
    check_number("eps", eps, above=0)
    loss = reduce(1 - _cosine(prediction, target, axis, eps), reduction)
    return lax.convert_element_type(loss, prediction.dtype)


def _size(x: Array) -> Array:
    """The absolute value, with gradient zero at zero (that of `lax.abs` is one)."""
    return where(x == 0, 0, lax.abs(x))


def _cosine(x1: Array, x2: Array, axis: int, eps: float) -> Array:
    """The cosine in float32 at least, which holds the squares of half precision."""
    wide1, wide2 = (widened_array(x) for x in (x1, x2))
    return jnp.sum(_unit(wide1, axis, eps) * _unit(wide2, axis, eps), axis)


def _unit(x: Array, axis: int, eps: float) -> Array:
    squares = jnp.sum(x * x, axis, keepdims=True)
    return x * lax.rsqrt(where(squares < eps * eps, eps * eps, squares))
