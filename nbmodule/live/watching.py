"""Decides when the watchers of a run may measure, and keeps what they bring."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from nbmodule.live.cost import Pace
from nbmodule.live.watch import FIELDS, Sample, Strips, Watch, find_watches

if TYPE_CHECKING:
    from nbmodule.live.live import Live

_LEAST, _MOST = 0.25, 60.0
"""Seconds between two measurements."""
_BAD = FIELDS.index("nonfinite")


class Watching:
    """The watchers of one run.

    A measurement spans three boundaries: it is asked for, made by the step that follows, and weighed on the one after
    that, whose length beyond a plain step counts as its cost.
    """

    def __init__(self, live: Live, returns: str | None) -> None:
        self._live, self._level = live, returns
        self.strips: dict[str, Strips] = {}
        self._watches: list[Watch] | None = None
        self._pace = Pace(live.budget / 2, least=_LEAST, most=_MOST)
        self._next = 0.0
        self._phase = 0
        self._mark = self._plain = self._host = 0.0

    def add_control(self) -> None:
        """Let the reader switch watching off and on."""
        if self._level is not None and self._live.model is not None:
            self._live.controls.field("watch", "on", self._set_level, choices=("on", "off"))

    def switch_off(self) -> None:
        """Measure no more."""
        self._set_level("off")

    def look(self, now: float, done: int) -> None:
        """Take what was measured, and ask for the next if it is time; called at boundaries."""
        for sample in self._live.recorded(done):
            self._keep(sample)
        if self._level is None:
            return
        begun = time.perf_counter()
        if self._watches is None:
            self._watches = find_watches(self._live.model, self._level)
        for watch in self._watches:
            for sample in watch.take(done):
                self._keep(sample)
        if self._phase == 0 and now >= self._next and self._watches and done:
            for watch in self._watches:
                watch.request(done)
            self._phase = 1
            self._live.look_soon()
        elif self._phase:
            self._weigh(begun)
        ended = time.perf_counter()
        self._host = self._host + ended - begun if self._phase > 1 else ended - begun
        self._mark = ended

    def _weigh(self, begun: float) -> None:
        """Compare the step that was made beside the measurement with the one before it."""
        since = begun - self._mark
        if self._phase == 1:
            self._plain, self._phase = since, 2
            self._live.look_soon()
            return
        self._phase = 0
        slower = max(since - self._plain, 0.0)
        self._live.note_cost(slower)
        self._pace.note(self._host + slower)
        self._next = time.monotonic() + self._pace.interval

    def notes(self) -> list[str]:
        """What the watchers have to say of themselves."""
        return [watch.about for watch in self._watches or () if watch.about]

    def picture(self, path: str) -> Any:
        """The first picture that a watcher has of a submodule."""
        found = (watch.picture(path) for watch in self._watches or ())
        return next((picture for picture in found if picture is not None), None)

    def close(self) -> None:
        """Let go of the model."""
        for watch in self._watches or ():
            watch.close()
        self._watches, self._level = [], None

    def _set_level(self, level: str) -> None:
        if level == "off":
            for watch in self._watches or ():
                watch.close()
            self._watches, self._level, self._phase = None, None, 0
        else:
            self._level, self._next = "stats", 0.0

    def _keep(self, sample: Sample) -> None:
        strips = self.strips.setdefault(sample.quantity, Strips(sample.quantity))
        strips.add(sample)
        values = np.asarray(sample.values)
        if values.shape[-1] != len(FIELDS):
            return
        bad = [i for i in np.flatnonzero(values[:, _BAD] > 0) if i < len(sample.paths)]
        if bad and sample.quantity in ("weight", "return"):
            path = max((sample.paths[i] for i in bad[:1]), key=len) or "the model"
            count = int(values[bad[0], _BAD])
            self._live.alarm(f"{sample.quantity}s", f"{count:,} {sample.quantity}s of {path} are not finite")
