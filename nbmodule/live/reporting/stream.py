"""Messages to the pages of a run: their content, and their pace.

A message holds the changes since the last one, in the form of the record of the run. When there is
more than the connection takes, curves are reduced as for a drawing, so that a page that only sees
the stream shows the same extremes.

A message goes to all pages at once, so one count serves all; each page acknowledges what it has.
The fastest page sets the pace: with two unacknowledged messages nothing more is sent. A page that
stays silent for a while is taken to be asleep or gone and does not count; with no page awake
nothing is sent. Unsent changes are not stored: the next message is made from the history.
"""

from __future__ import annotations

import json
import time
from collections import deque
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
MOST_UNACKNOWLEDGED = 2
SILENT_AFTER = 5.0
"""Seconds without an answer after which a page no longer counts."""
_INTERVAL = 0.1
"""Least seconds between two messages."""
BYTES_PER_SECOND = 20_000
ENVELOPE = 900
"""Bytes of a message beside its content: headers, signature, routing."""
_MOST_PAGES = 50


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


# -- the pace --
class Sender:
    """Keeps the pace of the messages.

    Example:
        >>> sender = Sender()
        >>> sender.may_send(clock=0.0)
        False
        >>> sender.hello("page 1")
        >>> sender.may_send(clock=0.0)
        True
    """

    def __init__(self, *, bytes_per_second: float = BYTES_PER_SECOND) -> None:
        self.bytes_per_second = bytes_per_second
        self.sent = 0
        """Number of the last message."""
        self.pages: dict[str, int] = {}
        """The last message that each page acknowledged; a page is one view in a browser tab."""
        self._next = 0.0
        self._times: deque[float] = deque(maxlen=int(2 * SILENT_AFTER / _INTERVAL))
        """When the last messages were sent."""

    def hello(self, page: str) -> None:
        """Note a page that begins or restarts: it gets the whole run, and counts from now."""
        self.pages.pop(page, None)
        self.pages[page] = self.sent
        if len(self.pages) > _MOST_PAGES:
            del self.pages[next(iter(self.pages))]

    def acknowledge(self, page: str, number: int) -> None:
        """Note that a message has arrived at a page."""
        if page in self.pages:
            self.pages[page] = max(self.pages[page], min(number, self.sent))

    def leave(self, page: str) -> None:
        """Note that a page was closed."""
        self.pages.pop(page, None)

    def awake(self, clock: float) -> list[int]:
        """Return what the pages that answer have acknowledged."""
        recent = sum(clock - time < SILENT_AFTER for time in self._times)
        return [number for number in self.pages.values() if self.sent - number <= recent]

    def may_send(self, clock: float) -> bool:
        """Return True if a message may be sent now."""
        newest = max(self.awake(clock), default=None)
        is_free = newest is not None and self.sent - newest < MOST_UNACKNOWLEDGED
        return is_free and clock >= self._next

    def room(self, clock: float) -> int:
        """Return the bytes that a message sent now may hold beside its envelope."""
        since = clock - self._times[-1] if self._times else 1.0
        return int(self.bytes_per_second * min(max(since, _INTERVAL), 1.0)) - ENVELOPE

    def note_sent(self, size: int, clock: float) -> int:
        """Note that a message of `size` bytes is sent; return its number."""
        self._next = clock + max(_INTERVAL, (size + ENVELOPE) / self.bytes_per_second)
        self._times.append(clock)
        self.sent += 1
        return self.sent

    def rate(self, clock: float) -> float:
        """Return the recent rate in messages per second."""
        return sum(clock - time < 2.0 for time in self._times) / 2.0
