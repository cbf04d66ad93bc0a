"""Queries of a single leaf: whether it is an array or equal to another, and an index into it."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax.typing import DTypeLike

from nbmodule.base.foreign import array_of_tensor
from nbmodule.base.format import describe_shape
from nbmodule.errors import DtypeError


def is_array(value: object) -> bool:
    """Return True if a leaf is an array: of JAX (traced too) or NumPy, or a variable that stands
    for one.

    Example:
        >>> is_array(jnp.ones(2)), is_array(np.ones(2)), is_array([1.0, 2.0]), is_array(1.0)
        (True, True, False, False)
    """
    return isinstance(value, (jax.Array, np.ndarray)) or hasattr(type(value), "__jax_array__")


def same_value(first: Any, second: Any) -> bool:
    """Return True if two leaves have one type, shape, dtype and value; NaN equals NaN, so that a
    leaf equals itself.

    Example:
        >>> (
        ...     same_value(jnp.ones(2), np.ones(2, "float32")),
        ...     same_value(1, 1.0),
        ...     same_value(np.nan, np.nan),
        ... )
        (True, False, True)
    """
    if first is second:
        return True
    if is_array(first) or is_array(second):
        return is_array(first) and is_array(second) and _same_array(first, second)
    if type(first) is not type(second):
        return False
    if isinstance(first, (list, tuple)):
        return len(first) == len(second) and all(map(same_value, first, second))
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(
            same_value(value, second[key]) for key, value in first.items()
        )
    return bool(first == second) or bool(first != first and second != second)


def _same_array(first: Any, second: Any) -> bool:
    if first.shape != second.shape or first.dtype != second.dtype:
        return False
    if jax.numpy.issubdtype(first.dtype, jax.dtypes.prng_key):
        first, second = jax.random.key_data(first), jax.random.key_data(second)
    first, second = np.asarray(first), np.asarray(second)
    both_nan = (first != first) & (second != second)
    return bool(np.all((first == second) | both_nan))


def has_axes(value: object) -> bool:
    """Return True if an index means anything to a leaf: not to numbers, text, None and arrays
    without axes.
    """
    if value is None or isinstance(value, (int, float, complex, str, bytes, np.generic)):
        return False
    return getattr(value, "ndim", 1) != 0


def at_index(value: Any, index: Any) -> Any:
    """Index a leaf; a leaf without axes is returned unchanged.

    Example:
        >>> at_index(jnp.arange(3), 1), at_index(None, 1), at_index(jnp.float32(2), 1)
        (Array(1, dtype=int32), None, Array(2., dtype=float32))
    """
    return value[index] if has_axes(value) else value


def rank_of(dtype: DTypeLike) -> int:
    """Return the rank of a kind of dtype: an array takes values of its own rank and of lower ones.

    Example:
        >>> rank_of("bool") < rank_of("int8") < rank_of("bfloat16") < rank_of("complex64")
        True
    """
    if jax.numpy.issubdtype(dtype, jax.dtypes.prng_key):
        return 9
    if jax.numpy.issubdtype(dtype, np.timedelta64):  # an integer to NumPy
        return 10
    kinds = enumerate((np.bool_, np.integer, np.floating, np.complexfloating))
    return next((rank for rank, cls in kinds if jax.numpy.issubdtype(dtype, cls)), 10)


def set_at_index(value: Any, index: Any, part: Any) -> Any:
    """Return a leaf in which the elements at an index are others; the leaf itself is left as it is.

    Raises:
        DtypeError: If an array could not hold the kind of number, such as a fraction among whole
            numbers.

    Example:
        >>> set_at_index(jnp.zeros(3), slice(1, None), 5.0)
        Array([0., 5., 5.], dtype=float32)
    """
    if is_array(value):
        supplied = jax.numpy.result_type(part)
        if rank_of(value.dtype) < rank_of(supplied):
            raise DtypeError(
                f"cannot set elements of {describe_shape(value)} to {supplied}: it would be lost. "
            )
    if is_array(value) and not isinstance(value, np.ndarray):
        return jax.numpy.asarray(value).at[index].set(part)
    new = value.copy() if isinstance(value, np.ndarray) else list(value)
    new[index] = part
    return new if isinstance(value, (np.ndarray, list)) else type(value)(new)


def without_torch(tensor: Any) -> Any:
    """A tensor of PyTorch as a NumPy array, whatever device it is on and whether or not it wants a
    gradient; all else as it is.
    """
    return array_of_tensor(tensor) if hasattr(tensor, "detach") else tensor
