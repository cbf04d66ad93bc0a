"""Meshes: devices in a grid whose axes have names."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from nbmodule.base.kinds import is_whole
from nbmodule.core.variables.placement import find_device
from nbmodule.errors import ArgumentError, ArgumentTypeError, DeviceError


def make_mesh(devices: Sequence[Any] | None = None, **axes: int) -> jax.sharding.Mesh:
    """Arrange devices in a grid with named axes, the last axis running fastest.

    Args:
        devices: The devices to use; all of this program, on all hosts, by default.
        **axes: Size of each axis by name; one of them may be -1 and takes what is left.

    Raises:
        DeviceError: the sizes do not multiply to the number of devices.

    Example:
        >>> nb.make_mesh(data=1).axis_names
        ('data',)
    """
    devices = [find_device(x) for x in devices] if devices is not None else jax.devices()
    if len(set(devices)) != len(devices) or not devices:
        raise DeviceError("a mesh takes each device once, and at least one.")
    if not axes:
        raise ArgumentError("a mesh has named axes: nb.make_mesh(data=8), say.")
    for name, size in axes.items():
        if not is_whole(size) or (size < 1 and size != -1):
            raise ArgumentError(
                f"{name}={size!r}: the size of an axis is a number from 1 on, or -1. "
            )
    sizes = [int(size) for size in axes.values()]
    if sizes.count(-1) > 1:
        raise ArgumentError("only one axis of a mesh may be -1.")
    product = math.prod(size for size in sizes if size != -1)
    if -1 in sizes and len(devices) % product == 0:
        sizes[sizes.index(-1)] = len(devices) // product
    if math.prod(sizes) != len(devices):
        grid = " × ".join(f"{name}={size}" for name, size in axes.items())
        raise DeviceError(
            f"a mesh of {grid} needs {'a multiple of ' if -1 in axes.values() else ''}{product} "
            f"devices; there {'is' if len(devices) == 1 else 'are'} {len(devices)}: "
            f"{device_names(devices)}. "
            "Pass devices= to use some of them, or other sizes."
        )
    return jax.sharding.Mesh(np.array(devices).reshape(sizes), tuple(axes))


def device_names(devices: Sequence[Any]) -> str:
    """`cpu:0, cpu:1, ... cpu:7`."""
    names = [f"{device.platform}:{device.id}" for device in devices]
    return ", ".join(names if len(names) <= 9 else [*names[:3], "...", names[-1]])


def as_mesh(mesh: object) -> jax.sharding.Mesh:
    """Return a mesh whose axes the compiler splits by itself."""
    if not isinstance(mesh, jax.sharding.Mesh):
        raise ArgumentTypeError(
            "mesh must be a jax.sharding.Mesh, as nb.make_mesh(data=8) gives one, got "
            f"{type(mesh).__name__}."
        )
    return jax.sharding.Mesh(mesh.devices, mesh.axis_names)


def size_of(mesh: jax.sharding.Mesh, axes: Any) -> int:
    """Return the number of parts along one axis of a mesh, or several together."""
    return math.prod(mesh.shape[axis] for axis in ((axes,) if isinstance(axes, str) else axes))


def check_axis(mesh: jax.sharding.Mesh, axis: Any, title: str) -> str:
    """Return the name of an axis, or refuse one that the mesh lacks."""
    from nbmodule.base.paths import hint

    if axis not in mesh.shape:
        raise ArgumentError(
            f'{title}: the mesh has no axis "{axis}"{hint(str(axis), mesh.axis_names)} Its axes '
            f"are {', '.join(f'{name}={size}' for name, size in mesh.shape.items())}. "
        )
    return axis
