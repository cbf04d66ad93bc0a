"""Mark the notebooks of a class: each runs in confined processes of its own."""

from __future__ import annotations

from nbmodule.marking.mark import mark
from nbmodule.marking.results import Exercise, Limits, Marks

__all__ = ["Exercise", "Limits", "Marks", "mark"]
