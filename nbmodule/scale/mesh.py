"""Meshes, which are devices in a grid with named axes; batches split over them; and several hosts,
which run the same program on their own devices, joined by `jax.distributed`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from nbmodule.base.kinds import Shaped, is_whole
from nbmodule.core.variables.placement import find_device
from nbmodule.errors import ArgumentError, ArgumentTypeError, DeviceError, ShapeError


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


def shard_batch(
    batch: object, mesh: Any, axis: str | tuple[str, ...] | None = None, *, dim: int = 0
) -> Any:
    """Split the arrays of a batch over the devices along one axis of a mesh; they are whole along
    the others.

    With several hosts each passes its own rows, and the result is the global batch: `processes`
    times as many rows.

    Args:
        batch: An array or any PyTree of arrays. Arrays without axes are kept whole.
        mesh: A `jax.sharding.Mesh`.
        axis: Axis or axes of the mesh; the one called `data` by default, else the first.
        dim: Axis of the arrays that holds the rows.

    Raises:
        ShapeError: rows do not divide over the devices; names the array.

    Example:
        >>> batch = nb.shard_batch({"image": jnp.ones((8, 3))}, nb.make_mesh(data=1))
        >>> batch["image"].sharding.spec
        P('data',)
    """
    mesh = as_mesh(mesh)
    usual = "data" if "data" in mesh.axis_names else mesh.axis_names[0]
    axes = (usual,) if axis is None else (axis,) if isinstance(axis, str) else tuple(axis)
    for name in axes:
        check_axis(mesh, name, "shard_batch")
    is_local = len({d.process_index for d in mesh.devices.flat}) > 1
    share = size_of(mesh.local_mesh if is_local else mesh, axes)
    split = NamedSharding(mesh, PartitionSpec(*[None] * dim, axes[0] if len(axes) == 1 else axes))
    leaves, tree = jax.tree_util.tree_flatten_with_path(batch)
    for path, leaf in leaves:
        check_rows(jax.tree_util.keystr(path), leaf, dim, share, axes)
    whole = NamedSharding(mesh, PartitionSpec())

    def place(leaf: Any) -> Any:
        sharding = split if np.ndim(leaf) else whole
        if not is_local:
            return jax.device_put(leaf, sharding)
        return jax.make_array_from_process_local_data(sharding, np.asarray(leaf))

    return jax.tree.unflatten(tree, [place(leaf) for _, leaf in leaves])


def check_rows(name: str, leaf: Shaped, dim: int, parts: int, axes: tuple[str, ...]) -> None:
    title = f"batch{name}"
    if not hasattr(leaf, "shape") and not isinstance(leaf, (int, float, complex, bool)):
        raise ArgumentTypeError(f"shard_batch: {title} is a {type(leaf).__name__}, not an array.")
    shape = np.shape(leaf)
    if not shape:
        return
    if dim >= len(shape):
        raise ShapeError(f"shard_batch: {title} has shape {list(shape)} and no axis {dim}.")
    if shape[dim] % parts:
        raise ShapeError(
            f"shard_batch: {title} has {shape[dim]} rows (shape {list(shape)}), which the {parts} "
            f"devices along {' × '.join(axes)} do not divide. Leave the rest "
            "out (nb.batches(..., drop_last=True)) or pad it."
        )


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
