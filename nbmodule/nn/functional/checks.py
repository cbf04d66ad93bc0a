"""Checks of arguments, which say in one line what was expected and what was found.

They stand at the head of kernels and run while these are traced, so they look at shapes, dtypes and
Python values only.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jax import Array

from nbmodule.base.format import describe_shape
from nbmodule.base.jax_names import concrete_value
from nbmodule.base.kinds import is_real, is_whole
from nbmodule.core.variables.describe import as_flag
from nbmodule.errors import ArgumentError, ArgumentTypeError, DtypeError, ShapeError


def check_arrays(where: str, **arrays: object) -> dict[str, Any]:
    """Refuse what is no array or number, and hand back the others."""
    for name, x in arrays.items():
        if not isinstance(x, (jax.Array, np.ndarray, np.generic, int, float, complex)):
            raise ArgumentTypeError(f"{where}: {name} must be an array, got {type(x).__name__}.")
    return arrays


def check_kind(where: str, dtype: Any, words: str, **arrays: object) -> None:
    """Refuse arrays whose dtype is not of a kind, which `words` names."""
    for name, x in check_arrays(where, **arrays).items():
        if not jnp.issubdtype(jnp.result_type(x), dtype):
            convertible = dtype is not jnp.integer and hasattr(x, "shape")
            cure = f' Convert it first: {name}.astype("float32").' if convertible else ""
            error = DtypeError(f"{where}: {name} must hold {words}, got {describe_shape(x)}.{cure}")
            error.floats_wanted = name if dtype in (jnp.floating, jnp.inexact) else None
            raise error


def check_floating(where: str, **arrays: object) -> None:
    """Refuse integers, booleans and complex numbers.

    Example:
        >>> check_floating("gelu", x=jnp.arange(3))
        Traceback (most recent call last):
        nbmodule.errors.DtypeError: gelu: x must hold floating values, got int32[3]. Convert it
        first: x.astype("float32").
    """
    check_kind(where, jnp.floating, "floating values", **arrays)


def check_real(where: str, **arrays: object) -> None:
    """Refuse complex numbers."""
    for name, x in check_arrays(where, **arrays).items():
        if jnp.issubdtype(jnp.result_type(x), jnp.complexfloating):
            raise DtypeError(f"{where}: {name} must hold real values, got {describe_shape(x)}.")


def check_inexact(where: str, **arrays: object) -> None:
    """Refuse integers and booleans."""
    check_kind(where, jnp.inexact, "floating or complex values", **arrays)


def check_integers(where: str, **arrays: object) -> None:
    """Refuse all but integers."""
    check_kind(where, jnp.integer, "integers", **arrays)


def check_rank(
    where: str,
    name: str,
    x: Array | complex,
    words: str,
    at_least: int,
    at_most: int | None = None,
) -> None:
    """Refuse too few or too many axes; `words` names them."""
    ndim = np.ndim(x)
    if ndim < at_least or (at_most is not None and ndim > at_most):
        raise ShapeError(f"{where}: {name} must have axes {words}, got {describe_shape(x)}.")


def check_shape(
    where: str, name: str, x: Array | complex, shape: tuple[int, ...], why: str
) -> None:
    """Refuse an array whose shape differs from `shape`, which follows from `why`."""
    if np.shape(x) != tuple(shape):
        raise ShapeError(
            f"{where}: {name} must have shape {list(shape)} ({why}), got {describe_shape(x)}."
        )


def known(x: Array) -> Any:
    """The value of an array, also of one that is only being differentiated; None where it is not
    known while tracing.
    """
    return concrete_value(x) if isinstance(x, jax.core.Tracer) else x


def check_axis(where: str, axis: int, ndim: int) -> int:
    """The axis counted from the front."""
    if not is_whole(axis):
        raise ArgumentTypeError(f"{where}: axis must be an integer, got {axis!r}.")
    if not -ndim <= axis < ndim:
        raise ArgumentError(
            f"{where}: axis must lie in {-ndim} to {ndim - 1} for an array of {ndim} axes, "
            f"got {axis}."
        )
    return int(axis) % ndim


def check_index(where: str, name: str, index: int, size: int) -> int:
    """The index counted from the front."""
    if not is_whole(index):
        raise ArgumentTypeError(f"{where}: {name} must be an integer, got {index!r}.")
    if not -size <= index < size:
        raise ArgumentError(f"{where}: {name} must lie in {-size} to {size - 1}, got {index}.")
    return int(index) % size


def check_flag(where: str, name: str, value: object) -> None:
    """Refuse what is no flag, a string such as "none" for one, which would count as true."""
    as_flag(f"{where}: {name}", value)


def check_number(
    where: str,
    name: str,
    value: object,
    *,
    above: float | None = None,
    least: float | None = None,
    most: float | None = None,
) -> None:
    """Refuse what is no real number, or lies outside of the bounds."""
    if not is_real(value):
        raise ArgumentTypeError(f"{where}: {name} must be a number, got {value!r}.")
    bounds = {
        f"above {above}": above is None or value > above,
        f"at least {least}": least is None or value >= least,
        f"at most {most}": most is None or value <= most,
    }
    if not all(bounds.values()):
        words = " and ".join(text for text in bounds if not text.endswith("None"))
        raise ArgumentError(f"{where}: {name} must be {words}, got {value}.")


def check_choice(where: str, name: str, value: object, choices: tuple[str, ...]) -> None:
    """Refuse a word that is not among the choices."""
    if value not in choices:
        raise ArgumentError(
            f"{where}: {name} must be one of {', '.join(map(repr, choices))}, got {value!r}."
        )
