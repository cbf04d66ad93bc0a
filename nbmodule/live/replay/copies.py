"""Copies of arrays that a step overwrites or a loop fills again: on device, host, and of NumPy."""

from __future__ import annotations

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


def copies_of(values: list[Any], *, memory: str = "pinned_host") -> list[Any]:
    """Return copies that no call overwrites; away from the CPU in this memory: that of the host, or
    that of the `device`.
    """
    if jax.default_backend() == "cpu":
        return jax.device_put(values, may_alias=False)
    placements = [value.sharding.with_memory_kind(memory) for value in values]
    return jax.device_put(values, placements, may_alias=False)


def as_arrays(values: list[Any], *, copied: bool) -> list[Any]:
    """Return recorded values as arrays for variables; as copies where a call overwrites them."""
    is_away = jax.default_backend() != "cpu"
    return copies_of(values, memory="device") if copied or is_away else values
