"""A comparison of runs as a view: table, settings against a result, curves, code that differs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import takewhile
from typing import Any

import numpy as np

from nbmodule.base.format import format_number, group_of, is_better_when_higher, plain
from nbmodule.live.runs.page import MOST_POINTS, logged_series, outline_of
from nbmodule.live.runs.run_comparison import RunComparison
from nbmodule.views import html_of
from nbmodule.views.records.records import Column, DataTable, HistoryRecord
from nbmodule.views.renderers.drawing import LINES
from nbmodule.views.renderers.html import Markup, tag

LEAST_PLOTTED = 5
"""Runs from which on settings are plotted against a result."""
_MOST_SERIES = 8
_MOST_SETTINGS = 6
_WIDTH, _HEIGHT = 640, 220


def _curve_records(comparison: RunComparison, points: int) -> list[HistoryRecord]:
    """One plot per series: that series of each run, without what leaves the range of most runs."""
    records = []
    for name in list(comparison.best)[:_MOST_SERIES]:
        limit, series = comparison.usual_limit(name), []
        for run, (x, y) in comparison.curves(name).items():
            if limit is not None:
                is_beyond = np.isfinite(y) & (np.abs(y) > limit)
                x, y = x[~is_beyond], y[~is_beyond]
                run += f", then beyond {format_number(limit)}" if is_beyond.any() else ""
            series.append(logged_series(run, x, y, plain(name), points))
        about = comparison.about_limit(name, limit)
        title = f"{plain(name)} ({plain(about, 200)})" if about else plain(name)
        records.append(HistoryRecord(title, tuple(series)))
    return records


def _comparison_table(comparison: RunComparison) -> DataTable:
    """A line per setting that differs and per result, a column per run."""
    (_, *names), rows = comparison.table()
    columns = tuple(
        Column(name, [row[k] or None for row in rows]) for k, name in enumerate(_heads(names), 1)
    )
    return DataTable(
        "comparison",
        outline_of([row[0] for row in rows]),
        columns,
        [""] * len(rows),
        tuple(repr(comparison).splitlines()),
        root="nb.compare_runs(...)",
        label="setting",
        title=(f"{len(comparison.runs)} runs compared",),
    )


def _heads(names: Sequence[str]) -> list[str]:
    """Return the names of many runs without the words that all begin with: columns are narrow.

    Example:
        >>> _heads([f"resnet width {2**k}" for k in range(5)])
        ['… 1', '… 2', '… 4', '… 8', '… 16']
    """
    words = [name.split(" ") for name in names]
    columns = zip(*(row[:-1] for row in words), strict=False)
    shared = len(list(takewhile(lambda column: len(set(column)) == 1, columns)))
    if len(names) < LEAST_PLOTTED or not shared:
        return list(names)
    return [" ".join(["…", *row[shared:]]) for row in words]


def comparison_html(comparison: RunComparison, *, points: int = MOST_POINTS) -> str:
    """The table, settings against a result, a plot for each series, and the code that differs.

    Args:
        comparison: The runs.
        points: Points of each curve, at most.
    """
    parts = [html_of(_comparison_table(comparison))]
    if len(comparison.runs) > LEAST_PLOTTED:
        parts.append(str(settings_plot(comparison)))
    parts += map(html_of, _curve_records(comparison, points))
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
            f"{70 + k * gap:.0f},{heights[number]:.0f}"
            for k, heights in enumerate(places)
            if heights[number] is not None
        )
        is_best = number == order[-1]
        line = {"stroke": LINES[1] if is_best else LINES[0], "stroke_width": 2.5 if is_best else 1}
        opacity = 1 if is_best else 0.55
        label = tag("title", comparison.names[number])
        parts.append(
            tag("polyline", label, points=points, fill="none", stroke_opacity=opacity, **line)
        )
    about = (
        f"settings against best {result}, each axis by rank; strongest: "
        f"{comparison.names[order[-1]]}"
    )
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
    height_of = {repr(v): _HEIGHT - 30 - k / span * (_HEIGHT - 70) for k, v in enumerate(levels)}
    return [None if value is None else height_of[repr(value)] for value in values]


def _levels(values: Sequence[Any]) -> list[Any]:
    by_text = {repr(value): value for value in values if value is not None}
    is_number = all(
        isinstance(v, (int, float)) and not isinstance(v, bool) for v in by_text.values()
    )
    return sorted(by_text.values(), key=float if is_number else str)


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
