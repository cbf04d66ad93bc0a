"""What of a notebook is marked: its code cells, and those among them that ask `nb.check`."""

from __future__ import annotations

import ast
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nbmodule.errors import FileFormatError


@dataclass(frozen=True)
class Cell:
    """A code cell.

    Attributes:
        number: Counted from 1 among the code cells, as a notebook that was run once from the top shows them.
        source: Its text.
        id: As notebooks of format 4.5 have it; empty before.
    """

    number: int
    source: str
    id: str

    @property
    def checks(self) -> bool:
        """Whether it asks `nb.check`, in code and not in a comment."""
        try:
            tree = ast.parse(_without_magics(self.source))
        except (SyntaxError, ValueError, RecursionError):
            return "nb.check(" in self.source
        return any(isinstance(node, ast.Call) and _name_of(node.func) == "check" for node in ast.walk(tree))


def read_cells(path: Path) -> list[Cell]:
    """The code cells of a notebook.

    Raises:
        FileFormatError: it is no notebook.
    """
    try:
        cells = json.loads(path.read_bytes())["cells"]
        code = [cell for cell in cells if cell["cell_type"] == "code"]
        return [Cell(n, _text(cell["source"]), str(cell.get("id", ""))) for n, cell in enumerate(code, 1)]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise FileFormatError(f"{path.name} is no notebook: {type(error).__name__}: {error}") from None


def with_checks_of(cells: list[Cell], original: list[Cell]) -> list[Cell]:
    """The cells, with those that check as the original has them: found by id, else by their order.

    A check that was taken out is put at the end.
    """
    wanted = [cell for cell in original if cell.checks]
    ids = {cell.id: cell for cell in wanted if cell.id}
    by_id = {cell.id for cell in cells if cell.id in ids}
    in_order = iter([cell for cell in wanted if cell.id not in by_id])
    found, used = [], set()
    for cell in cells:
        if cell.id in ids:
            own = ids[cell.id]
        elif cell.checks:
            own = next(in_order, None)
        else:
            found.append(cell)
            continue
        if own is not None:  # a check of the student's own is left out: it asks for nothing
            used.add(own.number)
            found.append(replace(cell, source=own.source))
    last = cells[-1].number if cells else 0
    left = [cell for cell in wanted if cell.number not in used]
    return found + [replace(cell, number=last + n) for n, cell in enumerate(left, 1)]


def _text(source: Any) -> str:
    return source if isinstance(source, str) else "".join(source)


def _without_magics(source: str) -> str:
    return "\n".join("" if line.lstrip().startswith(("%", "!")) else line for line in source.split("\n"))


def _name_of(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
