"""Fold a graph into forms: equal structures found and shared.

A form is a small circuit. Its children are records (one operation each) or forms; each child has
entry slots and exit slots, and `wires` says which exit slot, or which entry slot of the form
itself, feeds each entry slot. So twelve equal blocks cost as much as one, and an edge of the whole
graph is found by following wires, never by listing all edges.

A variable is drawn in every group that reads it, so that no edge has to come to it from far away;
one that is read in several places of the same pass carries a number. Equal neighbors become one
child, and so do the many inputs or outputs of a gradient and the stretches of a long program
without submodules.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple

from nbmodule.graphs.model import (
    ROOT,
    WRITTEN,
    Computation,
    Group,
    Node,
    Ref,
    Source,
    Value,
    total_cost,
)

OUTSIDE = -1  # as the child of a wire: the form's own entry slot
PILLS = frozenset({"variable", "constant"})
ENDS = frozenset({"input", "variable", "constant", "output"})
FUNCTIONS = frozenset({"function", "jit", "custom_jvp", "custom_vjp", "call"})


class Record(NamedTuple):
    """The content of one node in a picture; equal nodes share one record."""

    operation: str
    kind: str
    parameters: str
    outputs: tuple[Value, ...]
    source: Source | None
    flops: int
    bytes: int
    dead: bool
    side: tuple[int, ...] = ()  # the results that are side roads

    @property
    def variables(self) -> int:
        """1 for a variable or constant, 0 for anything else."""
        return int(self.kind in PILLS)

    def exit_value(self, slot: int) -> Value:
        """Shape and dtype of a result."""
        return self.outputs[slot]


class Child(NamedTuple):
    """A record or form in its place within a form."""

    content: Record | Form
    name: str
    call: int = 0
    phase: str = "forward"

    @property
    def form(self) -> Form:
        """The content of a child that is a group."""
        assert isinstance(self.content, Form)
        return self.content

    @property
    def record(self) -> Record:
        """The content of a child that is a node."""
        assert isinstance(self.content, Record)
        return self.content


class Wire(NamedTuple):
    """The source of a value: a child's exit slot, or (`OUTSIDE`) an entry slot of the form.

    Attributes:
        is_side: True if the value is a side road.
        is_saved: True for a wire to an exit slot whose value only the backward pass reads.
    """

    child: int
    slot: int
    is_side: bool = False
    is_saved: bool = False


class Label(NamedTuple):
    """Full name of a variable, and its number among those that stand in several places (0 for all
    others).
    """

    name: str
    shared: int

    @property
    def mark(self) -> str:
        """The number in a circle.

        >>> Label("embed", 2).mark, Label("w", 0).mark
        ('②', '')
        """
        if not self.shared:
            return ""
        return chr(0x2460 + self.shared - 1) if self.shared <= 20 else f"({self.shared})"


@dataclass(eq=False)
class Form:
    """The inside of a group.

    Attributes:
        number: Position among the forms of a graph.
        children: In order of the program; no wire runs from a later one to an earlier one.
        kind: Kind of the group, or `run` for equal neighbors that are shown as one, `ends` for
            many inputs or outputs, `part` for a stretch of a long program.
        count: How often a loop's body runs, or how many members a run has.
        title: Class name of the submodule.
        wires: For each child, where each of its entry slots is fed from.
        exits: Which children's exit slots are read outside.
        entry_values: Shape and dtype of what comes in.
        variables: Number of variables and constants inside, at any depth.
        has_submodules: True if a submodule is called inside, at any depth.
    """

    number: int
    children: tuple[Child, ...]
    kind: str
    count: int | None
    title: str
    wires: tuple[tuple[Wire, ...], ...]
    exits: tuple[Wire, ...]
    entry_values: tuple[Value, ...]
    flops: int = field(init=False)
    bytes: int = field(init=False)
    operations: int = field(init=False)
    variables: int = field(init=False)
    has_submodules: bool = field(init=False)

    def __post_init__(self) -> None:
        children = [child.content for child in self.children]
        self.flops, self.bytes, self.operations = total_cost(self.kind, self.count, children)
        self.variables = sum(child.variables for child in children)
        inner = [child for child in children if isinstance(child, Form)]
        self.has_submodules = any(child.kind == "scope" or child.has_submodules for child in inner)

    @property
    def is_function(self) -> bool:
        """True if it is one function of arrays, which stays folded until it is asked for."""
        return self.kind in FUNCTIONS and not self.has_submodules

    def exit_value(self, slot: int) -> Value:
        """Shape and dtype of what leaves through an exit slot."""
        wire = self.exits[slot]
        return self.children[wire.child].content.exit_value(wire.slot)


@dataclass(eq=False)
class Forms:
    """All forms of a graph; `root` is the whole.

    Attributes:
        root: The form of the graph itself.
        name: Name of the whole.
        labels: Names of variables and constants, in the order in which a walk meets them.
        steps: For each group the group that holds it (runs have numbers of their own) and its
            position there.
        hidden: Number of dead nodes that were left out.
        aliases: The one path of a shared submodule, for each other path that calls may take to it.
    """

    root: Form
    name: str
    labels: list[Label]
    steps: dict[int, tuple[int, int]]
    hidden: int = 0
    aliases: Mapping[str, str] = field(default_factory=dict)

    def place(self, group: int) -> tuple[int, ...] | None:
        """The way from the root to a group, as positions of children; None if nothing of it is
        shown.
        """
        place: tuple[int, ...] = ()
        while group != ROOT:
            if group not in self.steps:
                return None
            group, position = self.steps[group]
            place = (position, *place)
        return place


LONGEST_PERIOD = 4
SHORTEST_RUN = 3

_NUMBERED = re.compile(r"^(.*?)(\d+)(\D*)$", re.DOTALL)


def run_name(names: Sequence[str]) -> str:
    """One name for equal neighbors.

    >>> run_name(["blocks.0", "blocks.1", "blocks.2"])
    'blocks 0…2'
    >>> run_name(["norm", "norm", "norm"]), run_name(["v9_w", "v10_w", "v11_w"])
    ('norm', 'v 9…11_w')
    """
    if len(set(names)) == 1:
        return names[0]
    first, last = _NUMBERED.match(names[0]), _NUMBERED.match(names[-1])
    if first is None or last is None:
        return f"{names[0]} … {names[-1]}"
    prefix = first[1].rstrip("._")
    return f"{prefix} {first[2]}…{last[2]}{first[3]}".strip()


def goes_on(earlier: str, later: str) -> bool:
    """Return True if two names belong to one row: equal, or with last numbers that differ by one.

    >>> goes_on("blocks.1", "blocks.2"), goes_on("norm", "norm"), goes_on("q", "k")
    (True, True, False)
    """
    if earlier == later:
        return True
    a, b = _NUMBERED.match(earlier), _NUMBERED.match(later)
    if a is None or b is None:
        return False
    return (a[1], a[3]) == (b[1], b[3]) and abs(int(a[2]) - int(b[2])) == 1


def longest_run(children: Sequence[Child], start: int) -> tuple[int, int]:
    """The longest repetition that begins at a position and has more than one operation in a period,
    as its period and the number of repeats; (0, 0) for none.

    >>> from nbmodule.graphs.layout.forms import Record
    >>> longest_run(
    ...     [Child(Record("sin", "operation", "", (), None, 0, 0, False), "sin")] * 5, 0
    ... )
    (0, 0)
    """
    best = (0, 0)
    for period in range(1, LONGEST_PERIOD + 1):
        end = start + period
        while end < len(children) and _follows(children[end], children[end - period]):
            end += 1
        repeats = (end - start) // period
        if repeats >= SHORTEST_RUN and repeats * period > best[0] * best[1]:
            inner = (child.content for child in children[start : start + period])
            if any(isinstance(form, Form) and form.operations > 1 for form in inner):
                best = (period, repeats)
    return best


def _follows(child: Child, earlier: Child) -> bool:
    """Return True if a child goes on with the row of another that is equal to it."""
    is_equal = child.content is earlier.content and child.phase == earlier.phase
    return is_equal and goes_on(earlier.name, child.name)


MOST_ENDS = 8
LONGEST_PROGRAM = 80  # steps that can be read at once; more are cut into stretches of equal length
SHORTEST_STRETCH = 16
STRETCHES = 20
STREAM = "random"  # the name of the default random stream among the variables

_content = attrgetter(*Record._fields[:-1])
Leaves = Callable[[Ref], bool]  # returns True for a value that is read outside of some parts
Kind = tuple[str, int | None, str]  # kind, count and title of a form


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
        identity = (group.name, group.call, group.phase)
        kind = (group.kind, group.count, group.title)
        return self.assemble(parts, identity, kind, leaves, group.index)

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
        kind: Kind,
        leaves: Leaves,
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
        structure = (*kind, wires, exits, values)
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
        self, members: Sequence[_Part], readers: Counter[Ref], name: str, kind: Kind, leaves: Leaves
    ) -> _Part:
        """Put some parts of a group into one child.

        Args:
            members: The parts, of which the last decides the phase.
            readers: How often the parts of the whole group read each value.
            name: Of the child.
            kind: Of its form, with the number and the class name of the members of a run.
            leaves: Returns True for a value that is read outside of the whole group.
        """
        inside = _readers(members)
        identity = (name, 0, members[-1].child.phase)
        return self.assemble(members, identity, kind, lambda v: readers[v] > inside[v] or leaves(v))

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
                members = [self.gather(members, readers, name, ("run", repeats, title), leaves)]
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
        folded = self.gather(ends, _readers(parts), name, ("ends", len(ends), ""), leaves)
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
                folded.append(self.gather(members, readers, name, ("part", None, ""), leaves))
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
        graph: The graph to fold.
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
