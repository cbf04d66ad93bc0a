"""One run of a native PyTorch model, operation by operation; `nb.graph` and `nb.first_nonfinite` of
such a model.
"""

from __future__ import annotations

import inspect
import math
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import jax

from nbmodule.base.foreign import is_tensor
from nbmodule.base.kinds import Args, Kwargs
from nbmodule.base.scopes import PACKAGE
from nbmodule.calls.nonfinite import NonFinite, Origins, range_of
from nbmodule.errors import ArgumentError
from nbmodule.graphs import Graph
from nbmodule.graphs.model import Failure, Group, Literal, Ref, Source, Value
from nbmodule.graphs.reading.builder import Builder
from nbmodule.graphs.reading.trace import add_totals, input_names, is_array, mark_dead
from nbmodule.interop.torch_native.parts import check_viewable, unchanged, without_compiled
from nbmodule.interop.torch_native.tensors import dtype_of, host_copy, map_tensors, tensors_in

if TYPE_CHECKING:
    import torch
    from torch import Tensor


class ModuleRun(NamedTuple):
    """A call of a module that is running, or has run."""

    path: str
    class_name: str
    args: Args
    kwargs: Kwargs


class TorchOperation(NamedTuple):
    """One operation that has run."""

    name: str
    inputs: list[Any]
    outputs: list[Any]
    parameters: str
    flops: int
    source: Source | None
    paths: list[str]
    """Of the modules that are running, the innermost last."""

    @property
    def path(self) -> str:
        """Path of the module in which it ran."""
        return self.paths[-1] if self.paths else ""


@contextmanager
def followed(
    model: object,
    operation: Callable[[TorchOperation], None],
    entered: Callable[[ModuleRun], None] = lambda run: None,
    left: Callable[[ModuleRun, Any], None] = lambda run, outputs: None,
) -> Iterator[None]:
    """Report the operations that run in a block, and calls of the model's modules when they begin
    and when they have returned.
    """
    check_viewable(without_compiled(model), "a run of the model", needs_values=False)
    with ExitStack() as stack:
        runs: list[ModuleRun] = []

        def hook(path: str, module: torch.nn.Module) -> None:
            def before(_: object, args: Args, kwargs: Kwargs) -> None:
                runs.append(ModuleRun(path, type(module).__name__, args, kwargs))
                entered(runs[-1])

            def after(_: object, args: object, kwargs: object, outputs: object) -> None:
                left(runs.pop(), outputs)

            before_call = module.register_forward_pre_hook(before, with_kwargs=True, prepend=True)
            stack.callback(before_call.remove)
            stack.callback(module.register_forward_hook(after, with_kwargs=True).remove)

        for path, module in without_compiled(model).named_modules():
            hook(path, module)
        stack.enter_context(_mode(operation, runs))
        yield


def _mode(operation: Callable[[TorchOperation], None], runs: list[ModuleRun]) -> Any:
    from torch.overrides import TorchFunctionMode

    class Followed(TorchFunctionMode):
        """Sees each function of PyTorch as it was called."""

        def __torch_function__(
            self,
            func: Callable[..., Any],
            types: object,
            args: Args = (),
            kwargs: Kwargs | None = None,
        ) -> Any:
            kwargs = kwargs or {}
            outputs = func(*args, **kwargs)
            results, inputs_ = tensors_in(outputs), tensors_in((args, kwargs))
            name = name_of(func)
            if results and name not in _SILENT:
                parameters, flops = _parameters(args, kwargs), flops_of(name, inputs_, results)
                source, paths = line_of_user(), [run.path for run in runs]
                operation(TorchOperation(name, inputs_, results, parameters, flops, source, paths))
            return outputs

    return Followed()


_SILENT = frozenset(
    "requires_grad_ register_hook data grad detach is_floating_point retain_grad".split()
)


def name_of(func: Callable[..., Any]) -> str:
    """`linear`, `add`, `getitem`; of a property its own name."""
    name = getattr(func, "__name__", str(func))
    if name == "__get__":
        name = getattr(getattr(func, "__self__", None), "__name__", "get")
    return name.strip("_") if name.startswith("__") else name


def _parameters(args: Args, kwargs: Kwargs) -> str:
    """Return the arguments other than tensors as text."""
    texts = [repr(value) for value in args if _is_plain(value)]
    for name, value in kwargs.items():
        if value is not None and _is_plain(value):
            texts.append(f"{name}={value!r}")
    return ", ".join(texts)


def _is_plain(value: object) -> bool:
    if isinstance(value, (tuple, list)):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, (bool, int, float, str))


