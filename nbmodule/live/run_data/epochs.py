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
_NUMERIC = "0123456789-−"
"""First characters of numbers."""
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
        return list(dict.fromkeys(["step", *(name for row in self.rows for name in row)]))

    @property
    def best(self) -> dict[str, int]:
        """For each series the row with its best value."""
        best = {}
        for name in [name for name in self.columns if name not in ("step", "seconds")]:
            sign = -1 if is_better_when_higher(name) else 1
            values = np.array([sign * row.get(name, math.nan) for row in self.rows])
            if not np.isnan(values).all():
                best[name] = int(np.nanargmin(values))
        return best

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
        cells = [[tag("td", cell, style=style) for cell in row] for row in self.cells()]
        rows = [tag("tr", *row) for row in cells[-_MOST_ROWS:]]
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
    curves = [(s.name, *s.since(0)) for s in history if len(s)]
    held = {name for name, *_ in curves if group_of(name)[1] != "train"}
    ends = sorted({int(step) for name, steps, _ in curves if name in held for step in steps})
    if not held:
        last = max((int(steps[-1]) for _, steps, _ in curves), default=0)
        ends = sorted({math.ceil(last * k / _PARTS) for k in range(1, _PARTS + 1)} - {0})
    times = times_of(beats, [0, *ends])
    rows = []
    for k, (begin, end) in enumerate(zip([-1, *ends], ends)):
        row: dict[str, float] = {"step": end}
        if times is not None:
            row["seconds"] = float(times[k + 1] - times[k])
        for name, steps, values in curves:
            inside = values[(steps > (end - 1 if name in held else begin)) & (steps <= end)]
            if len(inside):
                row[name] = float(inside[-1] if name in held else np.mean(inside, dtype=float))
        rows.append(row)
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
    numeric = [k for k in range(len(head)) if all(row[k][:1] in _NUMERIC for row in rows)]
    return "\n".join(align(lines, frozenset(numeric), _WIDTH))


def when(seconds: float) -> str:
    """Return a local time as `2026-11-23 14:05`."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))
