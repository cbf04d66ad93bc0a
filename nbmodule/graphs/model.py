"""The computation graph as plain records: nodes, edges, and groups nested as the submodules that
made them.

How a graph is read from a function (`jaxpr.py`), placed (`frames.py`) or drawn (`svg.py`) stands
elsewhere. Nodes stand in an order in which they can be evaluated; what repeats (a loop's body)
stands once, in a group with a count.
"""

from __future__ import annotations

import linecache
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any, NamedTuple

from nbmodule.base.format import describe_shape, printable_repr
from nbmodule.base.kinds import is_whole
from nbmodule.base.paths import hint
from nbmodule.base.scopes import place_in_code
from nbmodule.errors import ArgumentTypeError, PathError

ROOT = -1
# Operation of the outputs that are values written into variables.
WRITTEN = "written"


class Value(NamedTuple):
    """The shape and the dtype of one result of a node."""

    shape: tuple[int, ...]
    dtype: str
    itemsize: int = 4

    @property
    def bytes(self) -> int:
        """Memory the value takes.

        >>> Value((2, 3), "float32").bytes
        24
        """
        return math.prod(self.shape) * self.itemsize

    def __str__(self) -> str:
        return describe_shape(self)


class Ref(NamedTuple):
    """An operand that another node makes: which node, and which of its results."""

    node: int
    output: int = 0


class Literal(NamedTuple):
    """An operand that is written into the program itself."""

    text: str
    value: Any
    dtype: str = ""


class Edge(NamedTuple):
    """A value on its way from the node that makes it to one operand of a node that reads it."""

    source: int
    output: int
    target: int
    position: int
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Source:
    """The line of the user's code that wrote an operation.

    >>> Source("/home/ada/model.py", 12, "forward").place
    'model.py:12'
    """

    file: str
    line: int
    function: str = ""

    @property
    def place(self) -> str:
        """Short text of the place: `model.py:12`, or `cell [3] line 12` of a notebook."""
        return place_in_code(self.file, self.line)

    @property
    def code(self) -> str:
        """The text of the line, empty where the file cannot be read."""
        return linecache.getline(self.file, self.line).strip()


@dataclass(frozen=True)
class Failure:
    """The place and the reason where a function could not be traced completely."""

    error: str
    message: str
    source: Source | None
    shapes: tuple[tuple[str, str], ...]
    path: str

    @printable_repr
    def __str__(self) -> str:
        supplied = ", ".join(f"{name}: {value}" for name, value in self.shapes)
        location = f" at {self.source.place}" if self.source else ""
        given = f" (given {supplied})" if supplied else ""
        return f"{self.error}{location}: {self.message}{given}"


@dataclass(eq=False)
class Node:
    """One operation, or one value that comes in or goes out.

    Attributes:
        index: Position in `Graph.nodes`; operands always have a smaller one, but for the ends of
            loops.
        operation: Name of JAX's primitive, or the kind for what is no operation; `written` for
            outputs that go into variables.
        kind: `operation`; `input`, `variable`, `constant`, `output` for the graph's ends; `carry`,
            `slice`, `carried`, `stack`, `select`, `condition`, `argument`, `result` for the ends of
            loops, branches and opaque calls; `failure`.
        parameters: Short text of what else the operation was given, literal operands included.
        path: Dotted path of the submodule that made it.
        call: How many calls of that submodule came before this one in the same parent call (0 is
            the first).
        phase: `forward`, `backward` (made by differentiation) or `recomputed` (by
            rematerialization).
        group: Index of the innermost group, -1 for the graph itself.
        inputs: Operands: a `Ref` to a node's result, or a `Literal`.
        outputs: Shape and dtype of each result.
        name: The caller's name of an input, variable or output.
        flops: Estimated floating point operations; `base/flops.py` says what counts.
        bytes: Size of operands and results together, in bytes.
        dead: No output depends on it.
    """

    index: int
    operation: str
    kind: str
    parameters: str
    path: str
    call: int
    phase: str
    group: int
    inputs: tuple[Ref | Literal, ...]
    outputs: tuple[Value, ...]
    name: str = ""
    flops: int = 0
    bytes: int = 0
    dead: bool = False
    _locate: Callable[[], Source | None] | Source | None = field(default=None, repr=False)
    _equation: Any = field(default=None, repr=False)

    @property
    def shape(self) -> tuple[int, ...] | None:
        """Shape of the first result, None where there is none."""
        return self.outputs[0].shape if self.outputs else None

    @property
    def dtype(self) -> str | None:
        """Dtype of the first result, None where there is none."""
        return self.outputs[0].dtype if self.outputs else None

    @property
    def source(self) -> Source | None:
        """The line of the user's code that wrote the operation; looked up when first asked for."""
        if callable(self._locate):
            self._locate = self._locate()
        return self._locate

    @cached_property
    def refs(self) -> tuple[Ref, ...]:
        """The operands that other nodes make."""
        return tuple(x for x in self.inputs if isinstance(x, Ref))

    @property
    def title(self) -> str:
        """The word that stands for the node in a picture."""
        is_end = self.kind in ("input", "variable", "constant", "output")
        return (is_end and self.name) or self.operation

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_locate": self.source, "_equation": None}


