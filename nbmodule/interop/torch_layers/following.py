"""The forward of a class of PyTorch as a list of steps, once for each way of calling it that a Python `if` may tell apart.

`torch.fx` runs the forward with stand-ins for tensors. What it leaves to its users is done here: making tensors of sizes that are
stand-ins, `f(*x.shape, -1)`, loops over a `chunk`, `assert`, and arguments that may be None or are flags. In training and in evaluation the
forward is followed separately, so that `self.training` means what it means there.
"""

from __future__ import annotations

import dis
import inspect
import itertools
import linecache
import operator
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest import mock

import numpy as np

from nbmodule.interop.frameworks.function import need
from nbmodule.interop.frameworks.torch import array_of

if TYPE_CHECKING:
    import torch

MOST_WAYS = 16
# Functions of PyTorch that make tensors, and take no stand-ins by themselves.
MAKERS = ("arange", "zeros", "ones", "full", "empty", "eye", "linspace", "tensor", "rand", "finfo", "outer")
KINDS = {
    "placeholder": "input",
    "call_module": "layer",
    "call_function": "function",
    "call_method": "method",
    "get_attr": "attribute",
    "output": "output",
}
ASSERTS = ("_assert", "_assert_is_none")
# Methods whose result shares its numbers with the tensor.
VIEWS = (
    "view",
    "reshape",
    "transpose",
    "permute",
    "getitem",
    "chunk",
    "split",
    "unbind",
    "expand",
    "flatten",
    "squeeze",
    "unsqueeze",
)
Way = tuple[tuple[str, Any], ...]


class ForwardStep(NamedTuple):
    """One node of the graph of a forward.

    `kind` is `input`, `layer` (a submodule is called), `function`, `method`, `attribute`, `constant` or `output`.
    """

    name: str
    kind: str
    target: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    value: Any = None
    """Of a constant."""
    in_place: bool = False
    """Whether it changes its first argument."""
    line: str = ""
    """Where it stands in the source."""


class StepRef(NamedTuple):
    """Stands in the arguments of a step for what another step gave."""

    name: str


class SpreadRef(NamedTuple):
    """Stands for all items of what another step gave, as `*x` does."""

    name: str


@dataclass
class Followed:
    """What the forward of a layer does, by way: whether it trains, and what is given for arguments that are None or flags by default.

    Attributes:
        signature: Of the forward.
        switches: Names of those arguments.
        steps: By way.
        problems: What could not be followed, by way.
    """

    signature: inspect.Signature
    switches: tuple[str, ...]
    steps: dict[Way, list[ForwardStep]] = field(default_factory=dict)
    problems: dict[Way, list[str]] = field(default_factory=dict)


def way_of(training: bool, switches: tuple[str, ...], given: dict[str, Any]) -> Way:
    """Which way a call goes."""
    return (("training", training), *((name, _state(given[name])) for name in switches))


def _state(value: Any) -> Any:
    return value if value is None or isinstance(value, (bool, str)) else "given"


def in_words(way: Way) -> str:
    """A way for messages.

    Example:
        >>> in_words((("training", False), ("mask", "given"), ("causal", True), ("past", None)))
        'in evaluation, with mask=, causal=True'
    """
    given = [f"{name}={'' if state == 'given' else state}" for name, state in way[1:] if state is not None]
    return f"in {'training' if way[0][1] else 'evaluation'}" + (f", with {', '.join(given)}" if given else "")


def followed(layer: torch.nn.Module, known: Callable[[ForwardStep], bool]) -> Followed:
    """Follow the forward of a layer in all ways.

    Args:
        layer: It is not changed.
        known: Whether there is a counterpart for a step.
    """
    signature = inspect.signature(layer.forward)
    options = {
        name: [None, "given"] if one.default is None else [one.default, not one.default]
        for name, one in signature.parameters.items()
        if one.default is None or isinstance(one.default, bool)
    }
    found = Followed(signature, tuple(options))
    ways = list(itertools.product(*options.values()))
    if 2 * len(ways) > MOST_WAYS:  # the default, each argument by itself, all of them
        default = ways[0]
        ways = [way for way in ways if sum(a != b for a, b in zip(way, default)) < 2] + [ways[-1]]
    for training, states in itertools.product((True, False), ways):
        chosen = dict(zip(options, states))
        way: Way = (("training", training), *chosen.items())
        fixed = {name: state for name, state in chosen.items() if state != "given"}
        try:
            steps = steps_of(layer, training, fixed)
        except Exception as error:  # noqa: BLE001 - whatever torch.fx raises on a forward that depends on values
            found.problems[way] = [_untraceable(layer, error)]
            continue
        unknown = [
            f"the {step.kind} {step.target} in the forward of {type(layer).__name__}{step.line}"
            for step in steps
            if not known(step)
        ]
        unknown += [f"{text} in the forward of {type(layer).__name__}" for text in _shared_writes(steps)]
        if unknown:
            found.problems[way] = list(dict.fromkeys(unknown))
        else:
            found.steps[way] = steps
    return found


