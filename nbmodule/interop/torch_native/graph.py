"""`nb.graph` of a model of PyTorch: from one run, operation by operation, so that any forward will
do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax

from nbmodule.base.foreign import is_tensor
from nbmodule.graphs import Graph
from nbmodule.graphs.model import Failure, Group, Literal, Ref, Value
from nbmodule.graphs.reading.builder import Builder
from nbmodule.graphs.reading.trace import add_totals, input_names, is_array, mark_dead
from nbmodule.interop.torch_native.operations import (
    ModuleRun,
    RunListener,
    TorchOperation,
    followed,
    line_of_user,
)
from nbmodule.interop.torch_native.parts import unchanged, without_compiled
from nbmodule.interop.torch_native.tensors import dtype_of, mapped, tensors_in

if TYPE_CHECKING:
    import torch
    from torch import Tensor


def graph(model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Graph:
    """The graph of one run, which leaves the model as it was."""
    drawing = _Drawing(without_compiled(model), args, kwargs)
    outputs, error = None, None
    with unchanged(model), followed(model, drawing):
        try:
            outputs = model(*args, **kwargs)
        except Exception as caught:  # noqa: BLE001 - the graph ends there and says why
            error = caught
    return drawing.finished(outputs, error)


class _Drawing(RunListener):
    """A graph in the making."""

    def __init__(
        self, model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self.builder = Builder()
        self.builder.root.name = self.builder.root.title = type(model).__name__
        self.groups: list[Group] = [self.builder.root]
        # By id: a tensor, which is kept alive, and what made it
        self.made: dict[int, tuple[Any, Ref]] = {}
        self.names = {
            id(tensor): name for name, tensor in (*model.named_parameters(), *model.named_buffers())
        }
        arguments = named(model, args, kwargs)
        self.inputs = [self.end("input", tensor, name) for name, tensor in arguments]
        self.last: list[Any] = []  # what the last operation gave

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
            code = source.code if source is not None else ""
            failure = Failure(kind, message, "failed", source, code, (), group.path)
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


def named(
    model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[tuple[str, Any]]:
    """The tensors among the arguments of a forward, by the names of its parameters."""
    by_name = [kwargs[name] for name in sorted(kwargs)]
    arrays = filter(is_array, jax.tree.leaves((args, by_name)))
    pairs = zip(input_names(model.forward, args, kwargs), arrays, strict=True)
    return [(name, array) for name, array in pairs if is_tensor(array)]


def value_of(tensor: Tensor) -> Value:
    return Value(tuple(tensor.shape), dtype_of(tensor), tensor.element_size())


def shapes_of(tree: object) -> Any:
    """Nested values with the shape and dtype of each tensor in its place."""
    return mapped(tree, lambda tensor: jax.ShapeDtypeStruct(tuple(tensor.shape), dtype_of(tensor)))
