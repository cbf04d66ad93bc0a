"""Find groups of a graph by path, pattern or number, and cut one out as a graph of its own."""

from __future__ import annotations

import difflib
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any, TypeVar

from nbmodule.base.kinds import is_whole
from nbmodule.errors import ArgumentTypeError, PathError
from nbmodule.graphs.model import ROOT, Computation, Group, Literal, Node, Ref, Value

Part = TypeVar("Part", bound=Computation)


def find(graph: Computation, path: str, call: int | None = None) -> Group:
    """The group of a submodule's call; see `Graph.find`."""
    if not isinstance(path, str):
        raise ArgumentTypeError(
            f"a submodule of a graph is looked up by its path, a str, got {type(path).__name__}."
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
    fitting = {path for alias, path in graph.aliases.items() if fnmatchcase(alias, pattern)}
    scopes = (group for group in graph.groups if group.kind == "scope")
    return [g for g in scopes if g.path in fitting or fnmatchcase(g.path, pattern)]


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
    inside = sorted(node.index for node in graph.nodes_in(group))
    members = set(inside)
    reads = [(node.index in members, x) for node in graph.nodes for x in node.inputs]
    refs = [(is_in, x) for is_in, x in reads if isinstance(x, Ref)]
    entering = list(dict.fromkeys(x for is_in, x in refs if is_in and x.node not in members))
    leaving = list(dict.fromkeys(x for is_in, x in refs if not is_in and x.node in members))
    inner_groups = [g for g in graph.groups if g is not group and group in graph.ancestors(g)]
    sources = {ref: Ref(i) for i, ref in enumerate(entering)}
    numbers = {old: len(entering) + i for i, old in enumerate(inside)}
    group_numbers = {g.index: i for i, g in enumerate(inner_groups)} | {group.index: ROOT}

    def moved(operand: Ref | Literal) -> Ref | Literal:
        if not isinstance(operand, Ref):
            return operand
        return sources.get(operand) or Ref(numbers[operand.node], operand.output)

    def items_of(group: Group) -> list[int]:
        return [numbers[i] if i >= 0 else ~group_numbers[~i] for i in group.items]

    nodes = [_input(graph.nodes[ref.node], i, ref.output) for i, ref in enumerate(entering)]
    for old in inside:
        node = graph.nodes[old]
        inputs, home = tuple(map(moved, node.inputs)), group_numbers[node.group]
        nodes.append(replace(node, index=numbers[old], inputs=inputs, group=home))
    outputs = range(len(nodes), len(nodes) + len(leaving))
    for i, ref in enumerate(leaving):
        value = graph.nodes[ref.node].outputs[ref.output]
        name = "output" if len(leaving) == 1 else f"output.{i}"
        nodes.append(_end(outputs[i], "output", (moved(ref),), value, name))
    groups = [
        replace(
            g,
            index=group_numbers[g.index],
            parent=group_numbers[g.parent],
            items=items_of(g),
            ports={role: tuple(numbers[i] for i in ends) for role, ends in g.ports.items()},
        )
        for g in inner_groups
    ]
    items = [*range(len(entering)), *items_of(group), *outputs]
    name = group.path or group.name
    root = replace(group, index=ROOT, parent=ROOT, items=items, kind="graph", name=name, call=0)
    inputs = tuple(range(len(entering)))
    return type(graph)(nodes, groups, root, inputs, tuple(outputs), aliases=graph.aliases)


def _input(origin: Node, index: int, output: int) -> Node:
    if origin.kind in ("input", "variable", "constant"):
        return _end(index, origin.kind, (), origin.outputs[output], origin.name)
    name = f"{origin.path}.{origin.title}" if origin.path else origin.title
    return _end(index, "input", (), origin.outputs[output], name)


def _end(index: int, kind: str, inputs: tuple[Any, ...], value: Value, name: str) -> Node:
    return Node(index, kind, kind, "", "", 0, "forward", ROOT, inputs, (value,), name)
