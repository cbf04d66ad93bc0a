"""A whole run as what a page reads: for the saved output, for a page that opens late, for one that
was reloaded.

`views/frontend/live.js` draws it. Curves are reduced so that a view stays below 250 KB however long
the run was; the history keeps every point.
"""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nbmodule.base.format import format_count, format_number, plain
from nbmodule.base.series_names import group_of
from nbmodule.live.reporting.encode import base64_of, heights_of, json_number, points_of, to_float32
from nbmodule.live.reporting.verdicts import RunFindings
from nbmodule.live.run.epochs import epoch_table
from nbmodule.live.run.history import MOST_SERIES
from nbmodule.live.run.series import Series, reduce_curve
from nbmodule.live.run.shelf import ShelfItem
from nbmodule.live.run.state import RunState
from nbmodule.live.run.watch import FIELDS, Strips
from nbmodule.views.arrays.pictures import picture_of
from nbmodule.views.records.records import HistoryRecord as HistoryRecord
from nbmodule.views.records.records import SeriesRecord as SeriesRecord
from nbmodule.views.renderers.columns import picture_payload
from nbmodule.views.renderers.html import Markup, tag
from nbmodule.views.renderers.plain_text import text_of
from nbmodule.views.renderers.static import plain_form_of

MOST_COLUMNS = 400
"""Detail across one curve."""
_ALL_POINTS = 16_000
_LEAST_COLUMNS = 40
_STRIP_SAMPLES = 64
STRIP_ROWS = 60
"""Rows of submodules that are sent; the others stay in `live.watched`."""
_DETAIL_ROWS = 12
SHELF_ENTRIES = 8
_PICTURE_SIDE = 96
_TEXT_POINTS = 2000
_MOST_EPOCH_LINES = 30


