"""Changes of a run since the last message, as one message: a little JSON and one buffer of float32.

A cursor for each part counts what all pages have. When there is more than the connection takes,
curves are reduced as for a drawing, so that a page that only sees the stream shows the same
extremes.
"""

from __future__ import annotations

import json
import time
from typing import Any

import numpy as np

from nbmodule.base.curves import reduce_curve
from nbmodule.base.format import group_of, plain
from nbmodule.live.reporting.payload import (
    STRIP_ROWS,
    base64_of,
    describe_series,
    heights_of,
    media_of,
    progress_of,
    record_of,
    small_parts_of,
    to_float32,
)
from nbmodule.live.run_data.history import MOST_SERIES
from nbmodule.live.run_data.state import RunState

_LEAST_ROOM = 800
_MOST_MEDIA_BYTES = 8_000
_MOST_MESSAGES = 20


class Stream:
    """The messages of one run."""

    def __init__(self, run: RunState) -> None:
        self._run = run
        self._begun = time.monotonic()
        self._sent: dict[str, int] = {}
        self._strips: dict[str, tuple[int | None, tuple[str, ...]]] = {}
        self._parts: dict[str, Any] = {}
        """The parts that pages have; of messages and media their versions."""

    def tick(self, room: int) -> tuple[dict[str, Any], list[bytes], int]:
        """Return the changes as content, buffers and size in bytes; about as large as `room` if
        that suffices.
        """
        parts: list[np.ndarray] = []
        content: dict[str, Any] = {"kind": "tick", "t": self._clock(), **progress_of(self._run)}
        content["strips"] = self._new_strips(parts)
        used = sum(part.nbytes for part in parts)
        content["series"] = self._new_points(max(room - used - _LEAST_ROOM, _LEAST_ROOM), parts)
        content |= self._changed()
        buffers = [np.concatenate(parts).astype("<f4", copy=False).tobytes()] if parts else []
        return content, buffers, len(json.dumps(content)) + sum(map(len, buffers))

    def snapshot(self, page: str) -> dict[str, Any]:
        """Return the whole run for one page; the cursors move to the end, so call `tick` for the
        others before.
        """
        self._sent.clear()  # a rewind has cut series
        self.tick(0)
        record = record_of(self._run)
        return {"kind": "snapshot", "page": page, "t": self._clock(), "record": record}

    def _clock(self) -> float:
        return round(time.monotonic() - self._begun, 3)

    def _new_points(self, room: int, parts: list[np.ndarray]) -> list[dict[str, Any]]:
        drawn = list(self._run.history)[:MOST_SERIES]
        pending = [s for s in drawn if len(s) > self._sent.get(s.name, 0)]
        columns = max(room // (8 * 2 * max(len(pending), 1)), 2)
        entries = []
        for series in pending:
            start = self._sent.get(series.name, 0)
            points = series.since(start)
            curve = reduce_curve(points, columns)
            base = int(curve.steps[0])
            parts += [(curve.steps - base).astype(np.float32), to_float32(curve.values)]
            counts = {"at": start, "count": len(curve.steps), "base": base}
            entries.append(describe_series(series) | counts)
            self._sent[series.name] = start + len(points.steps)
        return entries

    def _new_strips(self, parts: list[np.ndarray]) -> list[dict[str, Any]]:
        entries = []
        for quantity, strips in self._run.watched.items():
            step, paths = self._strips.get(quantity, (None, ()))
            if strips.newest is None or strips.last_step == step:
                continue
            values = strips.newest[:STRIP_ROWS]
            parts.append(to_float32(values).ravel())
            entry: dict[str, Any] = {"quantity": quantity, "step": strips.last_step}
            entry["shape"] = list(values.shape)
            if strips.paths != paths:
                entry["paths"] = [plain(path) for path in strips.paths[:STRIP_ROWS]]
                entry["left"] = strips.left_out + max(len(strips.paths) - STRIP_ROWS, 0)
            bins = strips.newest_bins
            if bins is not None:
                entry["bins"] = base64_of(heights_of(bins[:STRIP_ROWS]), "u1")
            entries.append(entry)
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
            parts["media"] = _small_media(run)
        return {name: part for name, part in parts.items() if name in changed}


def _small_media(run: RunState) -> list[dict[str, Any]]:
    """Return the newest entry of each name, as many as a message should hold."""
    items, size = [], 0
    for item in media_of(run):
        item["entries"] = item["entries"][-1:]
        size += len(json.dumps(item))
        if items and size > _MOST_MEDIA_BYTES:
            break
        items.append(item)
    return items
