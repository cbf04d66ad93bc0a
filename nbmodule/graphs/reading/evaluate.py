"""Evaluate a graph node by node, which shows that it says the same as the function it was made
from.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from nbmodule.base.jax_names import bind
from nbmodule.errors import TraceError
from nbmodule.graphs.model import WRITTEN, Computation, Group, Literal, Node, Ref

Values = dict[Ref, Any]


def evaluate(graph: Computation, *args: object, **kwargs: object) -> Any:
    """Run the operations of a graph one after another, loops as Python loops, and give what the
    function gives.

    Args:
        graph: As made by `trace_graph`.
        args: Arguments of the structure the graph was made with; for a `subgraph`, one array for
            each of its inputs.
        kwargs: Likewise.

    Raises:
        TraceError: if the graph ends in a failure, or was read from a file and has lost its
            operations.
        ArgumentError: if the arguments have another structure.
        ShapeError: if an array has another shape.

    Example:
        >>> import jax.numpy as jnp
        >>> from nbmodule.graphs import trace_graph
        >>> graph = trace_graph(lambda x: jnp.sum(x * 2), jnp.ones(3))
        >>> evaluate(graph, jnp.array([1.0, 2.0, 3.0]))
        Array(12., dtype=float32)
    """
    results = _results(graph, args, kwargs)
    results = [
        x
        for i, x in zip(graph.outputs, results, strict=True)
        if graph.nodes[i].operation != WRITTEN
    ]
    signature = graph._signature[0] if graph._signature is not None else None
    if signature is None or signature.result is None:
        return results[0] if len(results) == 1 else tuple(results)
    return jax.tree.unflatten(signature.result, results)


def evaluate_written(graph: Computation, *args: object, **kwargs: object) -> dict[str, Any]:
    """Run the operations of a graph, and give what its function writes into variables, by their
    names.

    Example:
        >>> import jax.numpy as jnp
        >>> from nbmodule.graphs import read_graph
        >>> graph = read_graph(lambda n: (n, {"count": n + 1}), [jnp.zeros(())], written=True)
        >>> evaluate_written(graph, jnp.ones(()))
        {'count': Array(2., dtype=float32)}
    """
    result = zip(graph.outputs, _results(graph, args, kwargs), strict=True)
    return {
        graph.nodes[i].name.removeprefix(f"{WRITTEN}: "): x
        for i, x in result
        if graph.nodes[i].operation == WRITTEN
    }


def _results(graph: Computation, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
    if graph.failure is not None:
        raise TraceError(
            f"the graph cannot be evaluated, since the function could not be traced to its end: "
            f"{graph.failure}"
        )
    signature, constants = graph._signature if graph._signature is not None else (None, {})
    arrays = signature.arrays(args, kwargs) if signature is not None else list(args)
    if len(arrays) != len(graph.inputs):
        raise TraceError(
            f"the graph has {len(graph.inputs)} inputs, {len(arrays)} arrays were given."
        )
    values: Values = {Ref(i): jnp.asarray(x) for i, x in zip(graph.inputs, arrays, strict=True)}
    values.update({Ref(i): value for i, value in constants.items()})
    _run(graph, graph.root.items, values)
    return [values[Ref(i)] for i in graph.outputs]


def _run(graph: Computation, items: Sequence[int], values: Values) -> None:
    for item in items:
        if item < 0:
            _run_group(graph, graph.groups[~item], values)
        else:
            _run_node(graph.nodes[item], values)


def _run_group(graph: Computation, group: Group, values: Values) -> None:
    rule = {"scan": _run_scan, "while": _run_while, "cond": _run_cond, "opaque": _run_opaque}.get(
        group.kind
    )
    if rule is not None:
        rule(graph, group, values)
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
    elif node._equation is None:
        raise TraceError(
            "the graph has lost its operations (it was copied by pickle); trace the function again."
        )
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
