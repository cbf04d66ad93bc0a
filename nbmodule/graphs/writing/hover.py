"""What is to be pointed out in a picture, and what its boxes say when one points at them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from nbmodule.graphs.layout.forms import PILLS, Form, Label
from nbmodule.graphs.layout.labels import group_facts
from nbmodule.graphs.layout.scene import Box, Place, Scene


@dataclass(frozen=True)
class Look:
    """What to point out.

    Attributes:
        highlight: Places to draw in red.
        fills: Color of single boxes by place.
        legend: Text for the colors, and the two ends of the scale.
        argument_labels: Say in the hover text what goes in.
        output_labels: Say in the hover text what comes out.
        returns: What is known of the return of a box, in words.
        writes: Draw the side roads.
    """

    highlight: frozenset[Place] = frozenset()
    fills: Mapping[Place, str] = field(default_factory=dict)
    legend: tuple[str, str, str] | None = None
    argument_labels: bool = True
    output_labels: bool = True
    returns: Mapping[Place, str] = field(default_factory=dict)
    writes: bool = False


def hover_texts(scene: Scene, labels: Sequence[Label], look: Look) -> dict[Place, str]:
    """The hover text of each box: full name, cost, source, and what goes in and out where that is
    asked for.
    """
    boxes = {box.place: box for box in scene.boxes}
    ends = _ends(scene, boxes, look)
    return {
        location: _words(box, labels, ends.get(location, "")) for location, box in boxes.items()
    }


def _words(box: Box, labels: Sequence[Label], ends: str) -> str:
    value = box.child.content
    lines = []
    if isinstance(value, Form):
        lines.append(box.path or box.child.name)
        lines.append(group_facts(value))
    else:
        name = labels[box.first_label].name if value.kind in PILLS else box.child.name
        lines.append(
            f"{name} {value.parameters}".strip()
            + (" (dead: no output needs it)" if value.dead else "")
        )
        if value.kind in PILLS or value.kind == "input":
            lines.append(str(value.outputs[0]))
        if value.source:
            lines.append(f"{value.source.place} in {value.source.function}")
    return "\n".join([*lines, ends]).strip()


def _ends(scene: Scene, boxes: Mapping[Place, Box], look: Look) -> dict[Place, str]:
    """What goes into each box and what comes out of it."""
    supplied: dict[Place, list[str]] = {}
    created: dict[Place, dict[int, str]] = {}
    for line in (*scene.lines, *scene.sides):
        name = boxes[line.source].child.name
        supplied.setdefault(line.target, []).extend(
            f"in: {value} from {name}" for value in line.slots.values()
        )
        created.setdefault(line.source, {}).update(
            {slot: f"out: {value}" for slot, value in line.slots.items()}
        )
    texts: dict[Place, list[str]] = {}
    if look.argument_labels:
        for location, words in supplied.items():
            texts.setdefault(location, []).extend(words)
    if look.output_labels:
        for location, result in created.items():
            texts.setdefault(location, []).extend(result[slot] for slot in sorted(result))
    return {location: "\n".join(words) for location, words in texts.items()}
