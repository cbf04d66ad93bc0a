"""Targets of interventions: modules, taps and edges by their spelling, axes by their parts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from nbmodule.base.paths import closest
from nbmodule.core.structure.naming import find_modules, modules_named
from nbmodule.core.structure.walk import is_module, plan_of
from nbmodule.errors import ArgumentError, ArgumentTypeError, PathError
from nbmodule.interventions.values import Setting

ARROW = "->"
OUTPUT_PROJECTIONS = ("out", "out_proj", "proj", "o_proj", "c_proj", "output", "wo")
"""Names of the layer that joins the heads of an attention layer, here and elsewhere."""
HEAD_COUNTS = ("num_heads", "n_heads", "n_head", "heads")


class Target(NamedTuple):
    """A module, a tap or an edge of a model."""

    name: str
    module: Any
    tap: str | None = None
    receiver: Any = None
    """Of an edge: the module that gets the changed return."""

    @property
    def place(self) -> Any:
        """Its key in a tracker."""
        return self.module if self.tap is None else (self.module, self.tap)


def values_by_target(model: object, given: object) -> list[tuple[Target, Setting]]:
    """Return the settings with their targets, in the order of the mapping.

    Raises:
        PathError: a target does not exist.
        ArgumentTypeError: `given` is no mapping from targets to settings.
    """
    if not isinstance(given, Mapping):
        raise ArgumentTypeError(
            f"expected a mapping from targets to values, as in "
            f"{{'blocks.3.attention': nb.zero(head=2)}}, got {type(given).__name__}."
        )
    results = []
    for key, settings in given.items():
        for setting in settings if isinstance(settings, list) else [settings]:
            if not isinstance(setting, Setting):
                raise ArgumentTypeError(
                    f"the value for {key!r} must be one such as nb.zero() or nb.scale_by(0.5), or "
                    f"a list of them, got {type(setting).__name__}."
                )
            results += [(target, setting) for target in targets(model, key)]
    return results


def targets(model: Any, key: Any) -> list[Target]:
    """Return the targets of a key: a module or its path, a glob, a tap below a module, or an edge
    `a -> b`.
    """
    if isinstance(key, str) and ARROW in key:
        return _edge(model, key)
    owner = _owner_of_tap(model, key) if isinstance(key, str) else None
    if owner is not None:
        return [Target(key, owner, key.rpartition(".")[2])]
    names = {module: name for name, module in names_of(model).items()}
    return [
        Target(names[module], module) for module in find_modules(model, model if key == "" else key)
    ]


def _owner_of_tap(model: Any, key: str) -> Any:
    """Return the module that calls a tap; None for paths of modules, and for names that resemble a
    child.
    """
    prefix, _, tap = key.rpartition(".")
    owners = modules_named(model, prefix) if prefix else [model]
    if not tap or not owners or modules_named(model, key):
        return None
    start = f"{prefix}." if prefix else ""
    below = (name.removeprefix(start) for name in names_of(model) if name.startswith(start))
    children = {name.partition(".")[0] for name in below} - {""}
    return None if closest(tap, sorted(children)) else owners[0]


def names_of(model: object) -> dict[str, Any]:
    """Modules by path, the model itself first, under the empty one."""
    return {"": model} | {place.name: module for module, place in plan_of(model).modules.items()}


def _edge(model: object, key: str) -> list[Target]:
    sender, _, receiver = key.partition(ARROW)
    senders, receivers = targets(model, sender.strip()), targets(model, receiver.strip())
    if any(target.tap is not None or target.receiver is not None for target in receivers):
        raise PathError(
            f'"{receiver.strip()}" is not a submodule, and only submodules receive changes.'
        )
    return [
        Target(f"{sender.name} {ARROW} {receiver.name}", sender.module, sender.tap, receiver.module)
        for sender in senders
        for receiver in receivers
    ]


class PartAxis(NamedTuple):
    """The axis of a part, and the number of entries for one index."""

    name: str
    axis: int
    width: int = 1


class PatchPoint(NamedTuple):
    """The point at which a value is applied; for a head, the input of the output projection."""

    place: Any
    at_input: bool
    parts: tuple[PartAxis, ...]


def patch_point(target: Target, setting: Setting) -> PatchPoint:
    """Return the point and the axes of a setting.

    Raises:
        ArgumentError: the target has no such part.
    """
    names = [name for name, _ in setting.parts]
    module, is_tap = target.module, target.tap is not None
    if "head" not in names or is_tap:
        parts = tuple(PartAxis(name, _axis(name, module, is_tap)) for name in names)
        return PatchPoint(target.place, False, parts)
    heads, projection = heads_of(module)
    if projection is None:
        raise ArgumentError(
            f'"{target.name}" ({type(module).__name__}) has no heads that are known: a number of '
            f"heads ({', '.join(HEAD_COUNTS[:2])}) and an output projection "
            f"({', '.join(OUTPUT_PROJECTIONS[:3])}) were looked for. Name them in its forward, "
            'z = nb.tap(z, "heads") with axes (*batch, heads, length, features), and set '
            f'"{target.name}.heads" instead.'
        )
    if target.receiver is not None:
        raise ArgumentError(
            f'"{target.name}": an edge changes the whole return, its units or its tokens, not a '
            "head."
        )
    joined = PartAxis("head", -1, projection.in_features // heads)
    parts = tuple(
        joined if name == "head" else PartAxis(name, _axis(name, module, False)) for name in names
    )
    return PatchPoint(projection, True, parts)


def heads_of(module: object) -> tuple[int, Any]:
    """Return the number of heads of a module, and the layer below it that joins them; (0, None) if
    that is not known.
    """
    counts = (_own(module, name) for name in HEAD_COUNTS)
    count = next((n for n in counts if isinstance(n, int) and n > 0), 0)
    inner = (_own(module, name) for name in OUTPUT_PROJECTIONS)
    projection = next((m for m in inner if is_module(m) and _own(m, "in_features")), None)
    if not count or projection is None or projection.in_features % count:
        return 0, None
    return count, projection


def _own(module: object, name: str) -> Any:
    """Return an attribute or None, without the hints of `Module.__getattr__`."""
    return vars(module).get(name, getattr(type(module), name, None))


_AXES = {"head": -3, "token": -2}


def _axis(name: str, module: object, is_tap: bool) -> int:
    if name in _AXES:
        return _AXES[name]
    if name == "channel" and not is_tap:
        layout = getattr(module, "data_format", None) or "C"
        return layout.index("C") - len(layout)
    return -1
