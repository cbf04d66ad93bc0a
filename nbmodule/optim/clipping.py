"""The norm of many arrays taken as one vector, and gradients cut to a largest one."""

from __future__ import annotations

import functools
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
from nbmodule.core.boxes.frame import now, quiet
from nbmodule.errors import ArgumentError, ArgumentTypeError
from nbmodule.optim.kernels import chunks_of, placement, scaled_by
from nbmodule.optim.part import check_numbers, flatten


@functools.partial(jax.jit, inline=INLINE)
def _sum_of_squares(arrays: Sequence[Any]) -> Any:
    def squares(x: Array) -> Any:
        wide = widened(x.dtype)
        return jnp.sum(jnp.square(jnp.abs(x).astype(jnp.finfo(wide).dtype)))

    with mixed_dtypes():
        return sum(map(squares, arrays))


@functools.partial(jax.jit, inline=INLINE)
def _norm(parts: Sequence[Any]) -> Any:
    with mixed_dtypes():
        return jnp.sqrt(sum(parts))


def _factor(parts: Sequence[Any], max_norm: object) -> Any:
    norm = _norm(parts)
    return jnp.where(norm < max_norm, 1.0, max_norm / norm)


_factor_of_any = jax.jit(_factor, inline=INLINE)
_factor_of_one = jax.jit(
    _factor, inline=INLINE, static_argnames="max_norm"
)  # a number in the program is copied at no call


@functools.partial(jax.jit, inline=INLINE)
def _scale(arrays: Sequence[Any], factor: Any) -> list[Any]:
    return [scaled_by(array, factor) for array in arrays]


def in_chunks(arrays: Sequence[Any]) -> list[list[int]]:
    """Places of a list of arrays that are computed together."""
    facts = tuple((array.shape, array.dtype) for array in arrays)
    return [list(places) for places in chunks_of(facts, tuple(map(placement, arrays)))]


def clip_factor(arrays: Sequence[Any], max_norm: float) -> Any:
    """What to multiply gradients with so that their norm is at most `max_norm`, always the same; 1 where it is smaller already."""
    return _factor_of_one(_parts(arrays), max_norm=max_norm)


def _parts(arrays: Sequence[Any]) -> list[Any]:
    if not arrays:
        return [jnp.zeros(())]
    return [_sum_of_squares([arrays[i] for i in places]) for places in in_chunks(arrays)]


def shared_kernels() -> Any:
    """The context in which kernels are called, so that their traces are shared by all frames."""
    return nullcontext() if now.frame is None else quiet()


def check_max_norm(max_norm: Any) -> Any:
    """`max_norm` if it is a positive number."""
    if isinstance(max_norm, Tracer):
        return max_norm
    if isinstance(max_norm, bool) or (
        not isinstance(max_norm, (int, float, jax.Array)) and not hasattr(max_norm, "__float__")
    ):
        raise ArgumentTypeError(
            f"the largest norm must be a number; found {type(max_norm).__name__}. Nothing was changed."
        )
    if not (math.isfinite(float(max_norm)) and float(max_norm) > 0):
        raise ArgumentError(
            f"the largest norm must be positive and finite; found {float(max_norm)!r}. Nothing was changed."
        )
    return max_norm


def global_norm(tree: object) -> Float[Array, ""]:
    """Give the Euclidean norm of all arrays of a Container, a dict or another PyTree, taken as one vector.

    Squares are added in float32 at least.

    Args:
        tree: Arrays; their shapes do not matter.

    Example:
        >>> global_norm({"b": jnp.array([3.0]), "w": jnp.array([[4.0]])})
        Array(5., dtype=float32)
    """
    leaves, _, chains = flatten(tree, "what global_norm takes")
    check_numbers(leaves, chains)
    with shared_kernels():
        return _norm(_parts(leaves))


def clip_by_global_norm(grads: object, max_norm: float) -> Any:
    """Scale all gradients by one factor, so that their norm as one vector is at most `max_norm`.

    Directions are kept. Where the norm is smaller already nothing changes; where it is NaN or infinite, so is the result.

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
    leaves, treedef, chains = flatten(grads, "what clip_by_global_norm takes")
    check_numbers(leaves, chains)
    clipped: list[Any] = [None] * len(leaves)
    with shared_kernels():
        with asked_for():
            factor = _factor_of_any(_parts(leaves), max_norm)
        for places in in_chunks(leaves) if leaves else ():
            for place, array in zip(places, _scale([leaves[i] for i in places], factor)):
                clipped[place] = array
    return jax.tree.unflatten(treedef, clipped)
