"""The list of runs as a view."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nbmodule.base.format import count_noun, plain
from nbmodule.base.kinds import is_real
from nbmodule.live.runs.listing import Runs
from nbmodule.live.runs.page import outline_of
from nbmodule.views import register_record
from nbmodule.views.records.records import Column, DataTable

_LEAVE = {"ran": 1, "ended": 2, "steps": 3, "commit": 3, "tags": 4, "parent": 4, "notebook": 4}
_LEAVE |= {"findings": 5, "note": 5, "began": 6}
"""Columns that a narrow page leaves out, the highest first."""


def _column(title: str, values: Sequence[Any], missing: int) -> Column:
    """A column; numbers stay numbers, so that it sorts by them. Runs without a value come last."""
    cells = [None if value == "" else value for value in values] + [None] * missing
    is_number = all(cell is None or is_real(cell) for cell in cells)
    kind = "count" if title == "steps" else "number" if is_number else "text"
    if not is_number:
        cells = [None if cell is None else plain(str(cell), 40) for cell in cells]
    return Column(title, cells, kind, leaves=_LEAVE.get(title, 0))


def runs_table(runs: Runs) -> DataTable:
    """The list of runs as a table that sorts by each column."""
    columns = runs.columns(8) | {
        "tags": [" ".join(run.tags) for run in runs],
        "note": [run.note for run in runs],
        "parent": [runs.parent_of(run) for run in runs],
        "notebook": [run.origin for run in runs],
        "commit": [run.commit for run in runs],
    }
    missing = len(runs.errors)
    table = [_column(title, values, missing) for title, values in columns.items()]
    table.append(Column("error", [None] * len(runs) + list(runs.errors.values())))
    labels = [*(plain(run.name, 40) for run in runs), *(path.name for path in runs.errors)]
    return DataTable(
        "runs",
        outline_of(labels),
        tuple(column for column in table if any(v is not None for v in column.values)),
        [f"[{k}]" for k in range(len(labels))],
        tuple(repr(runs).splitlines()),
        frozenset(range(len(runs), len(labels))),
        root="nb.runs()",
        label="run",
        empty="no runs",
        title=(count_noun(len(runs), "run"), *([f"{missing} cannot be read"] if missing else [])),
    )


register_record(Runs, runs_table)
