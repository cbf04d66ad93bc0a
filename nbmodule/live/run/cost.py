"""Measure the cost of watching, and keep it within the budget.

Time that is spent is a debt, which passing time pays off at the rate of the budget; work that can
wait waits until it is paid. So the budget holds whatever a measurement costs and however short the
steps are. Work is counted in the time of its thread, so that other processes do not count.
"""

from __future__ import annotations

import time
from collections import deque
from statistics import median
from types import TracebackType

WINDOW = 10.0
"""Seconds over which the share is measured."""
_BEGINNING = 2.0
"""Seconds after the start in which loading and compiling make no debt."""
_REMEMBERED = 2.0
"""Most seconds that it takes to pay off a debt."""


class CostMeter:
    """Adds up the time that is not the training's, as a share of all time.

    Use it as a context manager around everything that is not the user's step.

    Example:
        >>> meter = CostMeter(budget=0.02)
        >>> meter.note(0.01, clock=100.0)
        >>> meter.note(0.01, clock=101.0)
        >>> meter.fraction(clock=102.0)
        0.01
    """

    def __init__(self, budget: float) -> None:
        self.budget = budget
        self._spans: deque[tuple[float, float]] = deque()
        self._total = 0.0
        self._debt = self._paid_at = 0.0
        self._begun = 0.0
        self._started: float | None = None

    def start(self, clock: float) -> None:
        """Begin to count after setting up."""
        self._started = clock
        self._spans.clear()
        self._total = self._debt = 0.0

    def note(self, seconds: float, clock: float | None = None) -> None:
        """Add spent time; it may be negative if it is a difference of two noisy times."""
        clock = time.monotonic() if clock is None else clock
        if self._started is None:
            self._started = clock
        self._spans.append((clock, seconds))
        self._total += seconds
        if clock - self._started >= _BEGINNING:
            self._debt, self._paid_at = (
                min(max(self._debt_at(clock) + seconds, 0.0), self.budget * _REMEMBERED),
                clock,
            )
        self._forget(clock)

    def fraction(self, clock: float | None = None) -> float:
        """Return the share of the last seconds that was not the training's."""
        clock = time.monotonic() if clock is None else clock
        self._forget(clock)
        if self._started is None:
            return 0.0
        return max(self._total, 0.0) / max(min(clock - self._started, WINDOW), 1e-3)

    def go_on(self, clock: float) -> None:
        """Continue before a loop: the time since the last step pays nothing."""
        self._paid_at = clock

    def rest(self, clock: float | None = None) -> float:
        """Return the seconds until the spent time is within the budget.

        Example:
            >>> meter = CostMeter(budget=0.02)
            >>> meter.start(clock=0.0)
            >>> meter.note(0.01, clock=100.0)
            >>> [round(meter.rest(clock=now), 6) for now in (100.0, 100.2, 101.0)]
            [0.5, 0.3, 0.0]
        """
        return self._debt_at(time.monotonic() if clock is None else clock) / self.budget

    def _debt_at(self, clock: float) -> float:
        return max(self._debt - self.budget * max(clock - self._paid_at, 0.0), 0.0)

    def _forget(self, clock: float) -> None:
        while self._spans and clock - self._spans[0][0] > WINDOW:
            self._total -= self._spans.popleft()[1]

    def __enter__(self) -> CostMeter:
        self._begun = time.thread_time()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.note(time.thread_time() - self._begun)


class SampledCost:
    """Measures work of every step at one of several steps, because a clock costs as much.

    Example:
        >>> cost = SampledCost(every=4)
        >>> [cost.next_step() for _ in range(6)]
        [True, False, False, False, True, False]
        >>> cost.add(1e-5)
        >>> cost.add(2e-5)
        >>> _ = cost.next_step()
        >>> cost.add_once(1e-3)
        >>> round(cost.take(), 8), cost.take()
        (0.00112, 0.0)
    """

    def __init__(self, every: int = 16) -> None:
        self.every = every
        self.is_on = False
        """Whether this step is measured."""
        self._count = -1
        self._seconds = self._once = 0.0

    def next_step(self) -> bool:
        """Begin a step; return True if it is measured."""
        self._count += 1
        self.is_on = not self._count % self.every
        return self.is_on

    def add(self, seconds: float) -> None:
        """Add time of work that is done at every step."""
        self._seconds += seconds

    def add_once(self, seconds: float) -> None:
        """Add time of work that is not done at every step, also within a measured part."""
        self._once += seconds
        self._seconds -= seconds * self.is_on

    def take(self) -> float:
        """Return the seconds of all steps since the last call."""
        seconds, self._seconds, once, self._once = self._seconds, 0.0, self._once, 0.0
        return seconds * self.every + once


class Pace:
    """Spaces actions so that together they take at most a share of the time.

    The cost of one action is the median of the last few, at first the least of them, so that an
    exceptionally slow one does not count.

    Example:
        >>> pace = Pace(share=0.01, least=0.1, most=10.0)
        >>> pace.note(0.02)
        >>> pace.interval
        2.0
    """

    def __init__(self, share: float, *, least: float, most: float) -> None:
        self.share, self.least, self.most = share, least, most
        self._costs: deque[float] = deque(maxlen=5)

    def note(self, seconds: float) -> None:
        """Note the cost of one action."""
        self._costs.append(seconds)

    @property
    def interval(self) -> float:
        """Seconds from one action to the next."""
        if not self._costs:
            return self.least
        if self.share <= 0:
            return self.most
        cost = min(self._costs) if len(self._costs) < 3 else median(self._costs)
        return min(max(cost / self.share, self.least), self.most)
