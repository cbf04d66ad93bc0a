"""A table of logged series with one row for each epoch, and text tables."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from nbmodule.base.format import (
    format_count,
    format_number,
    format_seconds,
    group_of,
    is_better_when_higher,
    plain,
    printable,
    printable_repr,
)
from nbmodule.live.run_data.history import History
from nbmodule.views.renderers.html import Markup, tag
from nbmodule.views.renderers.text_layout import Line, align

_MOST_ROWS = 50
_WIDTH = 10_000
"""Columns of a text table: none is left out."""
_PARTS = 10
"""Rows of a run that has no validation series."""


class EpochTable:
    """A row per epoch: training means and validation values, the best of each column marked.

    Attributes:
        rows: A dict per row, with `step`, `seconds` where times are known, and the series that
            have a value there.
    """

    def __init__(self, rows: list[dict[str, float]]) -> None:
        self.rows = rows

    @property
    def columns(self) -> list[str]:
        """`step`, then the series in the order in which they first have a value."""
        names = dict.fromkeys(name for row in self.rows for name in row)
        return ["step", *(name for name in names if name != "step")]

    @property
    def best(self) -> dict[str, int]:
        """For each series the row with its best value."""
        rows_by_series = {}
        for name in self.columns[1:]:
            values = [row.get(name, math.nan) for row in self.rows]
            if name != "seconds" and not all(map(math.isnan, values)):
                pick = np.nanargmax if is_better_when_higher(name) else np.nanargmin
                rows_by_series[name] = int(pick(values))
        return rows_by_series

    def cells(self) -> list[list[str]]:
        """The table as text, without its head; the best of each column ends in `*`."""
        best = self.best
        return [
            [_cell(name, row, is_best=best.get(name) == k) for name in self.columns]
            for k, row in enumerate(self.rows)
        ]

    def html(self) -> Markup:
        """Return the newest rows as a plain HTML table."""
        style = "padding:1px 10px;text-align:right"
        head = tag("tr", *(tag("th", plain(name, 40), style=style) for name in self.columns))
        rows = [
            tag("tr", *(tag("td", cell, style=style) for cell in row))
            for row in self.cells()[-_MOST_ROWS:]
        ]
        table = tag("table", head, *rows, style="border-collapse:collapse;font-size:12px")
        return tag("div", table, "* best", style="overflow-x:auto;max-width:100%")

    @printable_repr
    def __repr__(self) -> str:
        return text_table(self.columns, self.cells()) if self.rows else "no epochs yet"

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": str(self.html())}


def _cell(name: str, row: dict[str, float], *, is_best: bool) -> str:
    if name not in row:
        return ""
    if name == "step":
        return format_count(int(row[name]))
    if name == "seconds":
        return format_seconds(row[name])
    return format_number(row[name], 4) + ("*" if is_best else "")


def epoch_table(history: History, beats: Sequence[tuple[float, int]] = ()) -> EpochTable:
    """Return one row per validation: means of the training series since the one before.

    Args:
        history: The logged series. Without a validation series there are ten rows of equal length.
        beats: Pairs of (seconds since 1970, step), which give the time of each row.
    """
    validation = [s for s in history if group_of(s.name)[1] != "train"]
    training = [s for s in history if group_of(s.name)[1] == "train"]
    if validation:
        ends = sorted({int(step) for series in validation for step in series.steps})
    else:
        last = max((int(s.steps[-1]) for s in training if len(s)), default=0)
        ends = sorted({math.ceil(last * k / _PARTS) for k in range(1, _PARTS + 1)} - {0})
    times = times_of(beats, [0, *ends])
    rows, begin = [], -1
    for k, end in enumerate(ends):
        row: dict[str, float] = {"step": end}
        if times is not None:
            row["seconds"] = float(times[k + 1] - times[k])
        for series in training:
            inside = series.values[(series.steps > begin) & (series.steps <= end)]
            if len(inside):
                row[series.name] = float(np.mean(inside, dtype=np.float64))
        for series in validation:
            at = np.flatnonzero(series.steps == end)
            if len(at):
                row[series.name] = float(series.values[at[-1]])
        rows.append(row)
        begin = end
    return EpochTable(rows)


def times_of(beats: Sequence[tuple[float, int]], steps: Any) -> Any:
    """Return the seconds since 1970 at which steps were made, None if fewer than two are known."""
    known = {step: seconds for seconds, step in beats}
    if len(known) < 2:
        return None
    at = sorted(known)
    return np.interp(steps, at, [known[step] for step in at])


def text_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return lines with columns of one width; columns of numbers to the right."""
    lines = [Line(tuple(map(printable, row))) for row in (head, *rows)]
    numeric = [k for k in range(len(head)) if all(map(_is_numeric, (row[k] for row in rows)))]
    return "\n".join(align(lines, frozenset(numeric), _WIDTH))


def _is_numeric(text: str) -> bool:
    return not text or text[0].isdigit() or text[0] in "-−"


def when(seconds: float) -> str:
    """Return a local time as `2026-11-23 14:05`."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))
