"""Runs as views: the list, a comparison, and one offline HTML page about a run."""

from __future__ import annotations

import math
import platform
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from nbmodule.base.curves import Curve
from nbmodule.base.format import (
    count_noun,
    format_count,
    format_number,
    format_seconds,
    group_of,
    is_better_when_higher,
    plain,
)
from nbmodule.base.kinds import is_real
from nbmodule.base.version import __version__
from nbmodule.live.reporting.payload import series_record
from nbmodule.live.run_data.epochs import when
from nbmodule.live.run_data.media import html_of_logged
from nbmodule.live.runs.record import RunRecord
from nbmodule.views import html_of
from nbmodule.views.records.outline import Outline
from nbmodule.views.records.records import Column, DataTable, HistoryRecord
from nbmodule.views.renderers.drawing import LINES
from nbmodule.views.renderers.html import Markup, escape, tag

if TYPE_CHECKING:
    from nbmodule.live.runs.listing import RunComparison, Runs

MOST_COLUMNS = 500


def outline_of(labels: Sequence[str]) -> Outline:
    lines = Outline()
    for number, label in enumerate(labels):
        lines.append(0, label, number)
    return lines


_LEAVE = {"ran": 2, "ended": 2, "steps": 3, "commit": 3, "tags": 4, "parent": 4, "notebook": 4}
_LEAVE |= {"findings": 5, "note": 5, "began": 6}
"""Columns that a narrow page leaves out, the highest first."""
MOST_JUDGED = 100
"""Runs whose findings stand in the list; beyond, `runs[k].diagnosis` has them."""
_MOST_SERIES = 8


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
    series, judged = runs.series[:_MOST_SERIES], runs[:MOST_JUDGED]
    columns = {
        "began": [when(run.began) for run in runs],
        "ran": [format_seconds(run.seconds) for run in runs],
        "ended": [run.state for run in runs],
        "steps": [run.step for run in runs],
        **{name: [run.settings.get(name) for run in runs] for name in runs.varying[:_MOST_SERIES]},
        **{f"best {name}": [run.best.get(name) for run in runs] for name in series},
        "findings": [", ".join(run.diagnosis.names) for run in judged]
        + ["not judged"] * (len(runs) - len(judged)),
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
        frozenset(range(len(runs), len(labels))),
        root="nb.runs()",
        label="run",
        empty="no runs",
        title=(count_noun(len(runs), "run"), *([f"{missing} cannot be read"] if missing else [])),
    )


LEAST_PLOTTED = 5
"""Runs from which on settings are plotted against a result."""
_MOST_SETTINGS = 6
_WIDTH, _TOP, _BOTTOM = 640, 40, 190


def _plots(groups: Mapping[str, Mapping[str, Any]], columns: int) -> str:
    """Draw groups of curves, each in a plot of its own."""
    plots = []
    for title, curves in groups.items():
        series = [series_record(n, Curve(*c), columns, plain(title)) for n, c in curves.items()]
        plots.append(html_of(HistoryRecord(plain(title), tuple(series))))
    return "".join(plots)


def comparison_table(comparison: RunComparison) -> DataTable:
    """A line per setting that differs, then per result; a column per run."""
    runs, names = comparison.runs, comparison.names
    rows = {n: [plain(str(v), 24) for v in values] for n, values in comparison.settings.items()}
    for name in comparison.best:
        for word, results in (("best", [r.best for r in runs]), ("last", [r.last for r in runs])):
            values = [result.get(name) for result in results]
            rows[f"{word} {name}"] = ["" if v is None else format_number(v, 4) for v in values]
    rows["steps"] = [format_count(run.step) for run in runs]
    rows["ran"] = [format_seconds(run.seconds) for run in runs]
    rows["ended"] = [run.state for run in runs]
    rows["findings"] = [", ".join(found) for found in comparison.findings.values()]
    rows = {name: cells for name, cells in rows.items() if any(cells)}
    return DataTable(
        "comparison",
        outline_of(list(rows)),
        tuple(
            Column(n, [c or None for c in cells]) for n, cells in zip(names, zip(*rows.values()))
        ),
        [""] * len(rows),
        root="nb.compare_runs(...)",
        label="setting",
        title=(f"{len(runs)} runs compared",),
    )


def comparison_html(comparison: RunComparison, *, columns: int = MOST_COLUMNS) -> str:
    """The table, settings against a result, a plot for each series, and the code that differs.

    Args:
        comparison: The runs.
        columns: Detail across each curve.
    """
    parts = [html_of(comparison_table(comparison))]
    if len(comparison.runs) > LEAST_PLOTTED:
        parts.append(str(settings_plot(comparison)))
    names = list(comparison.best)[:_MOST_SERIES]
    parts.append(_plots({name: comparison.drawn_curves(name) for name in names}, columns))
    if comparison.code:
        code = tag("pre", comparison.code, style="font:12px/1.45 monospace;overflow-x:auto")
        parts.append(tag("details", tag("summary", "code that differs"), code))
    return "".join(parts)


