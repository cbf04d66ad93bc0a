"""`nb.from_torch`: a module of the same layout as a model of PyTorch, with its numbers."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from nbmodule.api.module import Module
from nbmodule.base.foreign import framework_of, is_tensor
from nbmodule.base.kinds import Args, Kwargs
from nbmodule.core.structure.building import move
from nbmodule.core.structure.walk import is_module
from nbmodule.core.variables.frame import write_all
from nbmodule.core.variables.variable import Buffer, Parameter, Variable
from nbmodule.errors import ArgumentError, ArgumentTypeError
from nbmodule.interop.frameworks.function import need, text_of
from nbmodule.interop.torch_layers.builders import BUILDERS, OptionMismatch
from nbmodule.interop.torch_layers.states import COUNT, matched
from nbmodule.interop.torch_native.parts import unchanged, without_compiled
from nbmodule.interop.torch_native.tensors import (
    array_of,
    arrays_of,
    dtype_of,
    host_copy,
    tensors_in,
)
from nbmodule.interop.wrapping import attribute_name, class_of
from nbmodule.nn.containers import Sequential

if TYPE_CHECKING:
    import torch


class Converter:
    """One conversion, with the new module for each module of PyTorch."""

    def __init__(self, model: torch.nn.Module) -> None:
        from nbmodule.interop.torch_layers.forward import skeleton_of

        self.torch = need("torch", "nb.from_torch")
        self.skeletons = dict(
            zip(map(id, model.modules()), skeleton_of(model).modules(), strict=True)
        )
        self.made: dict[int, Any] = {}  # shared layers stay shared
        self.variables: dict[int, Any] = {}
        self.layers: list[tuple[str, str, str]] = []

    def convert(self, layer: torch.nn.Module, path: tuple[str, ...]) -> Any:
        existing = self.made.get(id(layer))
        if existing is None:
            existing = self.made[id(layer)] = self.new(layer, path)
            existing.training = layer.training
        return existing

    def new(self, layer: torch.nn.Module, path: tuple[str, ...]) -> Any:
        nn, name = self.torch.nn, type(layer).__name__
        has_hooks = bool(layer._forward_hooks or layer._forward_pre_hooks)
        is_usual = getattr(nn, name, None) is type(layer) and "forward" not in vars(layer)
        if has_hooks or not is_usual:
            return self.custom(layer, path)
        if name == "Sequential":
            self.layers.append((text_of(path), name, "Sequential"))
            # `named_children` lists a shared layer once
            children: dict[str, Any] = dict(layer._modules)
            parts = {key: self.convert(child, (*path, key)) for key, child in children.items()}
            is_numbered = list(parts) == [str(i) for i in range(len(parts))]
            return Sequential(*parts.values()) if is_numbered else Sequential(parts)
        try:
            converted = BUILDERS[name](layer)
        # No counterpart, or none with these options
        except (KeyError, OptionMismatch, ArgumentError, ArgumentTypeError):
            return self.custom(layer, path)
        self.layers.append((text_of(path), name, type(converted).__name__))
        self.tie(converted, layer)
        return converted.train(layer.training)

    def tie(self, converted: Module, layer: torch.nn.Module) -> None:
        """Take over dtypes and frozen parameters of a layer, and make one variable of a parameter
        that two layers share, where its axes have the same order in both.
        """
        for key, tensor in (*layer._parameters.items(), *layer._buffers.items()):
            variable = getattr(converted, key, None)
            if tensor is None or not isinstance(variable, Variable):
                continue
            move([variable], None, jax.dtypes.canonicalize_dtype(dtype_of(tensor)))
            if isinstance(variable, Parameter):
                variable.requires_grad = tensor.requires_grad
            existing = self.variables.setdefault(id(tensor), variable)
            if existing is not variable and existing.shape == variable.shape and variable.ndim < 3:
                setattr(converted, key, existing)

    def custom(self, layer: torch.nn.Module, path: tuple[str, ...]) -> Any:
        """Make a module that runs the forward of `layer` as it is written, on its own parts."""
        from nbmodule.interop.torch_layers.forward import TorchModule

        name = type(layer).__name__
        self.layers.append((text_of(path), name, "TorchModule"))
        converted = class_of(name, TorchModule, "", False)()
        converted._source = vars(self.skeletons[id(layer)])["forward"]
        for variable_type, tensors in ((Parameter, layer._parameters), (Buffer, layer._buffers)):
            for key, tensor in tensors.items():
                if key not in layer._non_persistent_buffers_set:
                    value = None if tensor is None else self.variable(tensor, variable_type)
                    setattr(converted, attribute_name(key), value)
        for key, child in layer._modules.items():
            part = None if child is None else self.child(child, (*path, key))
            setattr(converted, attribute_name(key), part)
        return converted

    def variable(self, tensor: torch.Tensor, variable_type: type) -> Any:
        if id(tensor) not in self.variables:
            more = {"requires_grad": tensor.requires_grad} if variable_type is Parameter else {}
            self.variables[id(tensor)] = variable_type(array_of(tensor), **more)
        return self.variables[id(tensor)]

    def child(self, layer: Any, path: tuple[str, ...]) -> Any:
        nn, kind = self.torch.nn, type(layer)
        if kind in (nn.ModuleList, nn.ParameterList):
            return [self.child(item, (*path, str(i))) for i, item in enumerate(layer)]
        if kind in (nn.ModuleDict, nn.ParameterDict):
            return {key: self.child(item, (*path, key)) for key, item in layer.items()}
        if is_tensor(layer):
            return self.variable(layer, Parameter)
        return self.convert(layer, path)


def from_torch(
    model: object, *example: object, like: Module | None = None, **example_kwargs: object
) -> Any:
    """Make a module of the same layout as a model of PyTorch, with its numbers, or give its numbers
    to a module that is there.

    Usual layers become those of the library, under the same paths, and take the same inputs: images
    have their channels first, sequences are laid out as `batch_first` says. Any other module
    keeps its own forward: PyTorch runs the Python code, JAX computes the operations, so PyTorch
    must be installed where such a model is called. Dtypes are PyTorch's, and what takes no gradient
    there is frozen. `model.conversion` of the result says what became of each layer.

    Args:
        model: A `torch.nn.Module`; with `like=` also a state dict, of tensors or of arrays, such as
            `nb.load` of a file of PyTorch.
        *example: Tensors or arrays to try the conversion with. An operation without a counterpart
            is then named at once, and the report has the largest difference to PyTorch.
        like: A module that gets the numbers, under PyTorch's names and layouts (as `to_torch()`
            gives them), and is returned.
        **example_kwargs: Keyword arguments of the example call.

    Raises:
        MissingDependencyError: PyTorch is not installed.
        ArgumentError: The example call needs an operation that has no counterpart.
        UnexpectedKeysError, MissingKeysError, ShapeError: `like` has other variables. Nothing was
            changed.

    Example:
        >>> import torch
        >>> model = nb.from_torch(torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU()))
        >>> model(jnp.ones((5, 2))).shape
        (5, 3)
        >>> print(model.conversion)
        3 layers, 2 tensors converted
          the model  Sequential → Sequential
          0          Linear → Linear
          1          ReLU → ReLU
    """
    arrays = arrays_of(model)
    if like is not None:
        if not is_module(like):
            raise ArgumentTypeError(f"like= takes a module; got {type(like).__name__}.")
        title = f"cannot load {type(model).__name__} into {type(like).__name__}"
        values, _ = matched(like, arrays, title=title)
        write_all(tuple(values), tuple(values.values()))
        return like
    if framework_of(model) != "torch":
        raise ArgumentTypeError(
            "nb.from_torch of a state dict needs like=, a module of the same layout."
        )
    native = without_compiled(model)
    converter = Converter(native)
    converted = converter.convert(native, ())
    title = f"cannot convert {type(native).__name__}"
    values, report = matched(converted, arrays, title=title)
    write_all(tuple(values), tuple(values.values()))
    difference = None
    if example or example_kwargs:
        difference = _difference(native, converted, example, example_kwargs)
    converted.conversion = replace(
        report,
        passed_over=tuple(name for name in report.passed_over if name.endswith(COUNT)),
        layers=tuple(converter.layers),
        difference=difference,
    )
    return converted


def _difference(model: torch.nn.Module, converted: Module, args: Args, kwargs: Kwargs) -> float:
    """Return the largest difference of the two models in one call, by the largest value."""
    torch = need("torch", "nb.from_torch")
    as_tensor = lambda x: x if is_tensor(x) else torch.as_tensor(np.asarray(x))  # noqa: E731
    as_array = lambda x: array_of(x) if is_tensor(x) else x  # noqa: E731
    with unchanged(model):
        expected = model(*map(as_tensor, args), **{k: as_tensor(x) for k, x in kwargs.items()})
    keep = copy.deepcopy(converted)  # training mode changes statistics
    outputs = keep(*map(as_array, args), **{name: as_array(x) for name, x in kwargs.items()})
    pairs = zip(jax.tree.leaves(outputs), map(host_copy, tensors_in(expected)))
    ratios = [
        float(np.abs(np.asarray(x) - y).max() / (np.abs(y).max() + 1e-30))
        for x, y in pairs
        if y.size
    ]
    return max(ratios, default=0.0)
