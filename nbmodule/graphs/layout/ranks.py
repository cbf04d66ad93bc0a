"""Give each child of a form its row and its order in the row, once; what is open or folded changes
nothing of it.

Rows follow the longest way from the top. An edge that passes rows on its way gets a place of its
own in each of them, so that boxes make room for it; all edges from one source share these places
(its *trunk*). Where such places would outnumber the boxes by far, the longest trunks run in lanes
beside the rows instead. Everything here is linear in the number of children, wires and places.

Side roads (what is written into variables, the state of random numbers) have no places here: they
never push the main road aside.

This is layered drawing after Sugiyama, Tagawa and Toda (1981, "Methods for visual understanding of
hierarchical system structures"): ranks by longest path, a dummy place in each row that an edge
passes, rows ordered by barycenters, swept down and up. Two things differ: the dummies of all edges
from one source are one trunk, and each level of nesting is laid out by itself, so that opening a
box never reorders what is around it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from nbmodule.graphs.layout.forms import OUTSIDE, PILLS, Form, Record

ASIDE = -1  # as the bundle of an entry slot: a side road, which has no place in the rows
EXIT = -1  # as the target of a trunk: the lower border of the form
WIDEST = 8  # boxes in one row
SWEEPS = 6
PLACES_PER_CHILD = 5
PLACES_FREE = 60


@dataclass(slots=True)
class Trunk:
    """The way of all edges from one source.

    Attributes:
        source: A child, or `~bundle` for what comes in from outside.
        first: The first row with a place for it.
        places: One number per passed row; empty if all readers are in the next row, or if it runs
            in a lane.
        lane: Number of its lane beside the rows, -1 without.
        targets: The children that read it, `EXIT` for the lower border.
    """

    source: int
    first: int
    places: tuple[int, ...]
    lane: int
    targets: tuple[int, ...]


@dataclass(eq=False, slots=True)
class FormRows:
    """Rows and trunks of a form whose entry slots come from certain bundles of outside sources.

    Attributes:
        form: What is laid out.
        bundles: For each entry slot the bundle it belongs to; slots of one bundle come from one box
            outside.
        rows: Items from left to right; a child by its number, a trunk's place `p` as `~p`.
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
    trunks: list[Trunk] = field(default_factory=list)
    lanes: int = 0
    places: int = 0
    inner: list[FormRows | None] = field(default_factory=list)


class Plans:
    """The plans of all forms below a root, each pair of form and bundles laid out once."""

    def __init__(self, root: Form) -> None:
        self.all: list[FormRows] = []
        self._known: dict[tuple[int, tuple[int, ...]], FormRows] = {}
        self.root = self._plan(root, ())

    def _plan(self, form: Form, bundles: tuple[int, ...]) -> FormRows:
        key = (form.number, bundles)
        if key in self._known:
            return self._known[key]
        plan = FormRows(len(self.all), form, bundles)
        self._known[key] = plan
        self.all.append(plan)
        lay_out(plan)
        for child, wires, aside in zip(form.children, form.wires, form.side_entries, strict=True):
            if isinstance(child.content, Form):
                plan.inner.append(self._plan(child.content, _bundles(wires, aside, bundles)))
            else:
                plan.inner.append(None)
        return plan


def _bundles(
    wires: Sequence[tuple[int, int]], aside: Sequence[int], outer: Sequence[int]
) -> tuple[int, ...]:
    """Number the sources of a child's entry slots in the order in which they first come; `ASIDE`
    for side roads.
    """
    numbers: dict[int, int] = {}
    bundles = []
    for i, (child, slot) in enumerate(wires):
        source = child if child != OUTSIDE else ~outer[slot]
        bundles.append(ASIDE if i in aside else numbers.setdefault(source, len(numbers)))
    return tuple(bundles)


