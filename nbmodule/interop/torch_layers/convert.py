"""`nb.from_torch`: a module of the same layout as a model of PyTorch, with its numbers."""

from __future__ import annotations

import collections
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from nbmodule.base.foreign import framework_of
from nbmodule.base.format import shown
from nbmodule.core.boxes.commit import freeze
from nbmodule.core.boxes.frame import write_all
from nbmodule.core.boxes.variable import Buffer, Parameter
from nbmodule.core.shape.building import move
from nbmodule.core.shape.walk import is_module
from nbmodule.doors.module import Module
from nbmodule.errors import ArgumentError, ArgumentTypeError
from nbmodule.interop.frameworks.function import need, text_of
from nbmodule.interop.frameworks.torch import array_of, arrays_of
from nbmodule.interop.torch_layers.builders import BUILDERS, Unlike
from nbmodule.interop.torch_layers.following import (
    Followed,
    ForwardStep,
    SpreadRef,
    StepRef,
    followed,
    in_words,
    way_of,
)
from nbmodule.interop.torch_layers.names import COUNT
from nbmodule.interop.torch_layers.operations import FUNCTIONS, METHODS
from nbmodule.interop.torch_layers.states import StateMatch, matched
from nbmodule.nn.containers import Sequential

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Conversion:
    """What became of each part of a model of PyTorch; `model.conversion` of what `nb.from_torch` gave.

    Attributes:
        layers: Path, class in PyTorch, class here.
        tensors: Name in PyTorch, and names of the variables that hold it.
        passed_over: Tensors that have no place here: counters of batch norms.
        unfollowed: Ways of calling a class of your own that have no counterpart; such a call is refused.
    """

    layers: tuple[tuple[str, str, str], ...]
    tensors: tuple[tuple[str, tuple[str, ...]], ...]
    passed_over: tuple[str, ...]
    unfollowed: tuple[str, ...] = ()

    @shown
    def __repr__(self) -> str:
        width = max((len(path or "the model") for path, *_ in self.layers), default=0)
        lines = [f"{len(self.layers)} layers, {len(self.tensors)} tensors converted"]
        lines += [f"  {path or 'the model':{width}}  {theirs} → {ours}" for path, theirs, ours in self.layers]
        lines += [f"  {name} passed over" for name in self.passed_over]
        lines += [f"  not converted: {way}" for way in self.unfollowed]
        return "\n".join(lines)


class TorchModule(Module):
    """A module of PyTorch whose forward is written in Python: its steps, on the layers and tensors that it holds."""

    _program: TracedForward

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self._program.run(self, args, kwargs)


