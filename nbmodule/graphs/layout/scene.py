"""Boxes and lines with their coordinates, for what is open now: what a drawing, in whatever format,
has to show.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from nbmodule.graphs.layout.forms import ENDS, OUTSIDE, PILLS, Child, Form, Forms, Record, Wire
from nbmodule.graphs.layout.frames import HEADER, Placer, Rectangle, Spacing
from nbmodule.graphs.layout.labels import exit_text, text_width
from nbmodule.graphs.layout.ranks import ASIDE, FormRows, Plans, Trunk
from nbmodule.graphs.model import Value

Place = tuple[int, ...]
Post = tuple[float, float, float]  # a vertical piece of a line: x, upper end, lower end
Word = tuple[float, float, str]
ROOM = 30.0  # above and below a group that fills the picture, for what comes in and goes out
FEWEST, MOST = 5, 25  # boxes that a picture opens with


@dataclass(frozen=True, slots=True)
class Box:
    """A box, or the frame of an open group.

    Attributes:
        place: The way from the root, as positions of children.
        child: What it stands for.
        path: Dotted path of submodules.
        is_open: Whether its inside is shown.
        first_label: Position in `Forms.labels` of its first variable.
    """

    place: Place
    child: Child
    path: str
    x: float
    y: float
    width: float
    height: float
    is_open: bool
    first_label: int


@dataclass(slots=True)
class EdgeLine:
    """All edges between two visible boxes.

    Attributes:
        source: Place of the upper box.
        target: Place of the lower box.
        posts: Vertical pieces from above to below, joined by curves; empty for a pill beside its
            reader.
        slots: Exit slots of the source that run here.
        bytes: Size of these values.
    """

    source: Place
    target: Place
    posts: list[Post]
    slots: dict[int, Value] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        """Size of what runs along the line."""
        return sum(value.bytes for value in self.slots.values())


@dataclass(slots=True)
class Scene:
    """Everything that is visible; coordinates in pixels from the upper left.

    Attributes:
        ends: Lines to and from what lies outside of a group that fills the picture.
        sides: Side roads, straight from box to box: what goes into variables, and the state of
            random numbers.
        labels: Words beside the lines.
    """

    width: float
    height: float
    boxes: list[Box]
    lines: list[EdgeLine]
    ends: list[list[Post]]
    labels: list[Word]
    sides: list[EdgeLine] = field(default_factory=list)


@dataclass(slots=True)
class _Open:
    """An open form in its place."""

    frame: Rectangle
    x: float
    y: float
    parent: _Open | None
    child: int
    place: Place
    inner: dict[int, _Open] = field(default_factory=dict)
    trunks: dict[int, Trunk] = field(default_factory=dict)


class PlacedGraph:
    """Folds, lays out and places a graph; one picture gives many scenes."""

    def __init__(self, forms: Forms, spacing: Spacing | None = None) -> None:
        self.forms = forms
        self.plans = Plans(forms.root)
        self.placer = Placer(spacing or Spacing())

    def scene(self, opened: Collection[Place], focus: Place = ()) -> Scene:
        """The boxes and lines when these places are open.

        Args:
            opened: Places of open groups; the focus itself always is.
            focus: The group that fills the picture.
        """
        opened = set(opened)
        plan, title = self._plan_at(focus)
        frame = self.placer.frame(plan, focus, lambda location: location in opened, title)
        room = ROOM if focus else 0.0
        root = _Open(frame, 0.0, room, None, -1, focus)
        boxes: list[Box] = []
        path, label = self._at(focus)
        if focus:
            child = self._child_at(focus)
            boxes.append(Box(focus, child, path, 0.0, room, frame.width, frame.height, True, label))
        _add_boxes(root, path, label, boxes, self.forms.aliases)
        lines, ends = _lines(root, self.placer.spacing.stub)
        labels = _labels(boxes, lines) if self.placer.spacing.labels else []
        if focus:
            leaving, words = _outside(root, self._around(focus), self.placer.spacing.stub)
            ends += leaving
            labels += [(x + 6, y, text) for x, y, text in words]
        width = max([frame.width, *(x + text_width(text, 10) for x, _, text in labels)])
        return Scene(width, frame.height + 2 * room, boxes, lines, ends, labels, _sides(root))

    def open_at_first(
        self, focus: Place = (), fewest: int = FEWEST, most: int = MOST
    ) -> set[Place]:
        """Places to open, level by level, until at least `fewest` and at most `most` boxes are
        visible.

        A group that stands alone is opened too, and functions stay folded while there is anything
        else to open.
        """
        plan, _ = self._plan_at(focus)
        opened: set[Place] = set()
        boxes = _count(plan)
        for with_functions in (False, True):
            level = [(focus, plan)]
            while level:
                nested = [
                    ((*at, i), inner)
                    for at, outer in level
                    for i, inner in enumerate(outer.inner)
                    if inner is not None and (with_functions or not inner.form.is_function)
                ]
                if boxes >= fewest and (len(nested) != 1 or with_functions):
                    break
                level = []
                for at, inner in nested:
                    more = boxes - 1 + _count(inner)
                    if at not in opened and (more <= most or (boxes < 2 and not opened)):
                        opened.add(at)
                        boxes = more
                    if at in opened:
                        level.append((at, inner))
        return opened

    def ways_to(self, place: Place) -> set[Place]:
        """The places that must be open for this one to be visible."""
        return {place[:i] for i in range(1, len(place))}

    def walk(self, place: Place = ()) -> Iterator[tuple[Place, Child, str]]:
        """All groups at and below a place, with their paths, outermost first."""
        path, _ = self._at(place)
        stack = [(place, self._plan_at(place)[0].form, path)]
        while stack:
            at, form, path = stack.pop()
            for i in range(len(form.children) - 1, -1, -1):
                child = form.children[i]
                if isinstance(child.content, Form):
                    inner = child_path(path, child, self.forms.aliases)
                    yield (*at, i), child, inner
                    stack.append(((*at, i), child.content, inner))

    def _around(self, location: Place) -> list[tuple[Form, int]]:
        """The forms around a place, innermost first, each with the position of the child that leads
        there.
        """
        enclosing = []
        form = self.forms.root
        for position in location:
            enclosing.append((form, position))
            form = form.children[position].form
        return enclosing[::-1]

    def _child_at(self, location: Place) -> Child:
        form = self.forms.root
        for position in location[:-1]:
            form = form.children[position].form
        return form.children[location[-1]]

    def _plan_at(self, location: Place) -> tuple[FormRows, float]:
        plan, title = self.plans.root, 0.0
        for position in location:
            title = self.placer.sizes(plan)[position].title
            inner = plan.inner[position]
            assert inner is not None
            plan = inner
        return plan, title

    def _at(self, location: Place) -> tuple[str, int]:
        """Path of submodules at a place, and the position of its first variable among all."""
        form, path, label = self.forms.root, "", 0
        for position in location:
            label += sum(map(_variables, form.children[:position]))
            path = child_path(path, form.children[position], self.forms.aliases)
            form = form.children[position].form
        return path, label


def child_path(path: str, child: Child, aliases: Mapping[str, str]) -> str:
    """The path of a child within a group of that path; only submodules add to it, and a shared one
    has but one.
    """
    if not isinstance(child.content, Form) or child.content.kind != "scope":
        return path
    inner = f"{path}.{child.name}" if path else child.name
    return aliases.get(inner, inner)


def _variables(child: Child) -> int:
    return (
        child.content.variables
        if isinstance(child.content, Form)
        else int(child.content.kind in PILLS)
    )


def _count(plan: FormRows) -> int:
    neighbor = {pill for pills in plan.sides for pill in pills}
    return sum(1 for i in range(len(plan.form.children)) if i not in neighbor)


def _add_boxes(
    at: _Open, path: str, label: int, boxes: list[Box], aliases: Mapping[str, str]
) -> None:
    at.trunks = {trunk.source: trunk for trunk in at.frame.plan.trunks}
    for i, child in enumerate(at.frame.plan.form.children):
        x, y, width, height = at.frame.boxes[i]
        inner = at.frame.inner.get(i)
        nested = child_path(path, child, aliases)
        boxes.append(
            Box(
                (*at.place, i),
                child,
                nested,
                at.x + x,
                at.y + y,
                width,
                height,
                inner is not None,
                label,
            )
        )
        if inner is not None:
            at.inner[i] = _Open(inner, at.x + x, at.y + y, at, i, (*at.place, i))
            _add_boxes(at.inner[i], nested, label, boxes, aliases)
        label += _variables(child)


def _lines(root: _Open, stub: float) -> tuple[list[EdgeLine], list[list[Post]]]:
    """Lines between visible boxes, and those that come from outside of the picture."""
    lines: dict[tuple[Place, Place], EdgeLine] = {}
    ends: list[list[Post]] = []
    stack = [root]
    while stack:
        at = stack.pop()
        form = at.frame.plan.form
        for child, wires in enumerate(form.wires):
            if child in at.inner:
                continue
            for slot in range(len(wires)):
                if slot in form.side_entries[child]:
                    continue
                result = follow_entry(at, child, slot, stub)
                if result.source is None or result.value is None:
                    ends.append(result.posts)
                    continue
                target = (*at.place, child)
                line = lines.setdefault(
                    (result.source, target), EdgeLine(result.source, target, result.posts)
                )
                line.slots[result.slot] = result.value
        stack.extend(at.inner.values())
    return list(lines.values()), ends


def _sides(root: _Open) -> list[EdgeLine]:
    """Side roads between visible boxes."""
    lines: dict[tuple[Place, Place], EdgeLine] = {}
    stack = [root]
    while stack:
        at = stack.pop()
        form = at.frame.plan.form
        for child, slots in enumerate(form.side_entries):
            for slot in () if child in at.inner else slots:
                source = _maker(at, form.wires[child][slot])
                if source is None:
                    continue
                (x, y, width, height), value = source.corner, source.content
                to_x, to_y, to_width, _ = at.frame.boxes[child]
                post = (x + width / 2, y + height, y + height)
                end = (at.x + to_x + to_width / 2, at.y + to_y, at.y + to_y)
                line = lines.setdefault(
                    (source.place, (*at.place, child)),
                    EdgeLine(source.place, (*at.place, child), [post, end]),
                )
                line.slots[source.slot] = (
                    value.exit_value(source.slot)
                    if isinstance(value, Form)
                    else value.outputs[source.slot]
                )
        stack.extend(at.inner.values())
    return list(lines.values())


class _Maker(NamedTuple):
    """The visible box that makes a value."""

    place: Place
    slot: int
    content: Record | Form
    corner: tuple[float, float, float, float]


def _maker(at: _Open, wire: Wire) -> _Maker | None:
    """Follow a wire to the visible box at its upper end; None if that lies outside of the
    picture.
    """
    while True:
        if wire.child == OUTSIDE:
            if at.parent is None:
                return None
            at, wire = at.parent, at.parent.frame.plan.form.wires[at.child][wire.slot]
            continue
        inner = at.inner.get(wire.child)
        if inner is None:
            x, y, width, height = at.frame.boxes[wire.child]
            value = at.frame.plan.form.children[wire.child].content
            return _Maker(
                (*at.place, wire.child), wire.slot, value, (at.x + x, at.y + y, width, height)
            )
        at, wire = inner, inner.frame.plan.form.exits[wire.slot]


class _Found(NamedTuple):
    """The upper end of a line: the visible box that makes the value, None for one outside of the
    picture.
    """

    source: Place | None
    slot: int
    value: Value | None
    posts: list[Post]


def follow_entry(at: _Open, child: int, slot: int, stub: float = 0.0) -> _Found:
    """Follow an entry slot of a visible box up to the visible box that feeds it.

    Args:
        at: The open form that holds the box.
        child: The box.
        slot: Its entry slot.
        stub: How far the line runs straight down below its source.
    """
    frame = at.frame
    wire = frame.plan.form.wires[child][slot]
    if wire.child in frame.plan.sides[child]:
        value = frame.plan.form.children[wire.child].record.outputs[wire.slot]
        return _Found((*at.place, wire.child), wire.slot, value, [])
    x, y, width, _ = frame.boxes[child]
    row = frame.plan.row_of[child]
    return _follow(
        at, wire, row, [(at.x + x + width / 2, at.y + frame.rows[row][0], at.y + y)], stub
    )


def _follow(at: _Open, wire: Wire, row: int, posts: list[Post], stub: float) -> _Found:
    """Go on from a row up to the visible box that makes a value; `posts` holds the line so far,
    from below to above.
    """
    while True:
        plan = at.frame.plan
        source = wire.child if wire.child != OUTSIDE else ~plan.bundles[wire.slot]
        posts += _passed(at, at.trunks[source], row)
        if wire.child == OUTSIDE:
            border = at.x + at.frame.entries[~source]
            outer = at.parent
            if outer is None:
                posts.append((border, at.y - ROOM, at.y + HEADER))
                return _Found(None, wire.slot, None, posts[::-1])
            row = outer.frame.plan.row_of[at.child]
            posts.append((border, outer.y + outer.frame.rows[row][0], at.y + HEADER))
            wire = outer.frame.plan.form.wires[at.child][wire.slot]
            at = outer
            continue
        bottom = at.y + at.frame.rows[plan.row_of[source]][1]
        inner = at.inner.get(source)
        if inner is None:
            x, y, width, height = at.frame.boxes[source]
            end = min(max(bottom, at.y + y + height + stub), bottom + stub)
            posts.append((at.x + x + width / 2, at.y + y + height, end))
            item = plan.form.children[source].content
            value = (
                item.exit_value(wire.slot) if isinstance(item, Form) else item.outputs[wire.slot]
            )
            return _Found((*at.place, source), wire.slot, value, posts[::-1])
        wire = inner.frame.plan.form.exits[wire.slot]
        posts.append(
            (inner.x + inner.frame.exits[wire.child], inner.y + inner.frame.height, bottom)
        )
        at, row = inner, len(inner.frame.rows)


def _feeder_name(outer: Sequence[tuple[Form, int]], slot: int) -> str:
    """The name of what feeds an entry slot, looked up in the forms around, innermost first."""
    for enclosing, child in outer:
        wire = enclosing.wires[child][slot]
        if wire.child != OUTSIDE:
            return enclosing.children[wire.child].name
        slot = wire.slot
    return "outside"


def _reader_names(outer: Sequence[tuple[Form, int]], slot: int) -> list[str]:
    """The names of what reads an exit slot, looked up in the forms around, innermost first."""
    if not outer:
        return []
    enclosing, child = outer[0]
    expected = Wire(child, slot)
    names = [
        c.name
        for c, wires in zip(enclosing.children, enclosing.wires, strict=True)
        if expected in wires
    ]
    for i, wire in enumerate(enclosing.exits):
        if wire == expected:
            names += _reader_names(outer[1:], i)
    return names


def _outside(
    root: _Open, outer: Sequence[tuple[Form, int]], stub: float
) -> tuple[list[list[Post]], list[Word]]:
    """Lines that leave the focus for what lies outside of the picture, and a word at each end."""
    frame, form = root.frame, root.frame.plan.form
    bottom = root.y + frame.height
    ends: list[list[Post]] = []
    words: dict[tuple[float, str], Word] = {}
    for slot, wire in enumerate(form.exits):
        if slot in form.side_exits:
            continue
        x = root.x + frame.exits[wire.child]
        ends.append(_follow(root, wire, len(frame.rows), [(x, bottom, bottom + ROOM)], stub).posts)
        names = list(dict.fromkeys(_reader_names(outer, slot)))[:2]
        words[x, "down"] = (x, bottom + ROOM - 4, f"to {', '.join(names)}")
    for slot, bundle in enumerate(frame.plan.bundles):
        if bundle == ASIDE:
            continue
        x = root.x + frame.entries[bundle]
        words.setdefault((x, "up"), (x, root.y - ROOM + 10, f"from {_feeder_name(outer, slot)}"))
    retained: list[Word] = []
    for word in sorted(words.values(), key=lambda w: (w[1], w[0])):
        if (
            not retained
            or word[1] != retained[-1][1]
            or word[0] >= retained[-1][0] + 6 * len(retained[-1][2]) + 12
        ):
            retained.append(word)
    return ends, retained


def _passed(at: _Open, trunk: Trunk, row: int) -> list[Post]:
    """The places of a trunk between its source and a row, from below to above."""
    frame = at.frame
    if row <= trunk.first:
        return []
    if trunk.lane >= 0:
        x = at.x + frame.lanes[trunk.lane]
        return [(x, at.y + frame.rows[trunk.first][0], at.y + frame.rows[row - 1][1])]
    posts = []
    for i in range(row - trunk.first - 1, -1, -1):
        top, bottom = frame.rows[trunk.first + i]
        posts.append((at.x + frame.x[~trunk.places[i]], at.y + top, at.y + bottom))
    return posts


def _labels(boxes: list[Box], lines: list[EdgeLine]) -> list[tuple[float, float, str]]:
    """The shape below each box that something leaves, once for all its lines."""
    leaving = {line.source for line in lines if line.posts}
    labels = []
    for box in boxes:
        if box.place in leaving and not box.is_open:
            value = box.child.content
            if isinstance(value, Record) and value.kind in ENDS - PILLS:
                continue
            labels.append(
                (box.x + box.width / 2 + 5, box.y + box.height + 11, exit_text(box.child))
            )
    return labels
