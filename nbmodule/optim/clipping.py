"""The norm of many arrays as one vector, and gradients scaled down to a largest norm."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import Tracer
from jaxtyping import Array, Float

from nbmodule.base.jax_names import INLINE
from nbmodule.base.promotion import mixed_dtypes, widened
from nbmodule.base.transfers import asked_for
from nbmodule.core.variables.frame import now, quiet
from nbmodule.errors import ArgumentError, ArgumentTypeError, DtypeError
from nbmodule.optim.pairing import flatten_arrays, is_number, text


def norm_of(arrays: Sequence[Any]) -> Any:
    """Return the norm of all arrays, added up in float32 at least."""
    with mixed_dtypes():
        sizes = [jnp.abs(array).astype(jnp.finfo(widened(array.dtype)).dtype) for array in arrays]
        return jnp.sqrt(sum((jnp.sum(jnp.square(size)) for size in sizes), jnp.zeros(())))


def clip_arrays(arrays: Sequence[Any], max_norm: Any) -> list[Any]:
    """Scale arrays by one factor, each in its own dtype; see `optax.clip_by_global_norm`."""
    with mixed_dtypes():
        norm = norm_of(arrays)
        factor = jnp.where(norm < max_norm, 1.0, max_norm / norm)
        return [array * factor.astype(array.dtype) for array in arrays]


_compiled_norm = jax.jit(norm_of, inline=INLINE)
_compiled_clip = jax.jit(clip_arrays, inline=INLINE)


def shared_kernels() -> Any:
    """Return the context in which kernels are called, so that all frames share their traces."""
    return nullcontext() if now.frame is None else quiet()


def check_max_norm(max_norm: Any) -> Any:
    """Return `max_norm` if it is a positive number."""
    if isinstance(max_norm, Tracer):
        return max_norm
    if isinstance(max_norm, bool) or not hasattr(max_norm, "__float__"):
        raise ArgumentTypeError(
            f"the largest norm must be a number, got {type(max_norm).__name__}."
        )
    if not (math.isfinite(float(max_norm)) and float(max_norm) > 0):
        raise ArgumentError(
            f"the largest norm must be positive and finite, got {float(max_norm)!r}."
        )
    return max_norm


def _flatten_numbers(tree: object, title: str) -> tuple[list[Any], Any]:
    leaves, treedef, chains = flatten_arrays(tree, title)
    for leaf, chain in zip(leaves, chains):
        if not is_number(leaf.dtype):
            raise DtypeError(f'"{text(chain)}" is an array of dtype {leaf.dtype}, not of numbers.')
    return leaves, treedef


def global_norm(tree: object) -> Float[Array, ""]:
    """Return the Euclidean norm of all arrays of a Container, a dict or another PyTree, taken as
    one vector.

    Squares are added in float32 at least.

    Args:
        tree: Arrays of any shapes.

    Example:
        >>> global_norm({"b": jnp.array([3.0]), "w": jnp.array([[4.0]])})
        Array(5., dtype=float32)
    """
    leaves, _ = _flatten_numbers(tree, "the argument of global_norm")
    with shared_kernels():
        return _compiled_norm(leaves)


def clip_by_global_norm(grads: object, max_norm: float) -> Any:
    """Scale all gradients by one factor, so that their norm as one vector is at most `max_norm`.

    Directions are kept. Where the norm is smaller already nothing changes; where it is NaN or
    infinite, so is the result.

    Args:
        grads: A Container, a dict or another PyTree of arrays.
        max_norm: The largest norm, positive.

    Raises:
        ArgumentError: `max_norm` is not positive and finite.

    Example:
        >>> grads = nb.Container(b=jnp.array([3.0]), w=jnp.array([4.0]))
        >>> clip_by_global_norm(grads, 1.0).w.round(1)
        Array([0.8], dtype=float32)

    Source: Pascanu, Mikolov and Bengio (2013), arXiv:1211.5063; `optax.clip_by_global_norm`.
    """
    check_max_norm(max_norm)
    leaves, treedef = _flatten_numbers(grads, "the argument of clip_by_global_norm")
    with shared_kernels(), asked_for():
        return jax.tree.unflatten(treedef, _compiled_clip(leaves, max_norm))
