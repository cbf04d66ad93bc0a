"""Meshes: devices in a grid whose axes have names."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from nbmodule.base.whole_numbers import is_whole
from nbmodule.core.boxes.placement import find_device
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
    found = [find_device(device) for device in devices] if devices is not None else jax.devices()
    if len(set(found)) != len(found) or not found:
        raise DeviceError("a mesh takes each device once, and at least one. Nothing was made.")
    if not axes:
        raise ArgumentError("a mesh has named axes: nb.make_mesh(data=8), say. Nothing was made.")
    for name, size in axes.items():
        if not is_whole(size) or (size < 1 and size != -1):
            raise ArgumentError(f"{name}={size!r}: the size of an axis is a number from 1 on, or -1. Nothing was made.")
    sizes = [int(size) for size in axes.values()]
    if sizes.count(-1) > 1:
        raise ArgumentError("only one axis of a mesh may be -1. Nothing was made.")
    known = math.prod(size for size in sizes if size != -1)
    if -1 in sizes and len(found) % known == 0:
        sizes[sizes.index(-1)] = len(found) // known
    if math.prod(sizes) != len(found):
        asked = " × ".join(f"{name}={size}" for name, size in axes.items())
        raise DeviceError(
            f"a mesh of {asked} needs {'a multiple of ' if -1 in axes.values() else ''}{known} devices; there "
            f"{'is' if len(found) == 1 else 'are'} {len(found)}: {named(found)}. Nothing was made. "
            "Pass devices= to use some of them, or other sizes."
        )
    return jax.sharding.Mesh(np.array(found).reshape(sizes), tuple(axes))


def named(devices: Sequence[Any]) -> str:
    """`cpu:0, cpu:1, ... cpu:7`."""
    names = [f"{device.platform}:{device.id}" for device in devices]
    return ", ".join(names if len(names) <= 9 else [*names[:3], "...", names[-1]])


def as_mesh(mesh: object) -> jax.sharding.Mesh:
    """A mesh as given, with axes over which the compiler splits the work by itself."""
    if not isinstance(mesh, jax.sharding.Mesh):
        raise ArgumentTypeError(
            f"mesh must be a jax.sharding.Mesh, as nb.make_mesh(data=8) gives one; found {type(mesh).__name__}. Nothing was moved."
        )
    return jax.sharding.Mesh(mesh.devices, mesh.axis_names)


def size_of(mesh: jax.sharding.Mesh, axes: Any) -> int:
    """How many parts there are along one axis of a mesh, or several together."""
    return math.prod(mesh.shape[axis] for axis in ((axes,) if isinstance(axes, str) else axes))


def check_axis(mesh: jax.sharding.Mesh, axis: Any, what: str) -> str:
    """The name of an axis that the mesh has."""
    from nbmodule.base.paths import hint

    if axis not in mesh.shape:
        raise ArgumentError(
            f'{what}: the mesh has no axis "{axis}"{hint(str(axis), mesh.axis_names)} Its axes are '
            f"{', '.join(f'{name}={size}' for name, size in mesh.shape.items())}. Nothing was moved."
        )
    return axis
