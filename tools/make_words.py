#!/usr/bin/env python
"""Write docs/coming_from/words.md: the words of other frameworks and their counterparts here.

The tables come from nbmodule/base/other_frameworks.toml, which error messages quote as well.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from nbmodule.base.migration import WORDS

PAGE = Path(__file__).parents[1] / "docs" / "coming_from" / "words.md"
_TABLES = {
    "names": ("Functions and classes", "there"),
    "attributes": ("Attributes and methods of models, layers and optimizers", "there"),
    "array_attributes": ("Attributes and methods of tensors and variables", "there"),
    "refused_arguments": ("Arguments without a counterpart", "argument"),
}


def _table(headings: tuple[str, str], rows: Iterable[tuple[str, str]]) -> list[str]:
    cells = [headings, ("---", "---"), *rows]
    return [f"| {left} | {right} |" for left, right in cells]


def text() -> str:
    """Return the page."""
    lines = [
        "# Words of other frameworks",
        "",
        "What PyTorch, Flax, Equinox, Keras and Haiku call what nbmodule has. An error that meets one",
        "of these words quotes the same line. `python tools/make_words.py` writes this page.",
    ]
    for name, (title, heading) in _TABLES.items():
        rows = sorted(WORDS[name].items(), key=lambda row: row[0].lower())
        escaped = [(f"`{word}`", fix.replace("|", "\\|").replace("*", "\\*")) for word, fix in rows]
        lines += ["", f"## {title}", "", *_table((heading, "here"), escaped)]
    aliases = [
        (f"`{name}=`", ", ".join(f"`{alias}=`" for alias in aliases))
        for name, aliases in sorted(WORDS["argument_aliases"].items())
    ]
    lines += ["", "## Accepted names of arguments", "", *_table(("here", "also accepted"), aliases)]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(text(), encoding="utf-8")