def flops_of(name: str, inputs_: list[Any], results: list[Any]) -> int:
    """Estimated floating-point operations: two for each product that is summed, one for each
    element otherwise.

    Example:
        >>> flops_of("relu", [], [])
        0
    """
    size = results[0].numel() if results else 0
    bias = size if len(inputs_) > 2 else 0
    if name == "linear" and len(inputs_) > 1:
        return 2 * size * inputs_[1].shape[-1] + bias
    if name.startswith("conv") and len(inputs_) > 1:
        channels_out, channels_in, *kernel = inputs_[1].shape
        summed = channels_out if "transpose" in name else channels_in
        return 2 * size * summed * math.prod(kernel) + bias
    if name in ("matmul", "mm", "bmm", "addmm", "baddbmm", "rmatmul"):
        return 2 * size * inputs_[-2 if name != "rmatmul" else -1].shape[-1]
    if name == "scaled_dot_product_attention":
        query, key = inputs_[:2]
        return 4 * query.numel() * key.shape[-2]
    return 0 if name in _MOVES else size


_MOVES = frozenset(
    "view reshape flatten unflatten transpose permute t T mT getitem squeeze unsqueeze expand "
    "repeat cat stack chunk split unbind narrow contiguous to type float clone embedding "
    "index_select gather pad roll zeros ones empty arange tensor as_tensor dropout".split()
)


def line_of_user(error: BaseException | None = None) -> Source | None:
    """The innermost line of the user, of neither PyTorch nor nbmodule, that runs or stands in the
    traceback of an error.
    """
    torch = os.path.dirname(sys.modules["torch"].__file__ or "") + os.sep
    frames = traceback.walk_stack(inspect.currentframe())
    if error is not None:
        frames = reversed(list(traceback.walk_tb(error.__traceback__)))
    for frame, line in frames:
        code = frame.f_code
        if not code.co_filename.startswith((torch, PACKAGE, "<frozen")):
            return Source(code.co_filename, line, code.co_name)
    return None


# -- the graph --
def graph(model: torch.nn.Module, args: Args, kwargs: Kwargs) -> Graph:
    """The graph of one run, which leaves the model as it was."""
    drawing = _Drawing(without_compiled(model), args, kwargs)
    outputs, error = None, None
    with unchanged(model), followed(model, drawing.operation, drawing.entered, drawing.left):
        try:
            outputs = model(*args, **kwargs)
        except Exception as caught:  # noqa: BLE001 - the graph ends there and says why
            error = caught
    return drawing.finished(outputs, error)


class _Drawing:
    """A graph in the making."""

    def __init__(self, model: torch.nn.Module, args: Args, kwargs: Kwargs) -> None:
        self.builder = Builder()
        self.builder.root.name = self.builder.root.title = type(model).__name__
        self.groups: list[Group] = [self.builder.root]
        # By id: a tensor, which is kept alive, and the node that made it
        self.made: dict[int, tuple[Any, Ref]] = {}
        self.names = {
            id(tensor): name for name, tensor in (*model.named_parameters(), *model.named_buffers())
        }
        arguments = named(model, args, kwargs)
        self.inputs = [self.end("input", tensor, name) for name, tensor in arguments]
        self.last: list[Any] = []  # outputs of the last operation

    def end(self, category: str, tensor: Tensor, name: str) -> int:
        if id(tensor) not in self.made:
            root, value = self.builder.root, value_of(tensor)
            ref = self.builder.add(root, category, category, (), (value,), name=name)
            self.made[id(tensor)] = (tensor, ref)
        return self.made[id(tensor)][1].node

    def entered(self, run: ModuleRun) -> None:
        if run.path:
            parent = self.groups[-1]
            name = run.path.removeprefix(f"{parent.path}.") if parent.path else run.path
            siblings = [group for group in self.builder.groups if group.parent == parent.index]
            same = sum(group.path == run.path for group in siblings)
            group = self.builder.open(parent, name, "scope", path=run.path, call=same)
            group.title = run.class_name
            self.groups.append(group)

    def left(self, run: ModuleRun, outputs: object) -> None:
        if run.path:
            self.groups.pop()

    def operation(self, ran: TorchOperation) -> None:
        self.last = ran.outputs
        operands = [self.operand(tensor) for tensor in ran.inputs]
        values = [value_of(tensor) for tensor in ran.outputs]
        size = sum(tensor.numel() * tensor.element_size() for tensor in (*ran.inputs, *ran.outputs))
        ref = self.builder.add(
            self.groups[-1],
            ran.name,
            "operation",
            operands,
            values,
            parameters=ran.parameters,
            flops=ran.flops,
            bytes=size,
            _locate=ran.source,
        )
        for number, tensor in enumerate(ran.outputs):
            self.made[id(tensor)] = (tensor, Ref(ref.node, number))

    def operand(self, tensor: Tensor) -> Ref | Literal:
        known = self.made.get(id(tensor))
        if known is not None:
            return known[1]
        name = self.names.get(id(tensor), "")
        return Ref(self.end("variable" if name else "constant", tensor, name))

    def finished(self, outputs: object, error: Exception | None) -> Graph:
        builder, root, failure = self.builder, self.builder.root, None
        if error is None:
            ends = [
                builder.add(root, "output", "output", (self.operand(tensor),), (value_of(tensor),))
                for tensor in tensors_in(outputs)
            ]
        else:
            kind, message, group = type(error).__name__, str(error), self.groups[-1]
            source = line_of_user(error)
            failure = Failure(kind, message, source, (), group.path)
            operands = [self.made[id(tensor)][1] for tensor in self.last]
            first, *_ = message.splitlines() or [""]
            facts = {"parameters": f"{kind}: {first}", "_locate": source}
            ends = [builder.add(group, "failed", "failure", operands, (), **facts)]
        outputs_ = tuple(end.node for end in ends)
        variables = [node.index for node in builder.nodes if node.kind == "variable"]
        inputs = (*variables, *self.inputs)
        drawn = Graph(builder.nodes, builder.groups, root, inputs, outputs_, failure)
        mark_dead(drawn, set(outputs_), keep_all=failure is not None)
        add_totals(drawn)
        return drawn


