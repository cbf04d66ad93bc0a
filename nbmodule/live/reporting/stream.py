"""Changes of a run since the last message, in the form of its record.

A cursor for each part counts what all pages have. When there is more than the connection takes,
curves are reduced as for a drawing, so that a page that only sees the stream shows the same
extremes.
"""

from __future__ import annotations

import json
import time
from typing import Any

from nbmodule.base.format import group_of
from nbmodule.live.reporting.payload import (
    media_of,
    progress_of,
    record_of,
    series_of,
    small_parts_of,
    strips_of,
)
from nbmodule.live.run_data.history import MOST_SERIES
from nbmodule.live.run_data.state import RunState

_LEAST_ROOM = 800
_BYTES_OF_COLUMN = 32
"""Two points, of 12 bytes each in base64."""
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

    def tick(self, room: int) -> tuple[dict[str, Any], int]:
        """Return the changes and their size in bytes; about as large as `room` if that suffices."""
        content = {"kind": "tick", "t": self._clock(), **progress_of(self._run), **self._changed()}
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
        return {"kind": "snapshot", "page": page, "t": self._clock(), "record": record}

    def _clock(self) -> float:
        return round(time.monotonic() - self._begun, 3)

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
