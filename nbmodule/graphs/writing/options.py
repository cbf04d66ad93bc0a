"""Options of a picture of a graph, checked once for all formats."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

from nbmodule.base.kinds import as_flag, is_real, is_whole
from nbmodule.base.paths import hint
from nbmodule.errors import ArgumentError, ArgumentTypeError, PathError
from nbmodule.graphs.layout.forms import Form, Forms, fold
from nbmodule.graphs.layout.frames import Spacing
from nbmodule.graphs.layout.scene import MOST, Box, Place, PlacedGraph, Scene, child_path, ways_to
from nbmodule.graphs.model import Computation, Group
from nbmodule.graphs.writing.look import (
    Returns,
    color_boxes,
    return_of,
    returned_entry,
    write_hover_texts,
)

COLORINGS = ("flops", "bytes", "time", "non-finite")
NEEDED = {"time": "measured times", "non-finite": "what was returned"}


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of the drawing of a graph.

    Attributes:
        randomness_factor: From 0 to 1: how far boxes are moved at random, always in the same way.
        with_edge_labels: Draw dtype and shape beside the edges.
        with_arg_labels: List the inputs of a box in its hover text.
        with_output_labels: List the outputs of a box in its hover text.
        with_writes: Draw side roads, dashed: what is written into variables, and the state of
            random numbers. Without it they are there on a page, where one points at a box.
        output_connected_only: Leave out what no output depends on.
        highlight_subgraph: Path of a submodule, or an index into `graph.groups`; drawn in red.
        color: `flops`, `bytes`, `time` and `non-finite` (of `values`), or numbers by path.
        focus: Path or index of the group that fills the picture.
        depth: How many levels of groups to open; by default as many as show 5 to 25 boxes.
        values: Tracked calls (`with nb.track(model) as values:`); what they returned is shown at
            the edges.
    """

    randomness_factor: float = 0.0
    with_edge_labels: bool = True
    with_arg_labels: bool = True
    with_output_labels: bool = True
    with_writes: bool = False
    output_connected_only: bool = True
    highlight_subgraph: str | int | Group | None = None
    color: str | Mapping[str, float] | None = None
    focus: str | int | Group | None = None
    depth: int | None = None
    values: Sequence[Any] = ()

    def __post_init__(self) -> None:
        for option in fields(self):
            if option.type == "bool":
                flag = as_flag(option.name, getattr(self, option.name))
                object.__setattr__(self, option.name, flag)
        factor = self.randomness_factor
        if not is_real(factor):
            raise ArgumentTypeError(
                f"randomness_factor must be a number from 0 to 1, got {type(factor).__name__}."
            )
        if not 0 <= factor <= 1:
            raise ArgumentError(f"randomness_factor must lie in [0, 1], got {factor}.")
        if self.depth is not None and (not is_whole(self.depth) or self.depth < 0):
            raise ArgumentError(
                f"depth must be at least 0 (levels of groups to open), got {self.depth!r}."
            )
        if isinstance(self.values, str) or not isinstance(self.values, Sequence):
            raise ArgumentTypeError(
                f"values must be the calls of nb.track, got {type(self.values).__name__}."
            )
        self._check_color()

    def _check_color(self) -> None:
        color = self.color
        if isinstance(color, Mapping):
            for path, number in color.items():
                if not isinstance(number, (int, float)) or math.isnan(number):
                    raise ArgumentTypeError(
                        f'color must map paths to numbers; for "{path}" it gives {number!r}.'
                    )
        elif color not in (None, *COLORINGS):
            raise ArgumentError(
                f"color must be one of {', '.join(COLORINGS)}, or numbers by path, got {color!r}."
            )
        elif color in NEEDED and not (self.seconds if color == "time" else self.values):
            raise ArgumentError(
                f'color="{color}" needs {NEEDED[color]}: pass values=calls from `nb.track`.'
            )

    @cached_property
    def returns(self) -> Returns:
        """The text and numbers of the returns, by path."""
        results: dict[str, list[dict[str, Any]]] = {}
        for call in self.values:
            existing = results.setdefault(call.path, [])
            # the same submodule in another parent call begins at 0 again: the first stays
            if call.index >= len(existing):
                existing += [returned_entry(None) for _ in range(call.index - len(existing))]
                existing.append(returned_entry(call.statistics))
        return results

    @cached_property
    def seconds(self) -> Mapping[str, float]:
        """The time of the calls, by path; empty where nothing was timed."""
        results: dict[str, float] = {}
        for call in self.values:
            if call.seconds is not None:
                results[call.path] = results.get(call.path, 0.0) + float(call.seconds)
        return results

    @cached_property
    def numbers(self) -> Mapping[str, float] | None:
        """The numbers by path that color the picture, None where it is colored by cost or not at
        all.
        """
        if self.color == "time":
            return self.seconds
        if self.color == "non-finite":
            counts = self.returns.items()
            return {path: float(sum(call["bad"] for call in calls)) for path, calls in counts}
        return self.color if isinstance(self.color, Mapping) else None


