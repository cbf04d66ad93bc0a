"""`nb.batches`: arrays cut into batches, in a new order each time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from nbmodule.core.boxes.variable import Variable
from nbmodule.core.numbers import random
from nbmodule.errors import ArgumentError, ShapeError
from nbmodule.nn.layer import flag
from nbmodule.nn.layer import size as whole


class Batches:
    """A restartable iterable over batches; see `batches`."""

    def __init__(self, arrays: Any, batch: int, shuffle: bool, drop_last: bool, key: Any) -> None:
        self.arrays, self.batch, self.shuffle, self.drop_last = arrays, batch, shuffle, drop_last
        self.leaves, self.tree = jax.tree.flatten(arrays)
        self.count = len(self.leaves[0])
        self.stream = None if key is None else random.RandomStream(key)

    def __len__(self) -> int:
        """The number of batches in one pass."""
        return self.count // self.batch if self.drop_last else -(-self.count // self.batch)

    def __iter__(self) -> Iterator[Any]:
        order = self._order()
        for number in range(len(self)):
            chosen = order[number * self.batch : (number + 1) * self.batch]
            yield jax.tree.unflatten(self.tree, [leaf[chosen] for leaf in self.leaves])

    def _order(self) -> np.ndarray:
        if not self.shuffle:
            return np.arange(self.count)
        key = random.next_key() if self.stream is None else self.stream.next_key()
        return np.random.Generator(np.random.Philox(key=int(key[0]) << 32 | int(key[1]))).permutation(self.count)

    def __repr__(self) -> str:
        return f"batches({self.count:,} rows, size={self.batch}, {len(self)} batches, shuffle={self.shuffle})"


def batches(arrays: Any, size: int, shuffle: bool = True, *, drop_last: bool = False, key: Any = None) -> Batches:
    """Cut arrays into batches along their first axis; a new order at each pass, from the default random stream.

    Args:
        arrays: an array, or a tuple, list or dict of arrays of one length.
        size: rows in a batch.
        shuffle: whether each pass has an order of its own.
        drop_last: whether a last batch that is not full is left out.
        key: seed or key for the order; by default the default random stream gives it.

    Returns:
        A restartable iterable with a length.

    Raises:
        ShapeError: the arrays differ in length.

    Example:
        >>> import numpy as np
        >>> import nbmodule as nb
        >>> [x.tolist() for x in nb.batches(np.arange(5), size=2, shuffle=False)]
        [[0, 1], [2, 3], [4]]
    """
    arrays = jax.tree.map(_plain, arrays, is_leaf=lambda x: isinstance(x, Variable))
    leaves = jax.tree.leaves(arrays)
    if not leaves:
        raise ArgumentError("nb.batches needs at least one array. Nothing was made.")
    lengths = {len(leaf) if np.ndim(leaf) else None for leaf in leaves}
    if len(lengths) > 1 or None in lengths:
        found = ", ".join(str(list(np.shape(leaf))) for leaf in leaves)
        raise ShapeError(
            f"nb.batches: all arrays must have one length along their first axis; found shapes {found}. Nothing was made."
        )
    return Batches(
        arrays,
        whole("nb.batches", "size", size),
        flag("nb.batches", "shuffle", shuffle),
        flag("nb.batches", "drop_last", drop_last),
        key,
    )


def _plain(x: Any) -> Any:
    x = x.value if isinstance(x, Variable) else x
    return x if isinstance(x, (np.ndarray, jax.Array)) else np.asarray(x)
