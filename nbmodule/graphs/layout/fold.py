"""Fold a graph into forms: children and their wires group by group, equal structures found and
shared.

A variable is drawn in every group that reads it, so that no edge has to come to it from far away;
one that is read in several places of the same pass carries a number. Equal neighbors become one
child, and so do the many inputs or outputs of a gradient and the stretches of a long program
without submodules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
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
    add_totals,
)
from nbmodule.graphs.layout.neighbors import goes_on, longest_run, run_name, stretches
from nbmodule.graphs.model import ROOT, WRITTEN, Computation, Group, Node, Ref, Value

MOST_ENDS = 8
STREAM = "random"  # the name of the default random stream among the variables


class _Part(NamedTuple):
    """A child under construction: the values that it reads and makes."""

    child: Child
    entries: tuple[Ref, ...]
    exits: tuple[Ref, ...]
    labels: tuple[Label, ...]
    key: int | None  # the group's index; below -1 for runs and the like, None for a node


@dataclass
class _Builder:
    graph: Computation
    shown: list[bool]
    tops: dict[Ref, int]
    depths: list[int]
    shared: dict[int, int]
    sides: frozenset[Ref]
    forward_tops: dict[Ref, int]
    pills: dict[int, list[int]] = field(default_factory=dict)
    forms: dict[tuple, Form] = field(default_factory=dict)
    records: dict[Record, Record] = field(default_factory=dict)
    steps: dict[int, tuple[int, int]] = field(default_factory=dict)

    def part(self, group: Group) -> _Part | None:
        """The form of a group with all below; None if nothing in it is shown."""
        parts = [self.leaf(self.graph.nodes[i]) for i in self.pills.get(group.index, ())]
        for item in group.items:
            if item < 0:
                inner = self.part(self.graph.groups[~item])
                if inner is not None:
                    parts.append(inner)
            elif self.shown[item] and self.graph.nodes[item].kind not in PILLS:
                parts.append(self.leaf(self.graph.nodes[item]))
        if not parts and group.index != ROOT:
            return None
        depth = self.depth(group.index)

        def leaves(value: Ref) -> bool:
            return self.tops.get(value, depth) < depth

        parts = self.fold_long(self.fold_runs(parts, depth), leaves)
        if group.index == ROOT:
            for category in ("input", "output", WRITTEN):
                parts = self.fold_ends(parts, category)
        owned = (group.name, group.call, group.phase)
        return self.assemble(
            parts, group.kind, group.count, group.title, owned, leaves, group.index
        )

    def leaf(self, node: Node) -> _Part:
        name = _short_name(node.name) if node.kind in PILLS else node.title
        record = Record(
            node.operation,
            node.kind,
            node.parameters,
            node.outputs,
            node.source,
            node.flops,
            node.bytes,
            node.dead,
            tuple(i for i in range(len(node.outputs)) if Ref(node.index, i) in self.sides),
        )
        record = self.records.setdefault(record, record)
        entries = tuple(x for x in node.inputs if isinstance(x, Ref))
        exits = tuple(Ref(node.index, i) for i in range(len(node.outputs)))
        labels = (Label(node.name, self.shared.get(node.index, 0)),) if node.kind in PILLS else ()
        return _Part(
            Child(record, name, 0, node.phase),
            entries,
            exits if node.kind != "output" else (),
            labels,
            None,
        )

    def depth(self, group: int) -> int:
        return self.depths[group] if group != ROOT else 0

    def assemble(
        self,
        parts: Sequence[_Part],
        kind: str,
        count: int | None,
        title: str,
        own: tuple[str, int, str],
        leaves: Callable[[Ref], bool],
        key: int | None = None,
    ) -> _Part:
        """Wire the children up, and take the form of that structure if there is one already."""
        key = -2 - len(self.steps) if key is None else key
        for i, part in enumerate(parts):
            if part.key is not None:
                self.steps[part.key] = (key, i)
        makers = {
            value: Wire(i, slot)
            for i, part in enumerate(parts)
            for slot, value in enumerate(part.exits)
        }
        entries: dict[Ref, int] = {}
        wires = []
        for part in parts:
            feeds = []
            for value in part.entries:
                wire = makers.get(value)
                feeds.append(wire or Wire(OUTSIDE, entries.setdefault(value, len(entries))))
            wires.append(tuple(feeds))
        leaving = [value for part in parts for value in part.exits if leaves(value)]
        aside = (
            tuple(
                tuple(i for i, value in enumerate(part.entries) if value in self.sides)
                for part in parts
            ),
            tuple(i for i, value in enumerate(leaving) if value in self.sides),
            tuple(
                i
                for i, value in enumerate(leaving)
                if own[2] == "forward" and self.is_saved(value, key)
            ),
        )
        exits = tuple(makers[value] for value in leaving)
        form = self.intern(parts, kind, count, title, tuple(wires), exits, tuple(entries), aside)
        labels = tuple(label for part in parts for label in part.labels)
        return _Part(Child(form, *own), tuple(entries), tuple(leaving), labels, key)

    def is_saved(self, value: Ref, group: int) -> bool:
        """Whether all that a group's value goes to outside of it is the backward pass."""
        result, depth = self.graph.nodes[value.node], self.depth(group) if group >= ROOT else 0
        return (
            result.phase == "forward"
            and value not in self.sides
            and self.forward_tops.get(value, depth) >= depth > 0
        )

    def intern(self, parts, kind, count, title, wires, exits, entries, aside) -> Form:
        children = tuple(part.child for part in parts)
        items = tuple((id(child.content), *child[1:]) for child in children)
        values = tuple(self.graph.nodes[v.node].outputs[v.output] for v in entries)
        key = (kind, count, title, items, wires, exits, values, aside)
        form = self.forms.get(key)
        if form is None:
            form = Form(len(self.forms), kind, count, title, children, wires, exits, values, *aside)
            add_totals(form)
            self.forms[key] = form
        return form

    def fold_runs(self, parts: list[_Part], depth: int) -> list[_Part]:
        """Put runs of equal neighbors into one child each."""
        keys = [id(part.child.content) for part in parts]
        children = [part.child for part in parts]
        result: list[_Part] = []
        start = 0

        def same_row(i: int, j: int) -> bool:
            return children[i].phase == children[j].phase and goes_on(
                children[i].name, children[j].name
            )

        def is_worth(i: int) -> bool:
            value = children[i].content
            return isinstance(value, Form) and value.operations > 1

        while start < len(parts):
            period, repeats = longest_run(keys, same_row, is_worth, start)
            if not period:
                result.append(parts[start])
                start += 1
                continue
            result.append(
                self.run(parts[start : start + period * repeats], period, repeats, parts, depth)
            )
            start += period * repeats
        return result

    def run(
        self, members: list[_Part], period: int, repeats: int, parts: list[_Part], depth: int
    ) -> _Part:
        owned = {id(part) for part in members}
        read = {value for part in parts if id(part) not in owned for value in part.entries}
        first = members[0].child
        title = first.content.title if period == 1 and isinstance(first.content, Form) else ""
        name = run_name([part.child.name for part in members[::period]])
        if period > 1:
            name = ", ".join([name, *(part.child.name for part in members[1:period])])
        return self.assemble(
            members,
            "run",
            repeats,
            title,
            (name, 0, first.phase),
            lambda v: v in read or self.tops.get(v, depth) < depth,
        )

    def fold_ends(self, parts: list[_Part], kind: str) -> list[_Part]:
        """Put inputs, or outputs, into one child where there are too many to stand side by side."""
        is_end = [
            p.child.content.kind in ("input", "output") and p.child.record.operation == kind
            for p in parts
        ]
        if sum(is_end) <= MOST_ENDS:
            return parts
        ends, remaining = (
            [p for p, end in zip(parts, is_end, strict=True) if end is expected]
            for expected in (True, False)
        )
        name = kind if kind == WRITTEN else f"{kind}s"
        folded = self.assemble(ends, "ends", len(ends), "", (name, 0, "forward"), lambda _: True)
        return [folded, *remaining] if kind == "input" else [*remaining, folded]

    def fold_long(
        self, parts: list[_Part], leaves: Callable[[Ref], bool], first: int = 1
    ) -> list[_Part]:
        """Put stretches of a long program that has no submodules into one child each, so that it
        can be read at all.

        Args:
            parts: Children of one group, or of a stretch that is itself too long.
            leaves: Whether a value is read outside of these parts.
            first: Number of the first step.
        """
        steps = [p for p in parts if p.child.content.kind not in ENDS]
        cuts = stretches(len(steps))
        if len(cuts) == 1:
            return parts
        readers: dict[Ref, set[int]] = {}
        for number, (start, end) in enumerate(cuts):
            for part in steps[start:end]:
                for value in part.entries:
                    readers.setdefault(value, set()).add(number)
        kinds: dict[str, list[_Part]] = {
            category: [p for p in parts if p.child.content.kind == category] for category in ENDS
        }
        for part in kinds["output"]:
            for value in part.entries:
                readers.setdefault(value, set()).add(-1)
        every = [p for p in parts if p.child.content.kind in PILLS]
        folded = []
        for number, (start, end) in enumerate(cuts):
            pills = [p for p in every if number in readers.get(p.exits[0], ())]
            out = _ReadOutside(number, readers, leaves)
            inner = self.fold_long(pills + steps[start:end], out, first + start)
            owned = (f"steps {first + start:,}…{first + end - 1:,}", 0, steps[start].child.phase)
            folded.append(self.assemble(inner, "part", None, "", owned, out))
        direct = [p for p in every if -1 in readers.get(p.exits[0], ())]
        return [*direct, *kinds["input"], *folded, *kinds["output"]]


