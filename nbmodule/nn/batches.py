"""`nb.batches`: arrays and datasets cut into batches, in a new order each time; loaders and
generators with their own batches.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax import Array

from nbmodule.base.foreign import as_read_or_left, read_foreign, reader_of
from nbmodule.base.kinds import KeyLike, as_flag
from nbmodule.base.migration import accepts_aliases
from nbmodule.base.promotion import asked_for
from nbmodule.core.numbers import random
from nbmodule.core.variables.variable import Variable
from nbmodule.errors import ArgumentError, ArgumentTypeError, ShapeError, naming
from nbmodule.nn.checks import size as whole


@dataclass(frozen=True, repr=False, eq=False)
class Batches:
    """A restartable iterable over batches; see `batches`.

    `nb.Live` reads `batch`.

    Args:
        _make: Gives the batches of one pass.
        _length: Gives the number of batches in one pass.
        _text: For `repr`.
        batch: Rows in a batch; None where the source makes its batches itself.
    """

    _make: Callable[[], Iterable[Any]]
    _length: Callable[[], int]
    _text: str
    batch: int | None = None

    def __len__(self) -> int:
        """The number of batches in one pass."""
        return self._length()

    def __iter__(self) -> Iterator[Any]:
        return iter(self._make())

    def __repr__(self) -> str:
        return self._text


def _ahead(source: Batches, count: int) -> Batches:
    """Return the same batches, put on a device some steps before they are used: a copy goes on
    while a step is computed.
    """

    def make() -> Iterator[Any]:
        waiting: collections.deque[Any] = collections.deque()
        for batch in source:
            waiting.append(jax.device_put(batch))
            if len(waiting) > count:
                yield waiting.popleft()
        yield from waiting

    return Batches(make, lambda: len(source), f"{source!r}, {count} ahead")


@naming("nb.batches")
@accepts_aliases
def batches(
    arrays: object,
    size: int | None = None,
    shuffle: bool = True,
    *,
    drop_last: bool = False,
    key: KeyLike | None = None,
    prefetch: int = 0,
) -> Batches:
    """Cut arrays or a dataset into batches; a new order at each pass, from the default random
    stream.

    A loader that makes batches itself (a `DataLoader` of PyTorch, a generator) is taken as it is,
    without `size`: its batches come as arrays, in its own order.

    Args:
        arrays: An array, or a tuple, list or dict of arrays of one length, cut along their first
            axis; a dataset, which is anything with a length and `[number]` that gives one row; an
            iterable of batches, or a function that gives one at each pass.
        size: Rows in a batch; left out where the batches are made already.
        shuffle: Whether each pass has an order of its own; of no effect where the batches are made
            already.
        drop_last: Whether a last batch that is not full is left out.
        key: Seed or key for the order; by default the default random stream gives it.
        prefetch: How many batches are put on the device ahead of their turn.

    Returns:
        A restartable iterable with a length; of a generator, one that can be gone through once.

    Raises:
        ShapeError: the arrays differ in length.

    Example:
        >>> import numpy as np
        >>> import nbmodule as nb
        >>> [x.tolist() for x in nb.batches(np.arange(5), size=2, shuffle=False)]
        [[0, 1], [2, 3], [4]]
        >>> [float(x.sum()) for x in nb.batches((np.ones(n) for n in (2, 3)), prefetch=1)]
        [2.0, 3.0]
    """
    source: Any = arrays
    is_rows = hasattr(type(source), "__getitem__") and hasattr(type(source), "__len__")
    is_arrays = isinstance(
        source, (tuple, list, dict, np.ndarray, jax.Array, Variable)
    ) or reader_of(type(source))
    if not is_rows and not is_arrays:
        selected = _streamed(source, size)
    elif size is None:
        raise ArgumentTypeError(
            "nb.batches needs the number of rows in a batch, as in "
            f"nb.batches({'(x, y)' if is_arrays else 'dataset'}, 64)."
        )
    elif hasattr(size, "__len__"):
        raise ArgumentTypeError(
            "nb.batches takes arrays that belong together as one tuple, as in nb.batches((x, y), "
            "64); got a second one in place of the number of rows."
        )
    else:
        batch = whole("size", size)
        shuffle = as_flag("shuffle", shuffle)
        drop_last = as_flag("drop_last", drop_last)
        table = _of_one_length(source) if is_arrays else None
        selected = _cut(source, table, batch, shuffle, drop_last, key)
    return _ahead(selected, whole("prefetch", prefetch)) if prefetch else selected


def _cut(
    source: Any, table: Any, batch: int, shuffle: bool, drop_last: bool, key: KeyLike | None
) -> Batches:
    """Return batches of the rows of arrays, which `table` holds, or of a dataset."""
    count = len(source) if table is None else len(jax.tree.leaves(table)[0])
    length = count // batch if drop_last else -(-count // batch)
    stream = None if key is None else random.RandomStream(key)

    def rows(chosen: np.ndarray) -> Any:
        if table is not None:
            with asked_for():
                return jax.tree.map(lambda leaf: as_read_or_left(leaf[chosen]), table)
        read = [jax.tree.map(_plain, source[int(row)], is_leaf=_is_leaf) for row in chosen]
        return jax.tree.map(lambda *leaves: np.stack(leaves), *read)

    def make() -> Iterator[Any]:
        order = np.arange(count)
        if shuffle:
            first, second = random.next_key() if stream is None else stream._next_key()
            bits = np.random.Philox(key=int(first) << 32 | int(second))
            order = np.random.Generator(bits).permutation(count)
        for number in range(length):
            yield rows(order[number * batch : (number + 1) * batch])

    text = f"batches({count:,} rows, size={batch}, {length} batches, shuffle={shuffle})"
    return Batches(make, lambda: length, text, batch)


def _streamed(source: object, size: int | None) -> Batches:
    if not callable(source) and not hasattr(type(source), "__iter__"):
        raise ArgumentTypeError(
            "nb.batches takes arrays, a dataset with len() and [number], or an iterable of "
            f"batches; got {type(source).__name__}."
        )
    if size is not None:
        raise ArgumentError(
            f"nb.batches: a {type(source).__name__} makes its batches itself, so size={size} has "
            "no place. Leave it out, or give the dataset: nb.batches(loader.dataset, 64)."
        )

    def make() -> Iterator[Any]:
        batches: Any = source() if callable(source) else source
        for batch in batches:
            yield jax.tree.map(_plain, batch, is_leaf=_is_leaf)

    sized: Any = source
    return Batches(make, lambda: len(sized), f"batches of a {type(source).__name__}")


def _of_one_length(arrays: object) -> Any:
    """The checked arrays."""
    arrays = jax.tree.map(_plain, arrays, is_leaf=_is_leaf)
    leaves = jax.tree.leaves(arrays)
    if not leaves:
        raise ArgumentError("nb.batches needs at least one array.")
    lengths = {np.shape(leaf)[:1] for leaf in leaves}
    if len(lengths) > 1 or () in lengths:
        shapes = ", ".join(str(list(np.shape(leaf))) for leaf in leaves[:6])
        more = ", ... Rows in lists become one array by np.array(rows)" if len(leaves) > 6 else ""
        raise ShapeError(
            "nb.batches: all arrays must have one length along their first axis; got "
            f"shapes {shapes}{more}."
        )
    return arrays


def _is_leaf(x: Array) -> bool:
    return isinstance(x, Variable) or reader_of(type(x)) is not None


def _plain(x: Array) -> Any:
    x = x.value if isinstance(x, Variable) else read_foreign(x, "nb.batches")
    return x if isinstance(x, (np.ndarray, jax.Array)) else np.asarray(x)
