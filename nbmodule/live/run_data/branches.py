"""Curves drawn pale beside those of a run: earlier runs of its cell, parts that a rewind left
behind, and branches, which show what would follow from a change.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from nbmodule.base.curves import Curve, reduce_curve
from nbmodule.base.format import count_noun, format_number, printable_repr
from nbmodule.live.run_data.history import History

_COLUMNS = 200


class Attempt(NamedTuple):
    """A change to try: `make` and `undo` it for a branch, or `take` it for good."""

    label: str
    make: Callable[[], Any]
    undo: Callable[[], Any]
    take: Callable[[], Any]


@dataclass(eq=False, repr=False)
class Branch:
    """Some steps that would follow from a change, or that were made before.

    Attributes:
        label: The change, or how the steps ended.
        curves: The logged values of the steps, by name.
        note: The batches that the steps use, if not those to come.
        take: Makes the change for good.
    """

    label: str
    curves: dict[str, Curve]
    note: str = ""
    take: Callable[[], Any] | None = None

    @printable_repr
    def __repr__(self) -> str:
        logged = {name: curve.values for name, curve in self.curves.items() if len(curve.values)}
        ends = ", ".join(f"{name} {format_number(float(v[-1]))}" for name, v in logged.items())
        count = max(map(len, logged.values()), default=0)
        return f"Branch({self.label}: {ends or 'nothing logged'} after {count_noun(count, 'step')})"


def reduced_curves(history: History, step: int = 0) -> dict[str, Curve]:
    """Return the curves of a history from a step on, as copies of at most 200 columns."""
    curves = {}
    for series in history:
        steps, values = series.since(0)
        late = steps >= step
        if late.sum() > 1:
            reduced = reduce_curve(Curve(steps[late], values[late]), _COLUMNS)
            curves[series.name] = Curve(reduced.steps.copy(), reduced.values.copy())
    return curves
