"""Count the steps of a loop: how many are done, how fast, how long the rest will take, and what it
costs to watch them.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import jax

from nbmodule.base.format import format_count, format_number, format_seconds, printable_repr

WINDOW = 5.0
"""Seconds over which the rate is measured."""
COST_WINDOW = 10.0
"""Seconds over which the cost of watching is measured."""
_MEASURED = 16
"""Number of steps of which the work of one is measured."""
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

    def __init__(self, total: int | None, clock: float, done: int = 0) -> None:
        self.total, self.done, self.started = total, done, clock
        self._paused_since: float | None = None
        self._pauses = 0.0
        self._marks: deque[tuple[float, int]] = deque([(clock, done)])

    def update(self, done: int, clock: float) -> None:
        """Note the number of steps that are done."""
        self.done, clock = done, self._at_work(clock)
        self._marks.append((clock, done))
        while len(self._marks) > 2 and clock - self._marks[1][0] > WINDOW:
            self._marks.popleft()

    def restart(self, done: int, clock: float) -> None:
        """Measure the rate anew from here: the first step compiles, and a rewind goes back."""
        self._marks.clear()
        self.update(done, clock)

    def pause(self, clock: float) -> None:
        """Stop the clock."""
        self._paused_since = clock if self._paused_since is None else self._paused_since

    def resume(self, clock: float) -> None:
        """Continue the clock."""
        if self._paused_since is not None:
            self._pauses += clock - self._paused_since
            self._paused_since = None

    def elapsed(self, clock: float) -> float:
        """Return the seconds of work so far."""
        return self._at_work(clock) - self.started

    def _at_work(self, clock: float) -> float:
        """Return a clock that stands still in a pause."""
        return (clock if self._paused_since is None else self._paused_since) - self._pauses

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


@dataclass(eq=False)
class StepCount:
    """State and steps of a loop: the loop writes them, others read them, in any thread.

    Attributes:
        stop_reason: Why the loop ends at the next boundary; None if it does not.
        done: Steps that are finished.
        is_in_step: True while a step runs.
        was_left: True if the last step was left before its end.
        has_begun: True once a loop over `live.steps` has begun.
        item: The item of the last step.
        outer: Number and count of epochs, where they are a loop of their own.
        elapsed: Duration in seconds, known when it is over.

    Example:
        >>> count = StepCount()
        >>> count.done, count.is_in_step = 3, True
        >>> count.step, count.progress.state, count.has_ended
        (4, 'waiting', False)
    """

    state: str = "waiting"
    reason: str = ""
    stop_reason: str | None = None
    done: int = 0
    is_in_step: bool = False
    was_left: bool = False
    has_begun: bool = False
    item: object = None
    epoch: int = 0
    epochs: int = 1
    outer: tuple[int, int] | None = None
    meter: Meter = field(default_factory=lambda: Meter(None, time.monotonic()))
    elapsed: float = 0.0

    @property
    def step(self) -> int:
        """The step in progress, counted from 1, otherwise the last finished one."""
        return self.done + (self.is_in_step or self.was_left)

    @property
    def is_stopping(self) -> bool:
        """True if the loop ends at the next boundary."""
        return self.stop_reason is not None

    @property
    def has_ended(self) -> bool:
        """True if it is over."""
        return self.state in ENDED

    @property
    def progress(self) -> Progress:
        """The state of the loop."""
        meter = self.meter
        counts = (self.state, self.done, meter.total, self.epoch, self.epochs, meter.rate)
        if self.has_ended:
            return Progress(*counts, None, self.elapsed, self.reason)
        return Progress(*counts, meter.remaining, meter.elapsed(time.monotonic()), self.reason)


class ScannedSteps:
    """The training steps of an iteration that makes several in one compiled call.

    The first values that a run logs decide: if they are a vector of n numbers, an iteration makes
    n steps. A vector that comes later, after single numbers, is an array: `first` returns None.

    Example:
        >>> steps = ScannedSteps()
        >>> steps.first("loss", 1, 20, may_begin=True), steps.first("loss", 2, 20), steps.at(2)
        (1, 21, 40)
        >>> steps.first("loss", 3, 7), steps.at(3)
        (41, 47)
    """

    def __init__(self) -> None:
        self._ends: list[int] = []
        """Last step of each iteration, from 0 on; empty while each iteration makes one step."""
        self._names: set[str] = set()
        self.each = 1
        """Number of steps that the newest iteration makes."""

    def __bool__(self) -> bool:
        return bool(self._ends)

    def at(self, iteration: int) -> int:
        """Return the last step of an iteration."""
        if not self._ends:
            return iteration
        beyond = max(iteration - len(self._ends) + 1, 0)
        return self._ends[iteration - beyond] + beyond * self.each

    def first(
        self, name: str, iteration: int, count: int, *, may_begin: bool = False
    ) -> int | None:
        """Return the first of the steps that `count` values of an iteration belong to; None if
        they are no values of steps.
        """
        ends = self._ends
        if not ends and may_begin:  # earlier iterations logged nothing, and made as many steps
            self.each = count
            ends += [k * count for k in range(iteration + 1)] if iteration else [count - 1]
        is_new = iteration >= len(ends)
        if not ends or (is_new and count != self.each and name not in self._names):
            return None
        if is_new:
            ends += [self.at(k) for k in range(len(ends), iteration)]
            ends.append(ends[-1] + count)
            self.each = count
        elif ends[iteration] - (ends[iteration - 1] if iteration else -1) != count:
            return None
        self._names.add(name)
        return ends[iteration] - count + 1


# -- the cost of watching --


class CostMeter:
    """Adds up the time that is not the training's, as a share of all time.

    Where JAX computes on the CPU, all time is that of the process on the processor, so that a busy
    machine changes nothing; with an accelerator it is wall time. Work is counted in the time of its
    thread. Work of every step is measured at one of 16 steps, because a clock costs as much.

    Example:
        >>> meter = CostMeter()
        >>> meter.start()
        >>> with meter.counted():
        ...     found = sum(range(1000))
        >>> 0 < meter.fraction() < 1
        True
        >>> meter.next_step()
        >>> begun = meter.begin()
        >>> found = sum(range(1000))
        >>> meter.end(begun)
        >>> meter.note_each_step() > 0, meter.note_each_step()
        (True, 0.0)
    """

    def __init__(self) -> None:
        is_on_host = jax.default_backend() == "cpu"
        self.busy: Callable[[], float] = time.process_time if is_on_host else time.monotonic
        """Returns seconds of training and watching."""
        self._spans: deque[tuple[float, float, float]] = deque()
        """Wall time, busy time and cost of each piece of work in the last seconds."""
        self._from = 0.0
        """Busy time at which the last seconds began."""
        self.each_step_share = 0.0
        """Share of the time that the work of every step took, when it was last noted."""
        self._each_step_noted = 0.0
        """Busy time when it was."""
        self._steps, self._is_measured, self._seconds = 0, False, 0.0
        """Steps, True if this one is measured, and the time of its kind since the last note."""
        self._final: float | None = None

    def start(self) -> None:
        """Begin to count after setting up."""
        self._spans.clear()
        self._from = self._each_step_noted = self.busy()

    def note(self, seconds: float) -> None:
        """Add spent time; it may be negative if it is a difference of two noisy times."""
        if seconds:
            self._spans.append((time.monotonic(), self.busy(), seconds))

    def next_step(self) -> None:
        """Begin a step."""
        self._is_measured = not self._steps % _MEASURED
        self._steps += 1

    def begin(self) -> float:
        """Begin work that is done at every step; return what `end` takes."""
        return time.thread_time() if self._is_measured else 0.0

    def end(self, begun: float) -> None:
        """End work that is done at every step."""
        if begun:
            self._seconds += time.thread_time() - begun

    def note_once(self, seconds: float) -> None:
        """Add time of work that is not done at every step, also between `begin` and `end`."""
        self.note(seconds)
        self._seconds -= seconds * self._is_measured

    def note_each_step(self) -> float:
        """Add what the work of every step took since the last call; return it in seconds."""
        seconds, self._seconds = self._seconds * _MEASURED, 0.0
        self.note(seconds)
        busy = self.busy()
        self.each_step_share = seconds / max(busy - self._each_step_noted, 1e-3)
        self._each_step_noted = busy
        return seconds

    def fraction(self) -> float:
        """Return the share of the last seconds that was not the training's."""
        if self._final is not None:
            return self._final
        earliest = time.monotonic() - COST_WINDOW
        while self._spans and self._spans[0][0] < earliest:
            self._from = self._spans.popleft()[1]
        total = sum(seconds for _, _, seconds in list(self._spans))  # a thread may add one
        return max(total, 0.0) / max(self.busy() - self._from, 1e-3)

    def stop(self) -> None:
        """Count no more: the run is over."""
        self._final = self.fraction()

    @contextlib.contextmanager
    def counted(self) -> Iterator[None]:
        """Count what a thread does inside."""
        begun = time.thread_time()
        try:
            yield
        finally:
            self.note(time.thread_time() - begun)


def rest_after(seconds: float, share: float, *, least: float, most: float) -> float:
    """Return how long to rest after work, so that it takes at most a share of the time.

    Example:
        >>> rest_after(0.02, 0.01, least=0.1, most=10.0)
        2.0
    """
    return min(max(seconds / share, least), most)
