"""Run a user's loop and act at its boundaries: clicks, pauses, stops, interrupts.

The loop is a generator around the user's iterable, so it acts between two steps and nowhere else.
A kernel that takes no click while a cell runs has the loop in a thread (`BackgroundRun`). Whatever
costs more than a microsecond (messages, listeners) happens at most every `LOOK_EVERY` seconds.
"""

from __future__ import annotations

import math
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, TypeVar

from nbmodule.base.format import format_count
from nbmodule.base.kinds import is_whole
from nbmodule.base.notebook import running_kernel
from nbmodule.errors import ArgumentError, ArgumentTypeError
from nbmodule.live.controls.interrupt import SoftInterrupt, shield
from nbmodule.live.controls.pump import CommPump, is_marimo
from nbmodule.live.run_data.control import CommandQueue
from nbmodule.live.run_data.progress import ENDED, Meter, StepCount
from nbmodule.live.run_data.state import RunState

T = TypeVar("T")
LOOK_EVERY = 0.05
"""Seconds between two checks for messages."""
_LOOK_WHILE_PAUSED = 0.03
_RECEIPTS = ("ack", "bye")
"""Messages of a page that change nothing a view shows."""


def steps(iterable: Iterable[T], *, epochs: int = 1) -> Iterator[T]:
    """Iterate, and handle clicks in views between the steps, although the cell is busy.

    The interrupt key ends the loop at the next step boundary with a `KeyboardInterrupt`, so that no
    step is cut in two; pressed twice it interrupts at once.

    Args:
        iterable: Any iterable.
        epochs: Number of passes. More than one needs an iterable that is no iterator.

    Example:
        >>> [x for x in steps("ab", epochs=2)]
        ['a', 'b', 'a', 'b']
    """
    return Loop().run(iterable, epochs=epochs)


