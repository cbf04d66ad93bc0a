"""What is new in a run since the last message, as one message: a little JSON and one buffer of
float32.

A cursor for each part says how far all pages are. When there is more than the line takes, curves
are reduced as for a drawing, so that a page that only sees the stream shows the same extremes.
"""

from __future__ import annotations

import json
import time
from typing import Any

import numpy as np

from nbmodule.base.format import plain
from nbmodule.base.series_names import group_of
from nbmodule.live.reporting.encode import base64_of, heights_of, to_float32
from nbmodule.live.reporting.record import (
    STRIP_ROWS,
    cost_of,
    describe_series,
    futures_of,
    progress_of,
    record_of,
    shelf_of,
)
from nbmodule.live.reporting.verdicts import RunFindings
from nbmodule.live.run.history import MOST_SERIES
from nbmodule.live.run.series import reduce_curve
from nbmodule.live.run.state import RunState

_LEAST_ROOM = 800
_MOST_SHELF_BYTES = 8_000


class Stream:
    """The messages of one run."""

    def __init__(self, run: RunState) -> None:
        self._run = run
        self._begun = time.monotonic()
        self._sent: dict[str, int] = {}
        self._strips: dict[str, tuple[int | None, tuple[str, ...]]] = {}
        self._versions: dict[str, Any] = {}

    def tick(self, room: int) -> tuple[dict[str, Any], list[bytes], int]:
        """Give what is new, as content, buffers and size in bytes; about as large as `room` if that
        suffices.
        """
        run = self._run
        parts: list[np.ndarray] = []
        content: dict[str, Any] = {
            "kind": "tick",
            "t": round(time.monotonic() - self._begun, 3),
            "progress": progress_of(run),
            "cost": cost_of(run),
        }
        content["strips"] = self._new_strips(parts)
        used = sum(part.nbytes for part in parts)
        content["series"] = self._new_points(max(room - used - _LEAST_ROOM, _LEAST_ROOM), parts)
        content |= self._changed()
        buffers = [np.concatenate(parts).astype("<f4", copy=False).tobytes()] if parts else []
        return content, buffers, len(json.dumps(content)) + sum(map(len, buffers))

    def snapshot(self, page: str) -> tuple[dict[str, Any], list[bytes], int]:
        """Give the whole run for one page; the cursors move to the end, so call `tick` for the
        others before.
        """
        self.skip()
        content = {"kind": "snapshot", "page": page, "t": round(time.monotonic() - self._begun, 3)}
        content["record"] = record_of(self._run)
        return content, [], len(json.dumps(content))

    def skip(self) -> None:
        """Take all there is as sent."""
        run = self._run
        self._sent = {series.name: len(series) for series in run.history}
        self._strips = {q: (_newest_step(s), s.paths) for q, s in run.watched.items() if len(s)}
        self._changed()

    def _new_points(self, room: int, parts: list[np.ndarray]) -> list[dict[str, Any]]:
        drawn = list(self._run.history)[:MOST_SERIES]
        pending = [s for s in drawn if len(s) > self._sent.get(s.name, 0)]
        columns = max(room // (8 * 2 * max(len(pending), 1)), 2)
        told = []
        for series in pending:
            start = self._sent.get(series.name, 0)
            curve = reduce_curve(series.since(start), columns)
            base = int(curve.steps[0])
            parts += [(curve.steps - base).astype(np.float32), to_float32(curve.values)]
            told.append(
                describe_series(series) | {"at": start, "count": len(curve.steps), "base": base}
            )
            self._sent[series.name] = start + len(series.since(start).steps)
        return told

    def _new_strips(self, parts: list[np.ndarray]) -> list[dict[str, Any]]:
        told = []
        for quantity, strips in self._run.watched.items():
            step, paths = self._strips.get(quantity, (None, ()))
            newest = _newest_step(strips)
            if newest is None or newest == step or strips.newest is None:
                continue
            values = strips.newest[:STRIP_ROWS]
            parts.append(to_float32(values).ravel())
            entry: dict[str, Any] = {
                "quantity": quantity,
                "step": newest,
                "shape": list(values.shape),
            }
            if strips.paths != paths:
                entry["paths"] = [plain(path) for path in strips.paths[:STRIP_ROWS]]
                entry["left"] = strips.left_out + max(len(strips.paths) - STRIP_ROWS, 0)
            bins = strips.newest_bins
            if bins is not None:
                entry["bins"] = base64_of(heights_of(bins[:STRIP_ROWS]), "u1")
            told.append(entry)
            self._strips[quantity] = (newest, strips.paths)
        return told

    def _changed(self) -> dict[str, Any]:
        """Give the parts that are sent whole, when they have changed."""
        run = self._run
        findings = [verdict.describe() for verdict in RunFindings(run).lately()]
        versions = {
            "controls": run.controls.version,
            "messages": run.messages.version,
            "route": run.route.kind,
            "about": tuple(run.notes()),
            "shelf": (
                run.history.shelf.version,
                sum(len(series) for series in run.history if group_of(series.name)[1] != "train"),
                str(run.verdicts),
            ),
            "earlier": len(run.shown_behind),
            "futures": tuple(map(id, run.futures)),
            "findings": str(findings),
        }
        new = {name for name, version in versions.items() if self._versions.get(name) != version}
        self._versions = versions
        told: dict[str, Any] = {}
        if "controls" in new:
            told["controls"] = run.controls.describe()
        if "messages" in new:
            told["messages"] = run.messages.describe()[-20:]
        if "route" in new:
            told["route"] = {"kind": run.route.kind, "text": run.route.text}
        if "about" in new:
            told["about"] = [plain(text, 300) for text in run.notes()]
        if "earlier" in new and not run.shown_behind:
            told["earlier"] = []
        if "findings" in new:
            told["findings"] = findings
        if "futures" in new:
            told["futures"] = futures_of(run)
        if "shelf" in new and (shelf := _small_shelf(run)):
            told["shelf"] = shelf
        return told


def _small_shelf(run: RunState) -> list[dict[str, Any]]:
    """Give the newest entry of each name, as many as a message should hold."""
    told, size = [], 0
    for item in shelf_of(run):
        item["entries"] = item["entries"][-1:]
        size += len(json.dumps(item))
        if told and size > _MOST_SHELF_BYTES:
            break
        told.append(item)
    return told


def _newest_step(strips: Any) -> int | None:
    return int(strips.steps[-1]) if len(strips) else None