def lay_out(plan: FormRows) -> None:
    """Fill in rows, sides and trunks of a plan."""
    form = plan.form
    readers: dict[int, dict[int, None]] = {}
    feeds: list[list[int]] = []
    for child, (wires, aside) in enumerate(zip(form.wires, form.side_entries, strict=True)):
        main = (w for i, w in enumerate(wires) if i not in aside)
        sources = dict.fromkeys(
            w.child if w.child != OUTSIDE else ~plan.bundles[w.slot] for w in main
        )
        feeds.append(list(sources))
        for source in sources:
            readers.setdefault(source, {})[child] = None
    for slot, wire in enumerate(form.exits):
        if slot not in form.side_exits:
            readers.setdefault(wire.child, {})[EXIT] = None
    plan.sides = _sides(form, readers)
    neighbor = {pill for pills in plan.sides for pill in pills}
    plan.row_of = _ranks(form, feeds, readers, neighbor)
    for child, pills in enumerate(plan.sides):
        for pill in pills:
            plan.row_of[pill] = plan.row_of[child]
    height = max(plan.row_of, default=-1) + 1
    plan.rows = [[] for _ in range(height)]
    for child, row in enumerate(plan.row_of):
        if child not in neighbor:
            plan.rows[row].append(child)
    _add_trunks(plan, {s: tuple(t) for s, t in readers.items() if s not in neighbor}, height)
    _order(plan)


def _sides(form: Form, readers: dict[int, dict[int, None]]) -> list[list[int]]:
    sides: list[list[int]] = [[] for _ in form.children]
    for child, item in enumerate(form.children):
        if isinstance(item.content, Record) and item.content.kind in PILLS:
            result = list(readers.get(child, ()))
            if (
                len(result) == 1
                and result[0] != EXIT
                and isinstance(form.children[result[0]].content, Record)
            ):
                sides[result[0]].append(child)
    return sides


def _ranks(
    form: Form,
    feeds: Sequence[Sequence[int]],
    readers: dict[int, dict[int, None]],
    neighbor: set[int],
) -> list[int]:
    """Row of each child: below all that feed it, at most `WIDEST` in a row; what has no input comes
    late.
    """
    kinds = [child.content.kind for child in form.children]
    ranks = [0] * len(kinds)
    filled: dict[int, int] = {}
    floating = [False] * len(kinds)
    ends: list[int] = []
    # down: the longest way from the top; `floating` is what depends on no input (constants, masks)
    for child, category in enumerate(kinds):
        if child in neighbor:
            continue
        if category == "output" or (category == "ends" and not readers.get(child)):
            ends.append(child)
            continue
        above = [s for s in feeds[child] if s not in neighbor]
        floating[child] = (
            category != "input"
            and category != "ends"
            and all(s >= 0 and floating[s] for s in above)
        )
        ranks[child] = _free_row(1 + max((ranks[s] for s in above if s >= 0), default=-1), filled)
    # up again: what floats moves down to its first reader, else constants would pile up in the
    # first row
    for child in range(len(kinds) - 1, -1, -1):
        inner = [ranks[t] for t in readers.get(child, ()) if t != EXIT and kinds[t] != "output"]
        if floating[child] and child not in neighbor and inner and EXIT not in readers[child]:
            late = min(inner) - 1
            while late > ranks[child] and filled.get(late, 0) >= WIDEST:
                late -= 1
            if late > ranks[child]:
                filled[ranks[child]] -= 1
                filled[late] = filled.get(late, 0) + 1
                ranks[child] = late
    start = max(
        (r for c, r in enumerate(ranks) if c not in neighbor and kinds[c] != "output"), default=-1
    )
    last = start + 1 if len(ends) < len(kinds) else 0
    for child in ends:
        ranks[child] = _free_row(last, filled)
    return _without_gaps(ranks, neighbor)


def _free_row(row: int, filled: dict[int, int]) -> int:
    while filled.get(row, 0) >= WIDEST:
        row += 1
    filled[row] = filled.get(row, 0) + 1
    return row


def _without_gaps(ranks: list[int], neighbor: set[int]) -> list[int]:
    used = sorted({rank for child, rank in enumerate(ranks) if child not in neighbor})
    numbers = {rank: i for i, rank in enumerate(used)}
    return [numbers.get(rank, 0) for rank in ranks]


