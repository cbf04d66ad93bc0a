"""The data of a run that a page draws: the whole for the saved output and for a page that opens
late, and changes for the pages that have the rest.

`views/frontend/live.js` draws it. Curves are reduced so that a view stays below 250 KB however long
the run was; the history keeps every point. Arrays travel as bytes in base64, numbers that are not
finite as text. When there is more than the connection takes, curves are reduced as for a drawing,
so that a page that only sees the changes shows the same extremes.
"""

from __future__ import annotations

import base64
import json
import math
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nbmodule.base.curves import Curve, reduce_curve
from nbmodule.base.format import format_count, format_number, group_of, plain
from nbmodule.live.diagnosis.rule import RuleVerdict
from nbmodule.live.reporting.verdicts import findings_of, recent_verdicts, verdicts_of
from nbmodule.live.run_data.epochs import epoch_table, text_table
from nbmodule.live.run_data.history import MOST_SERIES, MediaItem, json_number
from nbmodule.live.run_data.media import html_of_logged
from nbmodule.live.run_data.series import Series
from nbmodule.live.run_data.state import RunState
from nbmodule.live.run_data.strips import FIELDS, Strips
from nbmodule.views.arrays.pictures import picture_of
from nbmodule.views.records.records import HistoryRecord, SeriesRecord
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
MEDIA_ENTRIES = 8
MEDIA_BYTES = 150_000
"""Bytes of logged texts, arrays and pictures in one saved view."""
_LEAST_ROOM = 800
_BYTES_OF_COLUMN = 32
"""Two points, of 12 bytes each in base64."""
_MOST_MEDIA_BYTES = 8_000
"""The same in one message of changes."""
_MOST_MESSAGES = 20
_TEXT_POINTS = 2000
_TEXT_ROWS = 12
_MOST_EPOCH_LINES = 30


def base64_of(array: ArrayLike, dtype: str) -> str:
    """Return the bytes of an array, little-endian, in base64.

    Example:
        >>> base64_of([1.0], "f4")
        'AACAPw=='
    """
    values = np.ascontiguousarray(array, np.dtype(dtype).newbyteorder("<"))
    return base64.b64encode(values.tobytes()).decode()


def points_of(curve: Curve) -> dict[str, str]:
    """Return a curve as base64: `s` are the steps (float64, exact up to 2^53), `v` the values
    (float32).
    """
    return {"s": base64_of(curve.steps, "f8"), "v": base64_of(to_float32(curve.values), "f4")}


def to_float32(values: NDArray[Any]) -> NDArray[np.float32]:
    """Round to float32; values that are too large become infinite without a warning."""
    with np.errstate(over="ignore"):
        return values.astype(np.float32)