class Loop:
    """One or several loops over steps, with one count of steps and one queue of commands.

    Args:
        run: The run, whose count is updated and whose commands are applied; None for no run.
    """

    def __init__(self, run: RunState | None = None) -> None:
        self.count = StepCount() if run is None else run.count
        self.commands = CommandQueue() if run is None else run.commands
        self.keeper: Any = None
        """The `StepKeeper` that gives the items, where steps may be made again."""
        self.tasks: deque[Callable[[], None]] = deque()
        """Long work for the next boundary: an interrupt may end it, unlike `look`."""
        self.tell_every = 0.0
        """Least seconds between two calls of `look` at which all is due."""
        self.pump = CommPump()
        self._is_running = False
        self._start = self._taken = self._first = 0
        self._left_out = 0
        self._after_left_out: Callable[[Any], object] = bool
        self._pause_after: int | None = None
        self._next_look, self._next_tell = 0.0, 0.0

    # -- what a loop of a run does more --

    def before_step(self, number: int) -> None:
        """Act before each step, which has this number; keep it very cheap."""

    def end_step(self) -> None:
        """Act when a step is over or was left; keep it very cheap."""

    def after_step(self) -> None:
        """Act at each boundary after a step; keep it very cheap."""

    def look(self, clock: float, is_due: bool) -> None:
        """Act at boundaries, at most every `LOOK_EVERY` seconds and while paused.

        Args:
            clock: The time.
            is_due: True if more than a measurement is due: a message came, or `tell_every` is over.
        """

    def act(self, message: dict[str, Any]) -> None:
        """Act on a message that is not for the loop itself."""

    def await_steps(self) -> None:
        """Wait until the steps that were begun are computed; called before a pause."""

    def in_flight(self) -> int:
        """Return how many steps are begun and not computed, which do not count for the rate."""
        return 0

    def counted(self) -> AbstractContextManager[Any]:
        """Return a context for work that is not the training's."""
        return nullcontext()

    # -- the loop --

    def run(self, iterable: Iterable[T], *, epochs: int = 1) -> Iterator[T]:
        """Return an iterator over the items that acts at each boundary."""
        if not is_whole(epochs):
            raise ArgumentTypeError(f"epochs must be an integer, got {epochs!r}.")
        if epochs < 0:
            raise ArgumentError(f"epochs must be at least 0, got {epochs}.")
        try:
            iterator = iter(iterable)
        except TypeError:
            fix = f"live.steps(range({iterable}))" if is_whole(iterable) else "a list, or a loader"
            raise ArgumentTypeError(
                f"live.steps iterates over batches, got {type(iterable).__name__}. Give {fix}."
            ) from None
        if epochs > 1 and iterator is iterable:
            raise ArgumentError(
                f"{epochs} epochs over {type(iterable).__name__!r}: an iterator can be used only "
                "once, so the second epoch would be empty. Pass an iterable that restarts (a list, "
                "a data loader, nb.batches(...)), or write the epochs as a loop of your own."
            )
        return self._iterate(iterable, iterator, int(epochs))

    def stop(self, reason: str = "") -> None:
        """End the loop at the next boundary; from any thread."""
        self.commands.put({"kind": "stop", "reason": reason})

    def leave_out(self, count: int, then: Callable[[Any], None]) -> None:
        """Skip the first items, then call `then` with the last of them."""
        self._left_out, self._after_left_out = count, then

    @property
    def is_after_step(self) -> bool:
        """Return True if the last step is all that was begun: no iterable has begun another pass,
        for which it may have drawn random numbers.
        """
        return self._taken > 0 or not self.count.has_begun

    def look_soon(self) -> None:
        """Do all that is due at the next boundary, whatever the time."""
        self._next_look = self._next_tell = 0.0

    def measure_soon(self) -> None:
        """Go on with a measurement at the next boundary."""
        self._next_look = 0.0

    def finish(self, state: str, reason: str = "") -> None:
        """Note how it ended. A step left by `break` counts as done, except after an exception."""
        count = self.count
        if state != "failed" and state != "interrupted":
            self._settle()
        if count.state not in ENDED:
            clock = time.monotonic()
            count.meter.update(count.done, clock)
            count.elapsed = count.meter.elapsed(clock)
            self._change(state, reason or (count.stop_reason or "" if state == "stopped" else ""))

    def _iterate(self, iterable: Iterable[T], iterator: Iterator[T], epochs: int) -> Iterator[T]:
        __tracebackhide__ = True  # IPython shows the user's line
        if self._is_running:
            yield from self._iterate_inside(iterable, iterator, epochs)
            return
        self._is_running, outer_pump = True, self.pump
        self._begin(iterable, epochs)
        try:
            with SoftInterrupt() as interrupt:
                self.pump = CommPump(running_kernel())
                self._look(time.monotonic())
                for epoch in range(epochs):
                    if epoch:
                        iterator = iter(iterable)
                    yield from self._one_epoch(iterator, epoch, interrupt)
                    if self.count.is_stopping:
                        break
                    self._learn_total(iterable, epoch, epochs)
                if interrupt.pressed:
                    interrupt.take()
        finally:
            if self.keeper is not None:
                self.keeper.end()
            self.pump, self._is_running, self.count.is_in_step = outer_pump, False, False

    def _iterate_inside(
        self, iterable: Iterable[T], iterator: Iterator[T], epochs: int
    ) -> Iterator[T]:
        """Iterate within a step: handle clicks, and count nothing."""
        __tracebackhide__ = True
        with SoftInterrupt() as interrupt:
            for epoch in range(epochs):
                iterator = iter(iterable) if epoch else iterator
                for item in iterator:
                    if not self._pass_boundary(interrupt):
                        return
                    yield item
            self._pass_boundary(interrupt)

    def _pass_boundary(self, interrupt: SoftInterrupt) -> bool:
        """Do what is due between two steps; return False if the loop ends here."""
        __tracebackhide__ = True
        if interrupt.pressed:
            interrupt.take()
        clock = time.monotonic()
        if clock >= self._next_look or self.commands or self._pause_after is not None:
            self._look(clock)
            self._do_tasks()
            if self._is_pausing:
                self._wait(interrupt)
        return not self.count.is_stopping

    def _one_epoch(
        self, iterator: Iterator[T], epoch: int, interrupt: SoftInterrupt
    ) -> Iterator[T]:
        __tracebackhide__ = True
        count = self.count
        count.epoch = epoch + 1 if count.outer is None else count.outer[0]
        self._taken = 0
        while self._pass_boundary(interrupt):
            try:
                if self._left_out:
                    self._leave_one_out(next(iterator))
                    continue
                item = next(iterator) if self.keeper is None else self.keeper.take(iterator)
            except StopIteration:
                return
            count.item = item
            self.before_step(count.done + 1)
            count.is_in_step = True
            try:
                yield item
            except GeneratorExit:
                count.was_left = True
                raise
            finally:
                self.end_step()
            count.done += 1
            self._taken += 1
            count.is_in_step = False
            self.after_step()
            if count.done == self._first:  # it compiles
                count.meter.restart(count.done - self.in_flight(), time.monotonic())
                self.look_soon()

    def _leave_one_out(self, item: object) -> None:
        self.count.done += 1
        self._taken += 1
        self._left_out -= 1
        if not self._left_out:
            self._first = self.count.done + 1  # the next step compiles
            self._after_left_out(item)

    def tick(self) -> None:
        """Count a step of a loop that runs elsewhere, and do what is due at a boundary."""
        clock = time.monotonic()
        if self.count.state == "waiting":
            self.count.meter = Meter(None, clock)
            self._change("running")
        self.count.done += 1
        if clock >= self._next_look or self.commands:
            self._look(clock)

    def _settle(self) -> None:
        """Count a step that the body left by `break`, or by an exception that was handled."""
        self.count.done += self.count.was_left
        self.count.was_left = False

    def _begin(self, iterable: Any, epochs: int) -> None:
        count = self.count
        self._settle()
        length = None
        with suppress(TypeError, NotImplementedError, ValueError):
            length = len(iterable)
        left = epochs
        if count.outer is not None:
            left, epochs = epochs * (count.outer[1] - count.outer[0] + 1), count.outer[1]
        total = None if length is None else count.done + length * left
        count.meter = Meter(total, time.monotonic(), count.done)
        count.epochs, self._first, self._start = epochs, count.done + 1, count.done
        count.has_begun, self._taken = True, 0
        if not count.is_stopping:
            self._change("running")

    def _learn_total(self, iterable: Iterable[Any], epoch: int, epochs: int) -> None:
        """Learn the length of an iterable from its first epoch; refuse an empty second one."""
        count = self.count
        if epoch == 0 and count.meter.total is None:
            count.meter.total = self._start + self._taken * epochs
        if epoch and not self._taken and count.done > self._start:
            raise ArgumentError(
                f"epoch {epoch + 1} of {epochs} had no item: {type(iterable).__name__!r} can be "
                f"used only once. {count.done - self._start} steps were run. Pass an iterable that "
                "restarts."
            )

    def _look(self, clock: float) -> None:
        """Handle messages, apply commands, call the listener; no interrupt cuts this in two."""
        is_running = self.count.state == "running"
        with shield(), self.counted() if is_running else nullcontext():
            self.pump.look()
            self.count.meter.update(self.count.done - self.in_flight(), clock)
            is_due = clock >= self._next_tell
            for message in self.commands.take():
                self._apply(message)
                is_due = is_due or message.get("kind") not in _RECEIPTS
            next_tell = self._next_tell
            self._next_look = self._next_tell = math.inf  # the listener may ask to be called soon
            self.look(clock, is_due)
            now = time.monotonic()
            self._next_look = min(self._next_look, now + LOOK_EVERY)
            self._next_tell = min(self._next_tell, now + self.tell_every if is_due else next_tell)

    def _apply(self, message: dict[str, Any]) -> None:
        kind = message.get("kind")
        if kind == "pause":
            self._pause_after = self.count.done
        elif kind == "resume":
            self._pause_after = None
        elif kind == "step":
            self._pause_after = max(self._pause_after or 0, self.count.done) + 1
        elif kind == "stop":
            if self.count.stop_reason is None:
                button = f"by button after step {format_count(self.count.step)}"
                self.count.stop_reason = str(message.get("reason", button))
        else:
            self.act(message)

    @property
    def _is_pausing(self) -> bool:
        is_reached = self._pause_after is not None and self.count.done >= self._pause_after
        return is_reached and not self.count.is_stopping

    def _wait(self, interrupt: SoftInterrupt) -> None:
        """Wait at a boundary until a command or an interrupt comes."""
        __tracebackhide__ = True
        self.await_steps()
        with shield():
            self.count.meter.pause(time.monotonic())
            self._change("paused")
        try:
            while self._is_pausing:
                if interrupt.pressed:
                    interrupt.take()
                self.commands.arrived.wait(_LOOK_WHILE_PAUSED)
                self._look(time.monotonic())
                self._do_tasks()
        finally:
            with shield():
                self.count.meter.resume(time.monotonic())
                self._change("running")

    def _do_tasks(self) -> None:
        while self.tasks:
            self.tasks.popleft()()
            self.look_soon()

    def obey(self) -> None:
        """Apply commands that have come, outside of any step."""
        if self.commands:
            self._look(time.monotonic())

    def go_back(self, done: int, epoch: int = 0) -> None:
        """Count from `done` steps, in an epoch if it is given."""
        count = self.count
        count.epoch = epoch or count.epoch
        self._taken -= count.done - done
        count.done = done
        count.stop_reason = None
        if self._pause_after is not None:
            self._pause_after = min(self._pause_after, done)
        count.meter.restart(done, time.monotonic())

    def _change(self, state: str, reason: str = "") -> None:
        if state == self.count.state and reason == self.count.reason:
            return
        self.count.state, self.count.reason = state, reason
        self.look_soon()


