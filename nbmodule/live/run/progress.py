"""Count the steps of a loop: how many are done, how fast, how long the rest will take."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import Any

from nbmodule.base.format import format_count, format_number, format_seconds, printable_repr

WINDOW = 5.0
"""Seconds over which the rate is measured."""
SETTLED = 0.2
"""Seconds before the rate is known: at first a loop runs ahead of its device."""
ENDED = frozenset({"done", "stopped", "interrupted", "failed"})


@dataclass(frozen=True)
class Progress:
    """The state of a loop: `done` of `total` steps (None: unknown), epochs counted from 1, `rate`
    in steps per second.
    """

    state: str = "waiting"
    done: int = 0
    total: int | None = None
    epoch: int = 0
    epochs: int = 1
    rate: float | None = None
    remaining: float | None = None
    elapsed: float = 0.0
    reason: str = ""
    """Why it stopped or failed, in one line."""

    def describe(self) -> dict[str, Any]:
        """Return the fields as a plain dict."""
        return dict(self.__dict__)

    @printable_repr
    def __str__(self) -> str:
        parts = [self.state + (f" ({self.reason})" if self.reason else "")]
        if self.epochs > 1:
            parts.append(f"epoch {self.epoch}/{self.epochs}")
        total = f"/{format_count(self.total)}" if self.total else ""
        parts.append(f"step {format_count(self.done)}{total}")
        if self.rate:
            parts.append(f"{format_number(self.rate, 3)}/s")
        if self.remaining is not None and self.state == "running":
            parts.append(f"{format_seconds(self.remaining)} left")
        return " · ".join(parts)


class Meter:
    """Measures progress over a sliding window; time spent in a pause does not count.

    Example:
        >>> meter = Meter(total=100, clock=0.0)
        >>> for second in range(1, 5):
        ...     meter.update(done=10 * second, clock=float(second))
        >>> meter.rate, meter.remaining
        (10.0, 6.0)
    """

    def __init__(self, total: int | None, clock: float) -> None:
        self.total = total
        self.done = 0
        self.started = clock
        self._paused_since: float | None = None
        self._pauses = 0.0
        self._marks: deque[tuple[float, int]] = deque([(clock, 0)])

    def update(self, done: int, clock: float) -> None:
        """Note the number of steps that are done."""
        self.done = done
        clock -= self._pauses
        self._marks.append((clock, done))
        while len(self._marks) > 2 and clock - self._marks[1][0] > WINDOW:
            self._marks.popleft()

    def skip_first(self, clock: float) -> None:
        """Leave the first step out of the rate, because it compiles."""
        self._marks.clear()
        self._marks.append((clock - self._pauses, self.done))

    def go_back(self, done: int, clock: float) -> None:
        """Count from fewer steps, and measure the rate anew."""
        self.done = done
        self.skip_first(clock)

    def pause(self, clock: float) -> None:
        """Stop the clock."""
        if self._paused_since is None:
            self._paused_since = clock

    def resume(self, clock: float) -> None:
        """Continue the clock."""
        if self._paused_since is not None:
            self._pauses += clock - self._paused_since
            self._paused_since = None

    def elapsed(self, clock: float) -> float:
        """Return the seconds of work so far."""
        end = clock if self._paused_since is None else self._paused_since
        return end - self._pauses - self.started

    @property
    def rate(self) -> float | None:
        """Steps per second, None before two steps and `SETTLED` seconds have been measured."""
        (t0, n0), (t1, n1) = self._marks[0], self._marks[-1]
        return (n1 - n0) / (t1 - t0) if t1 - t0 >= SETTLED and n1 - n0 >= 2 else None

    @property
    def remaining(self) -> float | None:
        """Seconds to the end, None if the end or the rate is unknown."""
        rate = self.rate
        return None if self.total is None or not rate else max(self.total - self.done, 0) / rate


class StepCount:
    """State and steps of a loop: the loop writes them, others read them, in any thread.

    Example:
        >>> count = StepCount()
        >>> count.done, count.is_in_step = 3, True
        >>> count.step, count.progress.state, count.has_ended
        (4, 'waiting', False)
    """

    def __init__(self) -> None:
        self.state, self.reason = "waiting", ""
        self.stop_reason: str | None = None
        """Why the loop ends at the next boundary; None if it does not."""
        self.done = 0
        """Steps that are finished."""
        self.is_in_step = self.was_left = False
        """Whether a step runs; whether the last one was left before its end."""
        self.epoch, self.epochs = 0, 1
        self.outer: tuple[int, int] | None = None
        """Number and count of epochs, where they are a loop of their own."""
        self.source: Any = None
        """The iterable of the items."""
        self.meter = Meter(None, time.monotonic())
        self.elapsed = 0.0
        """Duration in seconds, known when it is over."""

    @property
    def step(self) -> int:
        """The step in progress, counted from 1, otherwise the last finished one."""
        return self.done + (self.is_in_step or self.was_left)

    @property
    def is_stopping(self) -> bool:
        """Whether the loop ends at the next boundary."""
        return self.stop_reason is not None

    @property
    def has_ended(self) -> bool:
        """Whether it is over."""
        return self.state in ENDED

    @property
    def has_more_epochs(self) -> bool:
        """Whether another pass over the same iterable follows."""
        return self.outer is None and self.epoch < self.epochs

    @property
    def may_drop_last(self) -> bool:
        """Whether the loop can leave out batches that are not full from the next epoch on."""
        return (
            not self.has_ended
            and self.has_more_epochs
            and getattr(self.source, "drop_last", None) is False
        )

    @property
    def progress(self) -> Progress:
        """The state of the loop."""
        meter, ended = self.meter, self.has_ended
        return Progress(
            self.state,
            self.done,
            meter.total,
            self.epoch,
            self.epochs,
            meter.rate,
            None if ended else meter.remaining,
            self.elapsed if ended else meter.elapsed(time.monotonic()),
            self.reason,
        )