def _add_trunks(plan: FormRows, readers: dict[int, tuple[int, ...]], height: int) -> None:
    """Give each source its trunk: the shortest get places in the rows they pass, the rest lanes."""
    spans = []
    for source, targets in readers.items():
        start = plan.row_of[source] if source >= 0 else -1
        end = max(height if target == EXIT else plan.row_of[target] for target in targets)
        spans.append((end - start - 1, source, start, targets))
    budget = PLACES_PER_CHILD * len(plan.form.children) + PLACES_FREE
    allowed = set()
    for length, source, _, _ in sorted(spans, key=lambda s: (s[0], s[1])):
        budget -= length
        if budget < 0:
            break
        allowed.add(source)
    ends: list[int] = []  # last row that each lane is taken up to
    for length, source, start, targets in sorted(spans, key=lambda s: (s[2], s[1])):
        places, lane = (), -1
        if length > 0 and source in allowed:
            places = tuple(range(plan.places, plan.places + length))
            for row, location in enumerate(places, start + 1):
                plan.rows[row].append(~location)
            plan.places += length
        elif length > 0:
            lane = next((i for i, end in enumerate(ends) if end < start), len(ends))
            ends[lane : lane + 1] = [start + length + 1]
        plan.trunks.append(Trunk(source, start + 1, places, lane, targets))
    plan.lanes = len(ends)


def links(plan: FormRows) -> list[tuple[int, int]]:
    """Pairs of items in neighboring rows, upper first, that an edge joins."""
    pairs = []
    for trunk in plan.trunks:
        chain = ([trunk.source] if trunk.source >= 0 else []) + [
            ~location for location in trunk.places
        ]
        pairs += pairwise(chain)
        if trunk.lane >= 0:
            continue
        for target in trunk.targets:
            if target == EXIT:
                continue
            upper = above(plan, trunk, target)
            if upper is not None:
                pairs.append((upper, target))
    return pairs


def above(plan: FormRows, trunk: Trunk, target: int) -> int | None:
    """The item from which a trunk turns to a target; None where it comes straight in from
    outside.
    """
    passed = (len(plan.rows) if target == EXIT else plan.row_of[target]) - trunk.first
    if passed > 0:
        return ~trunk.places[passed - 1]
    return trunk.source if trunk.source >= 0 else None


def _order(plan: FormRows) -> None:
    """Order each row by the mean position of its neighbors, above and below in turn, until nothing
    moves.
    """
    long = [row for row in plan.rows if len(row) > 1]
    if not long:
        return
    # lists are indexed by item, places of trunks (negative) from the end
    size = len(plan.form.children) + plan.places
    ups: list[list[int]] = [[] for _ in range(size)]
    downs: list[list[int]] = [[] for _ in range(size)]
    for upper, lower in links(plan):
        downs[upper].append(lower)
        ups[lower].append(upper)
    location = [0.0] * size
    for row in plan.rows:
        _number(row, location)
    still = 0  # sweeps in which no row changed; two of them, one each way, and nothing will
    for sweep in range(SWEEPS):
        near = ups if sweep % 2 == 0 else downs
        moved = False
        for row in long if sweep % 2 == 0 else reversed(long):
            expected = [_mean(near[item], location, item) for item in row]
            if any(a > b for a, b in pairwise(expected)):
                moved = True
                order = sorted(range(len(row)), key=expected.__getitem__)
                row[:] = [row[i] for i in order]
                _number(row, location)
        still = 0 if moved else still + 1
        if still == 2:
            break


def _mean(near: Sequence[int], location: Sequence[float], item: int) -> float:
    if len(near) == 1:
        return location[near[0]]
    return sum([location[i] for i in near]) / len(near) if near else location[item]


def _number(row: list[int], location: list[float]) -> None:
    at = -(len(row) - 1) / 2
    for item in row:
        location[item] = at
        at += 1.0
