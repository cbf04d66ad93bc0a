"""The runs of this process, kept in memory: settings, logged values and ends, without models."""

from __future__ import annotations

import inspect
import time
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any

from nbmodule.base.curves import Curve
from nbmodule.base.format import format_count
from nbmodule.base.notebook import running_cell_id, running_execution
from nbmodule.live.run_data.branches import EarlierRun, reduced_curves
from nbmodule.live.run_data.history import History
from nbmodule.live.run_data.state import notebook_cell

if TYPE_CHECKING:
    from nbmodule.live.run_data.state import RunState

MOST_RUNS = 200
MOST_BYTES = 2**28
"""Host memory of logged values; the oldest runs are dropped first."""
MOST_PALE = 5
"""Earlier runs of a cell that are drawn pale."""


@dataclass(eq=False)
class KeptRun:
    """A run of this process, or a branch of one.

    Attributes:
        run_id: Its identifier.
        name: Its title.
        history: What it logged.
        settings: Its settings.
        tags: Words to find it by.
        parent: Identifier of the run that it continues or branches off; '' if none.
        has_journal: Whether a journal holds it too.
        cell: Identifier of the notebook cell.
        execution: Identifier of the execution of that cell; '' outside of a notebook.
        origin: Number and code of the cell, name of the notebook, where they are known.
        began: Start, in seconds since 1970.
        seen: When it was last alive.
        step: The last known step.
        ended: How it ended, in words; '' while it goes on.
        notes: Tags and note that a user has set.
    """

    run_id: str
    name: str
    history: History
    settings: dict[str, Any]
    tags: tuple[str, ...] = ()
    parent: str = ""
    has_journal: bool = False
    cell: str = ""
    execution: str = ""
    origin: Mapping[str, Any] = field(default_factory=dict)
    began: float = field(default_factory=time.time)
    seen: float = field(default_factory=time.time)
    step: int = 0
    state: str = "running"
    reason: str = ""
    ended: str = ""
    notes: dict[str, Any] = field(default_factory=dict)
    watched: Mapping[str, Any] = field(default_factory=dict)
    is_pale: bool = True
    """True if later runs of the cell draw its curves pale."""
    _run: weakref.ref[RunState] | None = None

    def update(self) -> None:
        """Note how far the run is, while it goes on."""
        if self.state != "running" or self._run is None:
            return
        run = self._run()
        if run is None:  # its `with` block was never left
            self.state = "died"
            return
        progress, self.step, self.name = run.progress, run.step, run.name
        self.tags, self.parent, self.seen = run.tags, run.parent, time.time()
        if run.has_ended:
            self.state, self.reason, self.ended = progress.state, progress.reason, str(progress)


_runs: list[KeptRun] = []
_numbers = count(1)


def keep_run(run: RunState) -> KeptRun:
    """Keep a run that begins."""
    kept = KeptRun(run.run_id, run.name, run.history, run.settings, cell=run.cell)
    kept.execution, kept.origin, kept.watched = running_execution(), notebook_cell(), run.watched
    kept._run = weakref.ref(run)
    return keep(kept)


def keep_branch(run: RunState, label: str, curves: Mapping[str, Curve], state: str) -> None:
    """Keep a branch of a run: what a rewind left behind, or the steps of a what-if."""
    branch = branch_of(run, label, curves, next(_numbers))
    branch.state = state
    parents = (kept for kept in _runs if kept.run_id == run.run_id)
    branch.began = next((kept.began for kept in parents), branch.began)
    keep(branch)


def branch_of(run: Any, label: str, curves: Mapping[str, Curve], number: int) -> KeptRun:
    """Return a branch of a run, which differs from its parent in the setting `branch`."""
    history, settings = History(), {**run.settings, "branch": label}
    for name, (steps, values) in curves.items():
        history.extend(name, steps, values)
    branch = KeptRun(f"{run.run_id}.{number}", run.name, history, settings, run.tags, run.run_id)
    branch.is_pale, branch.state = False, "rewound"
    branch.step = max((int(steps[-1]) for steps, _ in curves.values() if len(steps)), default=0)
    return branch


def rewound(step: int, last: int) -> str:
    """Return the setting `branch` of what a rewind left behind."""
    return f"rewound {format_count(last)} → {format_count(step)}"


def keep(kept: KeptRun) -> KeptRun:
    """Add a run, in place of one of the same identifier, and drop the oldest above the bounds."""
    _runs[:] = [other for other in _runs if other.run_id != kept.run_id]
    _runs.append(kept)
    del _runs[:-MOST_RUNS]
    nbytes = sum(other.history.nbytes for other in _runs)
    while nbytes > MOST_BYTES and len(_runs) > 1:
        nbytes -= _runs.pop(0).history.nbytes
    return kept


def kept_runs() -> list[KeptRun]:
    """Return the runs of this process, oldest first."""
    for kept in _runs:
        kept.update()
    return list(_runs)


def earlier_runs(cell: str) -> list[EarlierRun]:
    """Return the pale curves of the runs of a cell that are over, oldest first."""
    kept = [run for run in kept_runs() if run.cell == cell and run.is_pale and run.ended]
    earlier = [EarlierRun(run.ended, reduced_curves(run.history)) for run in kept[-MOST_RUNS:]]
    return [run for run in earlier if run.curves][-MOST_PALE:]


def forget_earlier(cell: str) -> None:
    """Draw the earlier runs of a cell no more."""
    for kept in _runs:
        kept.is_pale = kept.is_pale and kept.cell != cell


def current_cell() -> str:
    """Return the identifier of the running notebook cell, otherwise the line of the caller."""
    if (cell := running_cell_id()) is not None:
        return cell
    frame = inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__", "").startswith("nbmodule."):
        frame = frame.f_back
    return "" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"