class BackgroundRun:
    """A run that goes on in a thread after its cell has ended.

    In marimo the outputs of that thread reach the cell.

    Args:
        run: The run.
        function: Called with each item.
        steps: The items.
        finish: Ends the run, with the exception that ended the loop if there was one.
    """

    def __init__(
        self,
        run: RunState,
        function: Callable[[Any], Any],
        steps: Iterator[Any],
        *,
        finish: Callable[[BaseException | None], None],
    ) -> None:
        self._run, self._function, self._steps = run, function, steps
        self._finish = finish
        self._over = threading.Event()
        self.error: BaseException | None = None
        """The exception that ended it, if any."""
        make = sys.modules["marimo"].Thread if is_marimo() else threading.Thread
        make(target=self._work, name="nbmodule-live", daemon=True).start()

    @property
    def is_running(self) -> bool:
        """True if it is not over yet."""
        return not self._over.is_set()

    def stop(self) -> None:
        """Request the end at the next step boundary."""
        self._run.commands.put({"kind": "stop", "reason": ""})

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is over, and raise what ended it; return False if the time (in seconds) ran
        out first.

        The wait can be interrupted; the run goes on.
        """
        if not self._over.wait(timeout):
            return False
        if self.error is not None:
            raise self.error
        return True

    def _work(self) -> None:
        try:
            for item in self._steps:
                self._function(item)
        except BaseException as error:  # noqa: BLE001 - `wait` raises it
            self.error = error
        finally:
            del self._function, self._steps
            self._finish(self.error)
            self._over.set()

    def __repr__(self) -> str:
        return f"BackgroundRun({self._run.count.progress})"
