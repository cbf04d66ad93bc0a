#!/usr/bin/env python3
"""Write docs/conformance.md: each documented behavior of the three ways, with the test that holds
it.

The page is made from the tests, so it cannot say more than they do; a test compares the page with
what this script makes.
"""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "conformance.md"
WAYS = {
    "The stateful way": ["tests/core/test_stateful.py", "tests/core/test_building.py"],
    "The tensor-library way": ["tests/core/test_tensor_library.py"],
    "The functional way": ["tests/core/test_functional.py"],
    "Transforms, under all three": [
        "tests/core/test_transforms.py",
        "tests/core/test_rebinding.py",
        "tests/core/test_frame.py",
    ],
    "Laws of one storage": ["tests/core/test_laws.py"],
}
HEAD = """# Conformance

What a person who comes from a stateful library, from a tensor library or from functional JAX may rely on. Each line is the name
of a test, read as a sentence, beside the file that holds it. `python tools/make_conformance.py` makes this page from the tests.
"""


WILD = "## Models in the wild"


def page() -> str:
    """Return the whole page; the part that `make wild` writes stays as it is."""
    parts = [HEAD]
    for way, files in WAYS.items():
        parts += [
            f"## {way}\n",
            "| behavior | test |",
            "|---|---|",
            *(row for name in files for row in rows(name)),
            "",
        ]
    before = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    wild = before.find(WILD)
    return "\n".join(parts) + ("" if wild < 0 else f"\n{before[wild:]}")


def rows(name: str) -> list[str]:
    """One row for each test of a file, in its order."""
    found = []
    for node in ast.parse((ROOT / name).read_text()).body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            sentence = node.name.removeprefix("test_").replace("_", " ")
            found.append(f"| {sentence[0].upper()}{sentence[1:]} | `{name}` |")
    return found


if __name__ == "__main__":
    PAGE.write_text(page())
    print(f"wrote {PAGE.relative_to(ROOT)}")
