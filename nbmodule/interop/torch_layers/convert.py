"""`nb.from_torch`: a module of the same layout as a model of PyTorch, with its numbers."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nbmodule.base.foreign import framework_of
from nbmodule.base.format import shown
from nbmodule.core.boxes.frame import write_all
from nbmodule.core.boxes.variable import Buffer, Parameter
from nbmodule.core.shape.walk import is_module
from nbmodule.doors.module import Module
from nbmodule.errors import ArgumentError, ArgumentTypeError
from nbmodule.interop.frameworks.function import need, text_of
from nbmodule.interop.frameworks.torch import ForwardStep, StepRef, array_of, arrays_of, steps_of
from nbmodule.interop.torch_layers.builders import BUILDERS, Unlike
from nbmodule.interop.torch_layers.names import COUNT
from nbmodule.interop.torch_layers.operations import FUNCTIONS, METHODS
from nbmodule.interop.torch_layers.states import matched
from nbmodule.nn.containers import Sequential


@dataclass(frozen=True)
class Conversion:
    """What became of each part of a model of PyTorch; `model.conversion` of what `nb.from_torch` gave.

    Attributes:
        layers: Path, class in PyTorch, class here.
        tensors: Name in PyTorch, and names of the variables that hold it.
        passed_over: Tensors that have no place here: counters of batch norms.
    """

    layers: tuple[tuple[str, str, str], ...]
    tensors: tuple[tuple[str, tuple[str, ...]], ...]
    passed_over: tuple[str, ...]

    @shown
    def __repr__(self) -> str:
        width = max((len(path or "the model") for path, *_ in self.layers), default=0)
        lines = [f"{len(self.layers)} layers, {len(self.tensors)} tensors converted"]
        lines += [f"  {path or 'the model':{width}}  {theirs} → {ours}" for path, theirs, ours in self.layers]
        lines += [f"  {name} passed over" for name in self.passed_over]
        return "\n".join(lines)


class TorchModule(Module):
    """A module of PyTorch whose forward is written in Python: its steps, on the layers and tensors that it holds."""

    _program: TracedForward

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self._program.run(self, args, kwargs)


class TracedForward:
    """The steps of a forward."""

    def __init__(self, steps: list[ForwardStep]) -> None:
        self.steps = steps
        self.inputs = [step for step in steps if step.kind == "input"]

    def run(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        known = self.bound(type(module).__name__, args, kwargs)

        def filled(value: Any) -> Any:
            if isinstance(value, StepRef):
                return known[value.name]
            if isinstance(value, (tuple, list)):
                return type(value)(map(filled, value))
            if isinstance(value, dict):
                return {key: filled(item) for key, item in value.items()}
            if isinstance(value, slice):
                return slice(filled(value.start), filled(value.stop), filled(value.step))
            return value

        for step in self.steps:
            if step.kind == "output":
                return filled(step.args[0])
            if step.kind == "input":
                continue
            given, named = filled(step.args), filled(step.kwargs)
            if step.kind == "layer":
                known[step.name] = at(module, step.target)(*given, **named)
            elif step.kind == "attribute":
                known[step.name] = at(module, step.target).value
            else:
                table = FUNCTIONS if step.kind == "function" else METHODS
                known[step.name] = table[step.target](*given, **named)
        return None

    def bound(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        known = dict(zip([step.name for step in self.inputs], args)) | kwargs
        for step in self.inputs:
            if step.name not in known:
                if step.default is inspect.Parameter.empty:
                    raise ArgumentTypeError(f"{name} wants {step.name}; {len(args)} arguments were given.")
                known[step.name] = step.default
        return known


def at(module: Any, path: str) -> Any:
    """What lies at a dotted path below a module."""
    for step in path.split("."):
        if isinstance(module, (list, tuple)) or (isinstance(module, Sequential) and step.isdigit()):
            module = module[int(step)]
        else:
            module = module[step] if isinstance(module, Mapping) else getattr(module, step)
    return module


class Converter:
    """One conversion: what was made, and what has no counterpart."""

    def __init__(self) -> None:
        self.torch = need("torch", "nb.from_torch")
        self.made: dict[int, Any] = {}  # shared layers stay shared
        self.boxes: dict[int, Any] = {}
        self.layers: list[tuple[str, str, str]] = []
        self.missing: list[str] = []

    def convert(self, layer: Any, path: tuple[str, ...]) -> Any:
        known = self.made.get(id(layer))
        if known is None:
            known = self.made[id(layer)] = self.new(layer, path)
            if known is not None:
                known.training = layer.training
        return known

    def new(self, layer: Any, path: tuple[str, ...]) -> Any:
        nn, name = self.torch.nn, type(layer).__name__
        is_own = getattr(nn, name, None) is type(layer)
        if is_own and name == "Sequential":
            children = dict(layer._modules)  # `named_children` lists a shared layer once
            self.layers.append((text_of(path), name, "Sequential"))
            found = {key: self.convert(child, (*path, key)) for key, child in children.items()}
            if None in found.values():
                return None
            numbered = list(found) == [str(i) for i in range(len(found))]
            return Sequential(*found.values()) if numbered else Sequential(found)
        if is_own and name in BUILDERS:
            try:
                made = BUILDERS[name](layer)
            except Unlike as unlike:
                self.missing.append(f'"{text_of(path)}": torch.nn.{name} with {unlike}')
                return None
            self.layers.append((text_of(path), name, type(made).__name__))
            return made.train(layer.training)
        if type(layer).__module__.startswith("torch.nn"):
            self.missing.append(f'"{text_of(path)}": torch.nn.{name}')
            return None
        return self.custom(layer, path)

    def custom(self, layer: Any, path: tuple[str, ...]) -> Any:
        """A class of the user's own: its parts, its tensors, and the steps of its forward."""
        name = type(layer).__name__
        self.layers.append((text_of(path), name, "TorchModule"))
        try:
            steps = steps_of(layer)
        except Exception as error:  # noqa: BLE001 - whatever torch.fx raises on a forward that depends on values
            first = str(error).splitlines()[0] if str(error) else ""
            self.missing.append(
                f'"{text_of(path)}": the forward of {name} cannot be followed ({type(error).__name__}: {first})'
            )
            return None
        for step in steps:
            table = {"function": FUNCTIONS, "method": METHODS}.get(step.kind)
            if table is not None and step.target not in table:
                self.missing.append(f'"{text_of(path)}": the {step.kind} {step.target} in the forward of {name}')
        made = type(Module)(name, (TorchModule,), {"__module__": __name__, "__doc__": TorchModule.__doc__})()
        made._program = TracedForward(steps)
        for kind, tensors in ((Parameter, layer._parameters), (Buffer, layer._buffers)):
            for key, tensor in tensors.items():
                setattr(made, key, None if tensor is None else self.box(tensor, kind))
        for key, child in layer._modules.items():
            setattr(made, key, None if child is None else self.child(child, (*path, key)))
        return made

    def box(self, tensor: Any, kind: type) -> Any:
        if id(tensor) not in self.boxes:
            self.boxes[id(tensor)] = kind(array_of(tensor))
        return self.boxes[id(tensor)]

    def child(self, layer: Any, path: tuple[str, ...]) -> Any:
        nn = self.torch.nn
        if type(layer) is nn.ModuleList:
            return [self.child(each, (*path, str(i))) for i, each in enumerate(layer)]
        if type(layer) is nn.ModuleDict:
            return {key: self.child(each, (*path, key)) for key, each in layer.items()}
        if type(layer) is nn.ParameterList:
            return [self.box(each, Parameter) for each in layer]
        return self.convert(layer, path)


