"""Shared by all losses: checks of the pair that they compare, and the reduction to one value."""

from __future__ import annotations

import math

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from nbmodule.base.format import describe_shape
from nbmodule.base.promotion import common_dtype, widened_array
from nbmodule.errors import ShapeError
from nbmodule.nn.checks import check_choice

REDUCTIONS = ("mean", "sum", "none")


def equal_pair(where: str, prediction: Array, target: Array) -> tuple[Array, Array]:
    """Prediction and target, of one shape; the target in the dtype of both."""
    if prediction.shape != target.shape:
        raise ShapeError(
            f"{where}: prediction and target must have the same shape, got "
            f"{describe_shape(prediction)} and {describe_shape(target)}; they are not "
            f"broadcast.{_one_column(prediction, target)}"
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


def reduce(where: str, values: Array, reduction: str, *, count: Array | int | None = None) -> Array:
    """Mean (over `count` if given), sum, or the values themselves.

    A mean is divided before it is rounded to the dtype of the values: the sum of many in half
    precision may be none of its numbers.
    """
    check_choice(where, "reduction", reduction, REDUCTIONS)
    if reduction == "none":
        return values
    if reduction == "sum":
        return jnp.sum(values)
    total = jnp.sum(widened_array(values))
    mean = total / (math.prod(values.shape) if count is None else count)
    return lax.convert_element_type(mean, values.dtype)
