"""Several runs of one execution of a cell, as their comparison above folded views of each."""

from __future__ import annotations

import time
from typing import Any

from nbmodule.base.format import count_noun
from nbmodule.base.notebook import running_execution
from nbmodule.live.runs.listing import RunComparison
from nbmodule.live.runs.record import RunRecord, kept_runs
from nbmodule.live.runs.run_views import comparison_html
from nbmodule.views.display.show import chosen_form
from nbmodule.views.renderers.html import Markup, tag

Bundle = dict[str, str]

MOST_COMPARED = 8
_COLUMNS = 100
"""Detail across each curve: the comparison is sent anew every few seconds."""
_EVERY = 5.0
"""Seconds between two updates while a run goes on."""
_COST = 50.0
"""Least ratio of the pause after an update to its duration."""


class CellComparison:
    """The comparison of the runs that one execution of a cell makes.

    The first run has its view alone. When the second one begins, the comparison is displayed, and
    the views of all runs are folded below it.
    """

    def __init__(self, execution: str) -> None:
        self.execution = execution
        self._handle: Any = None
        self._update_at = 0.0
        self._first: tuple[Any, str, Bundle] | None = None
        """Handle, run and final form of the first view."""

    def begin(self, run_id: str, bundle: Bundle) -> Bundle:
        """Return the form in which the view of a run begins."""
        if self._handle is None and len(self._runs()) > 1:
            from IPython.display import display

            if self._first is not None:
                handle, first, final = self._first
                handle.update(self._folded(first, final), raw=True)
            self._handle = display(self._bundle(), raw=True, display_id=True)
        return self.form(run_id, bundle)

    def form(self, run_id: str, bundle: Bundle) -> Bundle:
        """Return the form of a view: folded below the comparison, once there is one."""
        return bundle if self._handle is None else self._folded(run_id, bundle)

    def end(self, handle: object, run_id: str, bundle: Bundle) -> Bundle:
        """Return the form in which the view of a run ends."""
        if self._handle is None:
            self._first = handle, run_id, bundle
        self.update(0.0)
        return self.form(run_id, bundle)

    def _folded(self, run_id: str, bundle: Bundle) -> Bundle:
        if "text/html" not in bundle:
            return bundle
        runs = self._runs()
        names = dict(zip((run.run_id for run in runs), RunComparison(runs).names))
        summary = tag("summary", f"view of {names.get(run_id, 'a run')}")
        return bundle | {"text/html": str(tag("details", summary, Markup(bundle["text/html"])))}

    def update(self, clock: float) -> None:
        """Show the newest values, if it is time; a clock of 0 means that a run has ended."""
        if self._handle is None or 0 < clock < self._update_at:
            return
        begun = time.monotonic()
        self._handle.update(self._bundle(), raw=True)
        now = time.monotonic()
        self._update_at = now + max(_EVERY, _COST * (now - begun))

    def _runs(self) -> list[RunRecord]:
        """Return the runs of this execution, oldest first."""
        return [run for run in kept_runs() if self.execution and run.execution == self.execution]

    def _bundle(self) -> Bundle:
        runs = self._runs()
        comparison = RunComparison(runs[-MOST_COMPARED:])
        if chosen_form() == "text":
            return {"text/plain": repr(comparison)}
        html = comparison_html(comparison, columns=_COLUMNS)
        if len(runs) > MOST_COMPARED:
            about = f"the last {MOST_COMPARED} of {count_noun(len(runs), 'run')}: nb.runs() has all"
            html = f"{tag('div', about)}{html}"
        return {"text/plain": repr(comparison), "text/html": html}


_newest = CellComparison("")


def cell_comparison() -> CellComparison:
    """Return the comparison of the running execution of a cell."""
    global _newest
    execution = running_execution()
    if not execution or _newest.execution != execution:
        _newest = CellComparison(execution)
    return _newest
