"""Add the markup that Sphinx needs for formulas and code blocks to docstrings written for terminals."""

from __future__ import annotations

from typing import Any


def add_markup(app: Any, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    """Turn indented formulas into literal blocks and fenced code into code blocks."""
    output: list[str] = []
    fenced = inside = False
    for line in lines:
        if line.strip().startswith("```"):
            fenced = not fenced
            output += ["", ".. code-block:: python", ""] if fenced else [""]
        elif fenced:
            output.append(f"    {line}")
        else:
            begins = line.startswith("    ") and not inside and _is_separate(output)
            output += ["::", "", line] if begins else [line]
            inside = bool(line.startswith("    ") or (inside and not line.strip()))
    lines[:] = output


def _is_separate(before: list[str]) -> bool:
    """Return True after a blank line that follows a paragraph, not a section heading."""
    text = [line for line in before if line.strip()]
    return (
        bool(text)
        and not before[-1].strip()
        and not text[-1].endswith(":")
        and not text[-1].startswith(" ")
    )


def setup(app: Any) -> dict[str, Any]:
    """Register with Sphinx, before napoleon reads the sections."""
    app.connect("autodoc-process-docstring", add_markup, priority=400)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