def named(model: torch.nn.Module, args: Args, kwargs: Kwargs) -> list[tuple[str, Any]]:
    """The tensors among the arguments of a forward, by the names of its parameters."""
    by_name = [kwargs[name] for name in sorted(kwargs)]
    arrays = filter(is_array, jax.tree.leaves((args, by_name)))
    pairs = zip(input_names(model.forward, args, kwargs), arrays, strict=True)
    return [(name, array) for name, array in pairs if is_tensor(array)]


def value_of(tensor: Tensor) -> Value:
    return Value(tuple(tensor.shape), dtype_of(tensor), tensor.element_size())


def shapes_of(tree: object) -> Any:
    """Nested values with the shape and dtype of each tensor in its place."""
    return map_tensors(
        tree, lambda x: jax.ShapeDtypeStruct(tuple(x.shape), dtype_of(x)), plain=True
    )


# -- the first value that is not finite --
def first_nonfinite(
    model: torch.nn.Module, args: Args, kwargs: Kwargs, backward: bool
) -> NonFinite | None:
    """The first operation that made NaN or Inf; the model stays as it was."""
    search = _Search(backward)
    with unchanged(model, gradients=backward):
        with followed(model, search.operation):
            outputs = model(*args, **kwargs)
        ran = search.origins.find(tensors_in(outputs))
        search.found = None if ran is None else record(ran, "forward", ran.outputs)
        if ran is None and backward:
            total: Any = sum(
                x.sum() for x in tensors_in(outputs) if x.is_floating_point() and x.requires_grad
            )
            if not hasattr(total, "backward"):
                raise ArgumentError(
                    "nb.first_nonfinite(backward=True): there is no argument to differentiate."
                )
            total.backward()
    return search.found or _from_the_start(without_compiled(model), args, kwargs, outputs)


class _Search:
    """A search for the first operation that made NaN or Inf."""

    def __init__(self, backward: bool) -> None:
        self.backward = backward
        self.found: NonFinite | None = None
        self.origins = Origins(lambda x: int(bad([x])), lambda x: int(x.detach().isnan().any()))
        # By id: a tensor and the last operation that read it
        self.readers: dict[int, tuple[Any, TorchOperation]] = {}

    def operation(self, ran: TorchOperation) -> None:
        for tensor in ran.inputs if self.backward else ():
            self.readers[id(tensor)] = (tensor, ran)
            if tensor.requires_grad:
                tensor.register_hook(lambda gradient, t=tensor: self.came_by(t, gradient))
        self.origins.record(ran, ran.path, ran.inputs, ran.outputs)

    def came_by(self, tensor: object, gradient: object) -> None:
        """A gradient is not finite first where the operation that read its tensor
        differentiates.
        """
        if self.found is None and bad([gradient]):
            self.found = record(self.readers[id(tensor)][1], "backward", [gradient])


def bad(tensors: list[Any]) -> bool:
    """Return True if a value is NaN or infinite."""
    return any(x.is_floating_point() and not bool(x.detach().isfinite().all()) for x in tensors)


def record(ran: TorchOperation, phase: str, outputs: list[Any]) -> NonFinite:
    location, code = (ran.source.place, ran.source.code) if ran.source is not None else ("", "")
    given, gave = (tuple(range_of(host_copy(x)) for x in side) for side in (ran.inputs, outputs))
    return NonFinite(ran.path, ran.name, location, code, phase, given, gave)


def _from_the_start(
    model: torch.nn.Module, args: Args, kwargs: Kwargs, outputs: object
) -> NonFinite | None:
    if not bad(tensors_in(outputs)):
        return None
    sources = [(f"argument {name}", "argument", x) for name, x in named(model, args, kwargs)]
    variables = (*model.named_parameters(), *model.named_buffers())
    for path, kind, tensor in (*sources, *((name, "variable", x) for name, x in variables)):
        if bad([tensor]):
            return NonFinite(path, kind, outputs=(range_of(host_copy(tensor)),))
    return None
