"""Selection, promotion and broadcasting without the nested jits of `jax.numpy`.

`jnp.where`, `jnp.clip` and their like leave a call inside a call in the program, which is slower to
trace and hides in a graph what is computed. These leave single operations.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike as Operand
from jax.typing import DTypeLike

from nbmodule.base.promotion import common_dtype


def where(condition: Operand, x: Operand, y: Operand) -> jax.Array:
    """Choose from `x` where the condition holds, else from `y`; all three are broadcast, numbers
    take the dtype of the array.

    Example:
        >>> where(jnp.array([True, False]), 1.0, jnp.array([5.0, 6.0]))
        Array([1., 6.], dtype=float32)
    """
    dtype = common_dtype(x, y)
    shape = jnp.broadcast_shapes(jnp.shape(condition), jnp.shape(x), jnp.shape(y))
    return lax.select(
        *(
            broadcast_to(part, shape, part_dtype)
            for part, part_dtype in ((condition, bool), (x, dtype), (y, dtype))
        )
    )


def nan_where(condition: Operand, x: jax.Array) -> jax.Array:
    """NaN where the condition holds, else `x`. With `jax_debug_nans` no NaN goes in, which JAX
    would take for one that came out.

    Example:
        >>> nan_where(jnp.array([True, False]), jnp.array([1.0, 2.0]))
        Array([nan,  2.], dtype=float32)
    """
    # Then it is seen to be chosen, not computed
    if not jax.config.jax_debug_nans:  # pyright: ignore[reportAttributeAccessIssue]
        return where(condition, jnp.nan, x)
    far = where(condition, jnp.inf, jnp.zeros((), x.dtype))
    return where(condition, 0, x) + (far - far)


def broadcast_to(x: Operand, shape: tuple[int, ...], dtype: DTypeLike) -> jax.Array:
    """Broadcast to `shape` by NumPy's rule, in `dtype`.

    Example:
        >>> broadcast_to(jnp.arange(2), (2, 2), jnp.float32)
        Array([[0., 1.],
               [0., 1.]], dtype=float32)
    """
    if jnp.ndim(x) == 0 and not isinstance(x, jax.Array):
        return lax.full(shape, x, dtype)
    x = lax.convert_element_type(x, dtype)
    return x if x.shape == shape else jnp.broadcast_to(x, shape)


def promoted(*arrays: Operand | None) -> tuple[Any, ...]:
    """Bring arrays to the dtype that JAX would compute with; None stays None.

    Example:
        >>> [x.dtype.name for x in promoted(jnp.ones(2, jnp.bfloat16), jnp.ones(2))]
        ['float32', 'float32']
    """
    dtype = common_dtype(*(x for x in arrays if x is not None))
    return tuple(None if x is None else lax.convert_element_type(x, dtype) for x in arrays)


def along(x: jax.Array, axis: int, ndim: int) -> jax.Array:
    """Lay a vector along one axis of an array of `ndim` axes, so that it broadcasts.

    Example:
        >>> along(jnp.arange(3), 1, 4).shape
        (1, 3, 1, 1)
    """
    shape = [1] * ndim
    shape[axis] = x.shape[0]
    return lax.reshape(x, shape)
