"""The bare object of a module: where Python keeps its attributes, and one slot for its private state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Hull:
    """What modules are made of."""

    __slots__ = ("__dict__", "__weakref__", "_nbm")


attributes_of: Callable[[Any], dict[str, Any]] = vars(Hull)["__dict__"].__get__
"""The attributes of a module as they stand, also while it is being built; `vars` unfolds what is folded."""
