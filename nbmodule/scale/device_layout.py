"""`nb.layout`: the placement of the variables of a model on devices, in bytes."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from nbmodule.base.format import describe_shape, format_bytes, printable_repr
from nbmodule.base.sockets import Displayed
from nbmodule.core.structure.building import ensure_built
from nbmodule.core.structure.walk import is_module, plan_of
from nbmodule.errors import ArgumentTypeError

if TYPE_CHECKING:
    from jax.sharding import Sharding


class PlacedVariable(NamedTuple):
    """One variable on its devices.

    Attributes:
        split: `data, -`: for each axis of the array the axis of the mesh that splits it; or
            `whole`.
        per_device: Bytes on each of its devices.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    split: str
    nbytes: int
    per_device: int
    devices: tuple[Any, ...]


@dataclass(frozen=True)
class Layout(Displayed):
    """The placement of a model on its devices; made by `nb.layout`.

    Attributes:
        name: Name of the model's class.
        mesh: Sizes of the mesh's axes by name; empty on a single device.
        rows: One for each variable, the model's first, then the optimizer's.
        bytes_per_device: Bytes of all variables on each device, by its name.
        nbytes: Bytes of all variables, each counted once.
    """

    name: str
    mesh: dict[str, int]
    rows: tuple[PlacedVariable, ...]
    bytes_per_device: dict[str, int] = field(default_factory=dict)
    nbytes: int = 0

    @property
    def imbalance(self) -> float:
        """Bytes on the fullest device over the mean of all: 1.0 is even."""
        totals = list(self.bytes_per_device.values())
        return max(totals) * len(totals) / sum(totals) if any(totals) else 1.0

    def facts(self) -> list[str]:
        """Return mesh, bytes per device and imbalance, each as a few words."""
        names, totals = list(self.bytes_per_device), list(self.bytes_per_device.values())
        grid = " × ".join(f"{name} {size}" for name, size in self.mesh.items())
        devices = f"{len(names)} devices" if len(names) != 1 else names[0]
        low, high = (format_bytes(end(totals, default=0)) for end in (min, max))
        each = f"{high} on each" if len(set(totals)) == 1 else f"{low} to {high}"
        whole = f"{format_bytes(self.nbytes)} in all"
        facts = [devices, each, whole, f"imbalance {self.imbalance:.2f}"]
        return [f"mesh {grid}", *facts] if grid else facts

    @printable_repr
    def __repr__(self) -> str:
        lines = [" · ".join([f"Layout of {self.name}", *self.facts()])]
        shown = [(row.name, describe_shape(row), row.split) for row in self.rows[:60]]
        widths = [max(map(len, column)) for column in zip(*shown)]
        for cells, row in zip(shown, self.rows):
            text = "  ".join(cell.ljust(width) for cell, width in zip(cells, widths))
            lines.append(f"  {text}  {format_bytes(row.per_device)} on each of {len(row.devices)}")
        if len(self.rows) > len(shown):
            lines.append(f"  ... {len(self.rows) - len(shown)} more")
        return "\n".join(lines)


def layout(model: Any, *, optimizer: Any = None) -> Layout:
    """Describe the placement of each variable, the bytes on each device, and their balance.

    Nothing is moved or computed, and no value is drawn that has not been.

    Args:
        model: A module.
        optimizer: Its state is listed too.

    Example:
        >>> model = nb.shard(nb.Linear(4, 8), nb.make_mesh(data=1), {"weight": "data"})
        >>> nb.layout(model)
        Layout of Linear · cpu:0 · 160 B on each · 160 B in all · imbalance 1.00
          bias    float32[8]     one device  32 B on each of 1
          weight  float32[8, 4]  one device  128 B on each of 1
    """
    if not is_module(model):
        raise ArgumentTypeError(f"nb.layout describes a module, got {type(model).__name__}.")
    ensure_built(model)
    named = [(location.name, variable) for variable, location in plan_of(model).places.items()]
    if optimizer is not None:
        named += [
            (f"{type(optimizer).__name__}.{'.'.join(chain)}", variable)
            for chain, variable in optimizer._state_variables()
        ]
    rows = tuple(laid_out(name, variable) for name, variable in named)
    totals: dict[Any, int] = {}
    for row in rows:
        for device in row.devices:
            totals[device] = totals.get(device, 0) + row.per_device
    shardings = (variable.sharding for _, variable in named)
    meshes = [s.mesh for s in shardings if hasattr(s, "mesh") and len(s.device_set) > 1]
    by_name = {f"{d.platform}:{d.id}": totals[d] for d in sorted(totals, key=lambda d: d.id)}
    grid = dict(meshes[0].shape) if meshes else {}
    return Layout(type(model).__name__, grid, rows, by_name, sum(row.nbytes for row in rows))


def laid_out(name: str, variable: Any) -> PlacedVariable:
    """Describe the placement of one variable."""
    sharding, shape = variable.sharding, tuple(variable.shape)
    split, per_device, devices = "no value", 0, ()
    if sharding is not None:  # else it has a shape and no value
        split = split_of(sharding, len(shape))
        itemsize = variable.nbytes // max(variable.size, 1)
        per_device = math.prod(sharding.shard_shape(shape)) * itemsize
        devices = tuple(sorted(sharding.device_set, key=lambda d: d.id))
    dtype = str(variable.dtype)
    return PlacedVariable(name, shape, dtype, split, variable.nbytes, per_device, devices)


def split_of(sharding: Sharding, axes: int) -> str:
    """Write which axis of the mesh splits each axis of an array."""
    if len(sharding.device_set) == 1:
        return "one device"
    spec = getattr(sharding, "spec", None)
    if spec is None:
        return type(sharding).__name__
    parts = [*spec, *[None] * (axes - len(spec))]
    if not any(parts):
        return "whole"
    return ", ".join(
        "-" if part is None else part if isinstance(part, str) else "+".join(part) for part in parts
    )
