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
from nbmodule.tree.chains import Restructured
from nbmodule.tree.keys import is_mapping
from nbmodule.tree.leaf import is_array
from nbmodule.tree.mapping import Mapped, indexed
from nbmodule.tree.nested import Nested


class Joined(Restructured):
    """Make one Container of many, or many of one."""

    __slots__ = ()

    @staticmethod
    def cont_list_join(containers: Sequence[Any]) -> Any:
        """Join leaves that are lists.

        Example:
            >>> nb.Container.cont_list_join([nb.Container(a=[1, 2]), nb.Container(a=[3])]).a
            [1, 2, 3]
        """

        def join(lists: list[Any], chain: str) -> list[Any]:
            for element in lists:
                if not isinstance(element, (list, tuple)):
                    raise ArgumentTypeError(
                        f'cannot join "{chain}": {type(element).__name__} is no list.'
                    )
            return [item for element in lists for item in element]

        return Mapped.cont_multi_map(join, list(containers))

    @staticmethod
    def cont_list_stack(containers: Sequence[Any], axis: int = 0) -> Any:
        """Make each leaf the list of the Containers' leaves.

        Args:
            containers: Containers of one structure.
            axis: Where the new list lies: 0 is outermost; 1 makes a list for each item of the
                leaves, and so on.

        Example:
            >>> a, b = nb.Container(x=[1, 2]), nb.Container(x=[3, 4])
            >>> nb.Container.cont_list_stack([a, b], 0).x, nb.Container.cont_list_stack([a, b], 1).x
            ([[1, 2], [3, 4]], [[1, 3], [2, 4]])
        """
        if axis < 0:
            raise ArgumentError(f"axis counts from 0 on, got {axis}.")

        def stack(items: list[Any], depth: int) -> list[Any]:
            return (
                items
                if depth == 0
                else [stack(list(row), depth - 1) for row in zip(*items, strict=True)]
            )

        return Mapped.cont_multi_map(lambda leaves, _: stack(leaves, axis), list(containers))

    def cont_unstack_conts(
        self, axis: int = 0, keepdims: bool = False, dim_size: int | None = None
    ) -> list[Any]:
        """Take the leaves apart along an axis, into as many Containers as it is long.

        Args:
            axis: The axis.
            keepdims: Keep the axis, with length 1.
            dim_size: Its length; found out if not given.

        Raises:
            ShapeError: if the leaves are not equally long.

        Example:
            >>> [
            ...     each.a.tolist()
            ...     for each in nb.Container(a=jnp.array([[1, 2], [3, 4]])).cont_unstack_conts(0)
            ... ]
            [[1, 2], [3, 4]]
        """
        if dim_size is None:
            dim_size = _length_along(self, axis)
        before = (slice(None),) * axis if axis >= 0 else (...,)
        after = () if axis >= 0 else (slice(None),) * (-axis - 1)

        def index(location: int) -> Any:
            at = slice(location, location + 1) if keepdims else location
            return at if axis == 0 else (*before, at, *after)

        return [indexed(self, index(location)) for location in range(dim_size)]

    @staticmethod
    def cont_reduce(containers: Sequence[Any], fn: Callable[..., Any]) -> Any:
        """Make one leaf of the leaves at each chain; `fn` takes their list, or two of them at a
        time.

        Example:
            >>> nb.Container.cont_reduce([nb.Container(a=1), nb.Container(a=2)], sum).a
            3
            >>> both = [nb.Container(a=1), nb.Container(a=2)]
            >>> nb.Container.cont_reduce(both, lambda a, b: a - b).a
            -1
        """
        together = functools.partial(functools.reduce, fn) if _takes_two(fn) else fn
        return Mapped.cont_multi_map(lambda leaves, _: together(leaves), list(containers))

    @staticmethod
    def cont_concat(containers: Sequence[Any], axis: int = 0) -> Any:
        """Join arrays along an axis that they have.

        Example:
            >>> nb.Container.cont_concat(
            ...     [nb.Container(a=jnp.ones(2)), nb.Container(a=jnp.zeros(1))], 0
            ... ).a
            Array([1., 1., 0.], dtype=float32)
        """

        def join(leaves: list[Any], chain: str) -> Any:
            library = np if all(isinstance(leaf, np.ndarray) for leaf in leaves) else jax.numpy
            if library is not np:
                leaves = [received(leaf, f'"{chain}" of a Container') for leaf in leaves]
            return library.concatenate(leaves, axis=axis)

        return Mapped.cont_multi_map(join, list(containers))

    @staticmethod
    def cont_combine(*containers: object) -> Any:
        """Join Containers of different structure; where two have a leaf at one chain, the
        right-most wins.

        Example:
            >>> a, b = nb.Container(x=1, y={"z": 2}), nb.Container(x=3, y={"w": 4})
            >>> nb.Container.cont_combine(a, b).cont_to_dict()
            {'x': 3, 'y': {'w': 4, 'z': 2}}
        """
        first = next((container for container in containers if isinstance(container, Joined)), None)
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


def _length_along(container: Nested, axis: int) -> int:
    lengths: dict[int, str] = {}
    for chain, leaf in container.cont_to_iterator():
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


def _overlay(target: Any, source: Any) -> None:
    """Put the leaves of one Container over those of another."""
    for key, value in source.items():
        inner = dict.get(target, key)
        if isinstance(value, Joined):
            if not isinstance(inner, Joined):
                inner = target._like({})
                target._put(key, inner)
            _overlay(inner, value)
        else:
            target._put(key, value)
