"""Mixing dtypes and ranks where the library itself asks for it, also where JAX is set to refuse a
user's own.

`jax_numpy_dtype_promotion=strict` makes JAX refuse to combine a user's arrays of two dtypes,
`jax_numpy_rank_promotion=raise` those of two ranks. The float32 in which half precision is summed,
the counts that optax multiplies floats with, and the bias that is added to each row are no mistakes
of the user's.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.typing import DTypeLike


def mixed_dtypes() -> Any:
    """The context in which dtypes are promoted as JAX does by default.

    It costs a few microseconds: for code that is being traced.
    """
    return jax.numpy_dtype_promotion("standard")


def mixed_ranks() -> Any:
    """The context in which a vector may be added to each row of a matrix, as it may by default: for
    code that checked the shapes.
    """
    return jax.numpy_rank_promotion("allow")


def widened(dtype: DTypeLike, least: DTypeLike = jnp.float32) -> Any:
    """The dtype that holds the numbers of both.

    Example:
        >>> from nbmodule.base.promotion import widened
        >>> widened(jnp.bfloat16), widened(jnp.float64)
        (dtype('float32'), dtype('float64'))
    """
    with mixed_dtypes():
        return jnp.promote_types(dtype, least)


def widened_array(x: Array, least: DTypeLike = jnp.float32) -> Array:
    """The numbers in the dtype that holds them and those of another: half precision in float32."""
    return lax.convert_element_type(x, widened(x.dtype, least))


def common_dtype(*values: object) -> Any:
    """The dtype that JAX computes with by default, given arrays and numbers.

    Example:
        >>> from nbmodule.base.promotion import common_dtype
        >>> common_dtype(jnp.ones(2, jnp.bfloat16), jnp.ones(2, jnp.int32), 0.5)
        dtype(bfloat16)
    """
    with mixed_dtypes():
        return jnp.result_type(*values)


# -- transfers --
# `jax.transfer_guard("disallow")` lets `jax.device_put` copy, since the caller says so. An array
# that is given to a model to be kept is copied because the user says so as well.
def asked_for() -> AbstractContextManager[object]:
    """The context in which numbers and NumPy arrays go to the device as if by `jax.device_put`.

    Example:
        >>> with jax.transfer_guard("disallow"), asked_for():
        ...     jnp.ones(2)
        Array([1., 1.], dtype=float32)
    """
    guard = jax.config.jax_transfer_guard_host_to_device  # pyright: ignore
    return jax.transfer_guard_host_to_device("allow") if guard == "disallow" else nullcontext()
