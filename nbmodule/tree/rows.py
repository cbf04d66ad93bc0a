"""Trees as lines of text for a terminal: branches, aligned columns, cut to a width and to a number of lines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Row(NamedTuple):
    """One line of a tree: how deep it lies, its name, and what stands in the columns beside it."""

    depth: int
    name: str
    cells: Sequence[str] = ()


def tree_lines(rows: Iterable[Row], *, width: int = 80, limit: int | None = None, align: str = "") -> list[str]:
    r"""Draw rows as a tree with branches and aligned columns.

    Args:
        rows: In the order in which they are shown; the depth of a row is at most one more than that of the row before.
        width: Longer lines are cut, names in the middle, so that both ends can be read.
        limit: The number of rows shown; what is left out is counted in a last line.
        align: For each column `l` or `r`; left where nothing is said.

    Example:
        >>> print("\n".join(tree_lines([Row(0, "Net", ["9,610"]), Row(1, "features"), Row(2, "0", ["160"]), Row(1, "head")])))
        Net         9,610
        ├─ features
        │  └─ 0     160
        └─ head
    """
    rows = [Row(*row) for row in rows]
    shown = rows if limit is None else rows[:limit]
    branches = _branches(rows)[: len(shown)]
    room = max(width // 2, 12)
    names = [
        branch + cut_middle(printable(row.name), max(room - len(branch), 4))
        for branch, row in zip(branches, shown, strict=True)
    ]
    lines = _aligned([[name, *map(printable, row.cells)] for name, row in zip(names, shown, strict=True)], "l" + align)
    lines = [cut_end(line, width) for line in lines]
    if len(shown) < len(rows):
        lines.append(f"… {len(rows) - len(shown):,} more rows")
    return lines


def _branches(rows: Sequence[Row]) -> list[str]:
    """Give what stands before each name; found from the end, where it is known whether a level goes on below."""
    branches: list[str] = []
    goes_on: list[bool] = []
    for row in reversed(rows):
        depth = max(row.depth, 0)
        del goes_on[depth + 1 :]
        goes_on += [False] * (depth + 1 - len(goes_on))
        stems = "".join("│  " if goes_on[level] else "   " for level in range(1, depth))
        branches.append(stems + ("├─ " if goes_on[depth] else "└─ ") if depth else "")
        goes_on[depth] = True
    return branches[::-1]


def _aligned(table: list[list[str]], align: str) -> list[str]:
    widths = [
        max(len(line[column]) for line in table if len(line) > column)
        for column in range(max(map(len, table), default=0))
    ]
    lines = []
    for line in table:
        cells = [
            cell.rjust(widths[column]) if align[column : column + 1] == "r" else cell.ljust(widths[column])
            for column, cell in enumerate(line)
        ]
        lines.append("  ".join(cells).rstrip())
    return lines


def cut_middle(text: str, length: int) -> str:
    """Shorten a text from its middle, so that its beginning and its end can be read.

    Example:
        >>> cut_middle("encoder.layers.0.weight", 15)
        'encoder….weight'
    """
    if len(text) <= length:
        return text
    if length < 3:
        return text[:length]
    end = (length - 1) // 2
    return text[: length - 1 - end] + "…" + text[len(text) - end :]


def cut_end(text: str, length: int) -> str:
    """Shorten a text at its end.

    Example:
        >>> cut_end("float32[64, 3]", 9)
        'float32[…'
    """
    return text if len(text) <= length else text[: max(length - 1, 0)] + "…"


def printable(text: str) -> str:
    r"""Write line breaks and control characters out, so that no name can break a line or color a terminal.

    Example:
        >>> printable("a\x1b[31mb\n")
        'a\\x1b[31mb\\n'
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
