"""The work of a run between two steps: read values, apply clicks, measure the model, show progress.

All of it is guarded: a callback, a control or a part of the view that fails is shown with its line,
and the training goes on. A part that only shows and fails again and again is left out.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from nbmodule.base.format import format_count, format_seconds
from nbmodule.live.controls.log_queue import LogQueue, steps_ahead
from nbmodule.live.controls.loop import LOOK_EVERY, Loop
from nbmodule.live.controls.notices import Alarms, CompileClock
from nbmodule.live.controls.pump import find_route, is_marimo, running_kernel
from nbmodule.live.monitors.watching import Sampling
from nbmodule.live.run.control import RECEIPT, Command, Route
from nbmodule.live.run.messages import guard
from nbmodule.live.run.outliers import is_training_loss
from nbmodule.live.run.state import RunState

if TYPE_CHECKING:
    from nbmodule.live.replay.keeper import StepKeeper
    from nbmodule.live.replay.replayed_step import ReplayedStep

_SHOWN_COMPILE = 0.2
"""Seconds of compiling from which a message is shown."""
_MOST_VIEW_FAILURES = 3
_RAREST = 1.0
"""Most seconds between two looks, also where a look is slow; clicks are handled more often."""
_NUMBERS_IN_A_LINE = 4
_MOST_RATES = 5


class Verbs(NamedTuple):
    """Functions of `Live` for what a reader may ask."""

    hear: Callable[[dict[str, Any]], None]
    """Takes a message of a page, in any thread."""
    at: Callable[[int], ReplayedStep]
    rewind: Callable[[int], object]
    what_if: Callable[..., object]
    take: Callable[[int], object]
    forget_earlier: Callable[[], None]


class Boundary:
    """The work of one run between its steps.

    Args:
        run: The run.
        loop: Its loop.
        log_queue: Its logged values.
        watching: Its watchers.
        alarms: Its alarms.
        verbs: Functions for a reader.
    """

    def __init__(
        self,
        run: RunState,
        loop: Loop,
        log_queue: LogQueue,
        watching: Sampling,
        alarms: Alarms,
        verbs: Verbs,
    ) -> None:
        self._run, self._loop, self._log_queue, self._watching = run, loop, log_queue, watching
        self._alarms, self._verbs = alarms, verbs
        self.keeper: StepKeeper | None = None
        """Records the steps; None where nothing is kept."""
        self.offer_state: Callable[[], None] | None = None
        """Copies the training state for the journal, if that is due."""
        self.compiles = CompileClock()
        self.conditions: list[tuple[str, Callable[[], Any]]] = []
        """Conditions that end the loop, with names."""
        self.late_controls: Callable[[], object] | None = None
        """Adds controls after the first step: an optimizer of optax has no rate before."""
        run.route = self.find_route()
        self._view: Any = None
        self._ended_view: Any = None
        self._line: Any = None
        self._failures = 0

    def open_view(self) -> None:
        """Show the run, in the form of the environment."""
        from nbmodule.views.display.show import in_notebook

        if in_notebook():
            from nbmodule.live.reporting.view import NotebookView
            from nbmodule.live.runs.cell_comparison import cell_comparison

            hear, at, cell = self._verbs.hear, self._verbs.at, cell_comparison()
            self._view = NotebookView(self._run, running_kernel(), hear=hear, at=at, cell=cell)
            self._guarded("the view", self._view.open, time.monotonic())
        else:
            from nbmodule.live.reporting.terminal import ProgressLine

            self._line = ProgressLine()

    def show_widget(self) -> None:
        """Draw the run as a widget, in a notebook."""
        if self._view is not None:
            self._guarded("the view", self._view.show_widget)

    def open_in_background(self) -> None:
        """Show a run that goes on after its cell, where that needs another view."""
        if self._line is None or not is_marimo():
            return
        from nbmodule.live.reporting.view import MarimoView

        self._line = None
        self._view = MarimoView(self._run, hear=self._verbs.hear, at=self._verbs.at)
        self._guarded("the view", self._view.open, time.monotonic())

    def close_view(self) -> None:
        """Show the final form."""
        if self._view is not None:
            self._guarded("the view", self._view.close, time.monotonic())
        elif self._line is not None:
            self._guarded("the progress line", self._line.close, self._run.progress, self._newest())
        self._ended_view, self._view, self._line = self._view, None, None
        self._run.updates_per_second = 0.0
        self.conditions.clear()

    def hear_after(self, message: dict[str, Any]) -> None:
        """Act on a message of a page when the run is over."""
        if self._ended_view is not None:
            self._log_queue.drain()
            self._ended_view.hear_after(message)

    def look(self, clock: float) -> None:
        """Do all that is due; called by the loop at most every twentieth of a second."""
        run = self._run
        if run.route.kind != "pump":
            run.route = self.find_route()
        run.cost.note(run.each_step.take())
        with run.cost:
            if self.late_controls is not None and run.count.done:
                add, self.late_controls = self.late_controls, None
                self._guarded("controls", add)
            self._log_queue.drain()
            self.check_numbers()
            if self.keeper is not None:
                self._guarded("keeping steps", self.keeper.notice)
            if self.offer_state is not None:
                self._guarded("saving the state", self.offer_state)
            self._report_compiles()
            self._guarded("watching", self._watching.look, clock, run.count.done)
        begun = time.thread_time()
        if self._view is not None:
            self._guarded("the view", self._view.flush, clock)
        elif self._line is not None:
            self._guarded("the progress line", self._line.show, run.progress, self._newest())
        run.cost.note(time.thread_time() - begun)
        self._loop.tell_every = min(max(run.cost.rest(), LOOK_EVERY), _RAREST)
        run.most_ahead = steps_ahead(run.count.meter.rate, before=run.most_ahead)
        self._watching.leave()

    def measure(self, clock: float) -> None:
        """Go on with a measurement, at a boundary at which nothing else is due."""
        with self._run.cost:
            self._guarded("watching", self._watching.look, clock, self._run.count.done)
        self._watching.leave()

    def add_condition(self, condition: Callable[..., Any]) -> None:
        """Let a function, of the history or without arguments, end the loop."""
        name = getattr(condition, "__name__", "stop_when")
        history = self._log_queue.history
        check = (lambda: condition(history)) if _takes_argument(condition) else condition
        self.conditions.append(("stop_when" if name == "<lambda>" else name, check))

    def check_conditions(self) -> None:
        """End the loop if a condition is true; called after every step where there are some."""
        run = self._run
        with run.cost:
            self._log_queue.drain()
            for name, condition in self.conditions:
                if self._tried(name, condition):
                    self._loop.stop(f"{name} after step {format_count(run.count.done)}")

    def apply(self, command: Command) -> None:
        """Act on a message of a page."""
        message = command.content.get("message")
        if command.kind not in ("page", RECEIPT) or not isinstance(message, dict):
            return
        actions: dict[object, Callable[[], object]] = {
            "set": lambda: self._set(str(message.get("name", "")), message.get("value")),
            "clear": self._verbs.forget_earlier,
            "drop_last": lambda: self._tried("leaving the last batch out", self._drop_last),
        }
        kind = message.get("kind")
        with self._run.cost:
            if kind in ("at", "rewind", "what_if", "take"):
                self._loop.tasks.append(lambda: self._go_back(kind, message))
            elif kind in actions:
                actions[kind]()
            else:
                self._pass_to_view(kind, message)

    def _set(self, name: str, value: object) -> None:
        run = self._run
        before = run.controls[name].value if name in run.controls else None
        self._tried(f"setting {name!r}", run.controls.set, name, value)
        after = run.controls[name].value if name in run.controls else None
        if after != before:
            run.messages.add_change(run.count.done + 1, name, before, after)

    def _drop_last(self) -> None:
        run = self._run
        if run.count.may_drop_last:
            self._loop.drop_last()
            text = "batches that are not full are left out from the next epoch on"
            run.messages.add(run.count.done + 1, "note", text, mark="changed")

    def _go_back(self, kind: str, message: dict[str, Any]) -> None:
        """Repeat a step, go back to it, or try what would follow, for a reader."""
        verbs = self._verbs
        actions: dict[str, tuple[str, Callable[[], Any]]] = {
            "at": ("repeating a step", lambda: self._show_step(message)),
            "rewind": ("rewinding", lambda: verbs.rewind(int(message.get("step", 0)))),
            "what_if": ("looking ahead", lambda: self._branch(message)),
            "take": ("looking ahead", lambda: verbs.take(int(message.get("future", -1)))),
        }
        label, action = actions[kind]
        _, failure = guard(label, action)
        self.compiles.take()  # what was compiled for that is no part of a step
        if failure is not None:
            self._run.messages.add_failure(self._run.step, failure)
        elif kind == "rewind" and self._view is not None:
            self._guarded("the view", self._view.tell_all, time.monotonic())

    def _branch(self, message: dict[str, Any]) -> None:
        """Run branches with the factors of the rate that a page sent, otherwise the usual ones."""
        rates = message.get("rates")
        if isinstance(rates, list):
            rates = [float(r) for r in rates[:_MOST_RATES] if isinstance(r, (int, float)) and r > 0]
        else:
            rates = None
        self._verbs.what_if(int(message.get("steps", 20)), rates=rates)

    def _show_step(self, message: dict[str, Any]) -> None:
        if self._view is not None:
            page = str(message.get("page", ""))[:64]
            self._view.show_step(int(message.get("step", 0)), page)

    def _pass_to_view(self, kind: object, message: dict[str, Any]) -> None:
        if kind == "hello":
            self._log_queue.drain()
            self._run.greetings.discard(message.get("page"))
        if self._view is not None:
            self._guarded("the view", self._view.hear, message, time.monotonic())

    def find_route(self) -> Route:
        """Return how a click reaches the loop."""
        loop = self._loop
        return find_route(loop.pump, running_kernel(), delivered_by=loop.last_thread)

    def check_numbers(self) -> None:
        """Sound the alarm where the training loss first ceased to be finite."""
        for series in self._run.history:
            first = series.first_nonfinite
            if first is not None and is_training_loss(series.name):
                text = f"{series.name} is {first[1]} at step {format_count(first[0])}"
                self._alarms.sound(series.name, text)

    def _report_compiles(self) -> None:
        run, keeper = self._run, self.keeper
        seconds, done = self.compiles.take(), run.count.done
        if seconds >= _SHOWN_COMPILE:
            cause = "" if done <= 1 or keeper is None else keeper.new_shapes(done)
            text = f"spent {format_seconds(seconds)} compiling{cause and f': {cause}'}"
            run.messages.add(run.step_of(done), "note", text, mark="compiled")

    def _newest(self) -> dict[str, float]:
        return dict(list(self._log_queue.newest.items())[:_NUMBERS_IN_A_LINE])

    def _tried(self, label: str, function: Callable[..., Any], *arguments: object) -> Any:
        """Call a function of the user; report its failure and return None."""
        value, failure = guard(label, function, *arguments)
        if failure is not None:
            self._run.messages.add_failure(self._run.step, failure)
        return value

    def _guarded(self, label: str, function: Callable[..., Any], *arguments: object) -> None:
        """Call a part that only shows; leave all of them out after several failures."""
        _, failure = guard(label, function, *arguments)
        if failure is None:
            return
        self._run.messages.add_failure(self._run.step, failure)
        self._failures += 1
        if self._failures >= _MOST_VIEW_FAILURES:
            self._view = self._line = None
            self._watching.switch_off()


def _takes_argument(function: Callable[..., Any]) -> bool:
    """Return True if a function takes the history."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return any(p.kind in positional and p.default is p.empty for p in parameters)
