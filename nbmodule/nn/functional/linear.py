"""Linear maps of the features, look-up tables, and Fourier and cosine transforms."""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Complex, Float, Inexact, Integer

from nbmodule.base.format import describe_shape
from nbmodule.base.promotion import widened_array
from nbmodule.errors import ArgumentError, ShapeError
from nbmodule.nn.checks import (
    check_axis,
    check_choice,
    check_index,
    check_number,
    check_rank,
    check_shape,
    size,
)
from nbmodule.nn.kernel import ArrayLike, kernel, promoted, where


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
    check_rank("weight", weight, "(out_features, in_features)", 2, 2)
    if x.ndim == 0 or x.shape[-1] != weight.shape[1]:
        raise ShapeError(
            f"x must have {weight.shape[1]} features on its last axis (weight "
            f"{describe_shape(weight)}), got {describe_shape(x)}."
        )
    check_shape("bias", bias, weight.shape[:1], "one for each row of weight")
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
    check_rank("weight", weight, "(out_features, in1_features, in2_features)", 3, 3)
    for name, x, features in (("x1", x1, weight.shape[1]), ("x2", x2, weight.shape[2])):
        if x.ndim == 0 or x.shape[-1] != features:
            raise ShapeError(
                f"{name} must have {features} features on its last axis (weight "
                f"{describe_shape(weight)}), got {describe_shape(x)}."
            )
    if x1.shape[:-1] != x2.shape[:-1]:
        raise ShapeError(
            "x1 and x2 must have the same leading axes, got "
            f"{describe_shape(x1)} and {describe_shape(x2)}."
        )
    check_shape("bias", bias, weight.shape[:1], "one for each matrix of weight")
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
    check_rank("weight", weight, "(num_embeddings, features)", 2, 2)
    rows = weight.at[indices].get(mode="fill", fill_value=jnp.nan, wrap_negative_indices=False)
    if max_norm is not None:
        short = _shortened(rows, max_norm, norm_type)
        rows = lax.stop_gradient(short) + (
            rows - lax.stop_gradient(rows)
        )  # a zero whose gradient is that of the rows
    if padding_idx is not None:
        padding_idx = check_index("padding_idx", padding_idx, weight.shape[0])
        rows = where((indices == padding_idx)[..., None], lax.stop_gradient(rows), rows)
    return rows


def _shortened(rows: Array, max_norm: float, norm_type: float) -> Array:
    check_number("max_norm", max_norm, above=0)
    check_number("norm_type", norm_type, above=0)
    wide = widened_array(rows)
    size = lax.abs(wide)
    if norm_type == float("inf"):
        norm = jnp.max(size, -1, keepdims=True)
    else:
        norm = jnp.sum(size**norm_type, -1, keepdims=True) ** (1 / norm_type)
    return lax.convert_element_type(
        wide * where(norm > max_norm, max_norm / (norm + 1e-7), 1), rows.dtype
    )


_NORMS = ("backward", "ortho", "forward")


@kernel(static=("n", "axis", "norm"))
def fft(
    x: Inexact[ArrayLike, "..."], *, n: int | None = None, axis: int = -1, norm: str = "backward"
) -> Complex[Array, "..."]:
    """Compute the discrete Fourier transform: `y[k] = sum over m of x[m] * exp(-2j * pi * k * m /
    n)`.

    Args:
        x: Real or complex values.
        n: Number of values that are taken; `x` is cut or filled with zeros at the end.
        axis: Axis along which is transformed.
        norm: `backward` divides by `n` in the inverse only, `forward` in `fft` only, `ortho` by
            `sqrt(n)` in both.

    Example:
        >>> fft(jnp.array([1.0, 0.0, 0.0, 0.0]))
        Array([1.+0.j, 1.+0.j, 1.+0.j, 1.+0.j], dtype=complex64)

    Source: Cooley and Tukey (1965), An algorithm for the machine calculation of complex Fourier
    series.
    """
    axis, n = _checked(x, n, axis, norm)
    return jnp.fft.fft(widened_array(x, jnp.complex64), n, axis, norm)


@kernel(static=("n", "axis", "norm"))
def ifft(
    x: Inexact[ArrayLike, "..."], *, n: int | None = None, axis: int = -1, norm: str = "backward"
) -> Complex[Array, "..."]:
    """Invert `fft`, given the same `norm`.

    Example:
        >>> ifft(fft(jnp.array([1.0, 2.0]))).real
        Array([1., 2.], dtype=float32)
    """
    axis, n = _checked(x, n, axis, norm)
    return jnp.fft.ifft(widened_array(x, jnp.complex64), n, axis, norm)


@kernel(static=("n", "axis", "norm"))
def rfft(
    x: Float[ArrayLike, "..."], *, n: int | None = None, axis: int = -1, norm: str = "backward"
) -> Complex[Array, "..."]:
    """Compute the Fourier transform of real values: the first `n // 2 + 1` numbers of `fft`, which
    tell the others.

    Args:
        x: Real values.
        n: Number of values that are taken.
        axis: Axis along which is transformed.
        norm: As in `fft`.

    Example:
        >>> rfft(jnp.array([1.0, 1.0, 1.0, 1.0]))
        Array([4.+0.j, 0.+0.j, 0.+0.j], dtype=complex64)
    """
    axis, n = _checked(x, n, axis, norm)
    # In widened numbers, here and below: there is no Fourier transform of half precision.
    return jnp.fft.rfft(widened_array(x), n, axis, norm)


