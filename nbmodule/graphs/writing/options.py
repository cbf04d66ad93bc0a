"""Options of a picture of a graph, checked once for all formats."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

from nbmodule.base.paths import closest
from nbmodule.base.whole_numbers import is_real, is_whole
from nbmodule.core.variables.describe import as_flag
from nbmodule.errors import ArgumentError, ArgumentTypeError, PathError
from nbmodule.graphs import lookup
from nbmodule.graphs.layout.fold import fold
from nbmodule.graphs.layout.forms import Forms
from nbmodule.graphs.layout.frames import Spacing
from nbmodule.graphs.layout.scene import FEWEST, MOST, Place, PlacedGraph, Scene, ways_to
from nbmodule.graphs.model import Computation, Group
from nbmodule.graphs.reading.returns import (
    bad_by_path,
    return_texts,
    seconds_by_path,
    values_by_path,
)
from nbmodule.graphs.writing.colors import fills
from nbmodule.graphs.writing.hover import Look

_FLAGS = (
    "with_edge_labels",
    "with_arg_labels",
    "with_output_labels",
    "with_writes",
    "output_connected_only",
)
COLORINGS = ("flops", "bytes", "time", "non-finite")


@dataclass(frozen=True, kw_only=True)
class Options:
    """How a graph is to be drawn.

    Attributes:
        randomness_factor: From 0 to 1: how far boxes are moved at random, always in the same way.
        with_edge_labels: Draw dtype and shape beside the edges.
        with_arg_labels: Say what goes into a box in its hover text.
        with_output_labels: Say what comes out of a box in its hover text.
        with_writes: Draw side roads, dashed: what is written into variables, and the state of
            random numbers. Without it they are there on a page, where one points at a box.
        output_connected_only: Leave out what no output depends on.
        highlight_subgraph: Path of a submodule, or an index into `graph.groups`; drawn in red.
        color: `flops`, `bytes`, `time`, `non-finite`, or numbers by path.
        seconds: Measured time by path, for `color="time"`; by default the times of `values`, if
            these are calls.
        focus: Path or index of the group that fills the picture.
        depth: How many levels of groups to open; by default as many as show 5 to 25 boxes.
        values: What is known of the returns, shown at the edges: tracked calls (`with
            nb.track(model) as values:`), or facts by path (`{"shape": ..., "mean": ..., "std":
            ...}`, or a list of these, one for each call).
    """

    randomness_factor: float = 0.0
    with_edge_labels: bool = True
    with_arg_labels: bool = True
    with_output_labels: bool = True
    with_writes: bool = False
    output_connected_only: bool = True
    highlight_subgraph: str | int | Group | None = None
    color: str | Mapping[str, float] | None = None
    seconds: Mapping[str, float] | None = None
    focus: str | int | Group | None = None
    depth: int | None = None
    values: Any = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in _FLAGS:
            object.__setattr__(self, name, as_flag(name, getattr(self, name)))
        if isinstance(self.values, str) or not isinstance(self.values, (Mapping, Sequence)):
            raise ArgumentTypeError(
                f"values are tracked calls, or a mapping from path to facts; found "
                f"{type(self.values).__name__}."
            )
        if self.seconds is not None and not isinstance(self.seconds, Mapping):
            raise ArgumentTypeError(
                f"seconds are a mapping from path to numbers; found {type(self.seconds).__name__}."
            )
        if self.seconds is None and self.values:
            object.__setattr__(self, "seconds", seconds_by_path(self.values) or None)
        factor = self.randomness_factor
        if not is_real(factor):
            raise ArgumentTypeError(
                f"randomness_factor must be a number from 0 to 1, not {type(factor).__name__}."
            )
        if not 0 <= factor <= 1:
            raise ArgumentError(f"randomness_factor must lie in [0, 1], found {factor}.")
        if self.depth is not None and (not is_whole(self.depth) or self.depth < 0):
            raise ArgumentError(
                f"depth counts levels of groups to open, from 0 on; found {self.depth!r}."
            )
        self._check_color()

    def _check_color(self) -> None:
        if isinstance(self.color, str):
            if self.color not in COLORINGS:
                raise ArgumentError(
                    f"color must be one of {', '.join(COLORINGS)}, or numbers by path; found "
                    f'"{self.color}".'
                )
            if self.color == "time" and not self.seconds:
                raise ArgumentError(
                    'color="time" needs measured times: pass seconds={path: seconds}, or '
                    "values=calls from `nb.track`."
                )
            if self.color == "non-finite" and not self.values:
                raise ArgumentError(
                    'color="non-finite" needs what was returned: pass values=calls from `nb.track`.'
                )
        elif isinstance(self.color, Mapping):
            wrong = {
                path: x
                for path, x in self.color.items()
                if not isinstance(x, (int, float)) or math.isnan(x)
            }
            if wrong:
                path, result = next(iter(wrong.items()))
                raise ArgumentTypeError(
                    f'color must map paths to numbers; for "{path}" it gives {result!r}.'
                )
        elif self.color is not None:
            raise ArgumentTypeError(
                f"color must be a word or a mapping, not {type(self.color).__name__}."
            )

    @cached_property
    def returns(self) -> Mapping[str, Any]:
        """What is known of the returns, by path."""
        return values_by_path(self.values)

    @property
    def numbers(self) -> Mapping[str, float] | None:
        """The numbers by path that color the picture, None where it is colored by cost or not at
        all.
        """
        if self.color == "time":
            return self.seconds
        if self.color == "non-finite":
            return bad_by_path(self.values)
        return self.color if isinstance(self.color, Mapping) else None


def chosen(graph: Computation, options: Mapping[str, Any]) -> Options:
    """Return the options of a picture: the arguments, else those of the graph, else defaults."""
    check_names(options)
    return replace(graph.options, **options) if graph.options is not None else Options(**options)


def check_names(options: Mapping[str, Any]) -> None:
    """Refuse options that no graph has.

    Raises:
        ArgumentTypeError: there is no such option; the message names the closest.
    """
    existing = [item.name for item in fields(Options)]
    for name in options:
        if name not in existing:
            near = closest(name, existing)
            hint = f' Did you mean "{near}"?' if near else f" There are: {', '.join(existing)}."
            raise ArgumentTypeError(f'a graph is drawn with no option "{name}".{hint}')


@dataclass(frozen=True)
class Drawing:
    """A graph with all that is needed to draw it."""

    forms: Forms
    picture: PlacedGraph
    opened: frozenset[Place]
    focus: Place
    highlight: frozenset[Place]
    options: Options

    def scene(self) -> Scene:
        """Boxes and lines with their coordinates."""
        return self.picture.scene(self.opened, self.focus)

    def look(self, scene: Scene) -> Look:
        """What to point out in a scene of this drawing."""
        colors, legend = fills(scene, self.options.color, self.options.numbers, self.forms.aliases)
        options = self.options
        returns = return_texts(scene.boxes, options.returns)
        return Look(
            self.highlight,
            colors,
            legend,
            options.with_arg_labels,
            options.with_output_labels,
            returns,
            options.with_writes,
        )


def prepare(graph: Computation, options: Options, *, most: int | None = None) -> Drawing:
    """Fold and lay out a graph as the options say.

    Args:
        graph: What to draw.
        options: How.
        most: Boxes to show at most, whatever depth is asked for; the way to what is highlighted is
            open nevertheless.

    Raises:
        PathError: if a path that is highlighted, focused or colored is unknown; the message names
            the closest.
    """
    forms = fold(graph, connected_only=options.output_connected_only)
    picture = PlacedGraph(
        forms, Spacing(options.with_edge_labels, float(options.randomness_factor))
    )
    focus, highlight = places_of(graph, forms, options)
    if isinstance(options.color, Mapping):
        _check_paths(graph, options.color)
    elif options.returns:
        _check_some(graph, options.returns)
    if options.depth is None:
        opened = picture.open_at_first(focus, FEWEST, min(MOST, most or MOST))
    else:
        opened = _open_levels(picture, focus, options.depth, most)
    for location in (*highlight, *ways_to_failure(graph, forms)):
        opened |= ways_to(location)
    return Drawing(forms, picture, frozenset(opened), focus, highlight, options)


def places_of(graph: Computation, forms: Forms, options: Options) -> tuple[Place, frozenset[Place]]:
    """Where the group that fills the picture is, and what is highlighted."""
    focus = () if options.focus is None else _place(graph, forms, options.focus, "focus")
    expected = options.highlight_subgraph
    return focus, frozenset() if expected is None else frozenset(
        [_place(graph, forms, expected, "highlight")]
    )


def ways_to_failure(graph: Computation, forms: Forms) -> list[Place]:
    """A place within the group that failed, if it is not the whole: what failed is never folded
    away.
    """
    groups = [node.group for node in graph.nodes if node.kind == "failure"]
    places = (forms.place(group) for group in groups)
    return [(*location, 0) for location in places if location]


def _open_levels(picture: PlacedGraph, focus: Place, depth: int, most: int | None) -> set[Place]:
    """Open so many levels of groups, outer ones first; a run of equal neighbors is no level of its
    own.
    """
    opened: set[Place] = set()
    boxes = len(picture.scene((), focus).boxes)
    for location, child, _ in sorted(picture.walk(focus), key=lambda result: len(result[0])):
        runs = sum(_is_run(picture, location[:i]) for i in range(len(focus) + 1, len(location)))
        visible = len(location) == len(focus) + 1 or location[:-1] in opened
        more = boxes + len(child.form.children)
        if (
            visible
            and len(location) - len(focus) - runs <= depth
            and (most is None or more <= most)
        ):
            opened.add(location)
            boxes = more
    return opened


def _is_run(picture: PlacedGraph, location: Place) -> bool:
    form = picture.forms.root
    for position in location:
        form = form.children[position].form
    return form.kind == "run"


def _place(graph: Computation, forms: Forms, expected: str | int | Group, purpose: str) -> Place:
    group = lookup.resolve(graph, expected)
    location = forms.place(group.index)
    if location is None:
        raise PathError(
            f'cannot {purpose} "{group.path or group.name}": no output depends on it, so it is '
            f"not in the picture. "
            f"output_connected_only=False shows it."
        )
    return location


def _check_some(graph: Computation, values: Mapping[str, Any]) -> None:
    """Values of which no path is in the graph come from another function."""
    existing = {group.path for group in graph.groups} | {""}
    if not any(path in existing for path in values):
        path = next(iter(values))
        raise PathError(
            f"none of the values belongs to a submodule of this graph: they begin with "
            f'"{path}", the graph has '
            f"{', '.join(sorted(existing - {''})[:4]) or 'none'}. Trace and track the same call."
        )


def _check_paths(graph: Computation, numbers: Mapping[str, float]) -> None:
    existing = {group.path for group in graph.groups} | {""}
    for path in numbers:
        if path not in existing:
            lookup.find(graph, path)  # raises, naming the closest
