#!/usr/bin/env python3
"""Write the table of docs/recipes/other_models.md: what looks at a model, and which frameworks'
unconverted models it takes.

The cells are those of tests/interop/test_any_framework.py, which holds them; the answers are those
that the package gives.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("KERAS_BACKEND", "jax")  # before Keras is imported

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "recipes" / "other_models.md"
CELLS = ROOT / "tests" / "interop" / "test_any_framework.py"
BEGIN = "<!-- any framework: tools/make_framework_table.py -->\n"
END = "<!-- end of the table -->\n"


def load() -> Any:
    """The test's own module."""
    spec: Any = importlib.util.spec_from_file_location("any_framework", CELLS)
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def table(
    verbs: list[str], frameworks: list[str], answer_to: Callable[[str, str], str | None]
) -> str:
    """Rows of verbs, columns of frameworks; what is said in place of working stands below."""
    notes: list[str] = []

    def cell(verb: str, framework: str) -> str:
        said = answer_to(verb, framework)
        if said is None:
            return "works"
        line = said.replace("\n", " ").strip()
        if line not in notes:
            notes.append(line)
        return f"says ({notes.index(line) + 1})"

    rows = [
        f"| `{verb}` | " + " | ".join(cell(verb, framework) for framework in frameworks) + " |"
        for verb in verbs
    ]
    head = ["| | " + " | ".join(frameworks) + " |", "|---" * (len(frameworks) + 1) + "|"]
    below = [f"{number}. {note}" for number, note in enumerate(notes, 1)]
    return "\n".join([*head, *rows, "", *below]).rstrip() + "\n"


def with_table(page: str, text: str) -> str:
    """The text of the page around the table of now."""
    head, _, rest = page.partition(BEGIN)
    return head + BEGIN + "\n" + text + "\n" + END + rest.partition(END)[2]


def main() -> None:
    """Write the table."""
    cells = load()
    made = table(list(cells.CELLS), list(cells.FRAMEWORKS), cells.answer)
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8"), made), encoding="utf-8")
    print(f"{PAGE.relative_to(ROOT)} written")


if __name__ == "__main__":
    main()
