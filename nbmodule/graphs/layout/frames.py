"""Turn rows into coordinates for whatever is open now, from the inside out.

The browser does the same (`views/frontend/graph_place.js`); a test compares the two to the pixel.
Why there are two is said in `graphs/layout/__init__.py`.

Each box of a row wants to stand at the mean of its neighbors. Where that would break the order of
the row, it stands halfway between the running maximum of these places from the left and their
running minimum from the right, both of which keep the order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import NamedTuple

from nbmodule.graphs.layout.forms import PILLS, Child, Form
from nbmodule.graphs.layout.labels import exit_text, text_width, words_of
from nbmodule.graphs.layout.ranks import ASIDE, EXIT, EdgeBundle, FormRows, links

GAP = 16.0  # between boxes of a row
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


class Size(NamedTuple):
    """Of a folded child: width, height, width of its title when open, width of the label below
    it.
    """

    width: float
    height: float
    title: float
    label: float


def size_of(child: Child) -> Size:
    """Return the size of the box of a folded child."""
    value = child.content
    label = text_width(exit_text(child), 10)
    name, note, facts = words_of(child)
    if isinstance(value, Form):
        line = text_width(name, 12) * 1.06 + text_width(note, 11) + 40
        width = max(line, text_width(facts, 10) + 24, 76.0)
        return Size(_even(width), GROUP_HEIGHT, _even(line + 16), label)
    if value.kind in PILLS:
        return Size(
            _even(text_width(name, 11) + 26), PILL_HEIGHT, 0.0, label
        )  # with room for a number in a circle
    width = text_width(name, 12) + (text_width(note, 10) + 6 if note else 0) + 18
    return Size(_even(max(width, 40.0)), OP_HEIGHT, 0.0, label)


def _even(width: float) -> float:
    return float(2 * round(width / 2))


@dataclass(eq=False)
class Rectangle:
    """Coordinates of an open form, relative to its upper left corner.

    Attributes:
        width: Of the frame.
        height: Of the frame.
        x: Middle of each child.
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
    """Options of the look that change the placement.

    Attributes:
        labels: True if edges carry their shape, so that rows and neighbors keep room for it.
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
        """Length that an edge runs straight down before it turns."""
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
        sizes = self.sizes(plan)
        inner = {
            child: self.frame(nested, (*path, child), is_open, sizes[child].title)
            for child, nested in enumerate(plan.inner)
            if nested is not None and is_open((*path, child))
        }
        key = (plan.number, title, tuple((child, id(frame)) for child, frame in inner.items()))
        if key not in self._frames:
            frame = Rectangle(plan, inner=inner)
            _place(frame, sizes, self.spacing, title)
            self._frames[key] = frame
        return self._frames[key]


def _place(frame: Rectangle, sizes: Sequence[Size], spacing: Spacing, title: float) -> None:
    plan = frame.plan
    extents = _extents(frame, sizes, spacing)
    _settle_rows(frame, extents, spacing)
    left = min((x - extents[i][0] for i, x in frame.x.items()), default=0.0)
    right = max((x + extents[i][1] for i, x in frame.x.items()), default=0.0)
    content = right - left + (LANE * plan.lanes + GAP if plan.lanes else 0.0)
    outer = title > 0
    frame.width = max(content + (2 * PAD if outer else 0.0), title)
    shift = (frame.width - content) / 2 - left
    frame.x = {item: _round(x + shift) for item, x in frame.x.items()}
    frame.lanes = [_round(right + shift + GAP + LANE * i) for i in range(plan.lanes)]
    _stack(frame, sizes, spacing, outer)
    _ports(frame)


def _measure(frame: Rectangle, sizes: Sequence[Size], child: int) -> tuple[float, float]:
    shown = frame.inner.get(child, sizes[child])
    return shown.width, shown.height


Extents = dict[int, tuple[float, float]]


def _extents(frame: Rectangle, sizes: Sequence[Size], spacing: Spacing) -> Extents:
    """Return the extent of each child to the left and right of its middle, with pills and label."""
    results: Extents = {}
    for child in (child for row in frame.plan.rows for child in row):
        half = _measure(frame, sizes, child)[0] / 2
        pills = [sizes[p].width + PILL_ROOM for p in frame.plan.sides[child]]
        label = sizes[child].label + 8 if spacing.labels and child not in frame.inner else 0.0
        left, right = half + max(pills, default=0.0), max(half, label)
        results[child] = (left + spacing.reach, right + spacing.reach)
    return results


def _settle_rows(frame: Rectangle, extents: Extents, spacing: Spacing) -> None:
    """Give every child its middle: as near to its neighbors above and below as order and room
    allow.
    """
    down = frame.plan.rows
    uppers, lowers = _pulls(frame)
    for row in down:
        offsets = _offsets(row, extents)
        for item, offset in zip(row, offsets, strict=True):
            frame.x[item] = offset - offsets[-1] / 2
    sweeps = [(uppers, down), (lowers, down[::-1])] * 3
    for near, rows in [*sweeps, (uppers, down)]:
        for row in rows:
            _settle(row, near, extents, frame.x)
    if spacing.reach:
        for item in frame.x:
            frame.x[item] += spacing.reach * noise(frame.plan.number, item)


def noise(plan: int, item: int) -> float:
    """A number between -1 and 1 that is always the same for one box.

    >>> noise(3, 5) == noise(3, 5) != noise(3, 6)
    True
    """
    mixed = (plan * 2654435761 + item * 40503 + 12345) & 0xFFFFFFFF
    mixed = ((mixed ^ (mixed >> 15)) * 2246822519) & 0xFFFFFFFF
    mixed = ((mixed ^ (mixed >> 13)) * 3266489917) & 0xFFFFFFFF
    return ((mixed ^ (mixed >> 16)) & 0xFFFF) / 32767.5 - 1.0


Pulls = dict[int, list[tuple[int, float]]]  # other children, and how far from each it wants to be


def _pulls(frame: Rectangle) -> tuple[Pulls, Pulls]:
    uppers: Pulls = {}
    lowers: Pulls = {}
    for upper, lower in links(frame.plan):
        distance = _port(frame, upper, "exits") - _port(frame, lower, "entries")
        uppers.setdefault(lower, []).append((upper, distance))
        lowers.setdefault(upper, []).append((lower, -distance))
    return uppers, lowers


def _port(frame: Rectangle, item: int, side: str) -> float:
    """Return the mean offset from its middle at which edges cross the border of an open child.

    Edges in lanes do not count, or each level of nesting would be drawn aside by them.
    """
    inner = frame.inner.get(item)
    if inner is None:
        return 0.0
    points = [x for x in getattr(inner, side).values() if x not in inner.lanes]
    return sum(points) / len(points) - inner.width / 2 if points else 0.0


def _offsets(row: Sequence[int], extents: Extents) -> list[float]:
    """Smallest distance of each child's middle from that of the first."""
    steps = [extents[a][1] + extents[b][0] + GAP for a, b in pairwise(row)]
    return list(accumulate(steps, initial=0.0))


