"""What would follow from a change, and how the change is made: for a while, or for good."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from nbmodule.base.format import count_noun, format_number, shown
from nbmodule.live.run.series import Curve


class Attempt(NamedTuple):
    """A change that is tried: how it is made for a while, what ends it, and how it is made for
    good.
    """

    label: str
    make: Callable[[], Any]
    undo: Callable[[], Any]
    take: Callable[[], Any]


class Future:
    """Some steps that would follow from a change.

    Attributes:
        label: What was changed.
        curves: What the steps would log, by name.
        note: What to know of it: whose batches these are.
    """

    def __init__(self, trial: Attempt, curves: dict[str, Curve], note: str) -> None:
        self.label, self.take, self.curves, self.note = trial.label, trial.take, curves, note

    @shown
    def __repr__(self) -> str:
        ends = ", ".join(
            f"{name} {format_number(float(c.values[-1]))}"
            for name, c in self.curves.items()
            if len(c.values)
        )
        count = max((len(c.values) for c in self.curves.values()), default=0)
        return f"Future({self.label}: {ends or 'nothing logged'} after {count_noun(count, 'step')})"
