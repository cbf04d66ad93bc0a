"""Linear maps and look-up tables."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Inexact, Integer

from nbmodule.base.format import describe_shape
from nbmodule.base.promotion import widened_array
from nbmodule.errors import ShapeError
from nbmodule.nn.checks import check_index, check_number, check_rank, check_shape
from nbmodule.nn.functional.primitives import promoted, where
from nbmodule.nn.kernel import ArrayLike, kernel


@kernel
def linear(
    x: Inexact[ArrayLike, "*batch in_features"],
    weight: Inexact[ArrayLike, "out_features in_features"],
    bias: Inexact[ArrayLike, " out_features"] | None = None,
) -> Inexact[Array, "*batch out_features"]:
    """Apply an affine map to each feature vector: `x @ weight.T + bias`.

    Args:
        x: Inputs, feature axis last, any number of leading axes.
        weight: One row for each output.
        bias: Added to the outputs.

    Raises:
        ShapeError: if the numbers of features do not fit together.

    Example:
        >>> linear(jnp.array([1.0, 2.0]), jnp.array([[3.0, 4.0]]), jnp.array([0.5]))
        Array([11.5], dtype=float32)
    """
    check_rank("linear", "weight", weight, "(out_features, in_features)", 2, 2)
    if x.ndim == 0 or x.shape[-1] != weight.shape[1]:
        raise ShapeError(
            f"linear: x must have {weight.shape[1]} features on its last axis (weight "
            f"{describe_shape(weight)}), got {describe_shape(x)}."
        )
    if bias is not None:
        check_shape("linear", "bias", bias, weight.shape[:1], "one for each row of weight")
    x, weight, bias = promoted(x, weight, bias)
    y = lax.dot_general(x, weight, (((x.ndim - 1,), (1,)), ((), ())))
    return y if bias is None else y + bias


@kernel
def bilinear(
    x1: Float[ArrayLike, "*batch in1_features"],
    x2: Float[ArrayLike, "*batch in2_features"],
    weight: Float[ArrayLike, "out_features in1_features in2_features"],
    bias: Float[ArrayLike, " out_features"] | None = None,
) -> Float[Array, "*batch out_features"]:
    """Apply a form that is linear in each of two inputs: `y[o] = x1 @ weight[o] @ x2 + bias[o]`.

    Args:
        x1: First inputs, feature axis last.
        x2: Second inputs, with the same leading axes.
        weight: One matrix for each output.
        bias: Added to the outputs.

    Raises:
        ShapeError: if leading axes differ or numbers of features do not fit together.

    Example:
        >>> bilinear(jnp.array([1.0, 2.0]), jnp.array([3.0]), jnp.array([[[1.0], [10.0]]]))
        Array([63.], dtype=float32)
    """
    check_rank("bilinear", "weight", weight, "(out_features, in1_features, in2_features)", 3, 3)
    for name, x, size in (("x1", x1, weight.shape[1]), ("x2", x2, weight.shape[2])):
        if x.ndim == 0 or x.shape[-1] != size:
            raise ShapeError(
                f"bilinear: {name} must have {size} features on its last axis (weight "
                f"{describe_shape(weight)}), got {describe_shape(x)}."
            )
    if x1.shape[:-1] != x2.shape[:-1]:
        raise ShapeError(
            "bilinear: x1 and x2 must have the same leading axes, got "
            f"{describe_shape(x1)} and {describe_shape(x2)}."
        )
    if bias is not None:
        check_shape("bilinear", "bias", bias, weight.shape[:1], "one for each matrix of weight")
    x1, x2, weight, bias = promoted(x1, x2, weight, bias)
    partial = lax.dot_general(x1, weight, (((x1.ndim - 1,), (1,)), ((), ())))
    batch = tuple(range(x2.ndim - 1))
    y = lax.dot_general(partial, x2, (((partial.ndim - 1,), (x2.ndim - 1,)), (batch, batch)))
    return y if bias is None else y + bias


@kernel(static=("padding_idx", "max_norm", "norm_type"))
def embedding(
    indices: Integer[ArrayLike, "*shape"],
    weight: Float[ArrayLike, "num_embeddings features"],
    *,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
) -> Float[Array, "*shape features"]:
    """Look up rows of a table: `y[...] = weight[indices[...]]`.

    Args:
        indices: Whole numbers from 0 on; one that is no row of the table, a negative one too, gives
            NaN.
        weight: The table, one row for each index.
        padding_idx: Index whose row gets no gradient; negative ones count from the end.
        max_norm: Rows with a larger norm are scaled down to it. As in PyTorch the gradient does not
            see the scaling, which counts as a change of the table.
        norm_type: The p of the p-norm.

    Raises:
        DtypeError: if the indices are no integers.
        ArgumentError: if `padding_idx` is no row of the table.

    Example:
        >>> embedding(jnp.array([2, 0]), jnp.array([[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]]))
        Array([[3., 3.],
               [1., 1.]], dtype=float32)

    Source: Bengio, Ducharme, Vincent and Jauvin (2003), A neural probabilistic language model.
    """
    check_rank("embedding", "weight", weight, "(num_embeddings, features)", 2, 2)
    rows = _rows(indices, weight)
    if max_norm is not None:
        short = _shortened(rows, max_norm, norm_type)
        rows = lax.stop_gradient(short) + (
            rows - lax.stop_gradient(rows)
        )  # a zero whose gradient is that of the rows
    if padding_idx is not None:
        padding_idx = check_index("embedding", "padding_idx", padding_idx, weight.shape[0])
        rows = where((indices == padding_idx)[..., None], lax.stop_gradient(rows), rows)
    return rows


def _rows(indices: Array, weight: Array) -> Array:
    return weight.at[indices].get(mode="fill", fill_value=jnp.nan, wrap_negative_indices=False)


def _shortened(rows: Array, max_norm: float, norm_type: float) -> Array:
    name = "embedding"
    check_number(name, "max_norm", max_norm, above=0)
    check_number(name, "norm_type", norm_type, above=0)
    wide = widened_array(rows)
    size = lax.abs(wide)
    if norm_type == float("inf"):
        norm = jnp.max(size, -1, keepdims=True)
    else:
        norm = jnp.sum(size**norm_type, -1, keepdims=True) ** (1 / norm_type)
    return lax.convert_element_type(
        wide * where(norm > max_norm, max_norm / (norm + 1e-7), 1), rows.dtype
    )
