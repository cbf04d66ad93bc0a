"""Run a user's loop and act at its boundaries: clicks, pauses, stops, interrupts.

The loop is a generator around the user's iterable, so it acts between two steps and nowhere else.
Whatever costs more than a microsecond (messages, listeners) happens at most every `LOOK_EVERY`
seconds.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

from nbmodule.base.kinds import is_whole
from nbmodule.errors import ArgumentError, ArgumentTypeError
from nbmodule.live.controls.interrupt import SoftInterrupt, shield
from nbmodule.live.controls.pump import CommPump, running_kernel
from nbmodule.live.run.control import RECEIPT, Command, CommandQueue
from nbmodule.live.run.progress import ENDED, Meter, StepCount

T = TypeVar("T")
LOOK_EVERY = 0.05
"""Seconds between two checks for messages."""
_LOOK_WHILE_PAUSED = 0.03


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


class Recall(Protocol):
    """Gives the items of a loop in which steps may be made again."""

    def take(self, iterator: Iterator[Any]) -> Any:
        """Return the next item, of the iterator or of a step to be made again."""

    def begin(self, number: int, epoch: int) -> None:
        """Note that the iteration of the last item begins."""

    def end(self) -> None:
        """Note that the loop is over."""


class Loop:
    """One or several loops over steps, with one count of steps and one queue of commands.

    Args:
        count: The count to update; a new one if not given.
        commands: The queue of commands; a new one if not given.
        on_look: Called at boundaries with the time, at most every `look_every` seconds, and while
            paused.
        on_begin: Called with its number before every step.
        on_step: Called at every boundary after a step; keep both very cheap.
        on_command: Called with each command that is not the loop's own.
        on_change: Called after the state has changed.
    """

    def __init__(
        self,
        count: StepCount | None = None,
        *,
        commands: CommandQueue | None = None,
        on_look: Callable[[float], None] | None = None,
        on_begin: Callable[[int], None] | None = None,
        on_step: Callable[[], None] | None = None,
        on_command: Callable[[Command], None] | None = None,
        on_change: Callable[[str], None] | None = None,
    ) -> None:
        self.count = StepCount() if count is None else count
        self.commands = commands if commands is not None else CommandQueue()
        self.on_begin, self.on_step = on_begin, on_step
        self.on_look, self.on_command, self.on_change = on_look, on_command, on_change
        self.around: AbstractContextManager[Any] | None = None
        """The context in which the next step runs, and no other."""
        self.on_pause: Callable[[], None] | None = None
        """Called before a pause, to wait for steps that were begun."""
        self.recall: Recall | None = None
        """Gives the items, where steps may be made again."""
        self.tasks: deque[Callable[[], None]] = deque()
        """Long work for the next boundary: an interrupt may end it, unlike `on_look`."""
        self.look_every = LOOK_EVERY
        self.tell_every = 0.0
        """Least seconds between two calls of `on_look` while no command has come."""
        self.on_measure: Callable[[float], None] | None = None
        """Called instead of `on_look` at a boundary at which only a measurement is due."""
        self.measure_at = math.inf
        """When a measurement is due at the latest, on the monotonic clock."""
        self.last_thread = ""
        """The thread that delivered the last command."""
        self.pump = CommPump()
        self._depth = self._start = self._taken = self._first = 0
        self.has_begun = False
        """True once this loop has run a step."""
        self.item: Any = None
        """The item of the last step."""
        self._left_out = 0
        self._after_left_out: Callable[[Any], None] | None = None
        self._pause_after: int | None = None
        self._next_look, self._next_tell, self._is_look_due = 0.0, 0.0, False
        self._is_measuring = False

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
        return self._run(iterable, iterator, int(epochs))

    def pause(self) -> None:
        """Hold the loop at the next boundary; from any thread."""
        self.commands.put("pause")

    def resume(self) -> None:
        """Go on after a pause; from any thread."""
        self.commands.put("resume")

    def stop(self, reason: str = "") -> None:
        """End the loop at the next boundary; from any thread."""
        self.commands.put("stop", reason=reason)

    def leave_out(self, count: int, then: Callable[[Any], None]) -> None:
        """Skip the first items, then call `then` with the last of them."""
        self._left_out, self._after_left_out = count, then

    def look_soon(self) -> None:
        """Call `on_look` at the next boundary, whatever the time."""
        self._is_look_due, self._next_look = True, 0.0

    def measure_soon(self) -> None:
        """Go on with a measurement at the next boundary."""
        self._is_measuring, self._next_look = True, 0.0

    def finish(self, state: str, reason: str = "") -> None:
        """Note how it ended. A step left by `break` counts as done, except after an exception."""
        count = self.count
        if state != "failed" and state != "interrupted":
            self._settle()
        if count.state not in ENDED:
            count.elapsed = count.meter.elapsed(time.monotonic())
            self._change(state, reason or (count.stop_reason or "" if state == "stopped" else ""))

    def _run(self, iterable: Iterable[T], iterator: Iterator[T], epochs: int) -> Iterator[T]:
        __tracebackhide__ = True  # IPython shows the user's line
        outer_pump, nested = self.pump, self._depth > 0
        self._depth += 1
        if not nested:
            self._begin(iterable, epochs)
        try:
            with SoftInterrupt() as interrupt:
                self.pump = CommPump(running_kernel())
                self._look(time.monotonic())
                for epoch in range(epochs):
                    if epoch:
                        iterator = iter(iterable)
                    yield from self._one_epoch(iterator, epoch, interrupt, nested)
                    if self.count.is_stopping:
                        break
                    self._learn_total(iterable, epoch, epochs, nested)
                if interrupt.pressed:
                    interrupt.take()
        finally:
            self._depth -= 1
            if self.recall is not None and not nested:
                self.recall.end()
            self.pump = outer_pump
            self.count.is_in_step = nested and self.count.is_in_step

    def _one_epoch(
        self, iterator: Iterator[T], epoch: int, interrupt: SoftInterrupt, nested: bool
    ) -> Iterator[T]:
        __tracebackhide__ = True
        count = self.count
        if not nested:
            count.epoch = epoch + 1 if count.outer is None else count.outer[0]
        self._taken = 0
        while True:
            if interrupt.pressed:
                interrupt.take()
            clock = time.monotonic()
            if clock >= self._next_look or self.commands or self._pause_after is not None:
                self._look(clock)
                self._do_tasks()
                if (
                    self._pause_after is not None
                    and count.done >= self._pause_after
                    and not count.is_stopping
                ):
                    self._wait(interrupt)
            if count.is_stopping:
                return
            if self._left_out and not nested:
                if not self._leave_one_out(iterator):
                    return
                continue
            try:
                item = (
                    next(iterator) if self.recall is None or nested else self.recall.take(iterator)
                )
            except StopIteration:
                return
            if nested:
                yield item
                continue
            self.item = item
            if self.recall is not None:
                self.recall.begin(count.done + 1, count.epoch)
            if self.on_begin is not None:
                self.on_begin(count.done + 1)
            count.is_in_step = True
            around, self.around = self.around, None
            try:
                if around is None:
                    yield item
                else:
                    with around:
                        yield item
            except GeneratorExit:
                count.was_left = True
                raise
            count.done += 1
            self._taken += 1
            count.is_in_step = False
            if self.on_step is not None:
                self.on_step()
            if count.done == self._first:
                self._end_of_first(time.monotonic())

    def _leave_one_out(self, iterator: Iterator[Any]) -> bool:
        """Skip one item; return False if there is none."""
        try:
            item = next(iterator)
        except StopIteration:
            return False
        self.count.done += 1
        self._taken += 1
        self._left_out -= 1
        if not self._left_out and self._after_left_out is not None:
            self._first = self.count.done + 1  # the next step compiles
            self._after_left_out(item)
        return True

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

    def _begin(self, iterable: Iterable[Any], epochs: int) -> None:
        count = self.count
        self._settle()
        length = _length_of(iterable)
        left = epochs
        if count.outer is not None:
            left, epochs = epochs * (count.outer[1] - count.outer[0] + 1), count.outer[1]
        total = None if length is None else count.done + length * left
        count.source = iterable
        count.meter, count.epochs, self._first = (
            Meter(total, time.monotonic()),
            epochs,
            count.done + 1,
        )
        self.has_begun = True
        count.meter.go_back(count.done, count.meter.started)
        self._start = count.done
        if not count.is_stopping:
            self._change("running")

    def _end_of_first(self, clock: float) -> None:
        self.count.meter.done = self.count.done
        self.count.meter.skip_first(clock)
        self._next_look = self._next_tell = 0.0

    def drop_last(self) -> None:
        """Let the iterable leave out its last batch from the next pass on."""
        count = self.count
        before = _length_of(count.source)
        count.source.drop_last = True
        after = _length_of(count.source)
        if before is not None and after is not None and count.meter.total is not None:
            count.meter.total -= (before - after) * (count.epochs - count.epoch)

    def _learn_total(self, iterable: Iterable[Any], epoch: int, epochs: int, nested: bool) -> None:
        """Learn the length of an iterable from its first epoch; refuse an empty second one."""
        count = self.count
        if nested:
            return
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
        with shield():
            self.pump.look()
            self.count.meter.update(self.count.done, clock)
            commands, is_due, self._is_look_due = self.commands.take(), self._is_look_due, False
            measuring, self._is_measuring = self._is_measuring, False
            for command in commands:
                self._apply(command)
                is_due = is_due or command.kind != RECEIPT
            if self.on_look is not None and (is_due or clock >= self._next_tell):
                self.on_look(clock)
                self._next_tell = time.monotonic() + self.tell_every
            elif (measuring or clock >= self.measure_at) and self.on_measure is not None:
                self.on_measure(clock)
            self._next_look = (
                0.0
                if self._is_look_due or self._is_measuring
                else time.monotonic() + self.look_every
            )

    def _apply(self, command: Command) -> None:
        self.last_thread = command.thread
        if command.kind == "pause":
            self._pause_after = self.count.done
        elif command.kind == "resume":
            self._pause_after = None
        elif command.kind == "step":
            self._pause_after = max(self._pause_after or 0, self.count.done) + 1
        elif command.kind == "stop":
            if self.count.stop_reason is None:
                self.count.stop_reason = str(command.content.get("reason", ""))
        elif self.on_command is not None:
            self.on_command(command)

    def _wait(self, interrupt: SoftInterrupt) -> None:
        """Wait at a boundary until a command or an interrupt comes."""
        __tracebackhide__ = True
        if self.on_pause is not None:
            self.on_pause()
        with shield():
            self.count.meter.pause(time.monotonic())
            self._change("paused")
        try:
            while (
                self._pause_after is not None
                and self.count.done >= self._pause_after
                and not self.count.is_stopping
            ):
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
        with shield():
            for command in self.commands.take():
                self._apply(command)

    def go_back(self, done: int, epoch: int = 0) -> None:
        """Count from `done` steps, in an epoch if it is given."""
        count = self.count
        count.epoch = epoch or count.epoch
        self._taken -= count.done - done
        count.done = done
        count.stop_reason = None
        if self._pause_after is not None:
            self._pause_after = min(self._pause_after, done)
        count.meter.go_back(done, time.monotonic())

    def _change(self, state: str, reason: str = "") -> None:
        if state == self.count.state and reason == self.count.reason:
            return
        self.count.state, self.count.reason = state, reason
        if self.on_change is not None:
            self.on_change(state)


def _length_of(iterable: Any) -> int | None:
    try:
        return len(iterable)
    except (TypeError, NotImplementedError, ValueError):
        return None