@kernel(static=("n", "axis", "norm"))
def irfft(
    x: Inexact[ArrayLike, "..."], *, n: int | None = None, axis: int = -1, norm: str = "backward"
) -> Float[Array, "..."]:
    """Invert `rfft`, given the same `norm`.

    Args:
        x: The first half of a spectrum.
        n: Number of real values, `2 * (size - 1)` by default; give it if it is odd.
        axis: Axis along which is transformed.
        norm: As in `fft`.

    Example:
        >>> irfft(rfft(jnp.array([1.0, 2.0, 3.0])), n=3)
        Array([1., 2., 3.], dtype=float32)
    """
    axis, _ = _checked(x, n, axis, norm)
    if n is None and x.shape[axis] < 2:
        raise ShapeError(
            f"axis {axis} must have two values at least, or n be given, got {describe_shape(x)}."
        )
    return jnp.fft.irfft(widened_array(x, jnp.complex64), n, axis, norm)


@kernel(static=("type", "n", "axis", "norm"))
def dct(
    x: Float[ArrayLike, "..."],
    *,
    type: int = 2,
    n: int | None = None,
    axis: int = -1,
    norm: str = "backward",
) -> Float[Array, "..."]:
    """Compute the discrete cosine transform of type I to IV, as SciPy defines it.

    Type II: `y[k] = 2 * sum over m of x[m] * cos(pi * k * (2 * m + 1) / (2 * n))`.

    Args:
        x: Real values.
        type: 1, 2, 3 or 4.
        n: Number of values that are taken; `x` is cut or filled with zeros at the end.
        axis: Axis along which is transformed.
        norm: `backward` for no factor, `forward` to divide by `2 * n` (type I: `2 * (n - 1)`),
            `ortho` for an orthogonal matrix.

    Example:
        >>> dct(jnp.array([1.0, 1.0]), norm="ortho")
        Array([1.4142135, 0.       ], dtype=float32)

    Source: Ahmed, Natarajan and Rao (1974), Discrete cosine transform.
    """
    return _cosine(x, type, n, axis, norm, inverse=False)


@kernel(static=("type", "n", "axis", "norm"))
def idct(
    x: Float[ArrayLike, "..."],
    *,
    type: int = 2,
    n: int | None = None,
    axis: int = -1,
    norm: str = "backward",
) -> Float[Array, "..."]:
    """Invert `dct` of the same type and norm.

    Example:
        >>> idct(dct(jnp.array([1.0, 2.0, 4.0]))).round(5)
        Array([1., 2., 4.], dtype=float32)
    """
    return _cosine(x, type, n, axis, norm, inverse=True)


def _checked(x: Array, n: object, axis: int, norm: str) -> tuple[int, int]:
    """Return the axis, counted from the front, and the number of values to transform."""
    check_choice("norm", norm, _NORMS)
    axis = check_axis(axis, x.ndim)
    n = x.shape[axis] if n is None else size("n", n)
    if n < 1:
        raise ShapeError(f"axis {axis} must not be empty, got {describe_shape(x)}.")
    return axis, n


# Of each type: the offsets `a` and `b` of both numbers in the sums over `m` of
# `x[m] * cos(pi * (m + a) * (k + b) / period)`, and the ends that count half, of `x`
# and of the sums.
_TYPES: dict[int, tuple[float, float, list[int], list[int]]] = {
    1: (0, 0, [0, -1], [0, -1]),
    2: (0.5, 0, [], [0]),
    3: (0, 0.5, [0], []),
    4: (0.5, 0.5, [], []),
}


def _cosine(x: Array, type: int, n: object, axis: int, norm: str, *, inverse: bool) -> Array:
    """Compute the sums by one Fourier transform of twice the length."""
    axis, n = _checked(x, n, axis, norm)
    if type not in _TYPES:
        raise ArgumentError(f"type must be 1, 2, 3 or 4, got {type!r}.")
    if type == 1 and n < 2:
        raise ShapeError(
            f"type 1 needs two values at least on axis {axis}, got {describe_shape(x)}."
        )
    if inverse:
        type = {1: 1, 2: 3, 3: 2, 4: 4}[type]
        norm = {"backward": "forward", "forward": "backward", "ortho": "ortho"}[norm]
    a, b, first_ends, last_ends = _TYPES[type]
    period = n - 1 if type == 1 else n
    before, after = np.full(n, 2.0), np.ones(n)
    before[first_ends] /= 2
    if norm == "ortho":
        before[first_ends] *= math.sqrt(2)
        after[last_ends] /= math.sqrt(2)
    after /= {"backward": 1, "ortho": math.sqrt(2 * period), "forward": 2 * period}[norm]
    numbers = np.arange(n)
    before = before * np.exp(-1j * np.pi * numbers * b / period)
    after = after * np.exp(-1j * np.pi * (numbers + b) * a / period)
    wide = jnp.moveaxis(widened_array(x, jnp.complex64), axis, -1)
    fitted = lax.pad(
        wide, np.zeros((), wide.dtype), [*[(0, 0, 0)] * (x.ndim - 1), (0, n - wide.shape[-1], 0)]
    )
    sums = jnp.fft.fft(fitted * before.astype(wide.dtype), 2 * period)
    y = jnp.real(lax.slice_in_dim(sums, 0, n, axis=-1) * after.astype(wide.dtype))
    return lax.convert_element_type(jnp.moveaxis(y, -1, axis), x.dtype)
