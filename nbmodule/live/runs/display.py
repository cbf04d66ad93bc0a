"""The list of runs, their comparison and the table per epoch as views."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from nbmodule.base.format import count_noun, format_number, format_seconds, plain
from nbmodule.base.series_names import group_of, is_better_when_higher
from nbmodule.live.runs.epochs import EpochTable, when
from nbmodule.live.runs.listing import Runs
from nbmodule.live.runs.run import RecordedRun
from nbmodule.live.runs.run_comparison import RunComparison
from nbmodule.views import html_of, register_record
from nbmodule.views.records.outline import Outline
from nbmodule.views.records.records import Column, FactTable, HistoryRecord, SeriesRecord
from nbmodule.views.renderers.drawing import LINES
from nbmodule.views.renderers.html import Markup, tag

_MOST_SERIES = 8
_MOST_POINTS = 1000
_MOST_JUDGED = 100
"""Runs whose findings stand in the list; beyond, `runs[k].diagnosis` has them."""
LEAST_PLOTTED = 5
"""Runs from which on settings are plotted against a result."""
_MOST_SETTINGS = 6
_WIDTH, _HEIGHT = 640, 220


def _outline_of(labels: Sequence[str]) -> Outline:
    lines = Outline()
    for number, label in enumerate(labels):
        lines.append(0, label, number)
    return lines


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


def runs_table(runs: Runs) -> FactTable:
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
        Column("notebook", [_origin(run) for run in runs], leaves=4),
        Column("commit", [run.commit or None for run in runs], leaves=3),
    ]
    missing = len(runs.errors)
    columns = [c._replace(values=[*c.values, *[None] * missing]) for c in columns]
    if missing:
        columns.append(Column("error", [None] * len(runs) + list(runs.errors.values())))
    labels = [*(plain(run.name, 40) for run in runs), *(path.name for path in runs.errors)]
    return FactTable(
        "runs",
        _outline_of(labels),
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


def epochs_table(table: EpochTable) -> FactTable:
    """A line per epoch; the best of each column ends in a star."""
    cells = table.cells()
    columns = tuple(
        Column(name, [row[k] or None for row in cells]) for k, name in enumerate(table.columns) if k
    )
    return FactTable(
        "epochs",
        _outline_of([row[0] for row in cells]),
        columns,
        [f"[{k}]" for k in range(len(cells))],
        tuple(repr(table).splitlines()),
        root="run.epochs().rows",
        label="step",
        empty="no epochs yet",
        title=(count_noun(len(cells), "epoch"), "* best"),
    )


# -- curves ----------------------------------------------------------------------------------------
def _series(name: str, x: Any, y: Any, unit: str = "") -> SeriesRecord:
    every = max(1, -(-len(x) // _MOST_POINTS))
    chosen = np.unique(np.r_[0 : len(x) : every, len(x) - 1]) if len(x) else np.empty(0, int)
    steps, values = tuple(x[chosen].tolist()), tuple(np.asarray(y, float)[chosen].tolist())
    return SeriesRecord(plain(name), steps, values, unit)


def run_curves(run: RecordedRun) -> list[HistoryRecord]:
    """One plot per group of series: training and validation of one measure together."""
    groups: dict[str, list[SeriesRecord]] = {}
    for series in run.history:
        groups.setdefault(group_of(series.name)[0], []).append(
            _series(series.name, series.steps.astype(float), series.values)
        )
    return [HistoryRecord(plain(name), tuple(members)) for name, members in groups.items()]


def _curve_records(comparison: RunComparison) -> list[HistoryRecord]:
    """One plot per series: that series of each run."""
    records = []
    for name in list(comparison.best)[:_MOST_SERIES]:
        curves = comparison.curves(name)
        series = tuple(_series(run, x, y, plain(name)) for run, (x, y) in curves.items())
        records.append(HistoryRecord(plain(name), series))
    return records


# -- a comparison ----------------------------------------------------------------------------------
def _comparison_table(comparison: RunComparison) -> FactTable:
    """A line per setting that differs and per result, a column per run."""
    head, rows = comparison.table()
    columns = tuple(
        Column(name, [row[k] or None for row in rows]) for k, name in enumerate(head) if k
    )
    return FactTable(
        "comparison",
        _outline_of([row[0] for row in rows]),
        columns,
        [""] * len(rows),
        tuple(repr(comparison).splitlines()),
        root="nb.compare_runs(...)",
        label="setting or result",
        title=(f"{len(comparison.runs)} runs compared",),
    )


def comparison_html(comparison: RunComparison) -> str:
    """The table, settings against a result, a plot for each series, and the code that differs."""
    parts = [html_of(_comparison_table(comparison))]
    if len(comparison.runs) > LEAST_PLOTTED:
        parts.append(str(settings_plot(comparison)))
    parts += map(html_of, _curve_records(comparison))
    if comparison.code:
        code = tag("pre", comparison.code, style="font:12px/1.45 monospace;overflow-x:auto")
        parts.append(tag("details", tag("summary", "code that differs"), code))
    return "".join(parts)


def settings_plot(comparison: RunComparison) -> Markup:
    """Draw settings that differ, and the result, as parallel axes: a line for each run.

    The result is the first validation series, else the first series. The best run is drawn
    strongest.
    """
    best = comparison.best
    result = next((name for name in best if group_of(name)[1] != "train"), next(iter(best), ""))
    numbers = {
        name: values
        for name, values in comparison.settings.items()
        if len({repr(value) for value in values}) > 1
    }
    if not numbers or not result:
        return Markup("")
    axes = [*list(numbers.items())[:_MOST_SETTINGS], (f"best {result}", best[result])]
    places = [_positions(values) for _, values in axes]
    gap = (_WIDTH - 140) / (len(axes) - 1)
    order = np.argsort([_badness(result, value) for value in best[result]])[::-1].tolist()
    parts = [_axis(name, values, 70 + k * gap) for k, (name, values) in enumerate(axes)]
    for number in order:
        points = " ".join(
            f"{70 + k * gap:.0f},{place[number]:.0f}"
            for k, place in enumerate(places)
            if place[number] is not None
        )
        is_best = number == order[-1]
        line = {"stroke": LINES[1] if is_best else LINES[0], "stroke_width": 2.5 if is_best else 1}
        opacity = 1 if is_best else 0.55
        label = tag("title", comparison.names[number])
        parts.append(
            tag("polyline", label, points=points, fill="none", stroke_opacity=opacity, **line)
        )
    about = f"settings against best {result}; strongest: {comparison.names[order[-1]]}"
    style = f"width:{_WIDTH}px;max-width:100%;font:11px sans-serif"
    box = f"0 0 {_WIDTH} {_HEIGHT}"
    drawing = tag("svg", *parts, viewBox=box, role="img", aria_label=about, style=style)
    return tag("div", tag("div", about, style="font-size:12px"), drawing)


def _badness(name: str, value: float | None) -> float:
    if value is None or not math.isfinite(value):
        return math.inf
    return -value if is_better_when_higher(name) else value


def _positions(values: Sequence[Any]) -> list[float | None]:
    """Return heights on an axis: by order of value, equal values at one height."""
    levels = _levels(values)
    span = max(len(levels) - 1, 1)
    heights = {repr(v): _HEIGHT - 30 - k / span * (_HEIGHT - 70) for k, v in enumerate(levels)}
    return [None if value is None else heights[repr(value)] for value in values]


def _levels(values: Sequence[Any]) -> list[Any]:
    known = {repr(value): value for value in values if value is not None}
    is_number = all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in known.values())
    return sorted(known.values(), key=float if is_number else str)


def _axis(name: str, values: Sequence[Any], x: float) -> Markup:
    """Draw an axis with its name, its lowest and its highest value."""
    levels = _levels(values)
    ends = [
        format_number(v, 3) if isinstance(v, float) else plain(str(v), 12)
        for v in (levels[0], levels[-1])
    ]
    line = tag("line", x1=x, x2=x, y1=40, y2=_HEIGHT - 30, stroke="currentColor", opacity=".5")
    texts = [(plain(name, 22), 14), (ends[1], 32), (ends[0], _HEIGHT - 14)]
    labels = [
        tag("text", text, x=x, y=y, text_anchor="middle", fill="currentColor") for text, y in texts
    ]
    return tag("g", line, *labels)


register_record(Runs, runs_table)
register_record(EpochTable, epochs_table)
