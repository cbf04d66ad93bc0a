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
"""Bytes of an array that is copied at once."""
_SAMPLE = 1024
"""Elements of a large array that its digest is made of."""


def is_flat(values: Iterable[object]) -> bool:
    """Return True if the values are arrays and numbers alone, which hold no other leaves."""
    return all(type(value) in _PLAIN or type(value) is np.ndarray for value in values)


def digest_of(array: Any) -> int:
    """Return a digest of an array: of all of a small one, of a strided sample of a large one."""
    header = repr((array.shape, array.dtype.str)).encode()
    stride = (array.size // _SAMPLE) | 1 if not is_small(array) else 1
    sample = array.reshape(-1)[::stride] if array.flags.c_contiguous else array.flat[::stride]
    data: Any = np.ascontiguousarray(sample).view(np.uint8)
    return zlib.crc32(data, zlib.crc32(header))


def is_small(array: Any) -> bool:
    """Return True if a copy takes a few microseconds."""
    return array.nbytes <= _SMALL


def is_refillable(leaf: object) -> bool:
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
