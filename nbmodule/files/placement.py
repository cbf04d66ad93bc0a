"""Put many host arrays on a device at once."""

from __future__ import annotations

from functools import cache
from typing import Any

import jax
import numpy as np

from nbmodule.base.kinds import DeviceLike
from nbmodule.errors import ArgumentTypeError, DeviceError


def place_on(leaves: list[Any], device: DeviceLike | None = None) -> list[Any]:
    """Turn NumPy arrays into JAX arrays on a device; other leaves, and arrays of a dtype that JAX
    does not hold, stay as they are.

    On the CPU an array that is aligned is taken over without a copy, so the NumPy arrays must not
    be written to later.

    Args:
        leaves: In any order; one that stands there twice becomes one array.
        device: A device, its name (`cpu:0`, `gpu`), a sharding, or None for JAX's default device.

    Raises:
        DeviceError: if there is no such device.

    Example:
        >>> from nbmodule.files.placement import place_on
        >>> place_on([np.ones(2, np.float32), "text", np.ones(1)])
        [Array([1., 1.], dtype=float32), 'text', array([1.])]
    """
    target = find_device(device)
    arrays = {
        id(leaf): leaf
        for leaf in leaves
        if isinstance(leaf, np.ndarray) and is_held_by_jax(leaf.dtype)
    }
    keys = (
        {id(leaf): leaf for leaf in leaves if isinstance(leaf, jax.Array)}
        if device is not None
        else {}
    )
    moved = dict(zip(arrays, jax.device_put(list(arrays.values()), target), strict=True))
    moved |= {identity: jax.device_put(key, target) for identity, key in keys.items()}
    return [moved.get(id(leaf), leaf) for leaf in leaves]


def find_device(device: object) -> Any:
    """Return the device or sharding that is meant; None for JAX's default device.

    Raises:
        DeviceError: If there is no such device; the message names those that exist.
    """
    if device is None or isinstance(device, (jax.Device, jax.sharding.Sharding)):
        return device
    if not isinstance(device, str):
        raise ArgumentTypeError(
            f"device={device!r}: expected a device, its name, or a sharding, found "
            f"{type(device).__name__}."
        )
    platform, _, number = device.partition(":")
    try:
        return jax.local_devices(backend=platform)[int(number or 0)]
    except (RuntimeError, IndexError, ValueError) as error:
        existing = ", ".join(f"{device.platform}:{device.id}" for device in jax.local_devices())
        raise DeviceError(
            f"there is no device {device!r}; those that exist are {existing}."
        ) from error


def is_held_by_jax(dtype: np.dtype) -> bool:
    """Return True if a JAX array can have this dtype now; 64 bits depend on `jax_enable_x64`."""
    return _is_held(dtype, jax.dtypes.canonicalize_dtype(np.int64) == np.int64)


@cache
def _is_held(dtype: np.dtype, _x64: bool) -> bool:
    try:
        return (
            np.dtype(jax.dtypes.canonicalize_dtype(dtype)) == dtype
            and jax.device_put(np.zeros(1, dtype)).dtype == dtype
        )
    except (
        TypeError,
        ValueError,
        RuntimeError,
    ):  # JAX, its runtime or the device knows no such dtype
        return False
