"""Which framework a model or a state comes from, told without importing one."""

from __future__ import annotations

from collections.abc import Container, Mapping
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


_TORCH_ONLY = ("num_batches_tracked", "in_proj_weight", "in_proj_bias")
FROM_TORCH = "The values come from PyTorch: `nb.from_torch(state, like=model)` knows its names and layouts."


def is_of_torch(state: Mapping[Any, Any], names: Container[Any] = ()) -> bool:
    """Whether a state dict comes from PyTorch: it holds tensors, or a name that only its layers give.

    Args:
        state: values by name.
        names: of the model's own; these tell nothing.

    Example:
        >>> is_of_torch({"0.weight": 1.0, "1.num_batches_tracked": 2})
        True
    """
    ends = (str(name).replace("/", ".").rpartition(".")[2] for name in state if name not in names)
    return any(map(is_tensor, state.values())) or any(end in _TORCH_ONLY for end in ends)


def is_tensor(value: Any) -> bool:
    """Whether a value is a tensor of PyTorch; nothing is imported."""
    return any(kind.__module__ == "torch" and kind.__name__ == "Tensor" for kind in type(value).__mro__)