def heights_of(bins: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Scale counts of a histogram to 0 ... 255 of its highest; unknown counts become 0."""
    top = np.nan_to_num(bins, nan=0.0).max(axis=-1, keepdims=True)
    return np.nan_to_num(255 * bins / np.maximum(top, 1e-30), nan=0.0).round().astype(np.uint8)


def record_of(run: RunState) -> dict[str, Any]:
    """Return all that a page needs to draw a run."""
    verdicts_of(run)
    drawn = list(run.history)[:MOST_SERIES]
    columns = max(_LEAST_COLUMNS, min(MOST_COLUMNS, _ALL_POINTS // (2 * max(len(drawn), 1))))
    return {
        "view": "live",
        "title": [plain(run.name)],
        "run": run.run_id,
        "series": [series_of(series, columns) for series in drawn],
        "strips": {
            quantity: strips_of(strips) for quantity, strips in run.watched.items() if len(strips)
        },
        "messages": run.messages.describe(),
        "media": media_of(run, MEDIA_BYTES),
        **small_parts_of(run),
        **progress_of(run),
    }


def small_parts_of(run: RunState) -> dict[str, Any]:
    """Return the parts of a record that are sent whole when they have changed."""
    return {
        "controls": run.controls.describe(),
        "route": {"kind": run.route.kind, "text": run.route.text},
        "about": [plain(text, 300) for text in run.notes()],
        "findings": [_described(verdict) for verdict in recent_verdicts(run)],
        "earlier": [{"ended": plain(p.label), "series": _curves_of(p.curves)} for p in run.earlier],
        "branches": [
            {"label": plain(b.label), "note": plain(b.note), "series": _curves_of(b.curves)}
            for b in run.branches
        ],
    }


def _described(verdict: RuleVerdict) -> list[Any]:
    """Return severity, text, step, part of the view, path and button, as the page reads them."""
    part = "steps" if verdict.step is not None else "modules" if verdict.path else None
    button = verdict.button and {"label": verdict.button.label, "message": verdict.button.message}
    text, path = plain(verdict.text, 300), plain(verdict.path)
    return [verdict.severity, text, verdict.step, part, path, button]


def _curves_of(curves: dict[str, Curve]) -> list[dict[str, Any]]:
    return [{"name": plain(name), **points_of(curve)} for name, curve in curves.items()]


def progress_of(run: RunState) -> dict[str, Any]:
    """Return progress and cost, which change all the time: state, whether more will come, the share
    of time not spent on training, the pace, and the bytes of kept steps.
    """
    progress, reason = run.count.progress, run.why_not_repeatable
    fields = asdict(progress) | {
        "step": run.count.step,
        "ended": run.count.has_ended,
        "reason": plain(progress.reason, 300),
        # shown if the page never gets another message
        "seen": None if run.count.has_ended else int(time.time()),
    }
    numbers = {n: json_number(v) if isinstance(v, float) else v for n, v in fields.items()}
    cost = {
        "share": round(run.cost.fraction(), 5),
        "budget": run.budget,
        "rate": round(run.updates_per_second, 2),
        "kept": 0 if reason else run.kept_bytes,
        "why": plain(reason, 300),
    }
    return {"progress": numbers, "cost": cost}


def series_of(series: Series, columns: int, start: int = 0) -> dict[str, Any]:
    """Return a series with its points from a position on, reduced to a drawing."""
    points, best = series.since(start), series.best
    group, role = group_of(series.name)
    return {
        "name": plain(series.name),
        "group": plain(group),
        "role": role,
        "n": start + len(points.steps),
        "last": json_number(series.last),
        "best": best and [best[0], json_number(best[1])],
        **points_of(reduce_curve(points, columns)),
    }


def strips_of(strips: Strips, most: int = _STRIP_SAMPLES) -> dict[str, Any]:
    """Return the statistics per submodule over the steps, sampled evenly, the newest included.

    Args:
        strips: The statistics.
        most: Number of samples; a single one has no histograms over the steps.
    """
    count = len(strips)
    samples = np.unique(np.linspace(count - 1, 0, min(most, count)).round().astype(int))
    first = int(samples[0])
    paths = strips.paths[:STRIP_ROWS]
    values = strips.recent(count - first)[samples - first, : len(paths)]
    newest = strips.newest_bins
    out = {
        "paths": list(map(plain, paths)),
        "fields": list(FIELDS) if values.shape[-1] == len(FIELDS) else ["ratio"],
        "steps": base64_of(strips.steps[samples], "f8"),
        "values": base64_of(to_float32(values), "f4"),
        "left": strips.left_out + len(strips.paths) - len(paths),
    }
    if newest is not None:
        out["bins"] = base64_of(heights_of(newest[: len(paths)]), "u1")
    if newest is not None and most > 1:
        out["over"] = {
            plain(path): bins_over_steps(strips, path, samples) for path in paths[:_DETAIL_ROWS]
        }
    return out


def bins_over_steps(strips: Strips, path: str, samples: Any = slice(None)) -> str:
    """Return the histograms of one submodule over the samples, each scaled to its highest bin."""
    return base64_of(heights_of(strips.bins(path)[samples]), "u1")


def detail_of(run: RunState, path: str, quantity: str) -> dict[str, Any]:
    """Return the histograms of one submodule over the steps, and a picture of it."""
    detail: dict[str, Any] = {"path": plain(path), "quantity": quantity}
    strips = run.watched.get(quantity)
    if strips is not None and path in strips.paths:
        values = strips.values[:, strips.paths.index(path)]
        detail |= {
            "steps": base64_of(strips.steps, "f8"),
            "over": bins_over_steps(strips, path),
            "range": base64_of(values[:, 2:4] if values.shape[-1] > 3 else values, "f4"),
        }
    array = run.picture(path, quantity)
    if array is not None:
        picture = picture_of(array, side=48, weights=quantity == "weight")
        detail["picture"] = picture_payload(picture)
    return detail


def media_of(run: RunState, room: int) -> list[dict[str, Any]]:
    """Return verdicts with their evidence, the table per epoch, and of each name the newest texts,
    arrays and pictures: as many as there is room for in bytes, one at least.
    """
    media = run.history.media
    tables = {
        "what is wrong": run.verdicts and run.verdicts.html(),
        "epochs": has_validation(run) and epoch_table(run.history).html(),
    }
    drawn = [
        (name, 1, [{"step": run.count.step, "html": str(html)}])
        for name, html in tables.items()
        if html
    ]
    each = room // max(len(media), 1)
    drawn += [(plain(n), len(items), _newest_entries(items, each)) for n, items in media.items()]
    return [{"name": name, "n": count, "entries": entries} for name, count, entries in drawn]


def has_validation(run: RunState) -> bool:
    """Return True if a validation series was logged, so that there is a table per epoch."""
    return any(group_of(name)[1] != "train" for name in run.history.names)


def _newest_entries(entries: Sequence[MediaItem], room: int) -> list[dict[str, Any]]:
    """Return the newest entries for which there is room, one at least."""
    kept: list[dict[str, Any]] = []
    for entry in reversed(entries[-MEDIA_ENTRIES:]):
        kept.insert(0, {"step": entry.step, "html": str(html_of_logged(entry.value))})
        room -= len(str(kept[0]))
        if room < 0:
            break
    return kept


# -- changes --


class Stream:
    """The messages of one run."""

    def __init__(self, run: RunState) -> None:
        self._run = run
        self._sent: dict[str, int] = {}
        self._strips: dict[str, tuple[int | None, tuple[str, ...]]] = {}
        self._parts: dict[str, Any] = {}
        """The parts that pages have; of messages and media their versions."""

    def tick(self, room: int) -> tuple[dict[str, Any], int]:
        """Return the changes and their size in bytes; about as large as `room` if that suffices."""
        content = {"kind": "tick", "t": time.monotonic(), **progress_of(self._run)}
        content |= self._changed()
        content["strips"] = self._new_strips()
        used = len(json.dumps(content))
        content["series"] = self._new_points(max(room - used, _LEAST_ROOM))
        return content, used + len(json.dumps(content["series"]))

    def snapshot(self, page: str) -> dict[str, Any]:
        """Return the whole run for one page; the cursors move to the end, so call `tick` for the
        others before.
        """
        self._sent.clear()  # a rewind has cut series
        self.tick(0)
        record = record_of(self._run)
        return {"kind": "snapshot", "page": page, "t": time.monotonic(), "record": record}

    def _new_points(self, room: int) -> list[dict[str, Any]]:
        drawn = list(self._run.history)[:MOST_SERIES]
        starts = [(series, self._sent.get(series.name, 0)) for series in drawn]
        pending = [(series, start) for series, start in starts if len(series) > start]
        columns = max(room // (_BYTES_OF_COLUMN * max(len(pending), 1)), 2)
        entries = [series_of(series, columns, start) for series, start in pending]
        self._sent |= {series.name: entry["n"] for (series, _), entry in zip(pending, entries)}
        return entries

    def _new_strips(self) -> dict[str, Any]:
        """Return the newest sample of each quantity, its paths where pages have others."""
        entries = {}
        for quantity, strips in self._run.watched.items():
            step, paths = self._strips.get(quantity, (None, ()))
            if len(strips) and strips.last_step != step:
                entries[quantity] = strips_of(strips, 1)
                if strips.paths == paths:
                    del entries[quantity]["paths"]
                self._strips[quantity] = (strips.last_step, strips.paths)
        return entries

    def _changed(self) -> dict[str, Any]:
        """Return the parts that are sent whole, if they have changed."""
        run = self._run
        parts = small_parts_of(run)
        logged = sum(len(s) for s in run.history if group_of(s.name)[1] != "train")
        media = (run.history.media.version, logged, str(run.verdicts))
        states = {**parts, "messages": run.messages.version, "media": media}
        before, self._parts = self._parts, states
        changed = {name for name, state in states.items() if before.get(name) != state}
        if "messages" in changed:
            parts["messages"] = run.messages.describe()[-_MOST_MESSAGES:]
        if "media" in changed:
            parts["media"] = media_of(run, _MOST_MEDIA_BYTES)
        return {name: part for name, part in parts.items() if name in changed}


# -- text and plain HTML --


def series_record(name: str, curve: Curve, columns: int, unit: str = "") -> SeriesRecord:
    """Return a curve as the record that text and HTML are made from, reduced."""
    steps, values = reduce_curve(curve, columns)
    return SeriesRecord(plain(name), tuple(steps.tolist()), tuple(values.tolist()), unit)


def history_record(run: RunState) -> HistoryRecord:
    """Return the run as the record that text and plain HTML are made from."""
    drawn = list(run.history)[:MOST_SERIES]
    columns = _TEXT_POINTS // max(2 * len(drawn), 2)
    series = (series_record(series.name, series.since(0), columns) for series in drawn)
    errors = [plain(message.text, 300) for message in run.messages if message.kind != "note"]
    more = {"notes": tuple(errors[-3:]), "findings": findings_of(run)}
    return HistoryRecord(plain(run.name), tuple(series), str(run.count.progress), **more)


def plain_form(run: RunState) -> Markup:
    """Return the run as HTML that needs no script."""
    form = plain_form_of(history_record(run))
    table = "\n".join(_strip_lines(run))
    return tag("div", form, tag("pre", table, style="font:12px/1.45 monospace")) if table else form


def text_form(run: RunState) -> str:
    """Return the run as text."""
    hidden = len(run.history) - MOST_SERIES
    more = [f"… {hidden:,} more series: live.history"] if hidden > 0 else []
    if has_validation(run):
        more += repr(epoch_table(run.history)).splitlines()[:_MOST_EPOCH_LINES]
    return "\n".join([text_of(history_record(run), color=False), *more, *_strip_lines(run)])


def _strip_lines(run: RunState) -> list[str]:
    """Return the newest statistics of the submodules, one line each, the worst first."""
    strips = run.watched.get("weight")
    newest = None if strips is None else strips.newest
    if strips is None or newest is None:
        return []
    rows = []
    for row in np.argsort(-np.nan_to_num(newest[:, 4]), kind="stable")[:_TEXT_ROWS]:
        mean, std, _, _, bad, _ = newest[row].tolist()
        figures = f"{format_number(mean, 3)} ± {format_number(std, 3)}"
        figures += f"  <- non-finite {bad:,.0f}" if bad else ""
        rows.append([strips.paths[row] or "model", "—" if math.isnan(bad) else figures])
    head = ("module", f"weight @{format_count(strips.last_step or 0)}")
    return text_table(head, rows).splitlines()
