"""Turn rows into coordinates for whatever is open now, from the inside out.

The browser does the same (`views/frontend/graph_place.js`); a test compares the two to the pixel.
Why there are two is said in `graphs/layout/__init__.py`.

The middles of a row's boxes are the least squares fit to the places of their neighbors under the
order of the row: an isotonic regression, solved by pooling adjacent violators (Ayer et al., 1955,
"An empirical distribution function for sampling with incomplete information").
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from nbmodule.graphs.layout.forms import PILLS, Child, Form
from nbmodule.graphs.layout.labels import (
    exit_text,
    group_facts,
    group_note,
    group_title,
    node_note,
    text_width,
)
from nbmodule.graphs.layout.ranks import EXIT, FormRows, Trunk, above, links

GAP = 16.0  # between boxes of a row
PLACE_GAP = 7.0  # between a passing edge and its neighbor
PLACE_HALF = 4.0
ROW_GAP = 22.0
LABEL_GAP = 36.0  # between rows, where edges carry labels
LABEL_STUB = 13.0  # that far an edge runs straight down beside its label
HEADER = 26.0
PAD = 14.0
EDGE_ROOM = 18.0  # between an open group's border and its first or last row, for edges to spread
LANE = 9.0
OP_HEIGHT = 24.0
GROUP_HEIGHT = 40.0
PILL_HEIGHT = 18.0
PILL_GAP = 4.0
PILL_ROOM = 14.0  # between a pill and its reader
APART = 10.0  # between lines that cross a border at the same place
PASSES = 4


class Size(NamedTuple):
    """Of a folded child: width, height, width of its title when open, width of the label below
    it.
    """

    width: float
    height: float
    title: float
    label: float


def size_of(child: Child) -> Size:
    """How large the box of a folded child is."""
    value = child.content
    label = text_width(exit_text(child), 10)
    if isinstance(value, Form):
        line = text_width(group_title(child), 12) * 1.06 + text_width(group_note(value), 11) + 40
        width = max(line, text_width(group_facts(value), 10) + 24, 76.0)
        return Size(_even(width), GROUP_HEIGHT, _even(line + 16), label)
    if value.kind in PILLS:
        return Size(
            _even(text_width(child.name, 11) + 26), PILL_HEIGHT, 0.0, label
        )  # with room for a number in a circle
    note = node_note(child)
    width = text_width(child.name, 12) + (text_width(note, 10) + 6 if note else 0) + 18
    return Size(_even(max(width, 40.0)), OP_HEIGHT, 0.0, label)


def _even(width: float) -> float:
    return float(2 * round(width / 2))


@dataclass(eq=False, slots=True)
class Rectangle:
    """Coordinates of an open form, relative to its upper left corner.

    Attributes:
        width: Of the frame.
        height: Of the frame.
        x: Middle of each item (child, or `~place`).
        boxes: Upper left corner and size of each child.
        rows: Upper and lower edge of each row.
        entries: Where each bundle of outside sources crosses the upper border.
        exits: Where each child's trunk crosses the lower border.
        lanes: Middle of each lane.
    """

    plan: FormRows
    width: float = 0.0
    height: float = 0.0
    x: dict[int, float] = field(default_factory=dict)
    boxes: list[tuple[float, float, float, float]] = field(default_factory=list)
    rows: list[tuple[float, float]] = field(default_factory=list)
    entries: dict[int, float] = field(default_factory=dict)
    exits: dict[int, float] = field(default_factory=dict)
    lanes: list[float] = field(default_factory=list)
    inner: dict[int, Rectangle] = field(default_factory=dict)


@dataclass(frozen=True)
class Spacing:
    """What the look asks of the placement.

    Attributes:
        labels: Whether edges carry their shape, so that rows and neighbors keep room for it.
        jitter: From 0 (none) to 1; how far boxes are moved at random.
    """

    labels: bool = True
    jitter: float = 0.0

    @property
    def reach(self) -> float:
        """Farthest move by jitter in pixels; it grows with the square, so that a little leaves
        lines straight.
        """
        return 40.0 * self.jitter**2

    @property
    def stub(self) -> float:
        """How far an edge runs straight down before it turns."""
        return LABEL_STUB if self.labels else 0.0


class Placer:
    """Computes frames; equal forms that are open in the same way share one."""

    def __init__(self, spacing: Spacing) -> None:
        self.spacing = spacing
        self._frames: dict[tuple, Rectangle] = {}
        self._sizes: dict[int, list[Size]] = {}

    def sizes(self, plan: FormRows) -> list[Size]:
        """Sizes of the children of a plan while they are folded."""
        number = plan.form.number
        if number not in self._sizes:
            self._sizes[number] = [size_of(child) for child in plan.form.children]
        return self._sizes[number]

    def frame(
        self,
        plan: FormRows,
        path: tuple[int, ...],
        is_open: Callable[[tuple[int, ...]], bool],
        title: float,
    ) -> Rectangle:
        """The frame of an open form whose place is `path`; `title` is the width its heading
        needs.
        """
        inner = {}
        for child, nested in enumerate(plan.inner):
            if nested is not None and is_open((*path, child)):
                inner[child] = self.frame(
                    nested, (*path, child), is_open, self.sizes(plan)[child].title
                )
        key = (plan.number, title, tuple((child, id(frame)) for child, frame in inner.items()))
        if key not in self._frames:
            frame = Rectangle(plan, inner=inner)
            _place(frame, self.sizes(plan), self.spacing, title)
            self._frames[key] = frame
        return self._frames[key]


def _place(frame: Rectangle, sizes: Sequence[Size], spacing: Spacing, title: float) -> None:
    plan = frame.plan
    measures = [_measure(frame, sizes, child) for child in range(len(sizes))]
    extents = _extents(frame, sizes, measures, spacing)
    _settle_rows(frame, extents, spacing)
    left = min((frame.x[i] - extents[i][0] for row in plan.rows for i in row), default=0.0)
    right = max((frame.x[i] + extents[i][1] for row in plan.rows for i in row), default=0.0)
    content = right - left + (LANE * plan.lanes + GAP if plan.lanes else 0.0)
    outer = title > 0
    frame.width = max(content + (2 * PAD if outer else 0.0), title)
    shift = (frame.width - content) / 2 - left
    frame.x = {item: _round(x + shift) for item, x in frame.x.items()}
    start = right + shift + GAP
    frame.lanes = [_round(start + LANE * i) for i in range(plan.lanes)]
    _stack(frame, measures, spacing, outer)
    _ports(frame)


def _measure(frame: Rectangle, sizes: Sequence[Size], child: int) -> tuple[float, float]:
    inner = frame.inner.get(child)
    return (inner.width, inner.height) if inner else (sizes[child].width, sizes[child].height)


def _extents(
    frame: Rectangle, sizes: Sequence[Size], measures, spacing: Spacing
) -> dict[int, tuple[float, float]]:
    """How far each item reaches to the left and right of its middle."""
    plan = frame.plan
    results: dict[int, tuple[float, float]] = {}
    for row in plan.rows:
        for item in row:
            if item < 0:
                results[item] = (PLACE_HALF, PLACE_HALF)
                continue
            half = measures[item][0] / 2
            pills = max((sizes[p].width + PILL_ROOM for p in plan.sides[item]), default=0.0)
            label = sizes[item].label + 8 if spacing.labels and item not in frame.inner else 0.0
            results[item] = (half + pills + spacing.reach, max(half, label) + spacing.reach)
    return results


def _settle_rows(
    frame: Rectangle, extents: dict[int, tuple[float, float]], spacing: Spacing
) -> None:
    """Give every item its middle: as near to its neighbors above and below as order and room
    allow.
    """
    plan = frame.plan
    ups, downs = _pulls(frame)
    for row in plan.rows:
        offsets = _offsets(row, extents)
        middle = offsets[-1] / 2 if offsets else 0.0
        for item, offset in zip(row, offsets, strict=True):
            frame.x[item] = offset - middle
    steps = [(ups, plan.rows), (downs, plan.rows[::-1])] * (PASSES // 2)
    both = {item: ups.get(item, []) + downs.get(item, []) for row in plan.rows for item in row}
    for near, rows in [*steps, (both, plan.rows), (both, plan.rows[::-1]), (ups, plan.rows)]:
        for row in rows:
            _settle(row, near, extents, frame.x)
    if spacing.reach:
        for item, x in frame.x.items():
            if item >= 0:
                frame.x[item] = x + spacing.reach * noise(plan.number, item)


def noise(plan: int, item: int) -> float:
    """A number between -1 and 1 that is always the same for one box.

    >>> noise(3, 5) == noise(3, 5) != noise(3, 6)
    True
    """
    mixed = (plan * 2654435761 + item * 40503 + 12345) & 0xFFFFFFFF
    mixed = ((mixed ^ (mixed >> 15)) * 2246822519) & 0xFFFFFFFF
    mixed = ((mixed ^ (mixed >> 13)) * 3266489917) & 0xFFFFFFFF
    return ((mixed ^ (mixed >> 16)) & 0xFFFF) / 32767.5 - 1.0


Pull = tuple[
    int, float, float
]  # another item, how far from it this one wants to be, and how strongly


def _pulls(frame: Rectangle) -> tuple[dict[int, list[Pull]], dict[int, list[Pull]]]:
    ups: dict[int, list[Pull]] = {}
    downs: dict[int, list[Pull]] = {}
    for upper, lower in links(frame.plan):
        weight = (2.0 if upper < 0 else 1.0) * (2.0 if lower < 0 else 1.0)
        distance = _port(frame, upper, "exits") - _port(frame, lower, "entries")
        ups.setdefault(lower, []).append((upper, distance, weight))
        downs.setdefault(upper, []).append((lower, -distance, weight))
    return ups, downs


def _port(frame: Rectangle, item: int, side: str) -> float:
    """How far the edges of an open child cross its border from its middle, on the average."""
    inner = frame.inner.get(item)
    if inner is None:
        return 0.0
    points = getattr(inner, side).values()
    return sum(points) / len(points) - inner.width / 2 if points else 0.0


def _offsets(row: Sequence[int], extents: dict[int, tuple[float, float]]) -> list[float]:
    """Smallest distance of each item's middle from that of the first."""
    offsets = []
    total = 0.0
    for i, item in enumerate(row):
        if i:
            before = row[i - 1]
            total += (
                extents[before][1]
                + extents[item][0]
                + (GAP if item >= 0 and before >= 0 else PLACE_GAP)
            )
        offsets.append(total)
    return offsets


