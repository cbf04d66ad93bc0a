#!/usr/bin/env python3
"""Write the tables of docs/coming_from: a line as it is typed elsewhere, and how it is answered
here.

The lines are those of tests/project/test_first_lines.py, which holds them; the answers are those
that the package gives.
"""

from __future__ import annotations

import importlib.util
import os
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGES = ROOT / "docs" / "coming_from"
LINES = ROOT / "tests" / "project" / "test_first_lines.py"
BEGIN, END = (
    "<!-- first lines: tools/make_first_lines.py -->\n",
    "<!-- end of the first lines -->\n",
)
HEAD = """
## First lines

Typed by hand from a tutorial, with `nb` in the place of the framework's name. Each works, or says what to do.

| line | answer |
|---|---|
"""


def with_table(
    page: str, lines: Iterable[tuple[str, str]], answer_to: Callable[[str], str | None]
) -> str:
    """The text of the page with the table of now, at its end if it has none yet."""
    head, _, rest = page.partition(BEGIN)
    tail = rest.partition(END)[2]
    rows = "".join(f"| {_code(line)} | {_answer(answer_to(line))} |\n" for line, _ in lines)
    return (
        (head if BEGIN in page else head.rstrip("\n") + "\n\n")
        + BEGIN
        + HEAD
        + rows
        + "\n"
        + END
        + tail
    )


def _answer(said: str | None) -> str:
    return (
        "works"
        if said is None
        else said.replace("\n", " ").replace("|", "\\|").replace("*", "\\*").replace("<", "&lt;")
    )


def _code(line: str) -> str:
    return "`" + line.replace("|", "\\|") + "`"


def main() -> None:
    """Write all tables."""
    spec: Any = importlib.util.spec_from_file_location("first_lines", LINES)
    lines: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(lines)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for name, rows in lines.LINES.items():
            path = PAGES / f"{name}.md"
            path.write_text(
                with_table(path.read_text(encoding="utf-8"), rows, lines.answer_to),
                encoding="utf-8",
            )
            print(f"{path.relative_to(ROOT)} written")
        os.chdir(ROOT)


if __name__ == "__main__":
    main()