def _settle(row: Sequence[int], near: Pulls, extents: Extents, x: dict[int, float]) -> None:
    """Move the children of a row to where they are pulled, in order and without overlap; a child
    without pulls stays if it is not in the way.
    """
    offsets = _offsets(row, extents)
    goals = []
    for item, offset in zip(row, offsets, strict=True):
        pulls = near.get(item, [(item, 0.0)])
        goals.append(sum(x[other] + distance for other, distance in pulls) / len(pulls) - offset)
    highest = accumulate(goals, max)
    lowest = reversed([*accumulate(reversed(goals), min)])
    for item, offset, high, low in zip(row, offsets, highest, lowest, strict=True):
        x[item] = (high + low) / 2 + offset


def _stack(frame: Rectangle, sizes: Sequence[Size], spacing: Spacing, outer: bool) -> None:
    """Give rows and boxes their heights."""
    plan = frame.plan
    enters = any(bundle != ASIDE for bundle in plan.bundles)
    top = HEADER + (EDGE_ROOM if enters else 6.0)
    y = top if outer else 0.0
    gap = (LABEL_GAP if spacing.labels else ROW_GAP) + 2 * spacing.reach
    frame.boxes = [(0.0, 0.0, 0.0, 0.0)] * len(sizes)
    for row in plan.rows:
        height = max(
            max(_measure(frame, sizes, item)[1], _pills_height(plan, item)) for item in row
        )
        for item in row:
            _set_box(frame, sizes, item, y, height)
        frame.rows.append((y, y + height))
        y += height + gap
    y -= gap if plan.rows else 0.0
    leaves = not all(wire.is_side for wire in plan.form.exits)
    bottom = EDGE_ROOM if leaves else PAD
    frame.height = _round(y + (bottom if outer else 0.0))


def _pills_height(plan: FormRows, item: int) -> float:
    return max(len(plan.sides[item]) * (PILL_HEIGHT + PILL_GAP) - PILL_GAP, 0.0)


def _set_box(frame: Rectangle, sizes: Sequence[Size], item: int, y: float, height: float) -> None:
    width, owned = _measure(frame, sizes, item)
    x = _round(frame.x[item] - width / 2)
    frame.boxes[item] = (x, _round(y + (height - owned) / 2), width, owned)
    top = y + (height - _pills_height(frame.plan, item)) / 2
    for i, pill in enumerate(frame.plan.sides[item]):
        wide, top_edge = sizes[pill].width, _round(top + i * (PILL_HEIGHT + PILL_GAP))
        frame.boxes[pill] = (x - PILL_ROOM - wide, top_edge, wide, PILL_HEIGHT)


def _ports(frame: Rectangle) -> None:
    """Set where trunks cross the borders: straight at the boxes beside it, else in their lane."""
    plan = frame.plan
    for source, trunk in plan.trunks.items():
        if source < 0:
            first = [t for t in trunk.targets if t != EXIT and plan.row_of[t] == 0]
            frame.entries[~source] = _crossing(frame, trunk, first, "entries")
        if EXIT in trunk.targets:
            last = [source] if trunk.lane < 0 else []
            frame.exits[source] = _crossing(frame, trunk, last, "exits")
    _spread(frame.entries)
    _spread(frame.exits)


def _crossing(frame: Rectangle, trunk: EdgeBundle, items: Sequence[int], side: str) -> float:
    if not items:
        return frame.lanes[trunk.lane]
    points = [frame.x[item] + _port(frame, item, side) for item in items]
    return _round(sum(points) / len(points))


def _spread(points: dict[int, float]) -> None:
    """Move coinciding points apart."""
    groups: dict[float, list[int]] = {}
    for name, x in points.items():
        groups.setdefault(x, []).append(name)
    for x, names in groups.items():
        for i, name in enumerate(names):
            points[name] = _round(x + (i - (len(names) - 1) / 2) * APART)


def _round(x: float) -> float:
    """Whole and half pixels, rounded alike in Python and JavaScript."""
    return int(x * 2 + (0.5 if x >= 0 else -0.5)) / 2
