"""Trace a function once, for shapes only, and give its graph; a failure gives the graph up to where
it failed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax

from nbmodule.errors import ArgumentError
from nbmodule.graphs.model import WRITTEN, Computation, Literal, Node, Ref, Value
from nbmodule.graphs.reading.jaxpr import Reader, value_of
from nbmodule.graphs.reading.signature import Signature, input_names, output_names


def trace(
    fn: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    variables: int = 0,
    names: Sequence[str | None] | Mapping[int, str] | None = None,
    titles: Mapping[str, str] | None = None,
    aliases: Mapping[str, str] | None = None,
    name: str | None = None,
    written: bool = False,
) -> Computation:
    """See `nbmodule.graphs.graph.read_graph`."""
    kwargs = dict(kwargs or {})
    signature = Signature.of(args, kwargs)
    arrays = signature.arrays(args, kwargs)
    labels = _labels(input_names(fn, args, kwargs), names)
    count = len(Signature.of(args[:variables], {}).places)
    callback = (titles or {}, aliases or {})
    try:
        closed, shape = jax.make_jaxpr(lambda *a: signature.call(fn, a), return_shape=True)(*arrays)
    except Exception as error:  # noqa: BLE001 - whatever it is, the graph says so
        from nbmodule.graphs.reading.failure import partial_trace

        partial = partial_trace(lambda *a: signature.call(fn, a), arrays, error)
        return _finish(
            partial.jaxpr, labels, count, [], signature, callback, _name(fn, name), partial
        )
    results, effects = shape if written else (shape, {})
    structure = jax.tree.structure(results)
    outputs = [*output_names(structure), *(f"{WRITTEN}: {name}" for name in sorted(effects))]
    return _finish(
        closed,
        labels,
        count,
        outputs,
        replace(signature, result=structure),
        callback,
        _name(fn, name),
        None,
    )


def _labels(
    default: list[str], names: Sequence[str | None] | Mapping[int, str] | None
) -> list[str]:
    supplied = dict(names) if isinstance(names, Mapping) else dict(enumerate(names or ()))
    surplus = [position for position in supplied if not 0 <= position < len(default)]
    if surplus:
        raise ArgumentError(
            f"names are given for {max(surplus) + 1} arrays, the arguments hold {len(default)}."
        )
    return [supplied.get(i) or label for i, label in enumerate(default)]


def _name(fn: Callable[..., Any], name: str | None) -> str:
    while not hasattr(fn, "__name__") and hasattr(fn, "func"):  # functools.partial
        fn = getattr(fn, "func")  # noqa: B009 - a partial has it, a function has not
    owned = name or getattr(fn, "__name__", type(fn).__name__)
    return "lambda" if owned == "<lambda>" else owned


def _finish(
    closed: Any,
    labels: list[str],
    variables: int,
    outputs: list[str],
    signature,
    callback,
    name,
    partial,
) -> Computation:
    reader = Reader()
    titles, reader.aliases = callback
    reader.root.name = name
    inputs = []
    for i, (label, variable) in enumerate(zip(labels, closed.jaxpr.invars, strict=True)):
        category = "variable" if i < variables else "input"
        inputs.append(
            reader.add(reader.root, category, category, (), (value_of(variable.aval),), name=label)
        )
    results = reader.read(_unwrapped(closed), inputs, reader.root)
    ends = []
    for label, operand in zip(outputs, results, strict=partial is None):
        value = _value_of(reader, operand)
        operation = WRITTEN if label.startswith(f"{WRITTEN}: ") else "output"
        ends.append(
            reader.add(reader.root, operation, "output", (operand,), (value,), name=label).node
        )
    failure = None
    if partial is not None:
        failure = partial.failure
        ends = [_add_failure(reader, partial, results)]
    graph = Computation(
        reader.nodes,
        reader.groups,
        reader.root,
        tuple(r.node for r in inputs),
        tuple(ends),
        failure,
        (signature, {ref.node: value for ref, value in reader.constants.values()}),
        aliases=reader.aliases,
    )
    for group in graph.groups:
        group.title = titles.get(group.path, "") if group.kind == "scope" else ""
    graph.root.title = titles.get("", "")
    mark_dead(graph, {*ends, *reader.effects}, keep_all=partial is not None)
    add_totals(graph)
    return graph


def _value_of(reader: Reader, operand: Ref | Literal) -> Value:
    return (
        reader.nodes[operand.node].outputs[operand.output]
        if isinstance(operand, Ref)
        else Value((), operand.dtype)
    )


def _unwrapped(closed: Any) -> Any:
    """The inside of a function that is compiled as a whole: its one group would say nothing."""
    equations = closed.jaxpr.eqns
    if (
        len(equations) == 1
        and equations[0].primitive.name in ("jit", "pjit")
        and not len(equations[0].source_info.name_stack)
    ):
        same = (
            list(equations[0].invars) == list(closed.jaxpr.invars)
            and equations[0].outvars == closed.jaxpr.outvars
        )
        return equations[0].params["jaxpr"] if same else closed
    return closed


def _add_failure(reader: Reader, partial: Any, results: Sequence[Ref | Literal]) -> int:
    failure = partial.failure
    group = reader.group_for(partial.scopes)
    words = f"{failure.error}: {failure.message.splitlines()[0] if failure.message else ''}"
    ref = reader.add(
        group, failure.operation, "failure", results, (), parameters=words, _locate=failure.source
    )
    return ref.node


def mark_dead(graph: Computation, alive: set[int], keep_all: bool = False) -> None:
    """Mark the nodes on which none of these depends; the end of a loop's body feeds its beginning."""
    feeds = _loop_feeds(graph)
    if (
        keep_all
    ):  # of a program that ends early nothing is dead but the variables that it had not come to
        alive = alive | {node.index for node in graph.nodes if node.kind != "variable"}
    stack = list(alive)
    reached = set(alive)
    while stack:
        node = stack.pop()
        for next_ in (
            *(x.node for x in graph.nodes[node].inputs if isinstance(x, Ref)),
            *feeds.get(node, ()),
        ):
            if next_ not in reached:
                reached.add(next_)
                stack.append(next_)
    for node in graph.nodes:
        node.dead = node.index not in reached


def _loop_feeds(graph: Computation) -> dict[int, tuple[int, ...]]:
    feeds: dict[int, tuple[int, ...]] = {}
    for group in graph.groups:
        after, tests = group.ports.get("carried", ()), group.ports.get("condition", ())
        for before, end in zip(group.ports.get("carry", ()), after, strict=True):
            feeds[before] = (end,)
            feeds[end] = tests
        if group.kind == "opaque":
            for end in group.ports.get("result", ()):
                feeds[end] = group.ports.get("argument", ())
    return feeds


def add_totals(graph: Computation) -> None:
    """Sum operations, FLOPs and bytes of each group; dead nodes do not count."""
    for group in (*reversed(graph.groups), graph.root):
        flops, size, operations = [0], [0], 0
        for child in graph.children(group):
            if isinstance(child, Node):
                counted = not child.dead and child.kind == "operation"
                flops.append(child.flops if counted else 0)
                size.append(child.bytes if counted else 0)
                operations += counted
            else:
                flops.append(child.flops)
                size.append(child.bytes)
                operations += child.operations
        whole = max if group.kind == "cond" else sum
        times = group.count if group.count is not None else 1
        group.flops, group.bytes, group.operations = (
            whole(flops) * times,
            whole(size) * times,
            operations,
        )
