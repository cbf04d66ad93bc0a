"""Curves drawn pale beside those of a run: earlier runs of its cell, parts that a rewind left
behind, and branches, which show what would follow from a change.
"""

from __future__ import annotations

import inspect
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple

from nbmodule.base.format import count_noun, format_number, printable_repr
from nbmodule.live.run.history import History
from nbmodule.live.run.series import Curve, reduce_curve

MOST_RUNS = 5
MOST_CELLS = 50
_COLUMNS = 200


class EarlierRun(NamedTuple):
    """The remains of a run: how it ended, and its reduced curves."""

    ended: str
    curves: dict[str, Curve]


class Attempt(NamedTuple):
    """A change to try: `make` and `undo` it for a branch, or `take` it for good."""

    label: str
    make: Callable[[], Any]
    undo: Callable[[], Any]
    take: Callable[[], Any]


class Future:
    """A branch: some steps that would follow from a change.

    Attributes:
        label: The change.
        curves: What the steps would log, by name.
        note: Which batches the steps use, if not those to come.
    """

    def __init__(self, attempt: Attempt, curves: dict[str, Curve], note: str) -> None:
        self.label, self.take, self.curves, self.note = attempt.label, attempt.take, curves, note

    @printable_repr
    def __repr__(self) -> str:
        ends = ", ".join(
            f"{name} {format_number(float(curve.values[-1]))}"
            for name, curve in self.curves.items()
            if len(curve.values)
        )
        count = max((len(curve.values) for curve in self.curves.values()), default=0)
        return f"Future({self.label}: {ends or 'nothing logged'} after {count_noun(count, 'step')})"


_runs: OrderedDict[str, list[EarlierRun]] = OrderedDict()


def remember_run(cell: str, history: History, ended: str) -> None:
    """Keep the curves of a run that is over, at most `MOST_RUNS` of a cell."""
    curves = {s.name: reduce_curve(s.since(0), _COLUMNS) for s in history if len(s) > 1}
    if not curves:
        return
    copies = {name: Curve(c.steps.copy(), c.values.copy()) for name, c in curves.items()}
    runs = _runs.setdefault(cell, [])
    runs.append(EarlierRun(ended, copies))
    del runs[:-MOST_RUNS]
    _runs.move_to_end(cell)
    while len(_runs) > MOST_CELLS:
        _runs.popitem(last=False)


def left_behind(history: History, step: int, ended: str) -> EarlierRun | None:
    """Return the curves from a step on, which a rewind leaves behind; None if there are none."""
    curves = {}
    for series in history:
        steps, values = series.since(0)
        late = steps >= step
        if late.sum() > 1:
            curves[series.name] = reduce_curve(Curve(steps[late], values[late]), _COLUMNS)
    return EarlierRun(ended, curves) if curves else None


def earlier_runs(cell: str) -> list[EarlierRun]:
    """Return the runs of a cell, oldest first."""
    return list(_runs.get(cell, ()))


def forget_runs(cell: str) -> None:
    """Drop the runs of a cell."""
    _runs.pop(cell, None)


def current_cell() -> str:
    """Return the identifier of the running notebook cell, otherwise the line of the caller."""
    try:
        from IPython import get_ipython

        cell = get_ipython().get_parent().get("metadata", {}).get("cellId")
        if cell:
            return str(cell)
    except (ImportError, AttributeError):
        pass
    frame = inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__", "").startswith("nbmodule."):
        frame = frame.f_back
    return "" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"
