"""The appearance of boxes: their text, colors and hover texts, and what submodules returned."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nbmodule.base.format import format_bytes, format_number, format_seconds
from nbmodule.graphs.layout.forms import PILLS, Child, Form
from nbmodule.graphs.layout.labels import BoxText, amount, group_facts, words_of
from nbmodule.graphs.layout.scene import Box, Place, Scene

LOW, HIGH = (245, 248, 252), (92, 152, 214)  # dark text reads well on both ends
# Fill and border of each kind of box.
PAINT = {
    "group": ("#e6edf7", "#7d96b8"),
    "function": ("#eef0f2", "#8b97a7"),
    "operation": ("#ffffff", "#b3bcc8"),
    "pill": ("#f4efe2", "#b9a876"),
    "end": ("#eaf3ec", "#7fa88b"),
    "failure": ("#fdeceb", "#c4302b"),
}


def text_in(box: Box) -> BoxText:
    """The words of a box; a variable that stands in several places has a number."""
    words = words_of(box.child)
    return words._replace(name=f"{words.name} {box.label.mark}".strip()) if box.label else words


def paint_of(box: Box) -> str:
    """The row of `PAINT` for a box."""
    value = box.child.content
    if isinstance(value, Form):
        return "function" if value.is_function else "group"
    if value.kind in PILLS:
        return "pill"
    kinds = {"input": "end", "output": "end", "failure": "failure"}
    return kinds.get(value.kind, "operation")


# -- colors --
def color_boxes(scene: Scene, unit: str, number_of: Callable[[Box], float | None]) -> None:
    """Color each folded box that has a number, and write the legend.

    Args:
        scene: The visible boxes and lines.
        unit: `flops`, `bytes`, `time`, `non-finite`, or `value`.
        number_of: Returns the number of a box.
    """
    folded = [(box, number_of(box)) for box in scene.boxes if not box.is_open]
    results = [(box, number) for box, number in folded if number is not None]
    if not results:
        return
    values = [0.0, *(number for _, number in results)]
    low, high = min(values), max(values)
    scene.legend = f"{unit} {_text(low, unit)} … {_text(high, unit)}", _rgb(0.0), _rgb(1.0)
    for box, number in results:
        box.fill = _rgb((number - low) / ((high - low) or 1.0))


def _rgb(share: float) -> str:
    steps = (round(a + (b - a) * share) for a, b in zip(LOW, HIGH, strict=True))
    return "#" + "".join(f"{step:02x}" for step in steps)


def _text(number: float, unit: str) -> str:
    if unit == "bytes":
        return format_bytes(round(number))
    if unit == "flops":
        return amount(number, "FLOP")
    return format_seconds(number) if unit == "time" else f"{number:.4g}"


# -- hover texts --
def write_hover_texts(scene: Scene, *, inputs: bool, outputs: bool) -> None:
    """Write the hover text of each box: full name, cost, source, inputs and outputs
    where that is asked for.
    """
    supplied: dict[Place, list[str]] = {}
    results: dict[Place, dict[int, str]] = {}
    for line in (*scene.lines, *scene.sides):
        for slot, value in line.slots.items():
            name = line.source.child.name
            supplied.setdefault(line.target.place, []).append(f"in: {value} from {name}")
            results.setdefault(line.source.place, {})[slot] = f"out: {value}"
    for box in scene.boxes:
        before = supplied.get(box.place, []) if inputs else []
        after = sorted(results.get(box.place, {}).items()) if outputs else []
        box.hover = "\n".join([*_facts(box), *before, *(text for _, text in after)])


def _facts(box: Box) -> list[str]:
    value = box.child.content
    if isinstance(value, Form):
        return [box.path or box.child.name, group_facts(value)]
    name = box.label.name if box.label else box.child.name
    dead = " (dead: no output needs it)" if value.dead else ""
    lines = [f"{name} {value.parameters}".strip() + dead]
    if box.label or value.kind == "input":
        lines.append(str(value.outputs[0]))
    if value.source:
        lines.append(f"{value.source.place} in {value.source.function}")
    return lines


# -- what submodules returned --
# For each path one entry for each call: `text`, the number of `bad` elements, `bars`.
Returns = Mapping[str, Sequence[Mapping[str, Any]]]


def return_of(path: str, child: Child, returns: Returns) -> str:
    """Describe the return of a submodule's call; empty for anything else."""
    calls = returns.get(path, ()) if child.content.kind == "scope" else ()
    if child.call >= len(calls) or child.phase != "forward":
        return ""
    call = calls[child.call]
    return "  ".join(filter(None, [call["text"], f"NaN {call['bad']}" if call["bad"] else ""]))


def returned_entry(statistics: Any) -> dict[str, Any]:
    """Describe a return by its first array."""
    first: Any = statistics[0] if isinstance(statistics, list) and statistics else statistics
    if not first:
        return {"text": "", "bad": 0, "bars": []}
    mean, deviation = format_number(first.mean, 3), format_number(first.std, 3)
    bars = [float(x) for x in first.histogram]
    return {"text": f"{mean} ± {deviation}", "bad": first.nan + first.inf, "bars": bars}
