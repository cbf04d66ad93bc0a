"""Devices, meshes and dtypes as users name them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from nbmodule.base.foreign import spelled
from nbmodule.errors import ArgumentTypeError, DeviceError, DtypeError


def find_device(device: object) -> Any:
    """Return a `jax.Device` or a sharding from what a user gives: `cpu`, `cpu:1`, a device, a
    sharding, or None.
    """
    if device is None or isinstance(device, (jax.Device, jax.sharding.Sharding)):
        return device
    device = spelled(device)
    if not isinstance(device, str):
        raise ArgumentTypeError(
            "a device is given as text such as 'cpu:0', or as a jax.Device; found "
            f"{type(device).__name__}. Nothing was made."
        )
    platform, _, number = device.partition(":")
    platform = {"cuda": "gpu"}.get(platform, platform)
    try:
        cached = jax.devices(platform)
    except RuntimeError:
        cached = []
    for candidate in cached:
        if not number or str(candidate.id) == number:
            return candidate
    names = ", ".join(f"{d.platform}:{d.id}" for d in _all_devices())
    raise DeviceError(
        f"there is no device {device!r}; the devices here are {names}. Nothing was made."
    )


def _all_devices() -> list[Any]:
    devices = list(jax.devices())
    if devices[0].platform != "cpu":
        devices += jax.devices("cpu")
    return devices


def replicated(devices: object) -> Any:
    """Return the sharding that puts a whole copy on each of `devices`: a mesh, or devices as
    `find_device` takes them.
    """
    if isinstance(devices, jax.sharding.Mesh):
        mesh = jax.sharding.Mesh(
            devices.devices, devices.axis_names
        )  # with axes that the compiler splits by itself
    elif isinstance(devices, Sequence) and not isinstance(devices, str) and devices:
        result = [find_device(device) for device in devices]
        if len(set(result)) != len(result):
            raise DeviceError(f"devices={list(devices)!r} names a device twice. Nothing was made.")
        mesh = jax.sharding.Mesh(np.array(result), ("devices",))
    else:
        raise ArgumentTypeError(
            "devices= takes a non-empty list of devices or a jax.sharding.Mesh; found "
            f"{devices!r}. Nothing was made."
        )
    return jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())


def find_dtype(dtype: object) -> Any:
    """Return a NumPy dtype that JAX can hold, or None."""
    if dtype is None:
        return None
    try:
        return jnp.dtype(spelled(dtype))
    except TypeError:
        raise DtypeError(
            f"{dtype!r} is not a dtype; give one such as 'float32' or jnp.bfloat16. Nothing was "
            "made."
        ) from None


def find_place_and_dtype(location: object, dtype: object) -> tuple[Any, Any]:
    """Return a device or sharding and a dtype; a dtype that stands alone, where the device would
    be, is one, as in PyTorch.
    """
    if not _is_dtype(location):
        return find_device(location), find_dtype(dtype)
    if dtype is not None:
        raise ArgumentTypeError(
            f"to() was given two dtypes, {location!r} and {dtype!r}. Nothing was changed."
        )
    return None, find_dtype(location)


def _is_dtype(value: object) -> bool:
    value = spelled(value)
    if isinstance(value, np.dtype) or (
        isinstance(value, type) and hasattr(value, "dtype")
    ):  # such as jnp.bfloat16
        return True
    try:
        return isinstance(value, str) and jnp.dtype(value) is not None
    except TypeError:
        return False


def default_device() -> Any:
    """Return the device on which JAX puts new arrays now."""
    device: Any = jax.config.jax_default_device  # pyright: ignore[reportAttributeAccessIssue]
    if isinstance(device, str):
        return find_device(device)
    return device if device is not None else jax.local_devices()[0]
