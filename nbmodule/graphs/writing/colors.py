"""Color boxes by a number: its cost, or what a caller knows of each path."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from nbmodule.base.format import format_bytes
from nbmodule.graphs.layout.forms import Form, Record
from nbmodule.graphs.layout.labels import amount
from nbmodule.graphs.layout.scene import Box, Place, Scene, child_path

LOW, HIGH = (245, 248, 252), (92, 152, 214)  # dark text reads well on both ends


def fills(
    scene: Scene,
    color: str | Mapping[str, float] | None,
    numbers: Mapping[str, float] | None,
    aliases: Mapping[str, str],
) -> tuple[dict[Place, str], tuple[str, str, str] | None]:
    """The color of each folded box that has a number, and what the legend says.

    Args:
        scene: What is visible.
        color: `flops`, `bytes`, `time`, a mapping, or None.
        numbers: Numbers by path, where the color does not come from the graph itself.
        aliases: As in `Forms`.
    """
    if color is None:
        return {}, None
    results = {}
    for box in scene.boxes:
        number = None if box.is_open else box_number(box, color, numbers, aliases)
        if number is not None:
            results[box.place] = number
    if not results:
        return {}, None
    low, high = min([0.0, *results.values()]), max([0.0, *results.values()])
    spread = (high - low) or 1.0
    unit = color if isinstance(color, str) else ""
    legend = (f"{unit or 'value'} {_text(low, unit)} … {_text(high, unit)}", _rgb(0.0), _rgb(1.0))
    return {location: _rgb((number - low) / spread) for location, number in results.items()}, legend


def box_number(
    box: Box,
    color: str | Mapping[str, float],
    numbers: Mapping[str, float] | None,
    aliases: Mapping[str, str],
) -> float | None:
    """The number of one box: cost for operations and groups, the caller's for paths; of a run the
    largest.
    """
    value = box.child.content
    if numbers is None:
        counted = isinstance(value, Form) or value.kind == "operation"
        return float(getattr(value, str(color))) if counted else None
    if isinstance(value, Record):
        return None
    if value.kind == "scope":
        return numbers.get(box.path)
    paths = _paths(box.path, value, aliases) if value.kind == "run" else ()
    return max((numbers[path] for path in paths if path in numbers), default=None)


def _paths(path: str, form: Form, aliases: Mapping[str, str]) -> Iterator[str]:
    for child in form.children:
        if isinstance(child.content, Form):
            yield child_path(path, child, aliases)


def _rgb(share: float) -> str:
    share = min(max(share, 0.0), 1.0)
    return "#" + "".join(
        f"{round(a + (b - a) * share):02x}" for a, b in zip(LOW, HIGH, strict=True)
    )


def _text(number: float, unit: str) -> str:
    if unit == "bytes":
        return format_bytes(round(number))
    if unit == "flops":
        return amount(number, "FLOP")
    return time_text(number) if unit == "time" else f"{number:.4g}"


def time_text(seconds: float) -> str:
    """A time in µs, ms or s.

    >>> time_text(0.0123)
    '12.3 ms'
    """
    if abs(seconds) >= 1 or seconds == 0:
        return f"{seconds:.4g} s"
    return f"{seconds * 1e3:.4g} ms" if abs(seconds) >= 1e-3 else f"{seconds * 1e6:.4g} µs"
