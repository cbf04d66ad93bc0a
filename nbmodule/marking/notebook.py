"""The code cells of a notebook, and those among them that call `nb.check` on an answer."""

from __future__ import annotations

import ast
import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nbmodule.base.format import printable
from nbmodule.errors import FileFormatError

_MOST_BYTES = 100_000_000
_MAGIC = re.compile(r"^\s*[%!].*", re.MULTILINE)
_LESSON_TAGS = frozenset({"solution", "example"})


@dataclass(frozen=True)
class Cell:
    """A code cell.

    Attributes:
        number: Counted from 1 among the code cells, as a notebook that was run once from the top
            shows them.
        source: Its text.
        id: As notebooks of format 4.5 have it; empty before.
        tags: Of its metadata. Cells with the tag `solution` or `example` belong to the lesson and
            are not marked.
    """

    number: int
    source: str
    id: str
    tags: frozenset[str] = frozenset()

    @property
    def checks(self) -> bool:
        """True if it calls `nb.check` on an answer, in code and not in a comment."""
        if self.tags & _LESSON_TAGS:
            return False
        try:
            tree = ast.parse(_MAGIC.sub("", self.source))
            calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
        except Exception:  # noqa: BLE001 - Python reports what it cannot parse in many ways
            return "nb.check(" in self.source
        return any("check" in (getattr(f, "id", ""), getattr(f, "attr", "")) for f in calls)


def read_cells(path: Path) -> list[Cell]:
    """Read the code cells of a notebook.

    Raises:
        FileFormatError: It is no notebook, or has more than 100 MB.
    """
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise ValueError(f"it has more than {_MOST_BYTES:,} bytes")
        data = path.read_bytes()
        if not data.strip():
            raise ValueError("the file is empty")
        cells = json.loads(data)["cells"]
        code = [cell for cell in cells if cell["cell_type"] == "code"]
        return [
            Cell(n, "".join(cell["source"]), str(cell.get("id", "")), _tags(cell))
            for n, cell in enumerate(code, 1)
        ]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        reason = str(error) if type(error) is ValueError else f"{type(error).__name__}: {error}"
        raise FileFormatError(f"{printable(path.name)} is no notebook: {reason}") from None


def with_checks_of(cells: list[Cell], original: list[Cell]) -> list[Cell]:
    """Replace the cells that check by those of the original: by id, else by text, else by order.

    A check that was taken out is put at the end.
    """
    checking = [cell for cell in original if cell.checks]
    known = _recognized(cells, checking)
    last_copies = {check.number: number for number, check in known.items()}
    places = {number: known[number] for number in last_copies.values()}
    others = (cell.number for cell in cells if cell.checks and cell.number not in known)
    places |= dict(zip(others, (check for check in checking if check.number not in last_copies)))
    merged = []
    for cell in cells:
        if cell.number in places:
            check = places[cell.number]
            merged.append(replace(cell, source=check.source, tags=check.tags))
        elif not (cell.checks or cell.number in known):  # the student's own checks are left out
            merged.append(cell)
    last = cells[-1].number if cells else 0
    missing = [check for check in checking if check not in places.values()]
    return merged + [replace(check, number=last + n) for n, check in enumerate(missing, 1)]


def _recognized(cells: list[Cell], checking: list[Cell]) -> dict[int, Cell]:
    """Map the number of a cell to the check that it is: by its id, or by its text if unique."""
    by_id = {check.id: check for check in checking if check.id}
    ids, sources = {cell.id for cell in cells}, [check.source for check in checking]
    by_source = {
        check.source: check
        for check in checking
        if (not check.id or check.id not in ids) and sources.count(check.source) == 1
    }
    matches = {cell.number: by_id.get(cell.id) or by_source.get(cell.source) for cell in cells}
    return {number: check for number, check in matches.items() if check is not None}


def _tags(cell: dict[str, Any]) -> frozenset[str]:
    tags = cell.get("metadata", {}).get("tags", [])
    if not isinstance(tags, list):
        return frozenset()
    return frozenset(tag for tag in tags if isinstance(tag, str))
