"""What a Container says about the arrays in it: shapes, number, devices, and whether all are true.

No value is copied from a device except to ask whether it is true.
"""

from __future__ import annotations

from typing import Any, Self

import jax
import numpy as np
from jax.core import Tracer

from nbmodule.base.kinds import Shaped
from nbmodule.errors import ArgumentTypeError
from nbmodule.tree.leaf import is_array
from nbmodule.tree.many import Joined


class ArrayQueries(Joined):
    """Describe the arrays among the leaves."""

    __slots__ = ()

    @property
    def cont_shape(self) -> list[int | None]:
        """The leading sizes that the arrays share; None where they differ.

        Example:
            >>> nb.Container(a=jnp.ones((2, 3)), b=jnp.ones((2, 4, 5))).cont_shape
            [2, None]
        """
        shapes = [
            shape for shape in map(_shape, self.cont_to_iterator_values()) if shape is not None
        ]
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
        """The name of the device that all arrays lie on; None if there is no one such device.

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
        """List the groups of chains that hold one and the same array.

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
        """Give the same with NumPy arrays; leaves that are no arrays stay.

        Example:
            >>> nb.Container(a=jnp.ones(2), b="text").to_numpy().cont_to_dict()
            {'a': array([1., 1.], dtype=float32), 'b': 'text'}
        """
        return self.cont_map(
            lambda leaf, _: np.asarray(leaf) if is_array(leaf) else leaf, map_sequences=True
        )

    def cont_as_bools(self, assert_is_bool: bool = False) -> Self:
        """Turn each leaf into True or False; an array is true if all its elements are.

        Args:
            assert_is_bool: Raise where a leaf is not boolean already.

        Example:
            >>> c = nb.Container(a=jnp.array([1, 0]), b={"c": [], "d": True})
            >>> c.cont_as_bools().cont_to_dict()
            {'a': False, 'b': {'c': False, 'd': True}}
        """
        return self.cont_map(lambda leaf, chain: _truth(leaf, chain, assert_is_bool, np.all))

    def cont_all_true(self, assert_is_bool: bool = False) -> bool:
        """Tell whether all elements of all leaves are true, as after a comparison.

        Example:
            >>> c = nb.Container(a=jnp.array([1, 2]), b={"c": 3})
            >>> (c == c).cont_all_true(), (c > 1).cont_all_true()
            (True, False)
        """
        truths = [
            _truth(leaf, chain, assert_is_bool, np.all) for chain, leaf in self.cont_to_iterator()
        ]
        return all(truths)

    def cont_all_false(self, assert_is_bool: bool = False) -> bool:
        """Tell whether no element of any leaf is true.

        Example:
            >>> (nb.Container(a=jnp.array([1, 2])) > 5).cont_all_false()
            True
        """
        truths = [
            _truth(leaf, chain, assert_is_bool, np.any) for chain, leaf in self.cont_to_iterator()
        ]
        return not any(truths)


def _shape(leaf: Shaped) -> tuple[int, ...] | None:
    if is_array(leaf):
        return tuple(leaf.shape)
    return (len(leaf),) if isinstance(leaf, (list, tuple)) else None


def _truth(leaf: Any, chain: str, assert_is_bool: bool, together: Any) -> bool:
    boolean = (
        leaf.dtype == bool
        if is_array(leaf) or isinstance(leaf, np.generic)
        else isinstance(leaf, bool)
    )
    if assert_is_bool and not boolean:
        raise ArgumentTypeError(f'"{chain}" is not boolean: it is {type(leaf).__name__}.')
    if isinstance(leaf, Tracer):
        return bool(leaf.all() if together is np.all else leaf.any())
    return bool(together(np.asarray(leaf))) if is_array(leaf) else bool(leaf)
