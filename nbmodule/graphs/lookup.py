"""Find groups of a graph by path, pattern or number, and cut one out as a graph of its own."""

from __future__ import annotations

import difflib
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import TypeVar

from nbmodule.base.kinds import is_whole
from nbmodule.errors import ArgumentTypeError, PathError
from nbmodule.graphs.model import ROOT, Computation, Group, Literal, Node, Ref, Value

Part = TypeVar("Part", bound=Computation)


def find(graph: Computation, path: str, call: int | None = None) -> Group:
    """The group of a submodule's call; see `Graph.find`."""
    if not isinstance(path, str):
        raise ArgumentTypeError(
            f"a submodule of a graph is found by its path, as text; found {type(path).__name__}."
        )
    if path == "":
        return graph.root
    path = graph.aliases.get(path, path)
    results = [g for g in graph.groups if g.kind == "scope" and g.path == path]
    if not results:
        raise PathError(_unknown(graph, path))
    if call is None:
        return results[0]
    for group in results:
        if group.call == call:
            return group
    calls = sorted({g.call for g in results})
    raise PathError(
        f'the graph has no call {call} of "{path}"; it has the calls {calls} (0 is the first).'
    )


def glob(graph: Computation, pattern: str) -> list[Group]:
    """The groups of submodules whose path matches the pattern; see `Graph.glob`."""
    fitting = {path for aliase, path in graph.aliases.items() if fnmatchcase(aliase, pattern)}
    return [
        g
        for g in graph.groups
        if g.kind == "scope" and (g.path in fitting or fnmatchcase(g.path, pattern))
    ]


def resolve(graph: Computation, target: str | int | Group, call: int | None = None) -> Group:
    """The group that a path, an index into `graph.groups`, or a group stands for.

    Raises:
        PathError: if there is no such group; the message names the closest path or the range of
            indices.
    """
    if isinstance(target, Group):
        return target
    if isinstance(target, str):
        return find(graph, target, call)
    if not is_whole(target):
        raise ArgumentTypeError(
            f"a subgraph is named by its path or its index, not by {type(target).__name__} "
            f"{target!r}."
        )
    if not 0 <= target < len(graph.groups):
        have = f"indices 0 to {len(graph.groups) - 1}" if graph.groups else "no groups"
        raise PathError(
            f"the graph has no group {target}; it has {have}. `print(graph)` lists them."
        )
    return graph.groups[target]


def _unknown(graph: Computation, path: str) -> str:
    paths = list(dict.fromkeys(g.path for g in graph.groups if g.kind == "scope"))
    if not paths:
        return f'the graph has no submodule "{path}": no operation in it was made by a submodule.'
    close = difflib.get_close_matches(path, paths, n=1, cutoff=0.0) or paths[:1]
    return (
        f'the graph has no submodule "{path}"; the closest path is "{close[0]}". '
        f"`print(graph)` lists them all."
    )


def subgraph(graph: Part, group: Group) -> Part:
    """One group as a graph of its own; values from outside become its inputs, what is read outside
    its outputs.
    """
    if group.index == ROOT:
        return graph
    inside = {node.index for node in graph.nodes_in(group)}
    entering = _entering(graph, inside)
    leaving = _leaving(graph, inside)
    nodes: list[Node] = []
    places: dict[Ref, Ref] = {}
    for ref in entering:
        origin = graph.nodes[ref.node]
        places[ref] = Ref(len(nodes))
        nodes.append(
            _input(
                origin,
                len(nodes),
                ref.output,
                named=origin.kind in ("input", "variable", "constant"),
            )
        )
    count = len(nodes)
    numbers = {old: count + new for new, old in enumerate(sorted(inside))}
    groups, group_numbers = _copy_groups(graph, group, numbers)
    for old in sorted(inside):
        node = graph.nodes[old]
        inputs = tuple(_moved(x, places, numbers) for x in node.inputs)
        nodes.append(
            replace(node, index=numbers[old], inputs=inputs, group=group_numbers[node.group])
        )
    outputs = []
    for ref in leaving:
        value = graph.nodes[ref.node].outputs[ref.output]
        outputs.append(len(nodes))
        nodes.append(
            _output(
                len(nodes),
                Ref(numbers[ref.node], ref.output),
                value,
                len(leaving),
                len(outputs) - 1,
            )
        )
    items = [
        *range(count),
        *(_renumbered(i, numbers, group_numbers) for i in group.items),
        *outputs,
    ]
    root = replace(
        group,
        index=ROOT,
        parent=ROOT,
        items=items,
        kind="graph",
        name=group.path or group.name,
        call=0,
    )
    return type(graph)(
        nodes, groups, root, tuple(range(count)), tuple(outputs), aliases=graph.aliases
    )


def _entering(graph: Computation, inside: set[int]) -> list[Ref]:
    refs = (
        x
        for i in sorted(inside)
        for x in graph.nodes[i].inputs
        if isinstance(x, Ref) and x.node not in inside
    )
    return list(dict.fromkeys(refs))


def _leaving(graph: Computation, inside: set[int]) -> list[Ref]:
    outside = (n for n in graph.nodes if n.index not in inside)
    return list(
        dict.fromkeys(
            x for n in outside for x in n.inputs if isinstance(x, Ref) and x.node in inside
        )
    )


def _moved(
    operand: Ref | Literal, places: dict[Ref, Ref], numbers: dict[int, int]
) -> Ref | Literal:
    if not isinstance(operand, Ref):
        return operand
    return places[operand] if operand in places else Ref(numbers[operand.node], operand.output)


def _renumbered(item: int, numbers: dict[int, int], group_numbers: dict[int, int]) -> int:
    return numbers[item] if item >= 0 else ~group_numbers[~item]


def _copy_groups(
    graph: Computation, top: Group, numbers: dict[int, int]
) -> tuple[list[Group], dict[int, int]]:
    order = []
    stack = [top]
    while stack:
        group = stack.pop()
        order.append(group)
        stack.extend(reversed([graph.groups[~item] for item in group.items if item < 0]))
    group_numbers = {group.index: i - 1 for i, group in enumerate(order)}
    group_numbers[top.index] = ROOT
    copies = []
    for group in order[1:]:
        items = [_renumbered(item, numbers, group_numbers) for item in group.items]
        ports = {role: tuple(numbers[i] for i in nodes) for role, nodes in group.ports.items()}
        index, parent = group_numbers[group.index], group_numbers[group.parent]
        copies.append(replace(group, index=index, parent=parent, items=items, ports=ports))
    return copies, group_numbers


def _input(origin: Node, index: int, output: int, named: bool) -> Node:
    category = origin.kind if named else "input"
    name = (
        origin.name if named else f"{origin.path}.{origin.title}" if origin.path else origin.title
    )
    value: Value = origin.outputs[output]
    return Node(index, category, category, "", "", 0, "forward", ROOT, (), (value,), name)


def _output(index: int, ref: Ref, value: Value, total: int, position: int) -> Node:
    name = "output" if total == 1 else f"output.{position}"
    return Node(index, "output", "output", "", "", 0, "forward", ROOT, (ref,), (value,), name)
