"""The list of runs and their comparison as views."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nbmodule.base.format import count_noun, format_seconds, plain
from nbmodule.live.runs.listing import RunComparison, Runs
from nbmodule.live.runs.report import logged_series, outline_of
from nbmodule.live.runs.run import when
from nbmodule.views import html_of, register_record
from nbmodule.views.records.records import Column, FactTable, HistoryRecord

_MOST_SERIES = 8


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


def runs_table(found: Runs) -> FactTable:
    """The list of runs as a table that sorts by each column."""
    settings, series = found.varying[:8], found.series[:8]
    columns = [
        Column("began", [when(run.began) for run in found]),
        Column("ran", [format_seconds(run.seconds) for run in found], leaves=1),
        Column("ended", [run.state for run in found], leaves=2),
        Column("steps", [run.step for run in found], "count", leaves=3),
        *(_column(name, [run.settings.get(name) for run in found]) for name in settings),
        *(_column(f"best {name}", [run.best.get(name) for run in found]) for name in series),
        Column("tags", [" ".join(run.tags) or None for run in found], leaves=4),
        Column("note", [run.note or None for run in found], leaves=5),
    ]
    columns += (
        [Column("error", [None] * len(found) + list(found.errors.values()))] if found.errors else []
    )
    missing = len(found.errors)
    padded = [
        c if c.title == "error" else c._replace(values=[*c.values, *[None] * missing])
        for c in columns
    ]
    labels = [*(plain(run.name, 40) for run in found), *(path.name for path in found.errors)]
    kept = tuple(c for c in padded if any(value is not None for value in c.values))
    return FactTable(
        "runs",
        outline_of(labels),
        kept,
        [f"[{k}]" for k in range(len(labels))],
        tuple(repr(found).splitlines()),
        frozenset(range(len(found), len(labels))),
        root="nb.runs()",
        label="run",
        empty="no runs",
        title=(count_noun(len(found), "run"), *([f"{missing} cannot be read"] if missing else [])),
    )


def comparison_table(comparison: RunComparison) -> FactTable:
    """A line per setting that differs and per result, a column per run."""
    head, rows = comparison.table()
    columns = tuple(
        Column(name, [row[k] or None for row in rows]) for k, name in enumerate(head) if k
    )
    return FactTable(
        "comparison",
        outline_of([row[0] for row in rows]),
        columns,
        [""] * len(rows),
        tuple(repr(comparison).splitlines()),
        root="nb.compare_runs(...)",
        label="setting or result",
        title=(f"{len(comparison.runs)} runs compared",),
    )


def curve_records(comparison: RunComparison, *, by: str = "step") -> list[HistoryRecord]:
    """One plot per series: that series of each run."""
    found = []
    for name in list(comparison.best)[:_MOST_SERIES]:
        curves = comparison.curves(name, by=by)
        series = tuple(
            logged_series(run, x, y)._replace(unit=plain(name)) for run, (x, y) in curves.items()
        )
        found.append(HistoryRecord(plain(name), series, "", by))
    return found


register_record(Runs, runs_table)


def comparison_html(comparison: RunComparison) -> str:
    """The table, then a plot for each series."""
    parts = [html_of(comparison_table(comparison)), *map(html_of, curve_records(comparison))]
    return "".join(parts)
