"""Boxes and lines with their coordinates, for what is open now: what a drawing, in whatever format,
has to show.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from nbmodule.graphs.layout.forms import OUTSIDE, PILLS, Child, Form, Forms, Label, Wire
from nbmodule.graphs.layout.frames import HEADER, Placer, Rectangle, Spacing
from nbmodule.graphs.layout.labels import exit_text, text_width
from nbmodule.graphs.layout.ranks import FormRows, plans_below
from nbmodule.graphs.model import Value

Place = tuple[int, ...]
Post = tuple[float, float, float]  # a vertical piece of a line: x, upper end, lower end
Word = tuple[float, float, str]
ROOM = 30.0  # above and below a group that fills the picture, for what comes in and goes out
FEWEST, MOST = 5, 25  # boxes that a picture opens with


@dataclass(eq=False)
class Box:
    """A box, or the frame of an open group.

    Attributes:
        place: The way from the root, as positions of children.
        child: The group or operation that it shows.
        path: Dotted path of submodules.
        is_open: True if its inside is shown.
        label: Full name of a variable; None for anything else.
        fill: Color, where a number stands for the box.
        returned: Text of what the submodule returned.
        hover: Hover text.
        is_marked: True if it is drawn in red.
    """

    place: Place
    child: Child
    path: str
    x: float
    y: float
    width: float
    height: float
    is_open: bool
    label: Label | None = None
    fill: str = ""
    returned: str = ""
    hover: str = ""
    is_marked: bool = False


@dataclass
class EdgeLine:
    """All edges between two visible boxes.

    Attributes:
        source: The upper box.
        target: The lower box.
        posts: Vertical pieces from above to below, joined by curves; empty for a pill beside its
            reader.
        slots: Exit slots of the source that run here.
        bytes: Size of these values.
    """

    source: Box
    target: Box
    posts: list[Post]
    slots: dict[int, Value] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        """Size of what runs along the line."""
        return sum(value.bytes for value in self.slots.values())


@dataclass
class Scene:
    """Everything that is visible; coordinates in pixels from the upper left.

    Attributes:
        ends: Lines to and from what lies outside of a group that fills the picture.
        sides: Side roads, straight from box to box: what goes into variables, and the state of
            random numbers.
        labels: Texts of the lines.
        legend: Text for the colors of boxes, and the two ends of the scale.
    """

    width: float
    height: float
    boxes: list[Box]
    lines: list[EdgeLine]
    ends: list[list[Post]]
    labels: list[Word]
    sides: list[EdgeLine] = field(default_factory=list)
    legend: tuple[str, str, str] | None = None


@dataclass
class _Open:
    """An open form in its place; its boxes by the position of their child."""

    frame: Rectangle
    x: float
    y: float
    place: Place
    parent: _Open | None = None
    boxes: list[Box] = field(default_factory=list)
    inner: dict[int, _Open] = field(default_factory=dict)

    @property
    def plan(self) -> FormRows:
        return self.frame.plan

    @property
    def form(self) -> Form:
        return self.frame.plan.form

    def walk(self) -> Iterator[_Open]:
        """This form and the open ones inside."""
        yield self
        for inner in self.inner.values():
            yield from inner.walk()


class _Target(NamedTuple):
    """A group in its place: its child (None for the whole), plan, width of its heading, path, and
    the position of its first variable among all.
    """

    child: Child | None
    plan: FormRows
    title: float
    path: str
    label: int


class PlacedGraph:
    """Folds, lays out and places a graph; one picture gives many scenes."""

    def __init__(self, forms: Forms, spacing: Spacing | None = None) -> None:
        self.forms = forms
        self.plan = plans_below(forms.root)[0]
        self.placer = Placer(spacing or Spacing())

    def scene(self, opened: Collection[Place], focus: Place = ()) -> Scene:
        """The boxes and lines when these places are open.

        Args:
            opened: Places of open groups; the focus itself always is.
            focus: The group that fills the picture.
        """
        opened = set(opened)
        child, plan, title, path, label = self.at(focus)
        spacing = self.placer.spacing
        frame = self.placer.frame(plan, focus, lambda location: location in opened, title)
        room = ROOM if focus else 0.0
        root = _Open(frame, 0.0, room, focus)
        boxes: list[Box] = []
        if child is not None:
            boxes.append(Box(focus, child, path, 0.0, room, frame.width, frame.height, True))
        _add_boxes(root, path, label, boxes, self.forms)
        lines, sides, ends = _lines(root, spacing.stub)
        if focus:
            ends += _leaving(root, spacing.stub)
        labels = _labels(boxes, lines) if spacing.labels else []
        width = max([frame.width, *(x + text_width(text, 10) for x, _, text in labels)])
        return Scene(width, frame.height + 2 * room, boxes, lines, ends, labels, sides)

    def open_at_first(
        self, focus: Place = (), *, most: float = MOST, depth: int | None = None
    ) -> set[Place]:
        """Places to open, level by level, until at least `FEWEST` and at most `most` boxes are
        visible.

        A group that stands alone is opened too, and functions stay folded while there is anything
        else to open. With a `depth` that many levels are opened, functions too, as far as there is
        room; a run of equal neighbors is no level of its own.
        """
        plan = self.at(focus).plan
        opened: set[Place] = set()
        boxes = _count(plan)
        for with_functions in (False, True):
            level = [(focus, plan, math.inf if depth is None else depth)]
            while level:
                nested = [
                    ((*at, i), inner, levels - (inner.form.kind != "run"))
                    for at, outer, levels in level
                    for i, inner in enumerate(outer.inner)
                    if inner is not None and levels > 0
                    if with_functions or depth is not None or not inner.form.is_function
                ]
                is_enough = boxes >= FEWEST and (len(nested) != 1 or with_functions)
                if depth is None and is_enough:
                    break
                level = []
                for at, inner, levels in nested:
                    more = boxes - 1 + _count(inner)
                    if at not in opened and (more <= most or (boxes < 2 and not opened)):
                        opened.add(at)
                        boxes = more
                    if at in opened:
                        level.append((at, inner, levels))
        return opened

    def walk(self, place: Place = ()) -> Iterator[tuple[Place, Child, str]]:
        """All groups below a place, with their paths, outermost first."""
        target = self.at(place)
        yield from self._below(place, target.plan.form, target.path)

    def _below(self, place: Place, form: Form, path: str) -> Iterator[tuple[Place, Child, str]]:
        for i, child in enumerate(form.children):
            if isinstance(child.content, Form):
                inner = child_path(path, child, self.forms.aliases)
                yield (*place, i), child, inner
                yield from self._below((*place, i), child.content, inner)

    def at(self, location: Place) -> _Target:
        """The group at a place."""
        child, plan, title, path, label = None, self.plan, 0.0, "", 0
        for position in location:
            *before, child = plan.form.children[: position + 1]
            title = self.placer.sizes(plan)[position].title
            path = child_path(path, child, self.forms.aliases)
            label += sum(earlier.content.variables for earlier in before)
            plan = plan.inner[position]
            assert plan is not None
        return _Target(child, plan, title, path, label)


def ways_to(place: Place) -> set[Place]:
    """The places that must be open for this one to be visible."""
    return {place[:i] for i in range(1, len(place))}


def child_path(path: str, child: Child, aliases: Mapping[str, str]) -> str:
    """The path of a child within a group of that path; only submodules add to it, and a shared one
    has but one.
    """
    if not isinstance(child.content, Form) or child.content.kind != "scope":
        return path
    inner = f"{path}.{child.name}" if path else child.name
    return aliases.get(inner, inner)


def _count(plan: FormRows) -> int:
    return sum(map(len, plan.rows))


def _add_boxes(at: _Open, path: str, label: int, boxes: list[Box], forms: Forms) -> None:
    for i, child in enumerate(at.form.children):
        x, y, width, height = at.frame.boxes[i]
        x, y, place = at.x + x, at.y + y, (*at.place, i)
        inner, nested = at.frame.inner.get(i), child_path(path, child, forms.aliases)
        box = Box(place, child, nested, x, y, width, height, inner is not None)
        if child.content.kind in PILLS:
            box.label = forms.labels[label]
        boxes.append(box)
        at.boxes.append(box)
        if inner is not None:
            at.inner[i] = _Open(inner, x, y, place, at)
            _add_boxes(at.inner[i], nested, label, boxes, forms)
        label += child.content.variables


def _lines(root: _Open, stub: float) -> tuple[list[EdgeLine], list[EdgeLine], list[list[Post]]]:
    """Lines between visible boxes, side roads, and lines that come from outside of the picture."""
    lines: dict[tuple[Place, Place], EdgeLine] = {}
    sides: dict[tuple[Place, Place], EdgeLine] = {}
    ends: list[list[Post]] = []
    for at in root.walk():
        for child, wires in enumerate(at.form.wires):
            if child in at.inner:
                continue
            target = at.boxes[child]
            for wire in wires:
                is_side = wire.is_side
                found = _straight(at, wire, target) if is_side else _entry(at, child, wire, stub)
                if found.source is None:
                    ends += [found.posts] if found.posts else []
                    continue
                new = EdgeLine(found.source, target, found.posts)
                road = sides if is_side else lines
                line = road.setdefault((found.source.place, target.place), new)
                line.slots[found.slot] = found.source.child.content.exit_value(found.slot)
    return list(lines.values()), list(sides.values()), ends


def _straight(at: _Open, wire: Wire, target: Box) -> _Found:
    """Follow a side road up to the visible box at its upper end: straight from box to box, and
    nothing where it comes from outside of the picture.
    """
    while wire.child == OUTSIDE or wire.child in at.inner:
        if wire.child != OUTSIDE:
            at = at.inner[wire.child]
            wire = at.form.exits[wire.slot]
        elif at.parent is None:
            return _Found(None, wire.slot, [])
        else:
            at, wire = at.parent, at.parent.form.wires[at.place[-1]][wire.slot]
    box = at.boxes[wire.child]
    bottom = box.y + box.height
    end = (target.x + target.width / 2, target.y, target.y)
    return _Found(box, wire.slot, [(box.x + box.width / 2, bottom, bottom), end])


class _Found(NamedTuple):
    """The upper end of a line: the visible box that makes the value (None for one outside of the
    picture), and its exit slot.
    """

    source: Box | None
    slot: int
    posts: list[Post]


def _entry(at: _Open, child: int, wire: Wire, stub: float) -> _Found:
    """Follow a wire of a visible box up to the visible box that feeds it; the line runs straight
    down below its source as far as `stub`.
    """
    box, row = at.boxes[child], at.plan.row_of[child]
    if wire.child in at.plan.sides[child]:
        return _Found(at.boxes[wire.child], wire.slot, [])
    end = (box.x + box.width / 2, at.y + at.frame.rows[row][0], box.y)
    return _follow(at, wire, row, [end], stub)


def _follow(at: _Open, wire: Wire, row: int, posts: list[Post], stub: float) -> _Found:
    """Go on from a row up to the visible box that makes a value; `posts` holds the line so far,
    from below to above.
    """
    while True:
        plan, frame = at.plan, at.frame
        source = plan.source_of(wire)
        first, lane = plan.trunks[source].first, plan.trunks[source].lane
        if row > first:
            top, bottom = frame.rows[first][0], frame.rows[row - 1][1]
            posts.append((at.x + frame.lanes[lane], at.y + top, at.y + bottom))
        if wire.child == OUTSIDE:
            border, outer = at.x + frame.entries[~source], at.parent
            if outer is None:
                posts.append((border, at.y - ROOM, at.y + HEADER))
                return _Found(None, wire.slot, posts[::-1])
            child = at.place[-1]
            row = outer.plan.row_of[child]
            posts.append((border, outer.y + outer.frame.rows[row][0], at.y + HEADER))
            at, wire = outer, outer.form.wires[child][wire.slot]
            continue
        bottom = at.y + frame.rows[plan.row_of[source]][1]
        inner = at.inner.get(source)
        if inner is None:
            box = at.boxes[source]
            end = min(max(bottom, box.y + box.height + stub), bottom + stub)
            posts.append((box.x + box.width / 2, box.y + box.height, end))
            return _Found(box, wire.slot, posts[::-1])
        wire = inner.form.exits[wire.slot]
        exit_x = inner.x + inner.frame.exits[wire.child]
        posts.append((exit_x, inner.y + inner.frame.height, bottom))
        at, row = inner, len(inner.frame.rows)


def _leaving(root: _Open, stub: float) -> list[list[Post]]:
    """Lines that leave the group that fills the picture."""
    bottom, rows = root.y + root.frame.height, len(root.frame.rows)
    ends = []
    for wire in root.form.exits:
        if not wire.is_side:
            end = (root.x + root.frame.exits[wire.child], bottom, bottom + ROOM)
            ends.append(_follow(root, wire, rows, [end], stub).posts)
    return ends


def _labels(boxes: list[Box], lines: list[EdgeLine]) -> list[Word]:
    """The shape below each box that something leaves, once for all its lines."""
    leaving = {line.source.place for line in lines if line.posts}
    return [
        (box.x + box.width / 2 + 5, box.y + box.height + 11, text)
        for box in boxes
        if box.place in leaving and not box.is_open and (text := exit_text(box.child))
    ]
