"""Tensors and arrays: copies from one to the other, nested values that hold tensors, and tensors on
their way into a record, copied when they are kept, reduced where they lie when statistics are
wanted.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from nbmodule.base.foreign import ForeignArray, array_of_tensor, framework_of, is_tensor
from nbmodule.base.statistics import statistics_of_elements
from nbmodule.base.trees import flat
from nbmodule.core.recording.parcel import StaticLeaf
from nbmodule.errors import ArgumentTypeError
from nbmodule.interop.frameworks.function import need

if TYPE_CHECKING:
    import torch
    from torch import Tensor


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
    """Return the numbers of a tensor, or of an array, as an array of their own."""
    return host_copy(tensor) if hasattr(tensor, "detach") else np.array(tensor)


def tensor_of(array: object) -> torch.Tensor:
    """Return a tensor with the numbers of an array, as a copy."""
    torch, array = need("torch", "to_torch"), np.array(array)
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def map_tensors(tree: object, fn: Callable[[Any], Any], *, plain: bool = False) -> Any:
    """Return nested containers with `fn` of each tensor; see `map_tree`."""
    return map_tree(tree, lambda leaf: fn(leaf) if is_tensor(leaf) else leaf, plain=plain)


def map_tree(tree: Any, fn: Callable[[Any], Any], *, plain: bool = False) -> Any:
    """Return nested tuples, lists, dicts and dataclasses with `fn` of all that they hold.

    Args:
        tree: The nested values.
        fn: Called with each value that is no container.
        plain: Replace dataclasses and mappings by dicts, and lists and tuples of other classes than
            named tuples by plain ones, as JAX and records need them.
    """
    apply = functools.partial(map_tree, fn=fn, plain=plain)
    if isinstance(tree, (tuple, list)):
        base = list if isinstance(tree, list) else tuple
        # `_make` does not call the constructor of a named tuple
        make = getattr(tree, "_make", base if plain else type(tree))
        return make([apply(value) for value in tree])
    if plain and isinstance(tree, Mapping):
        return {str(key): apply(value) for key, value in tree.items()}
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        names = [field.name for field in dataclasses.fields(tree) if field.init or plain]
        values = {name: apply(getattr(tree, name)) for name in names}
        return values if plain else type(tree)(**values)
    if isinstance(tree, dict):
        result = copy.copy(tree)
        for key, value in tree.items():
            result[key] = apply(value)
        return result
    return fn(tree)


# -- records --
def tensors_in(tree: object) -> list[Any]:
    """All tensors of nested values."""
    tensors: list[Any] = []
    map_tensors(tree, tensors.append, plain=True)
    return tensors


def host_copy(tensor: torch.Tensor) -> np.ndarray:
    """The numbers of a tensor as an array of NumPy of its own."""
    return np.array(array_of_tensor(tensor))


def dtype_of(tensor: torch.Tensor) -> str:
    """`float32`."""
    return str(tensor.dtype).removeprefix("torch.")


class SeenTensor(ForeignArray):
    """A tensor that a tracker sees."""

    __slots__ = ("array", "copies", "tensor")

    def __init__(self, tensor: Tensor, copies: Copies, *, now: bool = False) -> None:
        self.tensor, self.copies = tensor, copies
        self.array = copies.of(tensor) if now else None

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.tensor.shape)

    @property
    def dtype(self) -> str:
        return dtype_of(self.tensor)

    def kept(self) -> Any:
        return self.copies.of(self.tensor) if self.array is None else self.array

    def reduced(self) -> Any:
        array = array_of_tensor(self.tensor)
        has_numbers = array.size and array.dtype.kind in "biufcV"
        return statistics_of_elements(array) if has_numbers else StaticLeaf(None)


class Copies:
    """Copies of one step: a tensor that leaves one module and enters the next is copied once, and
    anew where it was changed in place.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[Any, int, np.ndarray]] = {}

    def of(self, tensor: Tensor) -> np.ndarray:
        version = version_of(tensor)
        cached = self._known.get(id(tensor))
        if cached is not None and cached[0]() is tensor and cached[1] == version:
            return cached[2]
        array = host_copy(tensor)
        self._known[id(tensor)] = (weakref.ref(tensor), version, array)
        return array

    def clear(self) -> None:
        self._known.clear()


def version_of(tensor: Tensor) -> int:
    """Return the number of in-place changes of a tensor; -1 where PyTorch does not count them."""
    try:
        return tensor._version
    except RuntimeError:  # made in inference mode
        return -1
