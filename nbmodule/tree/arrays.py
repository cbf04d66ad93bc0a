"""What a Container says about the arrays in it: shapes, number, devices, and whether all are true.

No value is copied from a device except to ask whether it is true.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from nbmodule.base.kinds import Shaped
from nbmodule.errors import ArgumentTypeError
from nbmodule.tree.chains import flatten_key_chains
from nbmodule.tree.converting import to_iterator, to_iterator_values
from nbmodule.tree.leaves import is_array
from nbmodule.tree.looking_up import prune_empty
from nbmodule.tree.mapping import map_leaves
from nbmodule.tree.nested import Kind, Nested


def shared_shape(container: Nested) -> list[int | None]:
    """The leading sizes that the arrays share; None where they differ."""
    shapes = [shape for shape in map(_shape, to_iterator_values(container)) if shape is not None]
    return [sizes[0] if len(set(sizes)) == 1 else None for sizes in zip(*shapes)]


def shapes(container: Kind) -> Kind:
    """The shape of each array; None for other leaves."""
    return map_leaves(container, lambda leaf, _: tuple(leaf.shape) if is_array(leaf) else None)


def num_arrays(container: Nested) -> int:
    """The number of leaves that are arrays."""
    return sum(map(is_array, to_iterator_values(container)))


def size_ordered_arrays(container: Kind) -> Kind:
    """The arrays under flat keys (`a__b`), the smallest first."""
    arrays = prune_empty(map_leaves(container, lambda leaf, _: leaf if is_array(leaf) else None))
    ordered = sorted(flatten_key_chains(arrays).items(), key=lambda item: item[1].size)
    new = container._like({})._with_settings(alphabetical_keys=False)
    new._take(dict(ordered))
    return new


def device(container: Nested) -> str | None:
    """The device that all arrays lie on, as `cpu:0`; None if there is no one such device."""
    devices = {
        f"{device.platform}:{device.id}"
        for leaf in to_iterator_values(container)
        if isinstance(leaf, jax.Array) and not isinstance(leaf, Tracer)
        for device in leaf.devices()
    }
    return devices.pop() if len(devices) == 1 else None


def duplicate_array_keychains(container: Nested) -> tuple[tuple[str, ...], ...]:
    """List the groups of chains that hold one and the same array."""
    groups: dict[int, list[str]] = {}
    for chain, leaf in to_iterator(container):
        if is_array(leaf):
            groups.setdefault(id(leaf), []).append(chain)
    return tuple(tuple(chains) for chains in groups.values() if len(chains) > 1)


def to_numpy(container: Kind) -> Kind:
    """Give the same with NumPy arrays; leaves that are no arrays stay."""
    return map_leaves(
        container, lambda leaf, _: np.asarray(leaf) if is_array(leaf) else leaf, map_sequences=True
    )


# Truth


def as_bools(container: Kind, assert_is_bool: bool) -> Kind:
    """Turn each leaf into True or False; an array is true if all its elements are."""
    return map_leaves(container, lambda leaf, chain: _truth(leaf, chain, assert_is_bool, np.all))


def all_true(container: Nested, assert_is_bool: bool) -> bool:
    """Tell whether all elements of all leaves are true, as after a comparison."""
    truths = [_truth(leaf, chain, assert_is_bool, np.all) for chain, leaf in to_iterator(container)]
    return all(truths)


def all_false(container: Nested, assert_is_bool: bool) -> bool:
    """Tell whether no element of any leaf is true."""
    truths = [_truth(leaf, chain, assert_is_bool, np.any) for chain, leaf in to_iterator(container)]
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
