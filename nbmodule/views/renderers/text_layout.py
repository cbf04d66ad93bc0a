"""Lines of cells, aligned and cut to the width of a terminal."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from typing import NamedTuple

from nbmodule.base.format import cut_middle, width_of
from nbmodule.views.records.outline import Outline

SAVED_WIDTH = 80
MOST_LINES = 60
GAP = "  "
_COLORS = {"bold": "1", "dim": "2", "red": "31", "yellow": "33", "blue": "34"}


class Line(NamedTuple):
    """One row of text: cells by column, a remark at the end, a color on a terminal."""

    cells: tuple[str, ...]
    remark: str = ""
    color: str = ""


def terminal_width() -> int:
    """The columns of the terminal; 80 where the text is kept instead."""
    return shutil.get_terminal_size((SAVED_WIDTH, 24)).columns if is_terminal() else SAVED_WIDTH


def is_terminal() -> bool:
    """Tell whether text goes to a terminal that shows color (https://no-color.org is respected)."""
    stream = sys.stdout
    return bool(getattr(stream, "isatty", bool)()) and os.environ.get("TERM") != "dumb"


def paint(text: str, color: str, on: bool) -> str:
    """Color a text for a terminal."""
    allowed = on and color and "NO_COLOR" not in os.environ
    return f"\x1b[{_COLORS[color]}m{text}\x1b[0m" if allowed else text


def branches(tree: Outline) -> list[str]:
    """Draw the lines that join the rows of a tree.

    Example:
        >>> branches(Outline([0, 1, 0], ["a", "b", "c"], [0, 1, 2]))
        ['├─ ', '│  └─ ', '└─ ']
    """
    ends = tree.ends()
    last: list[bool] = []
    out = []
    stops = [len(tree)]
    for i, depth in enumerate(tree.depth):
        del last[depth:], stops[depth + 1 :]
        is_last = ends[i] == stops[depth]
        lead = "".join("   " if end else "│  " for end in last)
        out.append(lead + ("└─ " if is_last else "├─ "))
        last.append(is_last)
        stops.append(ends[i])
    return out


def align(
    lines: Sequence[Line],
    right: frozenset[int],
    width: int,
    color: bool = False,
    leaving: Sequence[int] = (),
) -> list[str]:
    """Lay out lines so that their columns stand below each other and none is wider than `width`.

    Whole columns leave where there is no room, those of `leaving` first and then from the right,
    then the first one is cut in the middle. Remarks stay; one that finds no room in its line stands
    below it.
    """
    if not lines:
        return []
    columns = max(len(line.cells) for line in lines)
    sizes = [
        max((width_of(line.cells[c]) for line in lines if c < len(line.cells)), default=0)
        for c in range(columns)
    ]
    used = [c for c in range(columns) if sizes[c]]
    while len(used) > 1 and sum(sizes[c] + len(GAP) for c in used[1:]) + min(sizes[0], 24) > width:
        used.remove(next((c for c in leaving if c in used), used[-1]))
    room = width - sum(sizes[c] + len(GAP) for c in used[1:])
    sizes[0] = max(min(sizes[0], room), min(sizes[0], 8))
    return [text for line in lines for text in _layout(line, used, sizes, right, width, color)]


def _layout(
    line: Line, used: list[int], sizes: list[int], right: frozenset[int], width: int, color: bool
) -> list[str]:
    parts = []
    for c in used:
        cell = line.cells[c] if c < len(line.cells) else ""
        cell = _cut_name(cell, sizes[c])
        pad = " " * (sizes[c] - width_of(cell))
        parts.append(pad + cell if c in right else cell + pad)
    text = GAP.join(parts).rstrip()
    texts = [text]
    if line.remark:
        room = width - width_of(text) - len(GAP)
        if width_of(line.remark) <= room:
            texts = [text + GAP + line.remark]
        else:
            indent = " " * min(len(text) - len(text.lstrip("│├└─ ")) + 2 * len(GAP), width // 2)
            texts.append(indent + cut_end(line.remark, width - len(indent)))
    return [paint(text, line.color, color) for text in texts]


def cut_end(text: str, width: int) -> str:
    """Cut a sentence at its end."""
    return text if width_of(text) <= width else text[: width - 1] + "…"


def _cut_name(cell: str, size: int) -> str:
    if width_of(cell) <= size:
        return cell
    name = cell.lstrip("│├└─ ")
    lead = cell[: len(cell) - len(name)]
    text = lead + cut_middle(name, max(size - len(lead), 1))
    while width_of(text) > size:
        text = cut_middle(text, len(text) - 1)
    return text
