"""Questions that a live view may still ask of the value it shows: its arrays by row, a fresh
record, whether it has changed.

Models, calls and recorders are asked weakly: a view keeps none of them alive, and says so when one
is gone. Of plain arrays and trees a view keeps the leaves, in host memory and within the budget of
all views.
"""

from __future__ import annotations

import weakref
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from nbmodule.views.arrays.values import is_array_like
from nbmodule.views.builders.pytrees import array_card
from nbmodule.views.comm.retention import moved_to_host
from nbmodule.views.records.records import ViewRecord

# Bytes of a NumPy array up to which it is read after each cell, to see whether it was changed in
# place.
READ_AGAIN = 1 << 22


class Gone(Exception):
    """The value that a view showed is no longer there; the text says what to do."""


class LiveSource:
    """One displayed value.

    A row is counted as in its record; the parts of a row are its arrays, each with a name.
    """

    nbytes = 0

    def parts(self, row: int) -> list[tuple[str, Any]]:
        """The arrays of a row."""
        return []

    def record(self) -> ViewRecord | None:
        """The record as it would be made now; None where a value cannot have changed."""
        return None

    def has_changed(self) -> bool:
        """Return True if the value is no longer the one that was drawn."""
        return False

    def renew(self) -> None:
        """Take what is there now for what is drawn."""

    def settle(self) -> None:
        """Move what is held to host memory."""

    def answer(self, kind: str, message: dict[str, Any]) -> dict[str, Any] | None:
        """Answer what only this kind of value is asked; None for an unknown question."""
        return None

    def hear(self, message: dict[str, Any]) -> None:
        """Take a message that is no question: what a view says in a language of its own."""

    def joined(self, tell: Callable[[dict[str, Any]], None]) -> None:
        """A page is there; `tell` sends to all pages that show the value."""

    def clear(self) -> None:
        """Let go of what is held."""


class WeakSource(LiveSource):
    """A value that may be gone."""

    noun = "value"

    def __init__(self, value: object) -> None:
        self._value: weakref.ref[Any] = weakref.ref(value)
        self.renew()

    def value(self) -> Any:
        """Return the value.

        Raises:
            Gone: It was collected.
        """
        value = self._value()
        if value is None:
            raise Gone(f"the {self.noun} is gone: run the cell again")
        return value

    def state(self) -> Any:
        """Return what differs once the value has changed."""

    def renew(self) -> None:
        self._state = self.state()

    def has_changed(self) -> bool:
        return self._value() is not None and self.state() != self._state


class LeavesSource(LiveSource):
    """An array, or the leaves of a tree."""

    def __init__(self, leaves: Sequence[Any], record: ViewRecord | None) -> None:
        self._leaves: Sequence[Any] | None = leaves
        self._record = record
        self.nbytes = sum({id(leaf): getattr(leaf, "nbytes", 0) for leaf in leaves}.values())

    def parts(self, row: int) -> list[tuple[str, Any]]:
        if self._leaves is None:
            raise Gone("its arrays were let go to make room for others: run the cell again")
        leaf = self._leaves[row]
        return [("", leaf)] if is_array_like(leaf) else []

    def record(self) -> ViewRecord | None:
        return self._record

    def settle(self) -> None:
        self._leaves, self.nbytes = moved_to_host(self._leaves)
        if self._leaves is None:
            self.nbytes = 0

    def clear(self) -> None:
        self._leaves, self._record, self.nbytes = None, None, 0


class ArraySource(LeavesSource):
    """One array; a NumPy array may be changed in place, which is seen while it is small enough to
    be read after each cell.
    """

    def __init__(self, array: object) -> None:
        super().__init__([array], None)
        self.renew()

    def renew(self) -> None:
        self._sum = self._checksum()

    def _checksum(self) -> int | None:
        array = self._leaves[0] if self._leaves else None
        if not isinstance(array, np.ndarray) or array.nbytes > READ_AGAIN or array.dtype.hasobject:
            return None
        return zlib.adler32(np.ascontiguousarray(array).tobytes())

    def record(self) -> ViewRecord:
        return array_card(self.parts(0)[0][1])

    def has_changed(self) -> bool:
        return self._sum is not None and self._leaves is not None and self._checksum() != self._sum


_makers: dict[type, Callable[[Any], LiveSource | None]] = {}


def register_source(cls: type, maker: Callable[[Any], LiveSource | None]) -> None:
    """Say how values of a type are asked for more.

    Args:
        cls: A class; its subclasses are included.
        maker: `maker(value)` gives a `LiveSource`, or None where it is asked as any PyTree.
    """
    _makers[cls] = maker


def source_for(value: object, record: ViewRecord, cut: bool) -> LiveSource | None:
    """Say how a displayed value can be asked for more; None if there is nothing to ask.

    Args:
        value: What was displayed.
        record: Its record.
        cut: Whether rows of the record were left out, so that it is kept.

    Example:
        >>> source = source_for(np.zeros((2, 3)), None, False)
        >>> source.parts(0)[0][1].shape, source.nbytes
        ((2, 3), 48)
    """
    if isinstance(value, ViewRecord):
        return None
    for cls in type(value).__mro__:
        if cls in _makers and (source := _makers[cls](value)) is not None:
            return source
    if is_array_like(value):
        return ArraySource(value)
    if not jax.tree_util.all_leaves([value]):
        leaves = jax.tree.leaves(value, is_leaf=lambda x: x is None)
        return LeavesSource(leaves, record if cut else None)
    return None