def _settle(row: Sequence[int], near: dict[int, list[Pull]], extents, x: dict[int, float]) -> None:
    """Move the items of a row to where they are pulled, in order and without overlap (pool adjacent
    violators).
    """
    offsets = _offsets(row, extents)
    blocks: list[list[float]] = []  # sum of weight times goal, weight, number of items
    for item, offset in zip(row, offsets, strict=True):
        pulls = near.get(item)
        if pulls:
            weight = sum(w for _, _, w in pulls)
            goal = sum((x[pull] + distance) * w for pull, distance, w in pulls)
            block = [goal - offset * weight, weight, 1]
        else:
            block = [
                (x[item] - offset) * 0.05,
                0.05,
                1,
            ]  # what nothing pulls stays where it is, if it is not in the way
        # a goal left of the one before would overlap: the two become one block around their common
        # mean
        while blocks and blocks[-1][0] * block[1] >= block[0] * blocks[-1][1]:
            last = blocks.pop()
            block = [last[0] + block[0], last[1] + block[1], last[2] + block[2]]
        blocks.append(block)
    at = 0
    for goal, weight, count in blocks:
        for _ in range(int(count)):
            x[row[at]] = goal / weight + offsets[at]
            at += 1


def _stack(frame: Rectangle, measures, spacing: Spacing, outer: bool) -> None:
    """Give rows and boxes their heights."""
    plan = frame.plan
    y = HEADER + (EDGE_ROOM if plan.form.enters else 6.0) if outer else 0.0
    gap = (LABEL_GAP if spacing.labels else ROW_GAP) + 2 * spacing.reach
    frame.boxes = [(0.0, 0.0, 0.0, 0.0)] * len(measures)
    for row in plan.rows:
        height = max((_item_height(frame, item, measures) for item in row), default=0.0)
        for item in row:
            if item >= 0:
                _set_box(frame, item, measures, y, height)
        frame.rows.append((y, y + height))
        y += height + gap
    y -= gap if plan.rows else 0.0
    frame.height = _round(y + ((EDGE_ROOM if plan.form.leaves else PAD) if outer else 0.0))


