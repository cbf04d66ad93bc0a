"""Fold a graph into forms: children and their wires group by group, equal structures found and
shared.

A variable is drawn in every group that reads it, so that no edge has to come to it from far away;
one that is read in several places of the same pass carries a number. Equal neighbors become one
child, and so do the many inputs or outputs of a gradient and the stretches of a long program
without submodules.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import NamedTuple

from nbmodule.graphs.layout.forms import (
    ENDS,
    OUTSIDE,
    PILLS,
    Child,
    Form,
    Forms,
    Label,
    Record,
    Wire,
)
from nbmodule.graphs.layout.neighbors import longest_run, run_name
from nbmodule.graphs.model import ROOT, WRITTEN, Computation, Group, Node, Ref, Value

MOST_ENDS = 8
LONGEST_PROGRAM = 80  # steps that can be read at once; more are cut into stretches of equal length
SHORTEST_STRETCH = 16
STRETCHES = 20
STREAM = "random"  # the name of the default random stream among the variables

_content = attrgetter(*Record._fields[:-1])
Leaves = Callable[[Ref], bool]  # whether a value is read outside of some parts


class _Part(NamedTuple):
    """A child under construction: the values that it reads and makes."""

    child: Child
    entries: tuple[Ref, ...]
    exits: tuple[Ref, ...]
    labels: tuple[Label, ...]
    key: int | None = None  # the group's index; below -1 for runs and the like, None for a node

    @property
    def kind(self) -> str:
        return self.child.content.kind


class _Builder:
    """The forms of a graph in the making, and what is known of its shown nodes."""

    def __init__(self, graph: Computation, connected_only: bool) -> None:
        self.graph = graph
        self.shown = {n.index: n for n in graph.nodes if not (connected_only and n.dead)}
        self.paths: dict[int, tuple[int, ...]] = {ROOT: ()}
        """For each group the groups around it and itself."""
        for group in graph.groups:
            self.paths[group.index] = (*self.paths[group.parent], group.index)
        nodes = list(self.shown.values())
        self.tops = _tops(graph, nodes, self.paths)
        self.forward_tops = _tops(graph, [n for n in nodes if n.phase == "forward"], self.paths)
        self.sides = side_roads(graph, nodes)
        pills = {n.index for n in nodes if n.kind in PILLS}
        reads = {(ref.node, n.group) for n in nodes for ref in n.refs if ref.node in pills}
        reads |= {(pill, ROOT) for pill in pills - {pill for pill, _ in reads}}
        self.pills: dict[int, list[int]] = {}
        """For each group the variables and constants that its operations read."""
        for pill, group in sorted(reads):
            self.pills.setdefault(group, []).append(pill)
        phases = Counter((pill, graph.group(group).phase) for pill, group in reads)
        several = sorted({pill for (pill, _), count in phases.items() if count > 1})
        self.shared = {pill: number for number, pill in enumerate(several, 1)}
        """Numbers of those that are read in more than one place in the same pass."""
        self.forms: dict[tuple, Form] = {}
        self.records: dict[Record, Record] = {}  # equal ones are one object
        self.steps: dict[int, tuple[int, int]] = {}

    def part(self, group: Group) -> _Part | None:
        """The form of a group with all below; None if nothing in it is shown."""
        nodes = self.graph.nodes
        parts = [self.leaf(nodes[i]) for i in self.pills.get(group.index, ())]
        for item in group.items:
            if item < 0:
                inner = self.part(self.graph.groups[~item])
                if inner is not None:
                    parts.append(inner)
            elif item in self.shown and nodes[item].kind not in PILLS:
                parts.append(self.leaf(nodes[item]))
        if not parts and group.index != ROOT:
            return None
        depth = len(self.paths[group.index])

        def leaves(value: Ref) -> bool:
            return self.tops.get(value, depth) < depth

        parts = self.fold_long(self.fold_runs(parts, leaves), leaves)
        if group.index == ROOT:
            for operation in ("input", "output", WRITTEN):
                parts = self.fold_ends(parts, operation, leaves)
        owned = (group.name, group.call, group.phase)
        return self.assemble(
            parts, owned, leaves, group.kind, group.count, group.title, group.index
        )

    def leaf(self, node: Node) -> _Part:
        exits = tuple(Ref(node.index, i) for i in range(len(node.outputs)))
        sides = tuple(value.output for value in exits if value in self.sides)
        record = Record._make((*_content(node), sides))
        record = self.records.setdefault(record, record)
        is_pill = node.kind in PILLS
        name = _short_name(node.name) if is_pill else node.title
        return _Part(
            Child(record, name, 0, node.phase),
            node.refs,
            exits if node.kind != "output" else (),
            (Label(node.name, self.shared.get(node.index, 0)),) if is_pill else (),
        )

    def assemble(
        self,
        parts: Sequence[_Part],
        identity: tuple[str, int, str],
        leaves: Leaves,
        kind: str,
        count: int | None = None,
        title: str = "",
        key: int | None = None,
    ) -> _Part:
        """Wire the children up, and take the form of that structure if there is one already."""
        key = -2 - len(self.steps) if key is None else key
        makers: dict[Ref, tuple[int, int]] = {}
        for i, part in enumerate(parts):
            if part.key is not None:
                self.steps[part.key] = (key, i)
            makers |= {value: (i, slot) for slot, value in enumerate(part.exits)}
        entries: dict[Ref, int] = {}

        def wire(value: Ref, is_saved: bool = False) -> Wire:
            maker = makers.get(value) or (OUTSIDE, entries.setdefault(value, len(entries)))
            return Wire(*maker, value in self.sides, is_saved)

        wires = tuple(tuple(map(wire, part.entries)) for part in parts)
        leaving = [v for part in parts if part.kind not in PILLS for v in part.exits if leaves(v)]
        is_forward = identity[2] == "forward"
        exits = tuple(wire(v, is_forward and self.is_saved(v, key)) for v in leaving)
        values = tuple(self.graph.nodes[v.node].outputs[v.output] for v in entries)
        structure = (kind, count, title, wires, exits, values)
        children = tuple(part.child for part in parts)
        shape = (*structure, *((id(child.content), *child[1:]) for child in children))
        if shape not in self.forms:
            self.forms[shape] = Form(len(self.forms), children, *structure)
        child = Child(self.forms[shape], *identity)
        labels = tuple(label for part in parts for label in part.labels)
        return _Part(child, tuple(entries), tuple(leaving), labels, key)

    def is_saved(self, value: Ref, group: int) -> bool:
        """Return True if all that a group's value goes to outside of it is the backward pass."""
        depth = len(self.paths.get(group, ()))
        return (
            self.graph.nodes[value.node].phase == "forward"
            and value not in self.sides
            and self.forward_tops.get(value, depth) >= depth > 0
        )

    def gather(
        self,
        members: Sequence[_Part],
        readers: Counter[Ref],
        name: str,
        kind: str,
        leaves: Leaves,
        count: int | None = None,
        title: str = "",
    ) -> _Part:
        """Put some parts of a group into one child.

        Args:
            members: The parts, of which the last decides the phase.
            readers: How often the parts of the whole group read each value.
            name: Of the child.
            kind: Of its form.
            count: How many a run has.
            title: Class name of the members.
            leaves: Whether a value is read outside of the whole group.
        """
        inside = _readers(members)
        identity = (name, 0, members[-1].child.phase)
        return self.assemble(
            members, identity, lambda v: readers[v] > inside[v] or leaves(v), kind, count, title
        )

    def fold_runs(self, parts: list[_Part], leaves: Leaves) -> list[_Part]:
        """Put runs of equal neighbors into one child each."""
        children, readers = [part.child for part in parts], _readers(parts)
        result: list[_Part] = []
        start = 0
        while start < len(parts):
            period, repeats = longest_run(children, start)
            members = parts[start : start + max(period * repeats, 1)]
            start += len(members)
            if period:
                names = [part.child.name for part in members]
                name = ", ".join([run_name(names[::period]), *names[1:period]])
                title = members[0].child.form.title if period == 1 else ""
                members = [self.gather(members, readers, name, "run", leaves, repeats, title)]
            result += members
        return result

    def fold_ends(self, parts: list[_Part], operation: str, leaves: Leaves) -> list[_Part]:
        """Put inputs, or outputs, into one child where there are too many to stand side by side."""
        others: list[_Part] = []
        ends: list[_Part] = []
        for part in parts:
            is_end = part.kind in ("input", "output") and part.child.record.operation == operation
            (ends if is_end else others).append(part)
        if len(ends) <= MOST_ENDS:
            return parts
        name = operation if operation == WRITTEN else f"{operation}s"
        folded = self.gather(ends, _readers(parts), name, "ends", leaves, len(ends))
        return [folded, *others] if operation == "input" else [*others, folded]

    def fold_long(self, parts: list[_Part], leaves: Leaves) -> list[_Part]:
        """Put stretches of a long program that has no submodules into one child each, and stretches
        of stretches, so that it can be read at all.
        """
        steps = [part for part in parts if part.kind not in ENDS]
        if len(steps) <= LONGEST_PROGRAM:
            return parts
        pills = [part for part in parts if part.kind in PILLS]
        inputs = [part for part in parts if part.kind == "input"]
        outputs = [part for part in parts if part.kind == "output"]
        total, span = len(steps), 1  # of one step now, in steps of the program
        while len(steps) > LONGEST_PROGRAM:
            readers = _readers([*steps, *outputs])
            length = max(SHORTEST_STRETCH, -(-len(steps) // STRETCHES))
            length = min(length, LONGEST_PROGRAM)
            folded = []
            for start in range(0, len(steps), length):
                inside = steps[start : start + length]
                last = min((start + length) * span, total)
                members = [*_readable(pills, inside), *inside]
                name = f"steps {start * span + 1:,}…{last:,}"
                folded.append(self.gather(members, readers, name, "part", leaves))
            steps, span = folded, span * length
        return [*_readable(pills, outputs), *inputs, *steps, *outputs]


def _readers(parts: Sequence[_Part]) -> Counter[Ref]:
    """Count how often parts read each value."""
    return Counter(value for part in parts for value in part.entries)


def _readable(pills: Sequence[_Part], readers: Sequence[_Part]) -> list[_Part]:
    """The variables that some parts read."""
    read = _readers(readers)
    return [pill for pill in pills if pill.exits[0] in read]


def fold(graph: Computation, *, connected_only: bool = True) -> Forms:
    """The forms of a graph.

    Args:
        graph: What to fold.
        connected_only: Leave out dead operations and unused inputs.

    >>> import jax, jax.numpy as jnp
    >>> from nbmodule.graphs import trace_graph
    >>> forms = fold(trace_graph(lambda x: jnp.sin(x) + 1, jnp.ones(3)))
    >>> [child.name for child in forms.root.children]
    ['x', 'sin', 'add', 'output']
    """
    builder = _Builder(graph, connected_only)
    part = builder.part(graph.root)
    assert part is not None  # the root always has a form
    return Forms(
        part.child.form,
        graph.root.name,
        list(part.labels),
        builder.steps,
        len(graph.nodes) - len(builder.shown),
        graph.aliases,
    )


def _short_name(name: str) -> str:
    """The last word of a variable's name; the numbers of a list of variables are left to the hover
    text.
    """
    words = name.split(".")
    while len(words) > 1 and words[-1].isdigit():
        words.pop()
    return words[-1]


def side_roads(graph: Computation, nodes: Sequence[Node]) -> frozenset[Ref]:
    """Values that only go into variables, and the state of the random stream from one reader to the
    next.
    """
    readers: dict[Ref, set[str]] = {}
    stream: dict[int, Value] = {}  # nodes made of the stream's state and of numbers alone
    numbers: set[int] = set()
    sides: set[Ref] = set()
    for node in nodes:
        refs = node.refs
        for ref in refs:
            readers.setdefault(ref, set()).add(node.operation)
        states = [stream[ref.node] for ref in refs if ref.node in stream]
        if node.kind == "variable" and node.name == STREAM:
            stream[node.index] = node.outputs[0]
        elif node.kind == "operation" and all(ref.node in numbers for ref in refs):
            numbers.add(node.index)
        elif states and all(ref.node in stream or ref.node in numbers for ref in refs):
            stream[node.index] = states[0]
            results = enumerate(node.outputs)
            sides |= {Ref(node.index, i) for i, value in results if value == states[0]}
    written = {ref for ref, operations in readers.items() if operations == {WRITTEN}}
    return frozenset(sides | {r for r in written if graph.nodes[r.node].kind not in PILLS})


def _tops(
    graph: Computation, readers: Sequence[Node], paths: dict[int, tuple[int, ...]]
) -> dict[Ref, int]:
    """For each value the depth of the innermost group that holds its maker and these readers."""
    meets: dict[Ref, tuple[int, ...]] = {}
    for node in readers:
        for ref in node.refs:
            if graph.nodes[ref.node].kind not in PILLS:
                common = meets.get(ref, paths[graph.nodes[ref.node].group])
                meets[ref] = tuple(group for group in common if group in paths[node.group])
    return {value: len(path) for value, path in meets.items()}
