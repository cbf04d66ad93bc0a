"""A native PyTorch model as a tree of modules, and calls that leave the model unchanged."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from nbmodule.core.variables.variable import Buffer, Parameter
from nbmodule.errors import ArgumentTypeError
from nbmodule.interop.frameworks.function import Function, Path
from nbmodule.interop.torch_native.tensors import dtype_of, host_copy
from nbmodule.interop.wrapping import Wrapped, at, wrap

if TYPE_CHECKING:
    import torch


def without_compiled(model: object) -> Any:
    """Return the model inside a compiled one of `torch.compile`."""
    return getattr(model, "_orig_mod", model)


def check_viewable(model: torch.nn.Module, verb: str, *, needs_values: bool = True) -> None:
    """Raise an error for a model that cannot be run and viewed.

    Raises:
        ArgumentTypeError: It was compiled by torch.jit.script, has layers that are not built, or
            has no values because it is on the meta device.
    """
    torch: Any = sys.modules["torch"]
    name = type(model).__name__
    if isinstance(model, torch.jit.ScriptModule) and not isinstance(
        model, torch.jit.TopLevelTracedModule
    ):
        raise ArgumentTypeError(
            f"{verb}: {name} was compiled by torch.jit.script, which takes no hooks. Pass the "
            "model that it was made from."
        )
    for key, tensor in model.named_parameters():
        if is_unbuilt(tensor):
            raise ArgumentTypeError(
                f'{verb}: "{key}" has no shape yet, since a lazy layer is built by its first call. '
                f"Call the model once."
            )
        if needs_values and tensor.is_meta:
            raise ArgumentTypeError(
                f"{verb}: {name} is on the meta device and has no values. nb.summary and nb.graph "
                f"take it with "
                "tensors on the meta device."
            )


def is_unbuilt(tensor: object) -> bool:
    return "UninitializedTensorMixin" in [kind.__name__ for kind in type(tensor).__mro__]


class TorchParts(Function):
    """The modules of a model by path; it is called by PyTorch alone."""

    framework = "torch"

    def __init__(self, model: torch.nn.Module) -> None:
        self.name = type(model).__name__
        self.modules: dict[Path, Any] = {
            path_of(name): module for name, module in model.named_modules()
        }
        self.parts = {path: type(module) for path, module in self.modules.items() if path}


def path_of(name: str) -> Path:
    return tuple(name.split(".")) if name else ()


def module_of(model: torch.nn.Module) -> Wrapped:
    """A module with the parts and variables of the model, whose numbers are read at first use."""
    model = without_compiled(model)
    function = TorchParts(model)
    named = [(Parameter, *row) for row in model.named_parameters(remove_duplicate=False)]
    named += [(Buffer, *row) for row in model.named_buffers(remove_duplicate=False)]
    made: dict[int, Any] = {}  # by the identity of a tensor, which several modules may hold
    variables = {
        path: made.setdefault(
            id(tensor),
            kind.pending(
                functools.partial(host_copy, tensor), tuple(tensor.shape), dtype_of(tensor)
            ),
        )
        for kind, name, tensor in named
        if (path := path_of(name))[:-1] in function.modules and not is_unbuilt(tensor)
    }
    module = wrap(function, variables)
    for path, submodule in function.modules.items():
        at(module, path).training = submodule.training
    return module


@contextmanager
def unchanged(model: torch.nn.Module, *, gradients: bool = False) -> Iterator[None]:
    """Restore buffers, gradients and random states after a run of a model.

    Args:
        model: The model.
        gradients: Whether PyTorch records operations for gradients.
    """
    torch: Any = sys.modules["torch"]
    model = without_compiled(model)
    buffers = [(buffer, buffer.detach().clone()) for buffer in model.buffers()]
    slopes = [(p, p.grad) for p in model.parameters()]
    for parameter, _ in slopes:
        parameter.grad = None
    devices = {
        tensor.device.index for tensor in (*model.parameters(), *model.buffers()) if tensor.is_cuda
    }
    try:
        with torch.random.fork_rng(sorted(devices)), torch.set_grad_enabled(gradients):
            yield
    finally:
        with torch.no_grad():
            for buffer, before in buffers:
                buffer.copy_(before)
            for parameter, slope in slopes:
                parameter.grad = slope


def torch_variables(model: object) -> dict[str, Any]:
    """Parameters and buffers by name, as arrays that share the memory of the tensors
    on the host.
    """
    return {
        name: tensor.detach()
        for name, tensor in without_compiled(model).state_dict().items()
        if hasattr(tensor, "detach")
    }