class TracedForward:
    """The steps of a forward, in each way of calling it."""

    def __init__(self, found: Followed, path: str) -> None:
        self.found, self.path = found, path

    def run(self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        inputs, steps = self.begun(module, args, kwargs)
        known = {
            name: [value] for name, value in inputs.items()
        }  # a value that is changed in place changes under all its names

        def filled(value: Any) -> Any:
            if isinstance(value, StepRef):
                return known[value.name][0]
            if isinstance(value, (tuple, list)):
                return type(value)(each for item in value for each in spread(item))
            if isinstance(value, dict):
                return {key: filled(item) for key, item in value.items()}
            if isinstance(value, slice):
                return slice(filled(value.start), filled(value.stop), filled(value.step))
            return value

        def spread(value: Any) -> Any:
            return known[value.name][0] if isinstance(value, SpreadRef) else (filled(value),)

        for step in steps:
            if step.kind == "output":
                return filled(step.args[0])
            if step.kind == "input":
                continue
            given, named = filled(step.args), filled(step.kwargs)
            if step.kind == "layer":
                made = at(module, step.target)(*given, **named)
            elif step.kind == "attribute":
                made = at(module, step.target).value
            elif step.kind == "constant":
                made = step.value
            else:
                made = TABLES[step.kind][step.target](*given, **named)
            if step.in_place and isinstance(step.args[0], StepRef) and hasattr(given[0], "shape"):
                known[step.name] = known[step.args[0].name]
                known[step.name][0] = made
            else:
                known[step.name] = [made]
        return None

    def begun(
        self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[dict[str, Any], list[ForwardStep]]:
        """The inputs by name, and the steps of this way of calling."""
        name, found = type(module).__name__, self.found
        try:
            given = found.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise ArgumentTypeError(
                f"{name}: {error}; {len(args)} arguments were given. Nothing was computed."
            ) from None
        given.apply_defaults()
        for one in found.signature.parameters.values():
            if one.kind is one.VAR_KEYWORD and given.arguments[one.name]:
                raise ArgumentTypeError(
                    f"{name} was converted without {', '.join(given.arguments[one.name])}. Nothing was computed."
                )
        way = way_of(module.training, found.switches, given.arguments)
        if way not in found.steps:
            listed = "; ".join(found.problems.get(way, ["it was not followed when the model was converted"]))
            raise ArgumentError(
                f'{name} ("{self.path}") cannot be called {in_words(way)}: {listed}. Nothing was computed.'
            )
        steps = found.steps[way]
        return {step.name: given.arguments[step.target.lstrip("*")] for step in steps if step.kind == "input"}, steps


TABLES = {"function": FUNCTIONS, "method": METHODS}


def is_known(step: ForwardStep) -> bool:
    """Whether there is a counterpart for a step."""
    return step.kind not in TABLES or step.target in TABLES[step.kind]


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
        self.unfollowed: list[str] = []

    def convert(self, layer: torch.nn.Module, path: tuple[str, ...]) -> Any:
        known = self.made.get(id(layer))
        if known is None:
            known = self.made[id(layer)] = self.new(layer, path)
            if known is not None:
                known.training = layer.training
        return known

    def new(self, layer: torch.nn.Module, path: tuple[str, ...]) -> Any:
        nn, name = self.torch.nn, type(layer).__name__
        is_own = getattr(nn, name, None) is type(layer)
        if is_own and name == "Sequential":
            children: dict[str, Any] = dict(layer._modules)  # `named_children` lists a shared layer once
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
            self.tie(made, layer)
            return made.train(layer.training)
        return self.custom(layer, path, is_own)

    def tie(self, made: Module, layer: torch.nn.Module) -> None:
        """A parameter that two layers share in PyTorch is one variable here, where it lies alike in both."""
        for key, tensor in layer._parameters.items():
            box = getattr(made, key, None)
            if tensor is None or not isinstance(box, Parameter) or tuple(tensor.shape) != box.shape:
                continue
            known = self.boxes.setdefault(id(tensor), box)
            if known is not box and known.shape == box.shape and box.ndim < 3:
                setattr(made, key, known)

    def custom(self, layer: torch.nn.Module, path: tuple[str, ...], is_own: bool) -> Any:
        """A class of the user's own, or one of PyTorch without a counterpart: its parts, its tensors, and the steps of its forward."""
        name, where = type(layer).__name__, text_of(path)
        self.layers.append((where, name, "TorchModule"))
        found = followed(layer, is_known)
        if not found.steps:
            reasons = [f"torch.nn.{name}"] if is_own else list(dict.fromkeys(itertools.chain(*found.problems.values())))
            self.missing += [f'"{where}": {reason}' for reason in reasons]
        else:
            self.unfollowed += [f'"{where}" {in_words(way)}: {problem[0]}' for way, problem in found.problems.items()]
        made = type(Module)(name, (TorchModule,), {"__module__": __name__, "__doc__": TorchModule.__doc__})()
        made._program = TracedForward(found, where)
        for kind, tensors in ((Parameter, layer._parameters), (Buffer, layer._buffers)):
            for key, tensor in tensors.items():
                if key not in layer._non_persistent_buffers_set:
                    setattr(made, key, None if tensor is None else self.box(tensor, kind))
        for key, child in layer._modules.items():
            setattr(made, key, None if child is None else self.child(child, (*path, key)))
        return made if found.steps else None

    def box(self, tensor: torch.Tensor, kind: type) -> Any:
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
    as `batch_first` says. Dtypes are PyTorch's, and what takes no gradient there is frozen. A class of your own is followed through its forward by `torch.fx`. All or nothing: what has no counterpart
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
    unfollowed: tuple[str, ...] = ()
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
        layers, unfollowed = tuple(converter.layers), tuple(converter.unfollowed)
    elif not is_module(like):
        raise ArgumentTypeError(f"like= takes a module; found {type(like).__name__}. Nothing was changed.")
    title = f"cannot load {type(model).__name__} into {type(made).__name__}"
    values, report = matched(made, arrays, title=title, changed="Nothing was changed.")
    if like is None and _take_dtypes(made, arrays, report):
        values, report = matched(made, arrays, title=title, changed="Nothing was changed.")
    write_all(tuple(values), tuple(values.values()))
    if like is None:
        _take_frozen(made, model, report)
        counters = tuple(name for name in report.passed_over if name.endswith(COUNT))
        made.conversion = Conversion(
            layers, tuple((name, boxes) for name, boxes, _ in report.tensors), counters, unfollowed
        )
    return made


def _take_dtypes(made: Module, arrays: Mapping[str, Any], report: StateMatch) -> bool:
    """Give variables the floating dtypes that PyTorch has for them, as far as JAX has these; tells whether any was another."""
    named, others = dict(made.named_tensors()), collections.defaultdict[Any, list[Any]](list)
    for name, boxes, _ in report.tensors:
        dtype = jax.dtypes.canonicalize_dtype(arrays[name].dtype)
        for box in (named[each] for each in boxes):
            if jnp.issubdtype(dtype, jnp.floating) and jnp.issubdtype(box.dtype, jnp.floating) and box.dtype != dtype:
                others[dtype].append(box)
    for dtype, boxes in others.items():
        move(boxes, None, dtype)
    return bool(others)


def _take_frozen(made: Module, model: torch.nn.Module, report: StateMatch) -> None:
    """Freeze what takes no gradient in PyTorch."""
    named = dict(made.named_parameters())
    frozen = {name for name, each in model.named_parameters(remove_duplicate=False) if not each.requires_grad}
    freeze(
        [named[each] for name, boxes, _ in report.tensors if name in frozen for each in boxes if each in named], True
    )
