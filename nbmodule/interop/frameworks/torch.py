"""PyTorch: arrays of a module by name, and tensors of arrays."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from nbmodule.base.foreign import framework_of, is_tensor
from nbmodule.base.trees import flat
from nbmodule.errors import ArgumentTypeError
from nbmodule.interop.frameworks.function import need

if TYPE_CHECKING:
    import torch


def arrays_of(source: Any) -> dict[str, np.ndarray]:
    """The arrays of a module or of a state dict (a nested one too, as `nb.load` gives it), by name,
    as copies on the host.
    """
    if framework_of(source) == "torch":
        source = source.state_dict()
    if not isinstance(source, Mapping):
        raise ArgumentTypeError(
            f"nb.from_torch takes a torch.nn.Module or a state dict; got {type(source).__name__}."
        )
    return {
        ".".join(chain): array_of(value)
        for chain, value in flat(source)
        if hasattr(value, "detach") or hasattr(value, "dtype")
    }


def array_of(tensor: torch.Tensor) -> np.ndarray:
    if not hasattr(tensor, "detach"):
        return np.array(tensor)
    torch = need("torch", "nb.from_torch")
    tensor = tensor.detach().cpu()
    if tensor.dtype == torch.bfloat16:
        return tensor.contiguous().view(torch.int16).numpy().view(ml_dtypes.bfloat16).copy()
    return tensor.numpy().copy()


def map_tensors(tree: Any, fn: Callable[[Any], Any]) -> Any:
    """Return nested tuples, lists and dicts with `fn` of each tensor."""
    if is_tensor(tree):
        return fn(tree)
    if isinstance(tree, (tuple, list)):
        parts = [map_tensors(value, fn) for value in tree]
        return type(tree)(*parts) if hasattr(tree, "_fields") else type(tree)(parts)
    if type(tree) is dict:
        return {key: map_tensors(value, fn) for key, value in tree.items()}
    return tree


def tensors_of(arrays: Mapping[str, Any]) -> OrderedDict[str, Any]:
    """Tensors of arrays, in their order."""
    torch = need("torch", "to_torch")
    tensors = OrderedDict()
    for name, array in arrays.items():
        array = np.array(array)
        if array.dtype == ml_dtypes.bfloat16:
            tensors[name] = torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
        else:
            tensors[name] = torch.from_numpy(array)
    return tensors
