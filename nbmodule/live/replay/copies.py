"""Copies of what a step overwrites, or a loop fills anew: on the device, on the host, and of arrays
of NumPy.
"""

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
_SAMPLE = 4096
"""Elements of a large array that its digest is made of."""
_MOST_KNOWN = 4096
"""Addresses that are remembered."""


def is_flat(values: Iterable[object]) -> bool:
    """Whether these are arrays and numbers alone, which need not be looked into."""
    return all(type(value) in _PLAIN or type(value) is np.ndarray for value in values)


class InputKeeper:
    """Keeps arrays of NumPy that steps are given, so that a repeat gets what the step got.

    A loop may fill one buffer anew for each step. Small arrays are copied at once. A large one is
    kept as it is, with a digest, until memory that came before holds something else: from then on
    it is copied.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], tuple[int, Any]] = {}
        """By address and bytes: the digest of the last time, and the copy; None while none is made."""
        self.has_found_buffer = False
        """Whether a buffer turned out to be filled anew, so that earlier steps cannot be repeated."""

    def keep(self, array: Any) -> tuple[Any, int | None]:
        """Return what is to be kept of an array, and its digest if that is the array itself."""
        key = (array.__array_interface__["data"][0], array.nbytes)
        before = self._known.get(key)
        digest = digest_of(array)
        if before is None:
            if array.nbytes > _SMALL:
                self._known[key] = (digest, None)
                return array, digest
        elif before[0] == digest:
            copy = before[1]
            if copy is None:
                return array, digest
            if copy.shape == array.shape and copy.dtype == array.dtype:
                return copy, None
        elif before[1] is None:
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
    about = repr((array.shape, array.dtype.str)).encode()
    return zlib.crc32(array.tobytes(), zlib.crc32(about))


def _sample_of(array: Any) -> Any:
    """About 4,096 elements, evenly apart; of contiguous arrays in changing columns."""
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
    """Return True for an array of NumPy whose memory a loop may fill anew."""
    return type(leaf) is np.ndarray and leaf.flags.writeable and not leaf.dtype.hasobject


def copies_of(values: list[Any]) -> list[Any]:
    """Copies that no call overwrites; away from the CPU they go on to the host."""
    copies = jax.device_put(values, may_alias=False)
    if jax.default_backend() == "cpu":
        return copies
    held = [OnHost(copy) for copy in copies]
    threading.Thread(
        target=lambda: [each.fetch() for each in held], name="nbmodule-keep", daemon=True
    ).start()
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
