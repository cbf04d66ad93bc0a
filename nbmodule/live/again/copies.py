"""Copies of what a step overwrites, or a loop fills anew: on the device, on the host, and of arrays of NumPy."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable
from typing import Any

import jax
import numpy as np

from nbmodule.core.transforms.carried import is_stateful
from nbmodule.core.transforms.jit import _PLAIN

_SMALL = 2**16
"""Bytes of an array whose copy takes a few microseconds."""


def is_flat(values: Iterable[object]) -> bool:
    """Whether these are arrays and numbers alone, which need not be looked into."""
    return all(type(value) in _PLAIN or type(value) is np.ndarray for value in values)


class Reused:
    """Tells arrays that a loop fills anew for each step, and gives copies of them.

    An array of NumPy that comes again in a later turn may be such a one. From then on what it holds is copied, unless it holds what it
    held. Small ones are copied at once: that costs less than asking.
    """

    def __init__(self) -> None:
        self.turn = 0
        self._seen: dict[int, tuple[weakref.ref[Any], int, Any]] = {}
        """Arrays by `id`: the turn of the first time, and the last copy."""

    def as_it_is(self, array: Any) -> Any:
        """The array, or what it holds now."""
        key = id(array)
        known = self._seen.get(key)
        if known is None or known[0]() is not array:
            copy = array.copy() if array.nbytes <= _SMALL else None
            self._seen[key] = weakref.ref(array, lambda _: self._seen.pop(key, None)), self.turn, copy
            return array if copy is None else copy
        reference, first, copy = known
        if copy is None and first == self.turn:
            return array
        if copy is None or not np.array_equal(array, copy, equal_nan=array.dtype.kind in "fc"):
            copy = array.copy()
            self._seen[key] = reference, first, copy
        return copy

    def as_they_are(self, item: object) -> Any:
        """The same of what a loop is given, however it is nested."""
        if type(item) is tuple and is_flat(item):
            return tuple([self.as_found(x) for x in item])
        return jax.tree.map(self.as_found, item, is_leaf=is_stateful)

    def as_found(self, leaf: Any) -> Any:
        """What may be filled anew as it is now; anything else as it is given."""
        return self.as_it_is(leaf) if type(leaf) is np.ndarray and leaf.flags.writeable else leaf


def copies_of(values: list[Any]) -> list[Any]:
    """Copies that no call overwrites; away from the CPU they go on to the host."""
    copies = jax.device_put(values, may_alias=False)
    if jax.default_backend() == "cpu":
        return copies
    held = [OnHost(copy) for copy in copies]
    threading.Thread(target=lambda: [each.fetch() for each in held], name="nbmodule-keep", daemon=True).start()
    return held


class OnHost:
    """An array on its way to the host's memory, from where it goes back to where it lay."""

    __slots__ = ("_array", "_host", "_lock", "_sharding")

    def __init__(self, array: Any) -> None:
        self._array, self._host, self._sharding = array, None, array.sharding
        self._lock = threading.Lock()

    def fetch(self) -> None:
        """Bring it to the host, and let go of the array on the device."""
        with self._lock:
            if self._array is not None:
                self._host, self._array = np.asarray(self._array), None

    @property
    def nbytes(self) -> int:
        """Its size."""
        held = self._array if self._host is None else self._host
        return 0 if held is None else held.nbytes

    def on_host(self) -> Any:
        """The array on the host."""
        self.fetch()
        return self._host

    def back(self) -> Any:
        """The array on its device, as a new one."""
        self.fetch()
        return jax.device_put(self._host, self._sharding)


def as_arrays(values: list[Any], *, copied: bool) -> list[Any]:
    """Kept values as arrays to be put into variables; copies, where a call will overwrite them."""
    found = [value.back() if isinstance(value, OnHost) else value for value in values]
    return jax.device_put(found, may_alias=False) if copied else found