def _item_height(frame: Rectangle, item: int, measures) -> float:
    if item < 0:
        return 0.0
    pills = len(frame.plan.sides[item])
    return max(measures[item][1], pills * (PILL_HEIGHT + PILL_GAP) - PILL_GAP if pills else 0.0)


def _set_box(frame: Rectangle, item: int, measures, y: float, height: float) -> None:
    width, owned = measures[item]
    x = _round(frame.x[item] - width / 2)
    frame.boxes[item] = (x, _round(y + (height - owned) / 2), width, owned)
    pills = frame.plan.sides[item]
    top = y + (height - (len(pills) * (PILL_HEIGHT + PILL_GAP) - PILL_GAP)) / 2
    for i, pill in enumerate(pills):
        wide = measures[pill][0]
        frame.boxes[pill] = (
            x - PILL_ROOM - wide,
            _round(top + i * (PILL_HEIGHT + PILL_GAP)),
            wide,
            PILL_HEIGHT,
        )


def _ports(frame: Rectangle) -> None:
    """Where trunks cross the borders."""
    plan = frame.plan
    for trunk in plan.trunks:
        if trunk.source < 0:
            frame.entries[~trunk.source] = _entry(frame, trunk)
        if EXIT in trunk.targets:
            frame.exits[trunk.source] = _exit(frame, trunk)
    _spread(frame.entries)
    _spread(frame.exits)


def _spread(points: dict[int, float]) -> None:
    """Move points that lie on each other apart."""
    groups: dict[float, list[int]] = {}
    for name, x in points.items():
        groups.setdefault(x, []).append(name)
    for x, names in groups.items():
        for i, name in enumerate(names):
            points[name] = _round(x + (i - (len(names) - 1) / 2) * APART)


def _entry(frame: Rectangle, trunk: Trunk) -> float:
    if trunk.lane >= 0:
        return frame.lanes[trunk.lane]
    if trunk.places:
        return frame.x[~trunk.places[0]]
    points = [frame.x[t] + _port(frame, t, "entries") for t in trunk.targets if t != EXIT]
    return _round(sum(points) / len(points)) if points else frame.width / 2


def _exit(frame: Rectangle, trunk: Trunk) -> float:
    if trunk.lane >= 0:
        return frame.lanes[trunk.lane]
    item = above(frame.plan, trunk, EXIT)
    return (
        _round(frame.x[item] + _port(frame, item, "exits")) if item is not None else frame.width / 2
    )


def _round(x: float) -> float:
    """Whole and half pixels, rounded alike in Python and JavaScript."""
    return int(x * 2 + (0.5 if x >= 0 else -0.5)) / 2
