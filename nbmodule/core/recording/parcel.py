"""Values of calls on their way out of a compiled function: small arrays packed into one vector for
each dtype.

An output array costs some 5 µs, whatever its size, and a tracked step has hundreds of them. So
small ones leave together and are cut apart on the host when they are read; large ones leave as they
are. An array that is recorded several times (the return of a Sequential is that
of its last layer) leaves once.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from nbmodule.base.foreign import ForeignArray
from nbmodule.core.structure.structure import Static
from nbmodule.core.variables.variable import Variable

SMALL = 8192
"""Bytes up to which an array is packed."""


@jax.tree_util.register_static
class StaticLeaf(Static):
    """A value that is no array (a text, a function, a Python number): a PyTree without leaves, so
    that it can stand among recorded values and among the outputs of a function that JAX traces.
    """


def as_values(tree: object) -> Any:
    """Return `tree` as it can leave a transform: variables by their values, other leaves static."""
    return jax.tree.map(_as_value, tree, is_leaf=lambda leaf: isinstance(leaf, Variable))


def _as_value(leaf: object) -> Any:
    if isinstance(leaf, Variable):
        return leaf.value
    if isinstance(leaf, ForeignArray):
        return leaf.kept()
    return leaf if isinstance(leaf, (jax.Array, np.ndarray, np.generic)) else StaticLeaf(leaf)


def as_given(tree: object) -> Any:
    """Return the user's tree again, with static leaves by their values."""
    return jax.tree.map(
        lambda leaf: leaf.value if isinstance(leaf, StaticLeaf) else leaf,
        tree,
        is_leaf=lambda leaf: isinstance(leaf, StaticLeaf),
    )


@dataclass(frozen=True)
class PackedPlaces:
    """The place of each recorded array: `(0, vector, start, shape)` for a packed one, `(1, number)`
    for one by itself.
    """

    tree: Any
    places: tuple[Any, ...]


@functools.partial(
    jax.tree_util.register_dataclass, data_fields=["vectors", "large"], meta_fields=["layout"]
)
@dataclass
class Parcel:
    """The values of several calls, packed."""

    layout: PackedPlaces
    vectors: list[Any]
    large: list[Any]

    @functools.cached_property
    def _hosts(self) -> list[np.ndarray]:
        """The vectors on the host, fetched once."""
        return [np.asarray(x) for x in jax.device_get(self.vectors)]

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(x.nbytes for x in self.vectors) + sum(
            getattr(x, "nbytes", 0) for x in self.large
        )

    def opened(self) -> list[Any]:
        """Return the values as they were put in: JAX arrays, traced ones while tracing."""
        leaves = [self._leaf(location) for location in self.layout.places]
        # One transfer for all arrays.
        if not any(isinstance(x, Tracer) for x in self.vectors):
            cut = [i for i, leaf in enumerate(leaves) if type(leaf) is np.ndarray]
            for i, array in zip(cut, jax.device_put([leaves[i] for i in cut])):
                leaves[i] = array
        return jax.tree.unflatten(self.layout.tree, leaves)

    def part(self, number: int) -> Any:
        """Return the values of one call; packed arrays as NumPy views of the vector on the host."""
        trees = self.layout.tree.children()
        start = sum(tree.num_leaves for tree in trees[:number])
        places = self.layout.places[start : start + trees[number].num_leaves]
        return jax.tree.unflatten(trees[number], [self._leaf(location) for location in places])

    def _leaf(self, location: tuple[Any, ...]) -> Any:
        if location[0]:
            return self.large[location[1]]
        _, vector, start, shape = location
        size = int(np.prod(shape, dtype=np.int64))
        if isinstance(self.vectors[vector], Tracer):
            return jax.lax.slice(self.vectors[vector], (start,), (start + size,)).reshape(shape)
        return self._hosts[vector][start : start + size].reshape(shape)


def pack_records(records: list[Any]) -> Parcel:
    """Put the values of all calls together; to be called inside the compiled function."""
    leaves, tree = jax.tree.flatten(records)
    leaves = [
        leaf if hasattr(leaf, "dtype") else jnp.asarray(leaf) for leaf in leaves
    ]  # numbers, under `jax_disable_jit`
    # One vector for each dtype: arrays of different dtypes cannot be concatenated.
    vectors: dict[Any, list[Any]] = {}
    lengths: dict[Any, int] = {}
    large: list[Any] = []
    cached: dict[int, Any] = {}
    for leaf in leaves:
        if id(leaf) in cached:
            continue
        dtype = leaf.dtype
        if jnp.issubdtype(dtype, jax.dtypes.extended) or leaf.size * dtype.itemsize > SMALL:
            cached[id(leaf)] = (1, len(large))
            large.append(leaf)
        else:
            cached[id(leaf)] = (0, dtype, lengths.setdefault(dtype, 0), tuple(leaf.shape))
            vectors.setdefault(dtype, []).append(jnp.ravel(leaf))
            lengths[dtype] += leaf.size
    order = {dtype: number for number, dtype in enumerate(vectors)}
    places = (cached[id(leaf)] for leaf in leaves)
    numbered = tuple(
        location if location[0] else (0, order[location[1]], *location[2:]) for location in places
    )
    return Parcel(
        PackedPlaces(tree, numbered), [jnp.concatenate(parts) for parts in vectors.values()], large
    )


def opened(records: Any) -> list[Any]:
    """Return the values of calls, whether packed or not."""
    return records.opened() if isinstance(records, Parcel) else records
