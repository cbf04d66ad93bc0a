"""Devices, meshes and dtypes as users name them, and shardings that variables keep.

Compiled code leaves the shardings of its outputs to the compiler, which may choose others than the
inputs had. A layout that is declared for a variable persists: values from outside are placed like
it, and the writes of a compiled step have it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jax import Array

from nbmodule.base.foreign import spelled
from nbmodule.core.variables.commit import Call, make_calls, structure_tick
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
            "a device must be a jax.Device or text such as 'cpu:0' (dtype= takes a dtype), got "
            f"{type(device).__name__}."
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
    present = dict.fromkeys((*jax.devices(), *jax.devices("cpu")))
    names = ", ".join(f"{d.platform}:{d.id}" for d in present)
    raise DeviceError(f"there is no device {device!r}; the devices here are {names}.")


def replicated(devices: object) -> Any:
    """Return the sharding that puts a whole copy on each of `devices`: a mesh, or devices as
    `find_device` takes them.
    """
    if isinstance(devices, jax.sharding.Mesh):
        # With axes that the compiler splits by itself.
        mesh = jax.sharding.Mesh(devices.devices, devices.axis_names)
    elif isinstance(devices, Sequence) and not isinstance(devices, str) and devices:
        result = [find_device(device) for device in devices]
        if len(set(result)) != len(result):
            raise DeviceError(f"devices={list(devices)!r} names a device twice.")
        mesh = jax.sharding.Mesh(np.array(result), ("devices",))
    else:
        raise ArgumentTypeError(
            f"devices must be a non-empty list of devices or a jax.sharding.Mesh, got {devices!r}."
        )
    return jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())


def find_dtype(dtype: object) -> Any:
    """Return a NumPy dtype that JAX can hold, or None."""
    if dtype is None:
        return None
    try:
        return jnp.dtype(spelled(dtype))
    except TypeError:
        raise DtypeError(f"{dtype!r} is not a dtype such as 'float32' or jnp.bfloat16.") from None


# -- layouts: shardings that variables keep --
_joined: dict[Any, Any] = {}
"""By mesh the sharding of variables that have joined it without a layout of their own."""


def is_spread(location: object) -> bool:
    """Return True if a place is a sharding over several devices, named by the axes of a mesh."""
    return isinstance(location, jax.NamedSharding) and len(location.device_set) > 1


def declare(variable: object, location: object) -> None:
    """From now on `variable` keeps this sharding; any other place takes a layout back."""
    make_calls(declared((variable,), (location,)))


def declared(variables: Sequence[Any], places: Sequence[Any]) -> list[Call]:
    """Return the calls by which each variable keeps the sharding that it is given.

    Any other place takes a layout back, None leaves it.
    """
    placed = [
        (variable, location if is_spread(location) else None)
        for variable, location in zip(variables, places)
        if location is not None
    ]
    calls: list[Call] = [
        (setattr, variable, "_layout", layout)
        for variable, layout in placed
        if layout_of(variable) != layout
    ]
    return [*calls, structure_tick()] if calls else []


def layout_of(variable: object) -> Any:
    """Return the sharding that was declared for `variable`, or None."""
    return getattr(variable, "_layout", None)


def is_joined(layout: Any) -> bool:
    return layout is not None and _joined.get(layout.mesh) is layout


def join(variables: Sequence[Any]) -> None:
    """Replicate counters, rates and random streams over the mesh of the other variables.

    Else a first call would find them on one device and the second on the mesh, and compile again.
    Without a mesh they return to one device.
    """
    layouts = layouts_of(variables) or ()
    mesh = next((layout.mesh for layout in layouts if layout is not None), None)
    whole = None if mesh is None else _joined.setdefault(mesh, jax.NamedSharding(mesh, jax.P()))
    for variable in variables:
        layout = layout_of(variable)
        value: Any = getattr(variable, "_value", None)
        if layout is whole or (layout is not None and not is_joined(layout)):
            continue
        if isinstance(value, jax.core.Tracer) or hasattr(type(variable), "ask"):
            continue
        if whole is None:
            variable._layout, variable._value = None, jnp.asarray(np.asarray(value))
        # An array that the user has put on one device stays there.
        elif not value.committed or is_spread(value.sharding):
            variable._layout, variable._value = whole, spread(value, whole)


def layouts_of(variables: Sequence[Any]) -> tuple[Any, ...] | None:
    """Return the layouts of many variables; None if none has one."""
    result = tuple(None if is_joined(layout) else layout for layout in map(layout_of, variables))
    return result if any(layout is not None for layout in result) else None


def laid_out(variable: object, value: Array) -> Any:
    """Return a new value of `variable`, laid out as was declared for it; what is traced waits for
    `constrained`.
    """
    layout = layout_of(variable)
    if (
        layout is None
        or isinstance(value, jax.core.Tracer)
        or value.sharding.is_equivalent_to(layout, value.ndim)
    ):
        return value
    return spread(value, layout)


def constrained(variable: object, value: object) -> Any:
    """Return a traced value of `variable` on its way out of a compiled function, with its layout
    prescribed to the compiler.
    """
    layout = layout_of(variable)
    return value if layout is None else jax.lax.with_sharding_constraint(value, layout)


def spread(value: Array, sharding: Any) -> Any:
    """Return an array on several devices, also of other processes: from a global array, or from one
    that each process holds whole.
    """
    if sharding.is_fully_addressable:
        return jax.device_put(value, sharding)
    if isinstance(value, jax.Array) and not value.is_fully_addressable:
        return jax.jit(lambda x: x, out_shardings=sharding)(value)
    host = np.asarray(value)
    return jax.make_array_from_callback(host.shape, sharding, lambda index: host[index])
