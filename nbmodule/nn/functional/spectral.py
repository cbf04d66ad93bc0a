"""Fourier and cosine transforms along one axis."""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Complex, Float, Inexact

from nbmodule.base.format import describe_shape
from nbmodule.base.promotion import widened_array
from nbmodule.errors import ArgumentError, ShapeError
from nbmodule.nn.checks import check_axis, check_choice, size
from nbmodule.nn.kernel import ArrayLike, kernel

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
    axis, n = _checked("fft", x, n, axis, norm)
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
    axis, n = _checked("ifft", x, n, axis, norm)
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
    axis, n = _checked("rfft", x, n, axis, norm)
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
    axis, _ = _checked("irfft", x, n, axis, norm)
    if n is None and x.shape[axis] < 2:
        raise ShapeError(
            f"irfft: axis {axis} must have two values at least, or n be given, got "
            f"{describe_shape(x)}."
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
    return _cosine("dct", x, type, n, axis, norm, inverse=False)


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
    return _cosine("idct", x, type, n, axis, norm, inverse=True)


def _checked(name: str, x: Array, n: object, axis: int, norm: str) -> tuple[int, int]:
    """Return the axis, counted from the front, and the number of values to transform."""
    check_choice(name, "norm", norm, _NORMS)
    axis = check_axis(name, axis, x.ndim)
    n = x.shape[axis] if n is None else size(name, "n", n)
    if n < 1:
        raise ShapeError(f"{name}: axis {axis} must not be empty, got {describe_shape(x)}.")
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


def _cosine(
    name: str, x: Array, type: int, n: object, axis: int, norm: str, *, inverse: bool
) -> Array:
    """Compute the sums by one Fourier transform of twice the length."""
    axis, n = _checked(name, x, n, axis, norm)
    if type not in _TYPES:
        raise ArgumentError(f"{name}: type must be 1, 2, 3 or 4, got {type!r}.")
    if type == 1 and n < 2:
        raise ShapeError(
            f"{name}: type 1 needs two values at least on axis {axis}, got {describe_shape(x)}."
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
