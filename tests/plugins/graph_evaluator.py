"""Evaluate a graph node by node, loops as Python loops: it must give what its function gives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from nbmodule.base.jax_names import bind
from nbmodule.base.trees import separated
from nbmodule.graphs.model import WRITTEN, Computation, Group, Literal, Node, Ref
from nbmodule.graphs.reading.trace import is_array

Values = dict[Ref, Any]


def evaluate(graph: Computation, *args: object, **kwargs: object) -> Any:
    """Run the operations of a graph one after another, and return what its function returns.

    Args:
        graph: From `trace_graph`, or a subgraph of it, which takes one array for each input.
        args: Arguments of the structure the graph was traced with; what is no array is ignored.
        kwargs: Likewise.
    """
    results = [x for name, x in _results(graph, args, kwargs) if name is None]
    if graph._result is None:
        return results[0] if len(results) == 1 else tuple(results)
    return jax.tree.unflatten(graph._result, results)


def evaluate_written(graph: Computation, *args: object, **kwargs: object) -> dict[str, Any]:
    """Run the operations of a graph, and return the values written into variables, by name."""
    return {name: x for name, x in _results(graph, args, kwargs) if name is not None}


def _results(
    graph: Computation, args: Sequence[Any], kwargs: dict[str, Any]
) -> list[tuple[str | None, Any]]:
    """Return each output with the name of the variable that it is written to."""
    assert graph.failure is None
    arrays, _ = separated((args, kwargs), is_array)
    values: Values = {Ref(i): jnp.asarray(x) for i, x in zip(graph.inputs, arrays, strict=True)}
    values.update({Ref(i): value for i, value in graph._constants.items()})
    _run(graph, graph.root.items, values)
    ends = [graph.nodes[i] for i in graph.outputs]
    names = [
        node.name.removeprefix(f"{WRITTEN}: ") if node.operation == WRITTEN else None
        for node in ends
    ]
    return [(name, values[Ref(node.index)]) for name, node in zip(names, ends, strict=True)]


def _run(graph: Computation, items: Sequence[int], values: Values) -> None:
    for item in items:
        if item < 0:
            _run_group(graph, graph.groups[~item], values)
        else:
            _run_node(graph.nodes[item], values)


def _run_group(graph: Computation, group: Group, values: Values) -> None:
    rules = {"scan": _run_scan, "while": _run_while, "cond": _run_cond, "opaque": _run_opaque}
    if group.kind in rules:
        rules[group.kind](graph, group, values)
    else:
        _run(graph, group.items, values)


def _operand(operand: Ref | Literal, values: Values) -> Any:
    return values[operand] if isinstance(operand, Ref) else operand.value


def _run_node(node: Node, values: Values) -> None:
    if node.kind in ("input", "variable", "constant"):
        return
    operands = [_operand(x, values) for x in node.inputs]
    if node.kind != "operation":
        results = operands[:1]
    else:
        results = bind(node._equation, operands)
    values.update({Ref(node.index, i): result for i, result in enumerate(results)})


def _run_scan(graph: Computation, group: Group, values: Values) -> None:
    carry, slices = group.ports.get("carry", ()), group.ports.get("slice", ())
    after, stacks = group.ports.get("carried", ()), group.ports.get("stack", ())
    state = [_operand(graph.nodes[i].inputs[0], values) for i in carry]
    whole = [_operand(graph.nodes[i].inputs[0], values) for i in slices]
    ends = {*carry, *slices, *after, *stacks}
    body = [item for item in group.items if item < 0 or item not in ends]
    collected: list[list[Any]] = [[] for _ in stacks]
    steps = range(group.count or 0)
    for step in reversed(steps) if group._equation.params["reverse"] else steps:
        values.update({Ref(i): x for i, x in zip(carry, state, strict=True)})
        values.update({Ref(i): x[step] for i, x in zip(slices, whole, strict=True)})
        _run(graph, body, values)
        state = [_operand(graph.nodes[i].inputs[0], values) for i in after]
        for result, i in zip(collected, stacks, strict=True):
            result.append(_operand(graph.nodes[i].inputs[0], values))
    values.update({Ref(i): x for i, x in zip(after, state, strict=True)})
    for i, result in zip(stacks, collected, strict=True):
        result = result[::-1] if group._equation.params["reverse"] else result
        value = graph.nodes[i].outputs[0]
        values[Ref(i)] = jnp.stack(result) if result else jnp.zeros(value.shape, value.dtype)


def _run_while(graph: Computation, group: Group, values: Values) -> None:
    carry, after = group.ports.get("carry", ()), group.ports.get("carried", ())
    (decided,) = group.ports["condition"]
    test, body = (g for g in graph.children(group) if isinstance(g, Group))
    state = [_operand(graph.nodes[i].inputs[0], values) for i in carry]
    while True:
        values.update({Ref(i): x for i, x in zip(carry, state, strict=True)})
        _run(graph, test.items, values)
        if not bool(values[Ref(decided)]):
            break
        _run(graph, body.items, values)
        state = [_operand(graph.nodes[i].inputs[0], values) for i in after]
    values.update({Ref(i): x for i, x in zip(after, state, strict=True)})


def _run_cond(graph: Computation, group: Group, values: Values) -> None:
    chosen = group.ports.get("select", ())
    branches = [g for g in graph.children(group) if isinstance(g, Group) and g.kind == "branch"]
    if not chosen:
        return
    index = int(_operand(graph.nodes[chosen[0]].inputs[0], values))
    index = min(max(index, 0), len(branches) - 1)
    _run(graph, branches[index].items, values)
    for i in chosen:
        values[Ref(i)] = _operand(graph.nodes[i].inputs[1 + index], values)


def _run_opaque(graph: Computation, group: Group, values: Values) -> None:
    operands = [_operand(graph.nodes[i].inputs[0], values) for i in group.ports.get("argument", ())]
    results = bind(group._equation, operands)
    values.update({Ref(i): x for i, x in zip(group.ports.get("result", ()), results, strict=True)})
