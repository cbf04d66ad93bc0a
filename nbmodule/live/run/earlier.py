"""Remembers the curves of earlier runs of a cell, so that the next run shows them in pale."""

from __future__ import annotations

import inspect
from collections import OrderedDict
from typing import NamedTuple

from nbmodule.live.run.history import History
from nbmodule.live.run.series import Curve, reduce_curve

MOST_RUNS = 5
MOST_CELLS = 50
_COLUMNS = 200


class EarlierRun(NamedTuple):
    """What is left of a run: how it ended, and its curves, reduced."""

    ended: str
    curves: dict[str, Curve]


_runs: OrderedDict[str, list[EarlierRun]] = OrderedDict()


def remember_run(cell: str, history: History, ended: str) -> None:
    """Keep the curves of a run that is over; at most five of a cell."""
    curves = {
        series.name: reduce_curve(series.since(0), _COLUMNS)
        for series in history
        if len(series) > 1
    }
    if not curves:
        return
    kept = {name: Curve(curve.steps.copy(), curve.values.copy()) for name, curve in curves.items()}
    runs = _runs.setdefault(cell, [])
    runs.append(EarlierRun(ended, kept))
    del runs[:-MOST_RUNS]
    _runs.move_to_end(cell)
    while len(_runs) > MOST_CELLS:
        _runs.popitem(last=False)


def left_behind(history: History, step: int, ended: str) -> EarlierRun | None:
    """The curves from a step on, which a rewind leaves behind; None where there is none."""
    curves = {}
    for series in history:
        steps, values = series.since(0)
        late = steps >= step
        if late.sum() > 1:
            curves[series.name] = reduce_curve(Curve(steps[late], values[late]), _COLUMNS)
    return EarlierRun(ended, curves) if curves else None


def earlier_runs(cell: str) -> list[EarlierRun]:
    """Give the runs of a cell, oldest first."""
    return list(_runs.get(cell, ()))


def forget_runs(cell: str) -> None:
    """Drop the runs of a cell."""
    _runs.pop(cell, None)


def current_cell() -> str:
    """Name the place that runs now: the notebook's cell where the front end says which, else the
    line of the caller.
    """
    try:
        from IPython import get_ipython

        shell = get_ipython()
        found = shell.get_parent().get("metadata", {}).get("cellId")
        if found:
            return str(found)
    except (ImportError, AttributeError):
        pass
    frame = inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__", "").startswith("nbmodule."):
        frame = frame.f_back
    return "" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"
