"""One Container of many, or many of one.

Containers to join must have one structure, else `StructureError`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import jax
import numpy as np
from jax.core import Tracer

from nbmodule.base.foreign import received
from nbmodule.base.kinds import Shaped
from nbmodule.errors import ArgumentError, ArgumentTypeError, ShapeError
from nbmodule.tree.chains import ChainMethods
from nbmodule.tree.leaf import is_array
from nbmodule.tree.mapping import MapMethods, indexed
from nbmodule.tree.nested import Nested


class CombineMethods(ChainMethods):
    """Make one Container of many, or many of one; describe the arrays among the leaves."""

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

        return MapMethods.cont_multi_map(join, list(containers))

    @staticmethod
    def cont_list_stack(containers: Sequence[Any], axis: int = 0) -> Any:
        """Make each leaf the list of the Containers' leaves.

        Args:
            containers: Containers of one structure.
            axis: Level of the new list: 0 is outermost; 1 makes a list for each item of the leaves.

        Example:
            >>> a, b = nb.Container(x=[1, 2]), nb.Container(x=[3, 4])
            >>> nb.Container.cont_list_stack([a, b], 0).x, nb.Container.cont_list_stack([a, b], 1).x
            ([[1, 2], [3, 4]], [[1, 3], [2, 4]])
        """
        if axis < 0:
            raise ArgumentError(f"axis must be at least 0, got {axis}.")

        def stack(items: list[Any], depth: int) -> list[Any]:
            if depth == 0:
                return items
            return [stack(list(row), depth - 1) for row in zip(*items, strict=True)]

        return MapMethods.cont_multi_map(lambda leaves, _: stack(leaves, axis), list(containers))

    def cont_unstack_conts(
        self, axis: int = 0, keepdims: bool = False, dim_size: int | None = None
    ) -> list[Any]:
        """Split the leaves along an axis into one Container for each index.

        Args:
            axis: The axis.
            keepdims: Keep the axis, with length 1.
            dim_size: Its length; by default that of the leaves.

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
        places = [slice(i, i + 1) if keepdims else i for i in range(dim_size)]
        if axis == 0:  # lists have that axis too
            return [indexed(self, place) for place in places]
        before = (slice(None),) * axis if axis > 0 else (...,)
        after = (slice(None),) * (-axis - 1)
        return [indexed(self, (*before, place, *after)) for place in places]

    @staticmethod
    def cont_reduce(containers: Sequence[Any], fn: Callable[..., Any]) -> Any:
        """Reduce the leaves at each chain to one by `fn`, a function of their list or of two
        leaves.

        Example:
            >>> nb.Container.cont_reduce([nb.Container(a=1), nb.Container(a=2)], sum).a
            3
            >>> both = [nb.Container(a=1), nb.Container(a=2)]
            >>> nb.Container.cont_reduce(both, lambda a, b: a - b).a
            -1
        """
        together = functools.partial(functools.reduce, fn) if _takes_two(fn) else fn
        return MapMethods.cont_multi_map(lambda leaves, _: together(leaves), list(containers))

    @staticmethod
    def cont_concat(containers: Sequence[Any], axis: int = 0) -> Any:
        """Concatenate arrays along an existing axis.

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

        return MapMethods.cont_multi_map(join, list(containers))

    @staticmethod
    def cont_combine(*containers: object) -> Any:
        """Merge Containers of any structure; the right-most leaf at a chain wins.

        Example:
            >>> a, b = nb.Container(x=1, y={"z": 2}), nb.Container(x=3, y={"w": 4})
            >>> nb.Container.cont_combine(a, b).cont_to_dict()
            {'x': 3, 'y': {'w': 4, 'z': 2}}
        """
        trees = as_containers(containers, "combine")
        new = trees[0]._like({})
        for tree in trees:
            _overlay(new, tree)
        return new

    @property
    def cont_shape(self) -> list[int | None]:
        """The leading sizes that the arrays share; None where they differ.

        Example:
            >>> nb.Container(a=jnp.ones((2, 3)), b=jnp.ones((2, 4, 5))).cont_shape
            [2, None]
        """
        shapes = [s for s in map(_shape, self.cont_to_iterator_values()) if s is not None]
        return [sizes[0] if len(set(sizes)) == 1 else None for sizes in zip(*shapes)]

    @property
    def cont_shapes(self) -> Self:
        """The shape of each array; None for other leaves.

        Example:
            >>> nb.Container(a=jnp.ones((2, 3)), b="text").cont_shapes.cont_to_dict()
            {'a': (2, 3), 'b': None}
        """
        return self.cont_map(lambda leaf, _: tuple(leaf.shape) if is_array(leaf) else None)

    @property
    def cont_num_arrays(self) -> int:
        """The number of leaves that are arrays.

        Example:
            >>> nb.Container(a=jnp.ones(2), b={"c": np.ones(3), "d": "text"}).cont_num_arrays
            2
        """
        return sum(map(is_array, self.cont_to_iterator_values()))

    @property
    def cont_size_ordered_arrays(self) -> Self:
        """The arrays under flat keys (`a__b`), the smallest first.

        Example:
            >>> list(nb.Container(a=jnp.ones(4), b={"c": jnp.ones(2)}).cont_size_ordered_arrays)
            ['b__c', 'a']
        """
        arrays = self.cont_map(lambda leaf, _: leaf if is_array(leaf) else None).cont_prune_empty()
        ordered = sorted(arrays.cont_flatten_key_chains().items(), key=lambda item: item[1].size)
        new = self._like({})._with_settings(alphabetical_keys=False)
        new._take(dict(ordered))
        return new

    @property
    def cont_dev(self) -> str | None:
        """The name of the device of all arrays; None if there is no one such device.

        Example:
            >>> nb.Container(a=jnp.ones(2)).cont_dev
            'cpu:0'
        """
        devices = {
            f"{device.platform}:{device.id}"
            for leaf in self.cont_to_iterator_values()
            if isinstance(leaf, jax.Array) and not isinstance(leaf, Tracer)
            for device in leaf.devices()
        }
        return devices.pop() if len(devices) == 1 else None

    def cont_duplicate_array_keychains(self) -> tuple[tuple[str, ...], ...]:
        """List the groups of chains with the same array object.

        Example:
            >>> x = jnp.ones(2)
            >>> nb.Container(a=x, b={"c": x, "d": jnp.ones(2)}).cont_duplicate_array_keychains()
            (('a', 'b/c'),)
        """
        groups: dict[int, list[str]] = {}
        for chain, leaf in self.cont_to_iterator():
            if is_array(leaf):
                groups.setdefault(id(leaf), []).append(chain)
        return tuple(tuple(chains) for chains in groups.values() if len(chains) > 1)

    def to_numpy(self) -> Self:
        """Convert arrays to NumPy; other leaves stay.

        Example:
            >>> nb.Container(a=jnp.ones(2), b="text").to_numpy().cont_to_dict()
            {'a': array([1., 1.], dtype=float32), 'b': 'text'}
        """
        return self.cont_map(
            lambda leaf, _: np.asarray(leaf) if is_array(leaf) else leaf, map_sequences=True
        )

    def cont_as_bools(self, assert_is_bool: bool = False) -> Self:
        """Convert each leaf to a bool; an array is True if all its elements are.

        Args:
            assert_is_bool: Whether to raise if a leaf is not boolean.

        Example:
            >>> c = nb.Container(a=jnp.array([1, 0]), b={"c": [], "d": True})
            >>> c.cont_as_bools().cont_to_dict()
            {'a': False, 'b': {'c': False, 'd': True}}
        """
        return self.cont_map(lambda leaf, chain: _truth(leaf, chain, assert_is_bool))

    def cont_all_true(self, assert_is_bool: bool = False) -> bool:
        """Return True if all elements of all leaves are true, as after a comparison.

        Example:
            >>> c = nb.Container(a=jnp.array([1, 2]), b={"c": 3})
            >>> (c == c).cont_all_true(), (c > 1).cont_all_true()
            (True, False)
        """
        return all(self.cont_as_bools(assert_is_bool).cont_to_iterator_values())

    def cont_all_false(self, assert_is_bool: bool = False) -> bool:
        """Return True if no element of any leaf is true.

        Example:
            >>> (nb.Container(a=jnp.array([1, 2])) > 5).cont_all_false()
            True
        """
        truths = self.cont_map(lambda leaf, chain: _truth(leaf, chain, assert_is_bool, np.any))
        return not any(truths.cont_to_iterator_values())


def as_containers(containers: Sequence[Any], verb: str) -> list[Any]:
    """Return Containers and dicts as Containers, of the type and settings of the first one.

    Raises:
        ArgumentTypeError: If there is no Container, or a value is no Container or dict.
    """
    first = next(
        (container for container in containers if isinstance(container, CombineMethods)), None
    )
    if first is None:
        raise ArgumentTypeError(f"there is no Container to {verb}.")
    for container in containers:
        if not isinstance(container, Mapping):
            raise ArgumentTypeError(
                f"only Containers and dicts can be {verb}d, got {type(container).__name__}."
            )
    return [first._admit(container) for container in containers]


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


def _takes_two(fn: Any) -> bool:
    """Return True if a function needs two positional arguments, as `operator.add` does."""
    if hasattr(fn, "nin"):  # of NumPy and JAX, whose signatures do not tell
        return bool(fn.nin == 2)
    try:
        inspect.signature(fn).bind(None)
    except TypeError:
        return True
    except ValueError:  # a function in C without a signature
        return False
    return False


def _overlay(target: Any, source: Any) -> None:
    """Put the leaves of one Container over those of another."""
    for key, value in source.items():
        if not isinstance(value, CombineMethods):
            target._put(key, value)
            continue
        if not isinstance(dict.get(target, key), CombineMethods):
            target._put(key, target._like({}))
        _overlay(dict.__getitem__(target, key), value)


def _shape(leaf: Shaped) -> tuple[int, ...] | None:
    if is_array(leaf):
        return tuple(leaf.shape)
    return (len(leaf),) if isinstance(leaf, (list, tuple)) else None


def _truth(leaf: Any, chain: str, assert_is_bool: bool, together: Any = np.all) -> bool:
    dtype = getattr(leaf, "dtype", None)
    if assert_is_bool and not (isinstance(leaf, bool) if dtype is None else dtype == np.bool_):
        raise ArgumentTypeError(f'"{chain}" is not boolean: it is {type(leaf).__name__}.')
    if isinstance(leaf, Tracer):
        return bool(leaf.all() if together is np.all else leaf.any())
    return bool(together(np.asarray(leaf))) if is_array(leaf) else bool(leaf)
