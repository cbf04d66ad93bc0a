"""Give each child of a form its row and its order in the row, once; what is open or folded changes
nothing of it.

Rows follow the longest way from the top. All edges from one source are one *trunk*; where it passes
rows it runs in a lane beside them, so that it never crosses a box and never pushes one aside.
Everything here is linear in the number of children and wires.

Side roads (what is written into variables, the state of random numbers) have no trunks.

This is layered drawing after Sugiyama, Tagawa and Toda (1981, "Methods for visual understanding of
hierarchical system structures"): ranks by longest path, rows ordered by barycenters, swept down and
up. Each level of nesting is laid out by itself, so that opening a box never reorders what is around
it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from nbmodule.graphs.layout.forms import OUTSIDE, PILLS, Form, Record, Wire

ASIDE = -1  # as the bundle of an entry slot: a side road, which has no place in the rows
EXIT = -1  # as the target of a trunk: the lower border of the form
WIDEST = 8  # boxes in one row
SWEEPS = 3  # each down and up


class EdgeBundle(NamedTuple):
    """The way of all edges from one source.

    Attributes:
        source: A child, or `~bundle` for what comes in from outside.
        first: The row below the source.
        lane: Number of its lane beside the rows, -1 if all readers are in the first row.
        targets: The children that read it, `EXIT` for the lower border.
    """

    source: int
    first: int
    lane: int
    targets: tuple[int, ...]


@dataclass(eq=False)
class FormRows:
    """Rows and trunks of a form whose entry slots come from certain bundles of outside sources.

    Attributes:
        form: The form that is laid out.
        bundles: For each entry slot the bundle it belongs to; slots of one bundle come from one box
            outside.
        rows: Children from left to right.
        row_of: Row of each child; of a pill beside its reader, the reader's row.
        sides: For each child the pills that stand at its left.
        trunks: One for each source that is read.
        lanes: Number of lanes beside the rows.
        inner: Plan of each child that is a form, None for others.
    """

    number: int
    form: Form
    bundles: tuple[int, ...]
    rows: list[list[int]] = field(default_factory=list)
    row_of: list[int] = field(default_factory=list)
    sides: list[list[int]] = field(default_factory=list)
    trunks: dict[int, EdgeBundle] = field(default_factory=dict)
    lanes: int = 0
    inner: list[FormRows | None] = field(default_factory=list)

    def source_of(self, wire: Wire) -> int:
        """The source of the trunk that a wire belongs to."""
        return wire.child if wire.child != OUTSIDE else ~self.bundles[wire.slot]


def plans_below(root: Form) -> list[FormRows]:
    """The plans of all forms below a root, which is the first, each pair of form and bundles laid
    out once.
    """
    known: dict[tuple[int, tuple[int, ...]], FormRows] = {}

    def plan_of(form: Form, bundles: tuple[int, ...]) -> FormRows:
        key = (form.number, bundles)
        if key in known:
            return known[key]
        plan = known[key] = FormRows(len(known), form, bundles)
        lay_out(plan)
        for child, wires in zip(form.children, form.wires, strict=True):
            inner = child.content
            is_form = isinstance(inner, Form)
            plan.inner.append(plan_of(inner, _bundles(plan, wires)) if is_form else None)
        return plan

    plan_of(root, ())
    return list(known.values())


def _bundles(plan: FormRows, wires: Sequence[Wire]) -> tuple[int, ...]:
    """Number the sources of a child's entry slots in the order in which they first come; `ASIDE`
    for side roads.
    """
    numbers: dict[int, int] = {}
    return tuple(
        ASIDE if wire.is_side else numbers.setdefault(plan.source_of(wire), len(numbers))
        for wire in wires
    )


def lay_out(plan: FormRows) -> None:
    """Fill in rows, sides and trunks of a plan."""
    form = plan.form
    readers: dict[int, dict[int, None]] = {}
    feeds: list[set[int]] = []
    for child, wires in enumerate(form.wires):
        sources = dict.fromkeys(plan.source_of(wire) for wire in wires if not wire.is_side)
        feeds.append(set(sources))
        for source in sources:
            readers.setdefault(source, {})[child] = None
    for wire in form.exits:
        if not wire.is_side:
            readers.setdefault(wire.child, {})[EXIT] = None
    plan.sides = _sides(form, readers)
    pills_at_sides = {pill for pills in plan.sides for pill in pills}
    plan.rows = _rows(
        form, [sources - pills_at_sides for sources in feeds], readers, pills_at_sides
    )
    plan.row_of = [0] * len(form.children)
    for number, row in enumerate(plan.rows):
        for child in row:
            for item in (child, *plan.sides[child]):
                plan.row_of[item] = number
    _add_trunks(plan, {s: tuple(t) for s, t in readers.items() if s not in pills_at_sides})
    _order(plan)


def _sides(form: Form, readers: dict[int, dict[int, None]]) -> list[list[int]]:
    sides: list[list[int]] = [[] for _ in form.children]
    for child, item in enumerate(form.children):
        reader, *others = readers.get(child, {EXIT: None})
        if item.content.kind in PILLS and not others and reader != EXIT:
            if isinstance(form.children[reader].content, Record):
                sides[reader].append(child)
    return sides


def _rows(
    form: Form,
    feeds: Sequence[set[int]],
    readers: dict[int, dict[int, None]],
    pills_at_sides: set[int],
) -> list[list[int]]:
    """The children by rows: each below all that feed it, outputs last, at most `WIDEST` in a row.

    What depends on no input (constants, masks) stands just above its first reader, else it would
    pile up in the first row.
    """
    kinds = [child.content.kind for child in form.children]
    ranks = [0] * len(kinds)
    floating = [False] * len(kinds)
    ends = {
        child
        for child, category in enumerate(kinds)
        if category == "output" or (category == "ends" and not readers.get(child))
    }
    for child, category in enumerate(kinds):
        inside = [source for source in feeds[child] if source >= 0]
        starts = category in ("input", "ends") or len(inside) < len(feeds[child])
        floating[child] = not starts and all(floating[source] for source in inside)
        ranks[child] = 1 + max((ranks[source] for source in inside), default=-1)
    for child in reversed(range(len(kinds))):
        later_ranks = [ranks[t] for t in readers.get(child, ()) if t != EXIT and t not in ends]
        if floating[child] and later_ranks and EXIT not in readers[child]:
            ranks[child] = min(later_ranks) - 1
    last = 1 + max((r for c, r in enumerate(ranks) if c not in ends | pills_at_sides), default=-1)
    levels: dict[int, list[int]] = {}
    for child, rank in enumerate(ranks):
        if child not in pills_at_sides:
            levels.setdefault(last if child in ends else rank, []).append(child)
    return [
        level[i : i + WIDEST]
        for _, level in sorted(levels.items())
        for i in range(0, len(level), WIDEST)
    ]


def _add_trunks(plan: FormRows, readers: dict[int, tuple[int, ...]]) -> None:
    """Give each source its trunk, and each trunk that passes rows the first lane that is free."""

    def start_of(source: int) -> int:
        return plan.row_of[source] if source >= 0 else -1

    busy: list[int] = []  # for each lane the last row that it is taken up to
    for source in sorted(readers, key=lambda s: (start_of(s), s)):
        targets, start, lane = readers[source], start_of(source), -1
        end = max(len(plan.rows) if t == EXIT else plan.row_of[t] for t in targets)
        if end > start + 1:
            lane = next((i for i, last_row in enumerate(busy) if last_row < start), len(busy))
            busy[lane : lane + 1] = [end]
        plan.trunks[source] = EdgeBundle(source, start + 1, lane, targets)
    plan.lanes = len(busy)


def links(plan: FormRows) -> list[tuple[int, int]]:
    """Pairs of children in neighboring rows, upper first, that an edge joins."""
    return [
        (trunk.source, target)
        for trunk in plan.trunks.values()
        for target in trunk.targets
        if trunk.source >= 0 and target != EXIT and plan.row_of[target] == trunk.first
    ]


def _order(plan: FormRows) -> None:
    """Order each row by the mean position of its neighbors, above and below in turn, until nothing
    moves.
    """
    wide = [row for row in plan.rows if len(row) > 1]
    if not wide:
        return
    ups: dict[int, list[int]] = {}
    downs: dict[int, list[int]] = {}
    for upper, lower in links(plan):
        downs.setdefault(upper, []).append(lower)
        ups.setdefault(lower, []).append(upper)
    position: dict[int, float] = {}
    for row in plan.rows:
        _number(row, position)

    def sort(row: list[int], near: dict[int, list[int]]) -> None:
        expected = {}
        for item in row:
            items = near.get(item, (item,))
            expected[item] = sum([position[neighbor] for neighbor in items]) / len(items)
        row.sort(key=expected.__getitem__)
        _number(row, position)

    for _ in range(SWEEPS):
        before = [list(row) for row in wide]
        for row in wide:
            sort(row, ups)
        for row in reversed(wide):
            sort(row, downs)
        if before == wide:
            break


def _number(row: Sequence[int], position: dict[int, float]) -> None:
    """Number the children of a row around its middle."""
    for i, item in enumerate(row):
        position[item] = i - (len(row) - 1) / 2
