"""One thing that is wrong with a run, and what can be done about it: the words of a button, and
what it sends.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from nbmodule.base.format import plain
from nbmodule.views.records.records import Finding


class Remedy(NamedTuple):
    """What can be done: the words of a button, and the message that it sends."""

    label: str
    message: Mapping[str, Any]


class RunFinding(NamedTuple):
    """One finding of a run, with the step that shows it and what can be done."""

    finding: Finding
    step: int | None = None
    remedy: Remedy | None = None

    def describe(self) -> list[Any]:
        """As the bar below a title reads it: how bad, in words, where, which part, path, remedy."""
        f, place = (
            self.finding,
            "steps" if self.step is not None else "modules" if self.finding.path else None,
        )
        remedy = self.remedy and {"label": self.remedy.label, "message": dict(self.remedy.message)}
        return [f.kind, plain(f.text, 300), self.step, place, plain(f.path), remedy]
