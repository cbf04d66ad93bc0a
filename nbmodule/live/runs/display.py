"""The list of runs as a view."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nbmodule.base.format import count_noun, format_seconds, plain
from nbmodule.live.run_data.epochs import when
from nbmodule.live.runs.listing import Runs
from nbmodule.live.runs.page import outline_of
from nbmodule.live.runs.run import RecordedRun
from nbmodule.views import register_record
from nbmodule.views.records.records import Column, DataTable

_MOST_JUDGED = 100
"""Runs whose findings stand in the list; beyond, `runs[k].diagnosis` has them."""


def _number(value: object) -> Any:
    """A setting as a cell: numbers stay numbers, so that a column sorts by them."""
    if isinstance(value, bool) or value is None:
        return None if value is None else str(value)
    return value if isinstance(value, (int, float)) else plain(str(value), 40)


def _column(title: str, values: Sequence[Any], leaves: int = 0) -> Column:
    cells = [_number(value) for value in values]
    is_number = all(isinstance(cell, (int, float)) or cell is None for cell in cells)
    if not is_number:
        cells = [None if cell is None else str(cell) for cell in cells]
    return Column(title, cells, "number" if is_number else "text", leaves=leaves)


def runs_table(runs: Runs) -> DataTable:
    """The list of runs as a table that sorts by each column."""
    settings, series = runs.varying[:8], runs.series[:8]
    findings = [", ".join(run.diagnosis.names) or None for run in runs[:_MOST_JUDGED]]
    findings += ["not judged"] * (len(runs) - len(findings))
    columns = [
        Column("began", [when(run.began) for run in runs], leaves=6),
        Column("ran", [format_seconds(run.seconds) for run in runs], leaves=1),
        Column("ended", [run.state for run in runs], leaves=2),
        Column("steps", [run.step for run in runs], "count", leaves=3),
        *(_column(name, [run.settings.get(name) for run in runs]) for name in settings),
        *(_column(f"best {name}", [run.best.get(name) for run in runs]) for name in series),
        Column("findings", findings, leaves=5),
        Column("tags", [" ".join(run.tags) or None for run in runs], leaves=4),
        Column("note", [run.note or None for run in runs], leaves=5),
        Column("parent", [runs.parent_of(run) or None for run in runs], leaves=4),
        Column("notebook", [_origin(run) for run in runs], leaves=4),
        Column("commit", [run.commit or None for run in runs], leaves=3),
    ]
    missing = len(runs.errors)
    columns = [c._replace(values=[*c.values, *[None] * missing]) for c in columns]
    if missing:
        columns.append(Column("error", [None] * len(runs) + list(runs.errors.values())))
    labels = [*(plain(run.name, 40) for run in runs), *(path.name for path in runs.errors)]
    return DataTable(
        "runs",
        outline_of(labels),
        tuple(c for c in columns if any(value is not None for value in c.values)),
        [f"[{k}]" for k in range(len(labels))],
        tuple(repr(runs).splitlines()),
        frozenset(range(len(runs), len(labels))),
        root="nb.runs()",
        label="run",
        empty="no runs",
        title=(count_noun(len(runs), "run"), *([f"{missing} cannot be read"] if missing else [])),
    )


def _origin(run: RecordedRun) -> str | None:
    cell = f"[{run.cell}]" if run.cell else ""
    return plain(f"{run.notebook} {cell}".strip(), 40) or None


register_record(Runs, runs_table)
