"""A folder of students' notebooks: each run in a confined process of its own, and what it got right."""

from __future__ import annotations

from nbmodule.marking.mark import Exercise, Limits, Marks, mark

__all__ = ["Exercise", "Limits", "Marks", "mark"]
