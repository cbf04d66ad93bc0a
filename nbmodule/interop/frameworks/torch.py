"""PyTorch: arrays of a module by name, tensors of arrays, and the graph of a forward that is written in Python."""

from __future__ import annotations

import inspect
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from nbmodule.base.foreign import framework_of
from nbmodule.errors import ArgumentTypeError
from nbmodule.interop.frameworks.function import need


def arrays_of(source: Any) -> dict[str, np.ndarray]:
    """The arrays of a module or of a state dict (a nested one too, as `nb.load` gives it), by name, as copies on the host."""
    if framework_of(source) == "torch":
        source = source.state_dict()
    if not isinstance(source, Mapping):
        raise ArgumentTypeError(
            f"nb.from_torch takes a torch.nn.Module or a state dict; found {type(source).__name__}. Nothing was converted."
        )
    return {
        name: array_of(value) for name, value in _named(source) if hasattr(value, "detach") or hasattr(value, "dtype")
    }


def _named(level: Mapping[Any, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in level.items():
        if isinstance(value, Mapping):
            yield from _named(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value


def array_of(tensor: Any) -> np.ndarray:
    if not hasattr(tensor, "detach"):
        return np.array(tensor)
    torch = need("torch", "nb.from_torch")
    tensor = tensor.detach().cpu()
    if tensor.dtype == torch.bfloat16:
        return tensor.contiguous().view(torch.int16).numpy().view(ml_dtypes.bfloat16).copy()
    return tensor.numpy().copy()


def tensors_of(arrays: Mapping[str, Any]) -> OrderedDict[str, Any]:
    """Tensors of arrays, in their order."""
    torch = need("torch", "to_torch")
    found = OrderedDict()
    for name, array in arrays.items():
        array = np.array(array)
        if array.dtype == ml_dtypes.bfloat16:
            found[name] = torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
        else:
            found[name] = torch.from_numpy(array)
    return found


class ForwardStep(NamedTuple):
    """One node of the graph of a forward.

    `kind` is `input`, `layer` (a submodule is called), `function`, `method`, `attribute` or `output`.
    """

    name: str
    kind: str
    target: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    default: Any = None


class StepRef(NamedTuple):
    """Stands in the arguments of a step for what another step gave."""

    name: str


def steps_of(module: Any) -> list[ForwardStep]:
    """What the forward of a module does, in order; its submodules are called, not entered.

    Raises:
        Exception: of torch.fx, where the forward depends on values.
    """
    torch = need("torch", "nb.from_torch")
    fx = need("torch.fx", "nb.from_torch")

    class Outermost(fx.Tracer):
        def is_leaf_module(self, m: Any, module_qualified_name: str) -> bool:
            return True

    graph = Outermost().trace(module)
    kinds = {
        "placeholder": "input", "call_module": "layer", "call_function": "function", "call_method": "method",
        "get_attr": "attribute", "output": "output",
    }  # fmt: skip
    empty = inspect.Parameter.empty

    def plain(value: Any) -> Any:
        if isinstance(value, fx.Node):
            return StepRef(value.name)
        if isinstance(value, tuple):
            return tuple(map(plain, value))
        if isinstance(value, list):
            return list(map(plain, value))
        if isinstance(value, dict):
            return {key: plain(item) for key, item in value.items()}
        if isinstance(value, slice):
            return slice(plain(value.start), plain(value.stop), plain(value.step))
        if isinstance(value, torch.dtype):
            return str(value).removeprefix("torch.")
        return value

    made = []
    for node in graph.nodes:
        target = node.target if isinstance(node.target, str) else name_of(node.target)
        kind = kinds[node.op]
        default = node.args[0] if kind == "input" and node.args else empty
        made.append(ForwardStep(node.name, kind, target, plain(node.args), plain(dict(node.kwargs)), default))
    return made


def name_of(function: Callable[..., Any]) -> str:
    """The last part of a function's name: `relu` of `torch.nn.functional.relu`."""
    return getattr(function, "__name__", str(function))
