"""Copies of arrays that a step overwrites or a loop fills again: on device, host, and of NumPy."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Iterable
from typing import Any

import jax
import numpy as np

from nbmodule.core.compiled.jit import _PLAIN

_SMALL = 2**16
"""Bytes of an array whose copy takes a few microseconds."""
_SAMPLE = 1024
"""Elements of a large array that its digest is made of."""
_MOST_KNOWN = 4096
"""Addresses that are remembered."""


def is_flat(values: Iterable[object]) -> bool:
    """Return True if the values are arrays and numbers alone, which hold no other leaves."""
    return all(type(value) in _PLAIN or type(value) is np.ndarray for value in values)


class InputKeeper:
    """Keeps NumPy inputs of steps, so that a repeat gets what the step got.

    A loop may fill one buffer again for each step. Small arrays are copied at once. A large one is
    kept as it is, with a digest, until its memory holds something else: from then on it is copied.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], tuple[int, Any]] = {}
        """By address and size: the last digest, and the copy; None while there is none."""
        self.has_found_buffer = False
        """True if a buffer turned out to be filled again, so earlier steps cannot be repeated."""

    def keep(self, array: Any) -> tuple[Any, int | None]:
        """Return the array to keep, and its digest if that is the array itself."""
        key = (array.__array_interface__["data"][0], array.nbytes)
        previous = self._known.get(key)
        digest = digest_of(array)
        if previous is None:
            if array.nbytes > _SMALL:
                self._known[key] = (digest, None)
                return array, digest
        elif previous[0] == digest:
            copy = previous[1]
            if copy is None:
                return array, digest
            if copy.shape == array.shape and copy.dtype == array.dtype:
                return copy, None
        elif previous[1] is None:
            self.has_found_buffer = True
        copy = array.copy()
        if len(self._known) > _MOST_KNOWN:
            self._known.clear()
        self._known[key] = (digest, copy)
        return copy, None


def digest_of(array: Any) -> int:
    """Return a digest of an array: of all of a small one, of a strided sample of a large one."""
    if array.nbytes > _SMALL:
        array = _sample_of(array)
    header = repr((array.shape, array.dtype.str)).encode()
    data: Any = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return zlib.crc32(data, zlib.crc32(header))


def _sample_of(array: Any) -> Any:
    """About 1,024 elements at even distances; of contiguous arrays in changing columns."""
    stride = max(array.size // _SAMPLE, 1) | 1
    if array.flags.c_contiguous:
        return array.reshape(-1)[::stride]
    steps = []
    for size in array.shape:
        step = min(size, stride)
        steps.append(slice(None, None, step))
        stride = -(-stride // step)
    return array[tuple(steps)]


def is_refillable(leaf: Any) -> bool:
    """Return True for a NumPy array whose memory a loop may fill again."""
    return type(leaf) is np.ndarray and leaf.flags.writeable and not leaf.dtype.hasobject


def copy_input(leaf: Any) -> Any:
    """Return a copy of a NumPy array that may be filled again, anything else as it is."""
    return leaf.copy() if is_refillable(leaf) else leaf


def copies_of(values: list[Any]) -> list[Any]:
    """Return copies that no call overwrites; away from the CPU a thread moves them to the host."""
    copies = jax.device_put(values, may_alias=False)
    if jax.default_backend() == "cpu":
        return copies
    moving = [OnHost(copy) for copy in copies]
    threading.Thread(
        target=lambda: [copy.fetch() for copy in moving], name="nbmodule-keep", daemon=True
    ).start()
    return moving


class OnHost:
    """An array that moves to host memory, and can return to its device."""

    __slots__ = ("_array", "_host", "_lock", "_sharding")

    def __init__(self, array: Any) -> None:
        self._array, self._host, self._sharding = array, None, array.sharding
        self._lock = threading.Lock()

    def fetch(self) -> None:
        """Copy it to the host, and release the array on the device."""
        with self._lock:
            if self._array is not None:
                self._host, self._array = np.asarray(self._array), None

    def on_host(self) -> Any:
        """Return the array on the host."""
        self.fetch()
        return self._host

    def back(self) -> Any:
        """Return a new array on the device."""
        return jax.device_put(self.on_host(), self._sharding)


def as_arrays(values: list[Any], *, copied: bool) -> list[Any]:
    """Return recorded values as arrays for variables; as copies where a call overwrites them."""
    arrays = [value.back() if isinstance(value, OnHost) else value for value in values]
    return jax.device_put(arrays, may_alias=False) if copied else arrays
