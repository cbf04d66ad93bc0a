"""Sequences of records that are printed as tables; one of them is `nb.memory`."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from nbmodule.base.paths import hint
from nbmodule.base.sockets import Shown, socket
from nbmodule.errors import PathError

Row = TypeVar("Row")


class PathRows(Shown, Sequence[Row]):
    """A displayed sequence of records; `rows["blocks.0"]` is the first with that path."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self._rows = tuple(rows)

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows)

    def __getitem__(self, key: Any) -> Any:
        if not isinstance(key, str):
            return self._rows[key]
        paths = [getattr(row, "path", None) for row in self._rows]
        if key not in paths:
            known = sorted({path for path in paths if path})
            raise PathError(f'{type(self).__name__} has no row "{key}"{hint(key, known)}')
        return self._rows[paths.index(key)]

    def __repr__(self) -> str:
        return socket("text")(self)


# -- memory --
_holders: weakref.WeakKeyDictionary[Any, tuple[str, Callable[[Any], str]]] = (
    weakref.WeakKeyDictionary()
)


class Held(NamedTuple):
    """One object with its bytes."""

    kind: str
    what: str
    nbytes: int
    holder: Any


class Memory(PathRows[Held]):
    """Objects by their bytes, the largest first."""

    def __init__(self, rows: list[Held]) -> None:
        super().__init__(sorted(rows, key=lambda row: -row.nbytes))

    @property
    def nbytes(self) -> int:
        """Total bytes."""
        return sum(row.nbytes for row in self)


def hold(obj: object, category: str, describe: Callable[[Any], str]) -> None:
    """List an object with an attribute `nbytes` in `nb.memory` until it is deleted.

    Args:
        obj: A recorder, calls, a view.
        category: Its category, such as `recorder`.
        describe: `describe(obj)` is the text of its row.
    """
    _holders[obj] = (category, describe)


def holders(category: str) -> list[Any]:
    """Return the listed objects of one category, the oldest first."""
    return [obj for obj, (name, _) in list(_holders.items()) if name == category]


def memory() -> Memory:
    """Return the recorders, calls and views with their bytes in memory or on disk.

    Memory is freed when nothing refers to an object, or by its `clear()`.

    Example:
        >>> model = nb.Sequential(nb.Linear(3, 4), nb.ReLU())
        >>> with nb.track(model) as calls:
        ...     _ = model(jnp.ones((2, 3)))
        >>> any(held.holder is calls and held.nbytes == calls.nbytes for held in nb.memory())
        True
    """
    known = [(value, *about) for value, about in list(_holders.items())]
    return Memory([Held(kind, describe(x), x.nbytes, x) for x, kind, describe in known])
