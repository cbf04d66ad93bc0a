"""Meshes, devices in a grid whose axes have names; and several hosts, which run the same program on
their own devices, joined by `jax.distributed`.
"""

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
    try:
        grid = np.array(devices).reshape(sizes)
    except ValueError:
        product = math.prod(size for size in sizes if size != -1)
        text = " × ".join(f"{name}={size}" for name, size in axes.items())
        raise DeviceError(
            f"a mesh of {text} needs {'a multiple of ' if -1 in sizes else ''}{product} "
            f"devices; there {'is' if len(devices) == 1 else 'are'} {len(devices)}: "
            f"{device_names(devices)}. "
            "Pass devices= to use some of them, or other sizes."
        ) from None
    return jax.sharding.Mesh(grid, tuple(axes))


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


LOST_AFTER = 30  # seconds without a sign of life after which a host counts as lost


def join_hosts(
    coordinator: str | None = None,
    processes: int | None = None,
    process: int | None = None,
    *,
    lost_after: int = LOST_AFTER,
    **options: Any,
) -> None:
    """Join this process to the others of a run; call it first, before any array is made.

    On a cluster that JAX knows (SLURM, a cloud's accelerators) no argument is needed. When a
    process is lost, the others are ended by JAX with a message that names it, within about
    `lost_after` seconds: start all again and restore the last checkpoint.

    Args:
        coordinator: `host:port` of process 0, the same for all.
        processes: How many there are.
        process: Number of this one, from 0.
        lost_after: Seconds without a sign of life after which a process counts as lost.
        **options: Further options of `jax.distributed.initialize`.

    Raises:
        ArgumentError: the numbers make no sense.
        DeviceError: devices are in use already, so that it is too late to join.

    Example:
        >>> nb.join_hosts("localhost:1234", processes=2, process=2)
        Traceback (most recent call last):
        nbmodule.errors.ArgumentError: process must be from 0 to 1, got 2.
    """
    if processes is not None and process is not None and not 0 <= process < processes:
        raise ArgumentError(f"process must be from 0 to {processes - 1}, got {process}.")
    if processes is not None and coordinator is None:
        raise ArgumentError("processes= needs coordinator= too: 'host:port' of process 0.")
    if lost_after < 1:
        raise ArgumentError(f"lost_after must be at least 1 (second), got {lost_after}.")
    try:
        # The CPU backend cannot talk to other hosts by itself.
        if "cpu" in str(getattr(jax.config, "jax_platforms", None) or ""):
            jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(
            coordinator, processes, process, heartbeat_timeout_seconds=lost_after, **options
        )
    except RuntimeError as error:
        if "before" not in str(error):
            raise
        raise DeviceError(
            f"cannot join the other hosts: devices are in use already ({error}). "
            "Call nb.join_hosts first, before any array or model is made."
        ) from error


def has_other_hosts() -> bool:
    """Return whether this process has joined others, without starting a device."""
    return jax.distributed.is_initialized() and jax.process_count() > 1


def is_first_host() -> bool:
    """Return whether this process prints, draws and keeps history: process 0, or the only one.

    Example:
        >>> nb.is_first_host()
        True
    """
    return not has_other_hosts() or jax.process_index() == 0
