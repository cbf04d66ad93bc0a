"""Values of calls on their way out of a compiled function: small arrays packed into one vector for
each dtype.

An output array costs some 5 µs, whatever its size, and a tracked step has hundreds of them. So
small ones leave together and are cut apart on the host when they are read; large ones leave as they
are. An array that is recorded several times (the return of a Sequential is that
of its last layer) leaves once.
"""

from __future__ import annotations

import functools
import math
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Any, NamedTuple

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


class Place(NamedTuple):
    """The place of a recorded array: in the vector of a dtype, or by itself, if `dtype` is empty.

    Attributes:
        dtype: Name of the vector.
        start: Of its elements in the vector, or its number among the large arrays.
    """

    dtype: str
    start: int
    shape: tuple[int, ...]


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["vectors", "large"],
    meta_fields=["tree", "places"],
)
@dataclass
class PackedValues:
    """The values of several calls, packed."""

    tree: Any
    places: tuple[Place, ...]
    vectors: dict[str, Any]
    large: list[Any]

    @functools.cached_property
    def _hosts(self) -> dict[str, np.ndarray]:
        """The vectors on the host, fetched once."""
        return jax.tree.map(np.asarray, jax.device_get(self.vectors))

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(getattr(x, "nbytes", 0) for x in (*self.vectors.values(), *self.large))

    def opened(self) -> list[Any]:
        """Return the values as they were put in: JAX arrays, traced ones while tracing."""
        leaves = list(map(self._leaf, self.places))
        # One transfer for all arrays.
        cut = [i for i, leaf in enumerate(leaves) if type(leaf) is np.ndarray]
        for i, array in zip(cut, jax.device_put([leaves[i] for i in cut])):
            leaves[i] = array
        return jax.tree.unflatten(self.tree, leaves)

    def part(self, number: int) -> Any:
        """Return the values of one call; packed arrays as NumPy views of the vector on the host."""
        trees = self.tree.children()
        start = sum(tree.num_leaves for tree in trees[:number])
        places = self.places[start : start + trees[number].num_leaves]
        return jax.tree.unflatten(trees[number], map(self._leaf, places))

    def _leaf(self, place: Place) -> Any:
        dtype, start, shape = place
        if not dtype:
            return self.large[start]
        is_traced = isinstance(self.vectors[dtype], Tracer)
        vector = self.vectors[dtype] if is_traced else self._hosts[dtype]
        return vector[start : start + math.prod(shape)].reshape(shape)


def pack_records(records: list[Any]) -> PackedValues:
    """Put the values of all calls together; to be called inside the compiled function."""
    leaves, tree = jax.tree.flatten(records)
    # numbers, under `jax_disable_jit`
    leaves = [leaf if hasattr(leaf, "dtype") else jnp.asarray(leaf) for leaf in leaves]
    # One vector for each dtype: arrays of different dtypes cannot be concatenated.
    parts: dict[str, list[Any]] = defaultdict(list)
    lengths: Counter[str] = Counter()
    large: list[Any] = []
    places: dict[int, Place] = {}
    for leaf in leaves:
        if id(leaf) in places:
            continue
        dtype = leaf.dtype
        if jnp.issubdtype(dtype, jax.dtypes.extended) or leaf.size * dtype.itemsize > SMALL:
            places[id(leaf)] = Place("", len(large), ())
            large.append(leaf)
        else:
            places[id(leaf)] = Place(dtype.name, lengths[dtype.name], tuple(leaf.shape))
            parts[dtype.name].append(jnp.ravel(leaf))
            lengths[dtype.name] += leaf.size
    vectors = {dtype: jnp.concatenate(arrays) for dtype, arrays in parts.items()}
    return PackedValues(tree, tuple(places[id(leaf)] for leaf in leaves), vectors, large)


def opened(records: Any) -> list[Any]:
    """Return the values of calls, whether packed or not."""
    return records.opened() if isinstance(records, PackedValues) else records
