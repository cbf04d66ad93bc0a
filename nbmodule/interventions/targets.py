"""Targets of interventions: modules, taps and edges by their spelling, axes by their parts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from nbmodule.base.paths import closest
from nbmodule.core.structure.naming import modules_named
from nbmodule.core.structure.walk import is_module, plan_of
from nbmodule.errors import ArgumentError, ArgumentTypeError, PathError
from nbmodule.interventions.values import Setting

ARROW = "->"
OUTPUT_PROJECTIONS = ("out", "out_proj", "proj", "o_proj", "c_proj", "output", "wo")
"""Names of the layer that joins the heads of an attention layer, here and elsewhere."""
HEAD_COUNTS = ("num_heads", "n_heads", "n_head", "heads")


class Target(NamedTuple):
    """One place of a model."""

    name: str
    module: Any
    tap: str | None = None
    receiver: Any = None
    """Of an edge: the module that alone sees the change."""

    @property
    def place(self) -> Any:
        """Its key in a tracker."""
        return self.module if self.tap is None else (self.module, self.tap)


def values_by_target(model: Any, given: object) -> list[tuple[Target, Setting]]:
    """A mapping from places to settings as a list, in the order in which it was written.

    Raises:
        PathError: there is no such place.
        ArgumentTypeError: what is given is no such mapping.
    """
    if not isinstance(given, Mapping):
        raise ArgumentTypeError(
            f"expected a mapping from targets to values, as in "
            f"{{'blocks.3.attention': nb.zero(head=2)}}, got {type(given).__name__}."
        )
    results = []
    for key, settings in given.items():
        settings = (
            settings
            if isinstance(settings, (list, tuple)) and not isinstance(settings, Setting)
            else [settings]
        )
        for setting in settings:
            if not isinstance(setting, Setting):
                raise ArgumentTypeError(
                    f"the value for {key!r} must be one such as nb.zero() or nb.scale_by(0.5), or "
                    f"a list of them, got {type(setting).__name__}."
                )
            results += [(target, setting) for target in targets(model, key)]
    return results


def targets(model: Any, key: Any) -> list[Target]:
    """The places that a key names: a module or its path, a glob, a tap below a module, or an edge
    `a -> b`.
    """
    if is_module(key):
        name = "" if key is model else getattr(plan_of(model).modules.get(key), "name", None)
        if name is None:
            raise PathError(f"{type(key).__name__} is not part of {type(model).__name__}.")
        return [Target(name, key)]
    if not isinstance(key, str):
        raise ArgumentTypeError(f"a target must be a module or a path, got {type(key).__name__}.")
    if ARROW in key:
        return _edge(model, key)
    modules = names_of(model)
    result = (
        [Target("", model)]
        if key == ""
        else [Target(plan_of(model).modules[m].name, m) for m in modules_named(model, key)]
    )
    if result:
        return result
    prefix, _, tap = key.rpartition(".")
    owners = [
        Target(key, module, tap)
        for module in ([model] if prefix == "" else modules_named(model, prefix)[:1])
    ]
    if owners and tap and not _is_near(tap, prefix, modules):
        return owners
    near = closest(key, [name for name in modules if name])
    raise PathError(
        f'{type(model).__name__} has no submodule "{key}"'
        + (f'; the closest path is "{near}".' if near else ".")
    )


def _is_near(tap: str, prefix: str, modules: Mapping[str, Any]) -> bool:
    """Return True if a name is more likely a misspelled child than a tap."""
    start = f"{prefix}." if prefix else ""
    children = {
        name.removeprefix(start).split(".")[0]
        for name in modules
        if name.startswith(start) and name
    }
    return closest(tap, sorted(children)) is not None


def names_of(model: Any) -> dict[str, Any]:
    """Modules by path, the model itself first, under the empty one."""
    return {"": model} | {
        location.name: module for module, location in plan_of(model).modules.items()
    }


def _edge(model: Any, key: str) -> list[Target]:
    ends = [part.strip() for part in key.split(ARROW)]
    if len(ends) != 2:
        raise ArgumentError(f'expected an edge as "sender {ARROW} receiver", got {key!r}.')
    senders, receivers = (targets(model, end) for end in ends)
    if any(target.tap is not None for target in receivers):
        raise PathError(f'"{ends[1]}" is not a submodule, and only submodules receive changes.')
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


class Hold(NamedTuple):
    """The point at which a value is applied; for a head, the input of the output projection."""

    place: Any
    at_input: bool
    parts: tuple[PartAxis, ...]


def home_of(target: Target, setting: Setting) -> Hold:
    """The place and the axes of a setting.

    Raises:
        ArgumentError: the place has no such part.
    """
    names = [name for name, _ in setting.parts]
    module, cls = target.module, type(target.module).__name__
    if "head" not in names or target.tap is not None:
        parts = tuple(PartAxis(name, _axis(name, module, target.tap is not None)) for name in names)
        return Hold(target.place, False, parts)
    heads, projection = heads_of(module)
    if projection is None:
        raise ArgumentError(
            f'"{target.name}" ({cls}) has no heads that are known: a number of heads '
            f"({', '.join(HEAD_COUNTS[:2])}) and an output "
            f"projection ({', '.join(OUTPUT_PROJECTIONS[:3])}) were looked for. Name them in "
            f'its forward, z = nb.tap(z, "heads") with axes '
            f'(*batch, heads, length, features), and set "{target.name}.heads" instead.'
        )
    if target.receiver is not None:
        raise ArgumentError(
            f'"{target.name}": an edge changes the whole return, its units or its tokens, not a '
            "head."
        )
    features = getattr(projection, "in_features", None)
    width = max(1, int(features) // heads) if features else 0
    return Hold(
        projection,
        True,
        tuple(
            PartAxis(name, *((-1, width) if name == "head" else (_axis(name, module, False),)))
            for name in names
        ),
    )


def heads_of(module: object) -> tuple[int, Any]:
    """Return the number of heads of a module, and the layer below it that joins them; (0, None) if
    that is not known.
    """
    count = next(
        (n for name in HEAD_COUNTS if isinstance(n := _own(module, name), int) and n > 0), 0
    )
    if not count:
        return 0, None
    inner = (_own(module, name) for name in OUTPUT_PROJECTIONS)
    projection = next(
        (item for item in inner if is_module(item) and _own(item, "in_features")), None
    )
    if projection is None or projection.in_features % count:
        return 0, None
    return count, projection


def _own(module: object, name: str) -> Any:
    """An attribute, or None: without the search for what else may have been meant."""
    return vars(module).get(name, getattr(type(module), name, None))


def _axis(name: str, module: object, is_tap: bool) -> int:
    if name == "head":
        return -3
    if name == "token":
        return -2
    if name == "channel" and not is_tap:
        layout = getattr(module, "data_format", None) or "C"
        return layout.index("C") - len(layout)
    return -1