def _untraceable(layer: torch.nn.Module, error: Exception) -> str:
    first = (str(error).splitlines() or [""])[0]
    lines = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_of_user(frame.filename)]
    where = _spelled(lines[-1].filename, lines[-1].lineno or 0) if lines else ""
    return f"the forward of {type(layer).__name__} cannot be followed{where} ({type(error).__name__}: {first})"


def _shared_writes(steps: list[ForwardStep]) -> list[str]:
    """Writes into a view of a tensor that is read again: the arrays of JAX share nothing."""
    made = {step.name: step for step in steps}
    found = []
    for i, step in enumerate(steps):
        first = step.args[0] if step.in_place and step.args else None
        source = made.get(first.name) if isinstance(first, StepRef) else None
        if source is None or source.target not in VIEWS or not source.args or not isinstance(source.args[0], StepRef):
            continue
        if any(source.args[0] in _refs(later.args) for later in steps[i + 1 :]):
            found.append(f"{step.target} in place on a view{step.line}")
    return found


def _refs(value: Any) -> list[Any]:
    if isinstance(value, (StepRef, SpreadRef)):
        return [StepRef(value.name)]
    return [ref for item in value for ref in _refs(item)] if isinstance(value, (tuple, list)) else []


# -- one way -----------------------------------------------------------------------------------------
def steps_of(layer: torch.nn.Module, training: bool, fixed: dict[str, Any]) -> list[ForwardStep]:
    """What the forward does, in order; submodules are called, not entered.

    Raises:
        Exception: of torch.fx, where the forward depends on values.
    """
    torch, fx = need("torch", "nb.from_torch"), need("torch.fx", "nb.from_torch")
    tracer = _tracer(torch, fx)()
    before, own, layer_was = set(vars(layer)), dict(layer._buffers), layer.training
    with ExitStack() as stack:
        for name in MAKERS:
            stack.enter_context(mock.patch.object(torch, name, _maker(getattr(torch, name), tracer, fx)))
        try:
            object.__setattr__(layer, "training", training)
            graph = tracer.trace(layer, concrete_args=fixed)
            constants = {
                node.target: array_of(_held(layer, node.target))
                for node in graph.nodes
                if node.op == "get_attr" and _is_constant(layer, node.target, before, own)
            }
        finally:
            object.__setattr__(layer, "training", layer_was)
            for name in set(vars(layer)) - before:  # constants that torch.fx left in the module
                object.__delattr__(layer, name)
            for name in set(layer._buffers) - set(own):
                del layer._buffers[name]
    return _as_steps(layer, graph, constants, torch, fx, fixed)


def _is_constant(layer: torch.nn.Module, path: str, before: set[str], own: dict[str, Any]) -> bool:
    """Whether an attribute is a tensor that no state dict holds: made in the forward, a plain attribute, a buffer that is not saved."""
    *above, name = path.split(".")
    owner = _held(layer, ".".join(above)) if above else layer
    if not above and (
        path.startswith("_tensor_constant")
        or (path not in before and path not in own and path not in layer._parameters)
    ):
        return True
    return name in owner._non_persistent_buffers_set or name not in (*owner._parameters, *owner._buffers)


def _held(layer: torch.nn.Module, path: str) -> Any:
    for step in path.split(".") if path else ():
        layer = getattr(layer, step)
    return layer


def _maker(make: Any, tracer: Any, fx: Any) -> Any:
    def made(*args: Any, **kwargs: Any) -> Any:
        def has_proxy(value: object) -> bool:
            return isinstance(value, fx.Proxy) or (isinstance(value, (tuple, list)) and any(map(has_proxy, value)))

        if has_proxy((*args, *kwargs.values())):
            return tracer.create_proxy("call_function", make, args, kwargs)
        return make(*args, **kwargs)

    return made


def _spread(x: Any) -> Any:
    """Stands for `*x`."""
    return x


