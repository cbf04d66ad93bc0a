"""Fold a graph into forms: what a picture needs to know of each group, stored once for all groups
of equal structure.

A form is a small circuit. Its children are records (one operation each) or forms; each child has
entry slots and exit slots, and `wires` says which exit slot, or which entry slot of the form
itself, feeds each entry slot. So twelve equal blocks cost as much as one, and an edge of the whole
graph is found by following wires, never by listing all edges.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from nbmodule.graphs.model import ROOT, Source, Value, total_cost

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
        is_side: Whether the value is a side road.
        is_saved: Of a wire to an exit slot: whether only the backward pass reads the value.
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
        has_submodules: Whether a submodule is called inside, at any depth.
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