@dataclass(frozen=True)
class _ReadOutside:
    """Whether a value of one stretch is read by another, or outside of all."""

    number: int
    readers: dict[Ref, set[int]]
    leaves: Callable[[Ref], bool]

    def __call__(self, value: Ref) -> bool:
        return any(reader != self.number for reader in self.readers.get(value, ())) or self.leaves(
            value
        )


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
    shown = [not (connected_only and node.dead) for node in graph.nodes]
    depths: list[int] = []
    for group in graph.groups:
        depths.append(1 if group.parent == ROOT else depths[group.parent] + 1)
    homes = _homes(graph, shown)
    builder = _Builder(
        graph,
        shown,
        _tops(graph, shown, depths),
        depths,
        _shared(graph, homes),
        side_roads(graph, shown),
        _tops(graph, shown, depths, "forward"),
    )
    for node, groups in homes.items():
        for group in groups:
            builder.pills.setdefault(group, []).append(node)
    part = builder.part(graph.root)
    assert part is not None  # the root always has a form
    assert isinstance(part.child.content, Form)
    failure = str(graph.failure) if graph.failure else ""
    return Forms(
        part.child.content,
        graph.root.name,
        list(builder.forms.values()),
        list(part.labels),
        builder.steps,
        shown.count(False),
        failure,
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


def _meet(graph: Computation, depths: Sequence[int], groups: Iterable[int]) -> int:
    """The innermost group that holds all of these."""
    result: int | None = None
    for group in groups:
        if result is None:
            result = group
        while result != group:
            if result != ROOT and (group == ROOT or depths[result] >= depths[group]):
                result = graph.groups[result].parent
            else:
                group = graph.groups[group].parent
    return ROOT if result is None else result


def _homes(graph: Computation, shown: Sequence[bool]) -> dict[int, dict[int, None]]:
    """For each variable and constant the groups in which it is drawn: all those with an operation
    that reads it.
    """
    homes: dict[int, dict[int, None]] = {
        n.index: {} for n in graph.nodes if n.kind in PILLS and shown[n.index]
    }
    for node in graph.nodes:
        if shown[node.index]:
            for x in node.inputs:
                if isinstance(x, Ref) and x.node in homes:
                    homes[x.node][node.group] = None
    return {node: groups or {ROOT: None} for node, groups in homes.items()}


def _shared(graph: Computation, homes: dict[int, dict[int, None]]) -> dict[int, int]:
    """Number the variables that are read in more than one place in the same pass."""
    numbers: dict[int, int] = {}
    for node, groups in homes.items():
        phases = [graph.group(group).phase for group in groups]
        if len(phases) > len(set(phases)):
            numbers[node] = len(numbers) + 1
    return numbers


def side_roads(graph: Computation, shown: Sequence[bool]) -> frozenset[Ref]:
    """Values that only go into variables, and the state of the random stream from one reader to the
    next.
    """
    readers: dict[Ref, list[Node]] = {}
    stream: dict[
        int, Value
    ] = {}  # nodes made of the stream's state and of numbers alone, and that state's shape
    numbers: set[int] = set()
    sides: set[Ref] = set()
    for node in graph.nodes:
        if not shown[node.index]:
            continue
        refs = [x for x in node.inputs if isinstance(x, Ref)]
        for ref in refs:
            readers.setdefault(ref, []).append(node)
        if node.kind == "variable" and node.name == STREAM:
            stream[node.index] = node.outputs[0]
        elif node.kind == "operation" and all(ref.node in numbers for ref in refs):
            numbers.add(node.index)
        elif all(ref.node in stream or ref.node in numbers for ref in refs):
            states = [stream[ref.node] for ref in refs if ref.node in stream]
            if not states:
                continue
            stream[node.index] = state = states[0]
            sides.update(
                Ref(node.index, i) for i, value in enumerate(node.outputs) if value == state
            )
    for ref, nodes in readers.items():
        if graph.nodes[ref.node].kind not in PILLS and all(
            node.operation == WRITTEN for node in nodes
        ):
            sides.add(ref)
    return frozenset(sides)


def _tops(
    graph: Computation, shown: Sequence[bool], depths: Sequence[int], phase: str = ""
) -> dict[Ref, int]:
    """For each value the depth of the innermost group that holds its maker and all its readers, or
    those of one pass.
    """
    meets: dict[Ref, int] = {}
    for node in graph.nodes:
        if not shown[node.index] or (phase and node.phase != phase):
            continue
        for x in node.inputs:
            if isinstance(x, Ref) and graph.nodes[x.node].kind not in PILLS:
                meets[x] = _meet(
                    graph, depths, (meets.get(x, graph.nodes[x.node].group), node.group)
                )
    return {value: 0 if group == ROOT else depths[group] for value, group in meets.items()}