@dataclass(eq=False)
class Group:
    """Nodes that belong together: a submodule's call, a function's, or the inside of a compiled
    function, loop or branch.

    Attributes:
        index: Position in `Graph.groups`; the graph itself has -1.
        name: Own name within the parent (`layers.0`, `softmax`).
        kind: `scope`, `function`, `jit`, `checkpoint`, `custom_jvp`, `custom_vjp`, `scan`, `while`,
            `condition`, `body`, `cond`, `branch`, `call`, `opaque`, or `graph` for the whole.
        path: Dotted path of submodules down to here; compiled functions and loops add nothing to
            it.
        call: How many calls of this submodule came before in the same parent call (0 is the first).
        phase: As in `Node`.
        parent: Index of the enclosing group, -1 for the graph itself.
        count: How often a loop's body runs, None where that is not a loop or not known before it
            runs.
        items: Children in order of the program: an index of a node, or `~index` of a group.
        title: Class of the submodule, where the caller told it.
        ports: The ends of a loop or branch by role, as node indices.
    """

    index: int
    name: str
    kind: str
    path: str
    call: int
    phase: str
    parent: int
    count: int | None = None
    items: list[int] = field(default_factory=list)
    title: str = ""
    ports: dict[str, tuple[int, ...]] = field(default_factory=dict)
    flops: int = 0
    bytes: int = 0
    operations: int = 0
    _equation: Any = field(default=None, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_equation": None}


@dataclass(eq=False)
class Computation:
    """The records of a graph; `graphs/graph.py` adds drawing and files."""

    nodes: list[Node]
    groups: list[Group]
    root: Group
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    failure: Failure | None = None
    options: Any = field(default=None, repr=False)
    aliases: Mapping[str, str] = field(default_factory=dict, repr=False)
    _constants: Mapping[int, Any] = field(default_factory=dict, repr=False)
    _result: Any = field(default=None, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_constants": {}, "_result": None}

    @cached_property
    def edges(self) -> list[Edge]:
        """Every value on its way, ordered by the node that reads it."""
        return [
            Edge(*ref, node.index, position, *self.nodes[ref.node].outputs[ref.output][:2])
            for node in self.nodes
            for position, ref in enumerate(node.inputs)
            if isinstance(ref, Ref)
        ]

    @property
    def operations(self) -> int:
        """Number of operations; what a loop repeats counts once."""
        return self.root.operations

    @property
    def flops(self) -> int:
        """Estimated floating point operations of the whole, loops with a known count multiplied."""
        return self.root.flops

    @property
    def bytes(self) -> int:
        """Bytes that the operations read and write, if none were fused."""
        return self.root.bytes

    def group(self, index: int) -> Group:
        """The group with this index; -1 is the graph itself."""
        return self.root if index == ROOT else self.groups[index]

    def find(self, path: str, call: int | None = None) -> Group:
        """The group of a submodule; its first call unless `call` says otherwise.

        >>> import jax, jax.numpy as jnp
        >>> from nbmodule.graphs import trace_graph
        >>> graph = trace_graph(jax.named_scope("head")(jnp.sin), jnp.ones(3))
        >>> graph.find("head").operations
        1

        Raises:
            PathError: if no such submodule was called; the message names the closest.
        """
        if not isinstance(path, str):
            raise ArgumentTypeError(
                f"a submodule of a graph is looked up by its path, a str, got "
                f"{type(path).__name__}."
            )
        if path == "":
            return self.root
        calls = [g for g in self.glob("*") if g.path == self.aliases.get(path, path)]
        if not calls:
            near = hint(path, [g.path for g in self.glob("*")])
            raise PathError(
                f'the graph has no submodule "{path}"{near} `print(graph)` lists them all.'
            )
        for group in calls:
            if call in (None, group.call):
                return group
        numbers = sorted({g.call for g in calls})
        raise PathError(
            f'the graph has no call {call} of "{path}"; it has the calls {numbers} (0 is the '
            "first)."
        )

    def glob(self, pattern: str) -> list[Group]:
        """All groups of submodules whose path matches a pattern such as `blocks.*`, in order of the
        program.
        """
        fitting = {path for alias, path in self.aliases.items() if fnmatchcase(alias, pattern)}
        scopes = (group for group in self.groups if group.kind == "scope")
        return [g for g in scopes if g.path in fitting or fnmatchcase(g.path, pattern)]

    def resolve(self, target: str | int | Group) -> Group:
        """The group that a path, an index into `groups`, or a group stands for.

        Raises:
            PathError: if there is no such group; the message names the closest path or the range of
                indices.
        """
        if isinstance(target, Group):
            return target
        if isinstance(target, str):
            return self.find(target)
        if not is_whole(target):
            raise ArgumentTypeError(
                f"a subgraph is named by its path or its index, not by {type(target).__name__} "
                f"{target!r}."
            )
        if not 0 <= target < len(self.groups):
            have = f"indices 0 to {len(self.groups) - 1}" if self.groups else "no groups"
            raise PathError(
                f"the graph has no group {target}; it has {have}. `print(graph)` lists them."
            )
        return self.groups[target]

    def children(self, group: Group) -> Iterator[Node | Group]:
        """The nodes and groups directly inside a group, in order of the program."""
        for item in group.items:
            yield self.nodes[item] if item >= 0 else self.groups[~item]

    def nodes_in(self, group: Group) -> Iterator[Node]:
        """All nodes inside a group at any depth, in order of the program."""
        for item in group.items:
            if item >= 0:
                yield self.nodes[item]
            else:
                yield from self.nodes_in(self.groups[~item])


def total_cost(kind: str, count: int | None, children: Sequence[Any]) -> tuple[int, int, int]:
    """FLOPs, bytes and operations of a group from those of its nodes and groups.

    What is dead does not count, a scan multiplies, and of branches the dearest counts.
    """
    flops, size, operations = [0], [0], 0
    for child in children:
        inside = getattr(child, "operations", None)
        if inside is None:
            inside = int(child.kind == "operation" and not child.dead)
            if not inside:
                continue
        flops.append(child.flops)
        size.append(child.bytes)
        operations += inside
    whole = max if kind == "cond" else sum
    times = count if kind == "scan" and count is not None else 1
    return whole(flops) * times, whole(size) * times, operations
