"""Which framework a model comes from, told without importing one."""

from __future__ import annotations

from typing import Any


def framework_of(thing: Any) -> str | None:
    """The framework that an object comes from, by the classes that it derives from; nothing is imported.

    Example:
        >>> framework_of(3) is None
        True
    """
    for kind in type(thing).__mro__:
        module, name = kind.__module__, kind.__name__
        if module.startswith("flax.linen") and name == "Module":
            return "flax_linen"
        if module.startswith("flax.nnx") and name == "Module":
            return "flax_nnx"
        if module.startswith("equinox") and name == "Module":
            return "equinox"
        if module.startswith("haiku") and name in ("Transformed", "TransformedWithState"):
            return "haiku"
        if module.startswith("keras") and name == "Layer":
            return "keras"
        if module.startswith("torch.nn") and name == "Module":
            return "torch"
    return None
