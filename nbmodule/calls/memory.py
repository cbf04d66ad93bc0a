"""`nb.memory`: what recorders, calls and views hold."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

from nbmodule.calls.rows import PathRows

_holders: weakref.WeakKeyDictionary[Any, tuple[str, Callable[[Any], str]]] = (
    weakref.WeakKeyDictionary()
)


class Held(NamedTuple):
    """One object that holds memory."""

    kind: str
    what: str
    nbytes: int
    holder: Any


class Memory(PathRows[Held]):
    """The holders of memory, the largest first."""

    def __init__(self, rows: list[Held]) -> None:
        super().__init__(sorted(rows, key=lambda row: -row.nbytes))

    @property
    def nbytes(self) -> int:
        """Bytes of all together."""
        return sum(row.nbytes for row in self)


def hold(obj: object, category: str, describe: Callable[[Any], str]) -> None:
    """Let `nb.memory` list an object with an attribute `nbytes`, as long as it lives.

    Args:
        obj: A recorder, calls, a view.
        category: Its category in a word, such as `recorder`.
        describe: `describe(obj)` is the text of its row.
    """
    _holders[obj] = (category, describe)


def holders(category: str) -> list[Any]:
    """Return the holders of memory of one category, the oldest first."""
    return [obj for obj, (name, _) in list(_holders.items()) if name == category]


def memory() -> Memory:
    """List what recorders, calls and views hold in memory or on disk; each goes when nothing refers
    to it, or by its `clear()`.

    Example:
        >>> model = nb.Sequential(nb.Linear(3, 4), nb.ReLU())
        >>> with nb.track(model) as calls:
        ...     _ = model(jnp.ones((2, 3)))
        >>> any(held.holder is calls and held.nbytes == calls.nbytes for held in nb.memory())
        True
    """
    known = [(value, *about) for value, about in list(_holders.items())]
    return Memory([Held(kind, describe(x), x.nbytes, x) for x, kind, describe in known])
