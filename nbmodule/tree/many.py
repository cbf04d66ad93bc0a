"""One Container of many, or many of one.

Containers that are joined must have one structure, else `StructureError`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from nbmodule.base.foreign import received
from nbmodule.errors import ArgumentError, ArgumentTypeError, ShapeError
from nbmodule.tree.converting import to_iterator
from nbmodule.tree.given import is_mapping
from nbmodule.tree.leaves import is_array
from nbmodule.tree.mapping import indexed, multi_map
from nbmodule.tree.nested import Nested


def list_join(containers: Sequence[Any]) -> Any:
    """Join leaves that are lists."""

    def join(lists: list[Any], chain: str) -> list[Any]:
        for element in lists:
            if not isinstance(element, (list, tuple)):
                raise ArgumentTypeError(
                    f'cannot join "{chain}": {type(element).__name__} is no list.'
                )
        return [item for element in lists for item in element]

    return multi_map(join, list(containers))


def list_stack(containers: Sequence[Any], axis: int) -> Any:
    """Make each leaf the list of the Containers' leaves."""
    if axis < 0:
        raise ArgumentError(f"axis counts from 0 on; found {axis}.")

    def stack(items: list[Any], depth: int) -> list[Any]:
        return (
            items
            if depth == 0
            else [stack(list(row), depth - 1) for row in zip(*items, strict=True)]
        )

    return multi_map(lambda leaves, _: stack(leaves, axis), list(containers))


def unstack_conts(container: Nested, axis: int, keepdims: bool, dim_size: int | None) -> list[Any]:
    """Take the leaves apart along an axis, into as many Containers as it is long."""
    if dim_size is None:
        dim_size = _length_along(container, axis)
    before = (slice(None),) * axis if axis >= 0 else (...,)
    after = () if axis >= 0 else (slice(None),) * (-axis - 1)

    def index(location: int) -> Any:
        at = slice(location, location + 1) if keepdims else location
        return at if axis == 0 else (*before, at, *after)

    return [indexed(container, index(location)) for location in range(dim_size)]


def _length_along(container: Nested, axis: int) -> int:
    lengths: dict[int, str] = {}
    for chain, leaf in to_iterator(container):
        if is_array(leaf):
            if not -leaf.ndim <= axis < leaf.ndim:
                raise ShapeError(
                    f'cannot unstack along axis {axis}: "{chain}" has {leaf.ndim} axes.'
                )
            lengths.setdefault(leaf.shape[axis], chain)
        elif isinstance(leaf, (list, tuple)) and axis == 0:
            lengths.setdefault(len(leaf), chain)
    if len(lengths) > 1:
        (one, first), (other, second), *_ = lengths.items()
        raise ShapeError(
            f'cannot unstack along axis {axis}: "{first}" is {one} long and "{second}" is '
            f"{other} long."
        )
    return next(iter(lengths), 0)


def reduce(containers: Sequence[Any], fn: Callable[..., Any]) -> Any:
    """Make one leaf of the leaves at each chain; `fn` takes their list, or two of them at a time."""
    together = functools.partial(functools.reduce, fn) if _takes_two(fn) else fn
    return multi_map(lambda leaves, _: together(leaves), list(containers))


def _takes_two(fn: Callable[..., Any]) -> bool:
    """Whether a function needs two positional arguments, as `operator.add`, `jnp.maximum` and
    `lambda a, b: ...` do.
    """
    inputs = getattr(fn, "nin", None)  # of NumPy and JAX, whose signatures do not tell
    if inputs is not None:
        return bool(inputs == 2)
    try:
        parameters = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):
        return False
    places = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return (
        sum(
            parameter.kind in places and parameter.default is parameter.empty
            for parameter in parameters
        )
        == 2
    )


def concat(containers: Sequence[Any], axis: int) -> Any:
    """Join arrays along an axis that they have."""

    def join(leaves: list[Any], chain: str) -> Any:
        library = np if all(isinstance(leaf, np.ndarray) for leaf in leaves) else jax.numpy
        if library is not np:
            leaves = [
                received(leaf, f'"{chain}" of a Container', "Nothing was made.") for leaf in leaves
            ]
        return library.concatenate(leaves, axis=axis)

    return multi_map(join, list(containers))


def combine(*containers: object) -> Any:
    """Join Containers of different structure; where two have a leaf at one chain, the right-most
    wins.
    """
    first = next((container for container in containers if isinstance(container, Nested)), None)
    if first is None:
        raise ArgumentTypeError("cannot combine: there is no Container among the arguments.")
    new = first._like({})
    for container in containers:
        if not is_mapping(container):
            raise ArgumentTypeError(
                f"only Containers and dicts can be combined, not {type(container).__name__}."
            )
        _overlay(new, first._admit(container))
    return new


def _overlay(target: Any, source: Any) -> None:
    """Put the leaves of one Container over those of another."""
    for key, value in source.items():
        inner = dict.get(target, key)
        if isinstance(value, Nested):
            if not isinstance(inner, Nested):
                inner = target._like({})
                target._put(key, inner)
            _overlay(inner, value)
        else:
            target._put(key, value)
