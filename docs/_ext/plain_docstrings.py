"""Docstrings are written to be read in a terminal: give Sphinx the markup that it wants for formulas and for blocks of code."""

from __future__ import annotations

from typing import Any


def marked_up(app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """An indented formula becomes a literal block, a fenced block of code a code block."""
    made: list[str] = []
    fenced = inside = False
    for line in lines:
        if line.strip().startswith("```"):
            fenced = not fenced
            made += ["", ".. code-block:: python", ""] if fenced else [""]
        elif fenced:
            made.append(f"    {line}")
        else:
            begins = line.startswith("    ") and not inside and _stands_alone(made)
            made += ["::", "", line] if begins else [line]
            inside = bool(line.startswith("    ") or (inside and not line.strip()))
    lines[:] = made


def _stands_alone(before: list[str]) -> bool:
    """Whether a blank line precedes, below a paragraph that is no heading of a section."""
    text = [line for line in before if line.strip()]
    return (
        bool(text)
        and not before[-1].strip()
        and not text[-1].endswith(":")
        and not text[-1].startswith(" ")
    )


def setup(app: Any) -> dict[str, Any]:
    """Join the build, before the sections are read."""
    app.connect("autodoc-process-docstring", marked_up, priority=400)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