def _tracer(torch: Any, fx: Any) -> type:
    class Proxy(fx.Proxy):
        def __len__(self) -> int:
            raise TypeError("the len of a tensor is not known")  # `[*x]` asks, and takes no other error

        def __getattr__(self, name: str) -> Any:
            return Attribute(self, name)

        def _changed(self, operation: Any, other: Any) -> Any:
            return self.tracer.create_proxy("call_function", operation, (self, other), {})

        def __iadd__(self, other: Any) -> Any:
            return self._changed(operator.iadd, other)

        def __isub__(self, other: Any) -> Any:
            return self._changed(operator.isub, other)

        def __imul__(self, other: Any) -> Any:
            return self._changed(operator.imul, other)

        def __itruediv__(self, other: Any) -> Any:
            return self._changed(operator.itruediv, other)

    class Attribute(fx.proxy.Attribute, Proxy):
        """What `x.shape` is."""

    class Tracer(fx.Tracer):
        proxy_buffer_attributes = True

        def proxy(self, node: Any) -> Any:
            return Proxy(node, self)

        def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Any]) -> Any:
            found = super().getattr(attr, attr_val, parameter_proxy_cache)
            if not isinstance(found, torch.Tensor) or isinstance(found, fx.Proxy):
                return found
            paths = [path for path, part in self.root.named_modules() if vars(part).get(attr) is attr_val]
            if not paths:
                return found
            path = f"{paths[0]}.{attr}".removeprefix(".")
            if path not in parameter_proxy_cache:
                parameter_proxy_cache[path] = self.create_proxy("get_attr", path, (), {})
            return parameter_proxy_cache[path]

        def is_leaf_module(self, m: torch.nn.Module, module_qualified_name: str) -> bool:
            return True

        def create_node(self, *args: Any, **kwargs: Any) -> Any:
            node = super().create_node(*args, **kwargs)
            node.meta["line"] = _line_of_user()
            return node

        def to_bool(self, obj: object) -> bool:
            frame = _frame_of_user()
            if frame is not None and linecache.getline(frame.f_code.co_filename, frame.f_lineno).lstrip().startswith(
                "assert"
            ):
                return True
            return super().to_bool(obj)

        def iter(self, obj: Any) -> Iterator[Any]:
            node = obj.node
            counted = node.target in ("chunk", torch.chunk) and len(node.args) > 1 and isinstance(node.args[1], int)
            if counted:
                return iter([obj[i] for i in range(node.args[1])])
            frame = _frame_of_user()
            opname = (
                ""
                if frame is None
                else next(i.opname for i in dis.get_instructions(frame.f_code) if i.offset == frame.f_lasti)
            )
            if opname in ("LIST_EXTEND", "CALL_FUNCTION_EX"):
                return iter([self.create_proxy("call_function", _spread, (obj,), {})])
            return super().iter(obj)

        def keys(self, obj: Any) -> Any:
            return iter(())  # of `**kwargs`: a call with more of them is refused

    return Tracer


TORCH, OURS = f"{os.sep}torch{os.sep}", f"{os.sep}nbmodule{os.sep}interop{os.sep}"


def _is_of_user(filename: str) -> bool:
    return (
        TORCH not in filename and OURS not in filename and not filename.startswith("<") and "unittest" not in filename
    )


def _frame_of_user() -> Any:
    frame: Any = sys._getframe(1)
    while frame is not None and not _is_of_user(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def _line_of_user() -> str:
    frame = _frame_of_user()
    return (
        ""
        if frame is None or frame.f_code.co_name == "<module>"
        else _spelled(frame.f_code.co_filename, frame.f_lineno)
    )


def _spelled(filename: str, line: int) -> str:
    text = linecache.getline(filename, line).strip()
    return f", {os.path.basename(filename)}:{line}" + (f" `{text}`" if text else "")


def _as_steps(
    layer: torch.nn.Module, graph: Any, constants: dict[str, Any], torch: Any, fx: Any, fixed: dict[str, Any]
) -> list[ForwardStep]:
    inputs = set(inspect.signature(layer.forward).parameters) - set(fixed)
    nodes = [node for node in graph.nodes if _name_of(node) not in ASSERTS]
    used = {ref for node in nodes for ref in node.all_input_nodes}
    spread = {node: node.args[0] for node in nodes if node.target is _spread}

    def plain(value: Any) -> Any:
        if isinstance(value, fx.Node):
            return SpreadRef(spread[value].name) if value in spread else StepRef(value.name)
        if isinstance(value, (tuple, list)):
            items = [plain(item) for item in value]
            return tuple(items) if isinstance(value, tuple) else items
        if isinstance(value, dict):
            return {key: plain(item) for key, item in value.items()}
        if isinstance(value, slice):
            return slice(plain(value.start), plain(value.stop), plain(value.step))
        if isinstance(value, torch.dtype):
            return np.dtype(bool) if value == torch.bool else str(value).removeprefix("torch.")
        return None if isinstance(value, torch.device) else value

    made = []
    for node in nodes:
        is_check = _name_of(node) == "eq" and node not in used  # that a flag is what it was
        if node in spread or is_check or (node.op == "placeholder" and node.target.lstrip("*") not in inputs):
            continue
        kind, target, value = KINDS[node.op], _name_of(node), None
        if kind == "attribute" and target in constants:
            kind, value = "constant", constants[target]
        in_place = kind == "layer" and bool(getattr(layer.get_submodule(target), "inplace", False))
        if kind in ("function", "method"):
            in_place = target in IN_PLACE or (target[-1] == "_" and target[-2:] != "__" and target not in NAMED_SO)
            target = target if not in_place or target in IN_PLACE else target[:-1]
            in_place = in_place or plain(dict(node.kwargs)).get("inplace") is True
        made.append(
            ForwardStep(
                node.name,
                kind,
                target,
                plain(node.args),
                plain(dict(node.kwargs)),
                value,
                in_place,
                node.meta.get("line", ""),
            )
        )
    return made


IN_PLACE = ("iadd", "isub", "imul", "itruediv", "ior", "iand")
NAMED_SO = ("and_", "or_", "not_", "is_")


def _name_of(node: Any) -> str:
    """The last part of a function's name: `relu` of `torch.nn.functional.relu`."""
    return node.target if isinstance(node.target, str) else getattr(node.target, "__name__", str(node.target))
