"""The bare object of a module: where Python keeps its attributes, and one slot for its private state."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nbmodule.core.boxes.inner import Inner


class Hull:
    """What modules are made of, and what the rooms below `Module` ask of one."""

    __slots__ = ("__dict__", "__weakref__", "_nbm")

    if TYPE_CHECKING:
        _nbm: Inner
        _short_names: dict[str, str]


attributes_of: Callable[[Any], dict[str, Any]] = vars(Hull)["__dict__"].__get__
"""The attributes of a module as they stand, also while it is being built; `vars` unfolds what is folded."""