def record_of(run: RunState) -> dict[str, Any]:
    """Give all that a page needs to draw a run."""
    findings = [finding.describe() for finding in RunFindings(run).now()]
    drawn = list(run.history)[:MOST_SERIES]
    columns = max(_LEAST_COLUMNS, min(MOST_COLUMNS, _ALL_POINTS // (2 * max(len(drawn), 1))))
    earlier = [
        {
            "ended": plain(past.ended),
            "series": [{"name": plain(n), **points_of(c)} for n, c in past.curves.items()],
        }
        for past in run.shown_behind
    ]
    return {
        "view": "live",
        "title": [plain(run.name)],
        "run": run.run_id,
        "progress": progress_of(run),
        "series": [
            describe_series(series) | points_of(reduce_curve(series.since(0), columns))
            for series in drawn
        ],
        "earlier": earlier,
        "strips": {
            quantity: strips_of(strips) for quantity, strips in run.watched.items() if len(strips)
        },
        "controls": run.controls.describe(),
        "route": {"kind": run.route.kind, "text": run.route.text},
        "cost": cost_of(run),
        "messages": run.messages.describe(),
        "shelf": shelf_of(run),
        "about": [plain(text, 300) for text in run.notes()],
        "futures": futures_of(run),
        "findings": findings,
    }


def futures_of(run: RunState) -> list[dict[str, Any]]:
    """Give what would follow from here, drawn ahead of the curves."""
    return [
        {
            "label": plain(future.label),
            "note": plain(future.note),
            "series": [
                {"name": plain(name), **points_of(curve)} for name, curve in future.curves.items()
            ],
        }
        for future in run.futures
    ]


def progress_of(run: RunState) -> dict[str, Any]:
    """Give state and progress; `ended` tells whether more will come."""
    progress = run.progress
    fields = progress.describe() | {
        "step": run.step,
        "ended": run.has_ended,
        "reason": plain(progress.reason, 300),
    }
    fields["seen"] = (
        None if run.has_ended else int(time.time())
    )  # should it never be heard of again
    return {
        name: json_number(value) if isinstance(value, float) else value
        for name, value in fields.items()
    }


def cost_of(run: RunState) -> dict[str, Any]:
    """Give the measured share of time spent beside the training, the pace, and the bytes that are
    kept of the steps.
    """
    return {
        "share": round(run.cost.fraction(), 5),
        "budget": run.budget,
        "rate": round(run.updates_per_second, 2),
        "kept": 0 if run.why_not_repeatable else run.kept_bytes,
        "why": plain(run.why_not_repeatable, 300),
    }


def describe_series(series: Series) -> dict[str, Any]:
    """Give what is known of a series beside its points."""
    best = series.best
    group, role = group_of(series.name)
    return {
        "name": plain(series.name),
        "group": plain(group),
        "role": role,
        "n": len(series),
        "last": json_number(series.last),
        "best": best and [best[0], json_number(best[1])],
    }


def strips_of(strips: Strips) -> dict[str, Any]:
    """Give the statistics per submodule over the steps, thinned evenly, the newest included."""
    count = len(strips)
    kept = np.unique(np.linspace(count - 1, 0, min(_STRIP_SAMPLES, count)).round().astype(int))
    rows = list(range(min(len(strips.paths), STRIP_ROWS)))
    values = strips.values[kept][:, rows]
    newest = strips.newest_bins
    out = {
        "paths": [plain(strips.paths[row]) for row in rows],
        "fields": list(FIELDS) if values.shape[-1] == len(FIELDS) else ["ratio"],
        "steps": base64_of(strips.steps[kept], "f8"),
        "values": base64_of(to_float32(values), "f4"),
        "left": strips.left_out + len(strips.paths) - len(rows),
    }
    if newest is not None:
        out["bins"] = base64_of(heights_of(newest[rows]), "u1")
        over = {
            plain(strips.paths[row]): bins_over_steps(strips, strips.paths[row], kept)
            for row in rows[:_DETAIL_ROWS]
        }
        out["over"] = over
    return out


def bins_over_steps(strips: Strips, path: str, kept: Any = slice(None)) -> str:
    """Give the histograms of one submodule over the samples, each scaled to its highest bin."""
    return base64_of(heights_of(strips.bins(path)[kept]), "u1")


def shelf_of(run: RunState) -> list[dict[str, Any]]:
    """Give verdicts with their evidence, the table per epoch, and the newest texts, arrays and
    pictures of each name.
    """
    shelf = run.history.shelf
    tables = {}
    if run.verdicts:
        tables["what is wrong"] = run.verdicts.html()
    if has_validation(run):
        tables["epochs"] = epoch_table(run.history).html()
    return [
        {"name": name, "n": 1, "entries": [{"step": run.step, "kind": "media", "html": str(html)}]}
        for name, html in tables.items()
    ] + [
        {
            "name": plain(name),
            "n": len(shelf[name]),
            "entries": [entry_of(e) for e in shelf[name][-SHELF_ENTRIES:]],
        }
        for name in shelf
    ]


def has_validation(run: RunState) -> bool:
    """Return True if a series of validation was logged, so that a table per epoch says something."""
    return any(group_of(name)[1] != "train" for name in run.history.names)


def entry_of(entry: ShelfItem) -> dict[str, Any]:
    """Give one logged text, array or picture, small enough to send."""
    if entry.kind == "text":
        lines = [plain(line, 400) for line in entry.value.splitlines()[:40]]
        return {"step": entry.step, "kind": "text", "text": "\n".join(lines)}
    if entry.kind == "array":
        return {
            "step": entry.step,
            "kind": "array",
            "picture": picture_payload(picture_of(entry.value, side=48)),
        }
    if entry.kind == "media":
        return {"step": entry.step, "kind": "media", "html": str(entry.value.html())}
    pixels = entry.value
    stride = max(1, -(-max(pixels.shape[:2]) // _PICTURE_SIDE))
    small = pixels[::stride, ::stride]
    return {
        "step": entry.step,
        "kind": "picture",
        "size": list(small.shape[:2]),
        "rgb": base64_of(small, "u1"),
    }


def history_record(run: RunState) -> HistoryRecord:
    """Give the run as the record that text and plain HTML are made from."""
    series = []
    drawn = list(run.history)[:MOST_SERIES]
    for one in drawn:
        curve = reduce_curve(one.since(0), _TEXT_POINTS // max(2 * len(drawn), 2))
        series.append(
            SeriesRecord(one.name, tuple(curve.steps.tolist()), tuple(curve.values.tolist()))
        )
    errors = [m.text for m in run.messages if m.kind != "note"][-3:]
    return HistoryRecord(
        plain(run.name),
        tuple(series),
        str(run.progress),
        notes=tuple(plain(e, 300) for e in errors),
        findings=tuple(each.finding for each in RunFindings(run).now()),
    )


def plain_form(run: RunState) -> Markup:
    """Give the run as HTML that needs no script."""
    form = plain_form_of(history_record(run))
    table = "\n".join(strip_lines(run))
    return tag("div", form, tag("pre", table, style="font:12px/1.45 monospace")) if table else form


def text_form(run: RunState) -> str:
    """Give the run as text."""
    more = len(run.history) - MOST_SERIES
    said = [f"… {more:,} more series: live.history"] if more > 0 else []
    if has_validation(run):
        said += repr(epoch_table(run.history)).splitlines()[:_MOST_EPOCH_LINES]
    return "\n".join([text_of(history_record(run), color=False), *said, *strip_lines(run)])


def strip_lines(run: RunState, most: int = 12) -> list[str]:
    """Give the newest statistics of the submodules, one line each, those that are wrong first."""
    strips = run.watched.get("weight")
    newest = None if strips is None else strips.newest
    if strips is None or newest is None:
        return []
    order = sorted(range(len(strips.paths)), key=lambda row: -np.nan_to_num(newest[row, 4]))[:most]
    names = {row: plain(strips.paths[row]) or "model" for row in order}
    width = max(len("module"), *map(len, names.values()))
    head = f"{'module':<{width}}  weight @{format_count(int(strips.steps[-1]))}"
    return [head, *(f"{names[row]:<{width}}  {_figures(newest[row])}" for row in order)]


def _figures(row: NDArray[np.float32]) -> str:
    """Write mean, deviation and what is not finite; a row that was not measured is all NaN, its
    counts as well.
    """
    mean, std, _, _, bad, _ = row.tolist()
    if math.isnan(bad):
        return "—"
    return f"{format_number(mean, 3)} ± {format_number(std, 3)}" + (
        f"  <- non-finite {bad:,.0f}" if bad else ""
    )
