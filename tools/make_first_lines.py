#!/usr/bin/env python3
"""Write the tables of first lines in docs/coming_from: lines of other frameworks and their effect here.

The lines are in tests/project/first_lines.toml; the messages are those that the package raises.
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
BEGIN = "<!-- first lines: tools/make_first_lines.py -->\n"
END = "<!-- end of the first lines -->\n"
HEAD = """
## First lines

Lines from tutorials, with `nb` in place of the framework's name. Each works, or raises an error that names the equivalent.

| line | answer |
|---|---|
"""


def with_table(page: str, lines: Iterable[str], answer_to: Callable[[str], str | None]) -> str:
    """Return the page with the current table, appended if it has none yet."""
    head, _, rest = page.partition(BEGIN)
    tail = rest.partition(END)[2]
    rows = "".join(f"| {_code(line)} | {_answer(answer_to(line))} |\n" for line in lines)
    return (
        (head if BEGIN in page else head.rstrip("\n") + "\n\n")
        + BEGIN
        + HEAD
        + rows
        + "\n"
        + END
        + tail
    )


def _answer(message: str | None) -> str:
    return (
        "works"
        if message is None
        else message.replace("\n", " ").replace("|", "\\|").replace("*", "\\*").replace("<", "&lt;")
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
