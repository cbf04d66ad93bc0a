#!/usr/bin/env python
"""Write tests/project/messages.md: every text that the package shows, so that all can be read in one go.

    NBMODULE_MESSAGES=build/messages make test
    python tools/make_messages.py build/messages

The texts are the string literals with a sentence of four or more words in the Python code (docstrings left out) and
in the front end, file by file, with `{...}` for inserted values. An example from a test run follows
where a text has inserted values. Without a folder, the examples of the current page are kept.
tests/project/test_messages.py compares the texts of the page with the code.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "nbmodule"
PAGE = ROOT / "tests" / "project" / "messages.md"
HOLE = "{...}"
_WORDS = re.compile(r"(?:\w[\w'’-]*[ ,.;:]+){3,}\w")
# Lists of names and style sheets have none of these words.
_SENTENCE = re.compile(
    r"\b(?:a|an|and|are|as|at|be|by|for|from|has|have|if|in|is|it|must|no|not|of|on|or|the|to|was|with)\b"
)
_JS_TEXT = re.compile(r"""(["'`])((?:\\.|(?!\1)[^\\\n])*)\1""")
HEAD = """# Messages

Every text of the package with four or more words, by file. `{...}` stands for an inserted value; a line with `→` is an example.
`python tools/make_messages.py` writes this page.
"""


def texts_of(path: Path) -> list[str]:
    """Return the texts of a file, each once, in the order of the code."""
    source = path.read_text(encoding="utf-8")
    texts = _python_texts(source) if path.suffix == ".py" else _script_texts(source)
    flat = (" ".join(text.split()) for text in texts)
    return list(
        dict.fromkeys(text for text in flat if _WORDS.search(text) and _SENTENCE.search(text))
    )


def _python_texts(source: str) -> Iterator[str]:
    tree = ast.parse(source)
    skipped = {id(part) for node in ast.walk(tree) for part in _not_shown(node)}
    yield from _strings(tree, skipped)


def _not_shown(node: ast.AST) -> Iterator[ast.AST]:
    """Yield docstrings and other strings that stand alone, and the parts of f-strings."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        yield node.value
    if isinstance(node, ast.JoinedStr):
        yield from (part for part in node.values if isinstance(part, ast.Constant))


def _strings(node: ast.AST, skipped: set[int]) -> Iterator[str]:
    if isinstance(node, ast.JoinedStr):
        yield "".join(
            str(part.value) if isinstance(part, ast.Constant) else HOLE for part in node.values
        )
    elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
        yield node.value
    for child in ast.iter_child_nodes(node):
        yield from _strings(child, skipped)


def _script_texts(source: str) -> Iterator[str]:
    source = re.sub(r"/\*.*?\*/", "", source, flags=re.DOTALL)
    for line in source.splitlines():
        if not line.lstrip().startswith("//"):
            for match in _JS_TEXT.finditer(line):
                yield re.sub(r"\$\{[^}]*\}", HOLE, match[2])


def all_texts() -> dict[str, list[str]]:
    """Return the texts of each file that has some."""
    files = sorted([*PACKAGE.rglob("*.py"), *(PACKAGE / "views" / "frontend").rglob("*.js")])
    texts = {str(path.relative_to(ROOT)): texts_of(path) for path in files}
    return {name: lines for name, lines in texts.items() if lines}


def page_texts(page: str) -> dict[str, list[str]]:
    """Return the texts that a page lists for each file."""
    texts: dict[str, list[str]] = {}
    for line in page.splitlines():
        if line.startswith("## "):
            texts[line[3:]] = []
        elif line.startswith("- "):
            list(texts.values())[-1].append(line[2:])
    return texts


def page_examples(page: str) -> list[str]:
    """Return the examples of a page."""
    return [line.lstrip()[2:] for line in page.splitlines() if line.lstrip().startswith("→ ")]


def make_page(texts: dict[str, list[str]], examples: list[str]) -> str:
    """Return the page, with the shortest fitting example for each text with inserted values."""
    examples = sorted(
        {" ".join(text.split())[:400] for text in examples}, key=lambda e: (len(e), e)
    )
    lines = [HEAD]
    for name, entries in texts.items():
        lines.append(f"## {name}\n")
        for text in entries:
            lines.append(f"- {text}")
            if HOLE in text:
                pattern = re.compile(".{1,200}?".join(map(re.escape, text.split(HOLE))))
                lines += [f"  → {e}" for e in [next(filter(pattern.search, examples), None)] if e]
        lines.append("")
    return "\n".join(lines)


def main(folders: list[str]) -> None:
    """Write the page."""
    if folders:
        files = [path for folder in folders for path in sorted(Path(folder).glob("*.jsonl"))]
        examples = [json.loads(row) for path in files for row in path.read_text().splitlines()]
    else:
        examples = page_examples(PAGE.read_text(encoding="utf-8")) if PAGE.exists() else []
    PAGE.write_text(make_page(all_texts(), examples), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