def chosen(graph: Computation, options: Mapping[str, Any]) -> Options:
    """Return the options of a picture: the arguments, else those of the graph, else defaults.

    Raises:
        ArgumentTypeError: there is no such option; the message names the closest.
    """
    existing = [item.name for item in fields(Options)]
    for name in options:
        if name not in existing:
            near = hint(name, existing)
            raise ArgumentTypeError(
                f'drawing a graph has no option "{name}"{near} There are: {", ".join(existing)}.'
            )
    return replace(graph.options or Options(), **options)


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
        """Boxes and lines with their coordinates, colors and texts."""
        options, scene = self.options, self.picture.scene(self.opened, self.focus)
        if options.color is not None:
            unit = options.color if isinstance(options.color, str) else "value"
            color_boxes(scene, unit, self._number_of)
        inputs, outputs = options.with_arg_labels, options.with_output_labels
        write_hover_texts(scene, inputs=inputs, outputs=outputs)
        for box in scene.boxes:
            box.is_marked = box.place in self.highlight
            if not box.is_open:
                box.returned = return_of(box.path, box.child, options.returns)
        scene.sides = scene.sides if options.with_writes else []
        return scene

    def _number_of(self, box: Box) -> float | None:
        """Return the number that colors a box: the cost of a group or an operation, or the number
        of its path; of a run the largest.
        """
        value, numbers = box.child.content, self.options.numbers
        if numbers is None:
            counts = isinstance(value, Form) or value.kind == "operation"
            return float(getattr(value, str(self.options.color))) if counts else None
        paths = [box.path] if value.kind == "scope" else []
        if isinstance(value, Form) and value.kind == "run":
            aliases = self.forms.aliases
            paths = [child_path(box.path, child, aliases) for child in value.children]
        return max((numbers[path] for path in paths if path in numbers), default=None)


def prepare(graph: Computation, options: Options, *, most: int | None = None) -> Drawing:
    """Fold and lay out a graph as the options say.

    Args:
        graph: The graph to draw.
        options: How.
        most: Boxes to show at most, whatever depth is asked for; the way to what is highlighted is
            open nevertheless.

    Raises:
        PathError: if a path that is highlighted, focused or colored is unknown; the message names
            the closest.
    """
    forms = fold(graph, connected_only=options.output_connected_only)
    spacing = Spacing(options.with_edge_labels, float(options.randomness_factor))
    picture = PlacedGraph(forms, spacing)
    focus, highlight = places_of(graph, forms, options)
    _check_paths(graph, options)
    limits = (MOST, most) if options.depth is None else (math.inf, most)
    room = min(limit for limit in limits if limit is not None)
    opened = picture.open_at_first(focus, most=room, depth=options.depth)
    for location in (*highlight, *ways_to_failure(graph, forms)):
        opened |= ways_to(location)
    return Drawing(forms, picture, frozenset(opened), focus, highlight, options)


def places_of(graph: Computation, forms: Forms, options: Options) -> tuple[Place, frozenset[Place]]:
    """Return the place of the group that fills the picture, and the highlighted ones."""
    focus = () if options.focus is None else _place(graph, forms, options.focus, "focus")
    marked = options.highlight_subgraph
    highlight = [] if marked is None else [_place(graph, forms, marked, "highlight")]
    return focus, frozenset(highlight)


def ways_to_failure(graph: Computation, forms: Forms) -> list[Place]:
    """A place within the group that failed, if it is not the whole: what failed is never folded
    away.
    """
    groups = [node.group for node in graph.nodes if node.kind == "failure"]
    return [(*location, 0) for location in map(forms.place, groups) if location]


def _place(graph: Computation, forms: Forms, target: str | int | Group, purpose: str) -> Place:
    group = graph.resolve(target)
    location = forms.place(group.index)
    if location is None:
        raise PathError(
            f'cannot {purpose} "{group.path or group.name}": no output depends on it, so it is '
            f"not in the picture. output_connected_only=False shows it."
        )
    return location


def _check_paths(graph: Computation, options: Options) -> None:
    """All paths of colors must be in the graph, and one of those of the values."""
    existing = {group.path for group in graph.groups} | {""}
    for path in options.color if isinstance(options.color, Mapping) else ():
        if path not in existing:
            graph.find(path)  # raises, naming the closest
    paths = list(options.returns)
    if paths and existing.isdisjoint(paths):
        raise PathError(
            f"none of the values belongs to a submodule of this graph: they begin with "
            f'"{paths[0]}", the graph has {", ".join(sorted(existing - {""})[:4]) or "none"}. '
            "Trace and track the same call."
        )
