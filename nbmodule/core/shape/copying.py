"""Copies of modules: pickling, `copy.copy`, `copy.deepcopy`. Sharing inside the model is kept."""

from __future__ import annotations

import copy
from typing import Any

from nbmodule.core.boxes.clock import clock
from nbmodule.core.shape import building

_KEPT = ("args", "built", "config", "given", "kwargs", "taken", "training", "variables")


def blank(kind: Any) -> Any:
    """A module of this class without attributes."""
    return kind.__new__(kind)


def state_of(module: Any) -> dict[str, Any]:
    """All that a copy needs: attributes, private state and hooks; nothing that is derived."""
    inner = module._nbm
    return {
        "attributes": dict(module.__dict__),
        "inner": {name: getattr(inner, name) for name in _KEPT},
        "hooks": (list(inner.pre_hooks.values()), list(inner.hooks.values())),
    }


def restore(module: Any, state: dict[str, Any]) -> None:
    inner = module._nbm
    module.__dict__.update(state["attributes"])
    for name, value in state["inner"].items():
        setattr(inner, name, value)
    for group, known in zip((inner.pre_hooks, inner.hooks), state["hooks"]):
        group.update((hook.number, hook) for hook in known)
    if inner.config is not None:
        building.settle(module)
    clock.structure_changed()


def shallow(module: Any) -> Any:
    """A module of its own with the same attributes: variables and submodules are shared."""
    other = blank(type(module))
    restore(other, state_of(module))
    other._nbm.variables = copy.copy(module._nbm.variables)
    return other