def settings_plot(comparison: RunComparison) -> Markup:
    """Draw settings that differ, and the result, as parallel axes: a line for each run.

    The result is the first validation series, else the first series. The best run is drawn
    strongest.
    """
    best, settings = comparison.best, list(comparison.settings.items())[:_MOST_SETTINGS]
    result = next((name for name in best if group_of(name)[1] != "train"), next(iter(best), ""))
    if not settings or not result:
        return Markup("")
    axes = [*settings, (f"best {result}", best[result])]
    lines: list[list[str]] = [[] for _ in comparison.runs]
    parts = []
    for x, (name, values) in zip(np.linspace(70, _WIDTH - 70, len(axes)).tolist(), axes):
        levels = _levels(values)
        parts.append(_axis(name, levels, x))
        height = dict(zip(map(repr, levels), np.linspace(_BOTTOM, _TOP, len(levels))))
        for line, value in zip(lines, values):
            if value is not None:
                line.append(f"{x:.0f},{height[repr(value)]:.0f}")
    sign = -1 if is_better_when_higher(result) else 1
    results = [math.inf if value is None else sign * value for value in best[result]]
    worst_first = np.argsort(results)[::-1].tolist()
    strongest = worst_first[-1]
    for number in worst_first:
        look = {"stroke": LINES[0], "stroke_width": 1, "stroke_opacity": 0.55}
        if number == strongest:
            look = {"stroke": LINES[1], "stroke_width": 2.5, "stroke_opacity": 1}
        label = tag("title", comparison.names[number])
        parts.append(tag("polyline", label, points=" ".join(lines[number]), fill="none", **look))
    about = (
        f"settings against best {result}, each axis by rank; strongest: "
        f"{comparison.names[strongest]}"
    )
    style = f"width:{_WIDTH}px;max-width:100%;font:11px sans-serif"
    box = f"0 0 {_WIDTH} {_BOTTOM + 30}"
    drawing = tag("svg", *parts, viewBox=box, role="img", aria_label=about, style=style)
    return tag("div", tag("div", about, style="font-size:12px"), drawing)


def _levels(values: Sequence[Any]) -> list[Any]:
    """Return the different values of an axis, lowest first; texts and others by their text."""
    by_text = {repr(value): value for value in values if value is not None}
    return sorted(by_text.values(), key=float if all(map(is_real, by_text.values())) else str)


def _axis(name: str, levels: Sequence[Any], x: float) -> Markup:
    """Draw an axis with its name, its lowest and its highest value."""
    low, high = (
        format_number(v, 3) if isinstance(v, float) else plain(v, 12)
        for v in (levels[0], levels[-1])
    )
    line = tag("line", x1=x, x2=x, y1=_TOP, y2=_BOTTOM, stroke="currentColor", opacity=".5")
    labels = [
        tag("text", text, x=x, y=y, text_anchor="middle", fill="currentColor")
        for text, y in ((plain(name, 22), 14), (high, 32), (low, _BOTTOM + 16))
    ]
    return tag("g", line, *labels)


# -- one page about a run --
_STYLE = """
:root { color-scheme: light dark; }
body { font: 14px/1.5 system-ui, sans-serif; max-width: 1100px; margin: 24px auto;
  padding: 0 16px; }
h1 { font-size: 22px; margin: 0 0 4px; } h2 { font-size: 16px; margin: 28px 0 8px; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 2px 16px; margin: 0; }
pre { overflow-x: auto; }
dt { opacity: 0.7; } dd { margin: 0; overflow-wrap: anywhere; }
@media (max-width: 480px) { dl { grid-template-columns: 1fr; } dd { margin-bottom: 6px; } }
@media print { body { margin: 0; } h2 { break-after: avoid; } }
"""


def report_page(run: RunRecord) -> str:
    """Return one offline HTML page about a run."""
    facts = {
        "began": when(run.began),
        "ran": f"{format_seconds(run.seconds)}, {format_count(run.step)} steps",
        "ended": run.state + (f": {run.reason}" if run.reason else ""),
        "tags": " ".join(run.tags),
        "note": run.note,
        "notebook": run.origin,
        "commit": run.commit,
    }
    groups = run.history.groups().items()  # training and validation of one measure together
    curves = {title: {n: s.since(0) for n, s in group.items()} for title, group in groups}
    sections: dict[str, Any] = {
        "Settings": run.settings and _facts(run.settings),
        "Findings": run.diagnosis.html(),
        "Curves": _plots(curves, MOST_COLUMNS),
        "Epochs": run.epochs().html(),
    }
    for name, items in run.history.media.items():
        newest = items[-1]
        title = f"{plain(name, 80)}, step {format_count(newest.step)}"
        sections[title] = html_of_logged(newest.value)
    sections |= {
        "Model": run.model is not None and html_of(run.model),
        "Code of the cell": run.code and f"<pre>{escape(run.code)}</pre>",
        "Environment": _facts(  # a journal does not keep the versions of its own
            {
                "report written with": f"nbmodule {__version__}, JAX {jax.__version__}",
                "Python": f"{platform.python_version()} on {sys.platform}",
            }
        ),
    }
    parts = [f"<h2>{escape(title)}</h2>{body}" for title, body in sections.items() if body]
    title = escape(plain(run.name, 200))
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{_STYLE}</style><body><h1>{title}</h1>{_facts(facts)}{''.join(parts)}"
        "</body></html>"
    )


def _facts(facts: Mapping[str, Any]) -> str:
    rows = (
        f"<dt>{escape(plain(k, 80))}</dt><dd>{escape(plain(str(v), 300))}</dd>"
        for k, v in facts.items()
        if v != ""
    )
    return f"<dl>{''.join(rows)}</dl>"