def from_torch(model: Any, *, like: Any = None) -> Any:
    """Make a module of the same layout as a model of PyTorch, with its numbers, or give its numbers to a module that is there.

    Layers become those of the library, under the same paths, and take the same inputs: images have their channels first, sequences lie
    as `batch_first` says. A class of your own is followed through its forward by `torch.fx`. All or nothing: what has no counterpart
    is named with its path. `model.conversion` of the result says what became of each layer.

    Args:
        model: A `torch.nn.Module`; with `like=` also a state dict, of tensors or of arrays, such as `nb.load` of a file of PyTorch.
        like: A module that gets the numbers, under PyTorch's names and layouts (as `to_torch()` gives them), and is returned.

    Raises:
        MissingDependencyError: PyTorch is not installed.
        ArgumentError: parts without a counterpart, each with its path.
        UnexpectedKeysError, MissingKeysError, ShapeError: `like` has other variables. Nothing was changed.

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
    layers: tuple[tuple[str, str, str], ...] = ()
    made = like
    if like is None:
        if framework_of(model) != "torch":
            raise ArgumentTypeError("nb.from_torch of a state dict needs like=, a module of the same layout.")
        converter = Converter()
        made = converter.convert(model, ())
        if converter.missing:
            listed = "\n".join(f"  {each}" for each in converter.missing)
            raise ArgumentError(
                f"{type(model).__name__} cannot be converted; there is no counterpart for\n{listed}\nNothing was made. Write these "
                "parts yourself and load the numbers: nb.from_torch(model, like=your_module)."
            )
        layers = tuple(converter.layers)
    elif not is_module(like):
        raise ArgumentTypeError(f"like= takes a module; found {type(like).__name__}. Nothing was changed.")
    title = f"cannot load {type(model).__name__} into {type(made).__name__}"
    values, report = matched(made, arrays, title=title, changed="Nothing was changed.")
    write_all(tuple(values), tuple(values.values()))
    if like is None:
        counters = tuple(name for name in report.passed_over if name.endswith(COUNT))
        made.conversion = Conversion(layers, tuple((name, boxes) for name, boxes, _ in report.tensors), counters)
    return made
