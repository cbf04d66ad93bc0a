"""The work of a run between two steps: read values, apply clicks, measure the model, show progress.

All of it is guarded: a callback, a control or a part of the view that fails is shown with its line,
and the training goes on. A part that only shows and fails again and again is left out.
"""

from __future__ import annotations

import inspect
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from nbmodule.base.compiling import compiled_seconds
from nbmodule.base.format import format_count, format_seconds
from nbmodule.base.notebook import running_kernel
from nbmodule.live.controls.log_queue import LogQueue, steps_ahead
from nbmodule.live.controls.loop import Loop
from nbmodule.live.controls.pump import find_route, is_marimo
from nbmodule.live.monitors.compile_queue import take_compile_seconds
from nbmodule.live.monitors.watching import Sampling
from nbmodule.live.run_data.control import RECEIPT, Command
from nbmodule.live.run_data.messages import guard
from nbmodule.live.run_data.progress import rest_after
from nbmodule.live.run_data.series import is_training_loss
from nbmodule.live.run_data.state import RunState

if TYPE_CHECKING:
    from nbmodule.live.replay.keeper import StepKeeper
    from nbmodule.live.replay.replayed_step import ReplayedStep

_SHOWN_COMPILE = 0.2
"""Seconds of compiling from which a message is shown."""
_MOST_VIEW_FAILURES = 3
_OFTENEST, _RAREST = 0.1, 1.0
"""Seconds between two times at which all is read and shown; clicks are handled more often."""
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
        returns: None if the model is not to be watched.
        recorder: Records the steps of the run; None for none.
        verbs: Functions for a reader.
    """

    def __init__(
        self,
        run: RunState,
        loop: Loop,
        log_queue: LogQueue,
        returns: str | None,
        recorder: object,
        verbs: Verbs,
    ) -> None:
        self._run, self._loop, self._log_queue, self._verbs = run, loop, log_queue, verbs
        self.watching = Sampling(run, loop, returns, recorder, alarm=self.sound_alarm)
        self.keeper: StepKeeper | None = None
        """Records the steps; None where nothing is kept."""
        self.offer_state: Callable[[], None] | None = None
        """Copies the training state for the journal, if that is due."""
        self.conditions: list[tuple[str, Callable[[], Any]]] = []
        """Conditions that end the loop, with names."""
        self.late_controls: Callable[[], object] | None = None
        """Adds controls after the first step: an optimizer of optax has no rate before."""
        self.alarmed: set[str] = set()
        """Quantities that were reported as not finite."""
        self._compiled: dict[int, float] = {}
        """Seconds of compiling that were reported, by thread."""
        self._view: Any = None
        self._ended_view: Any = None
        self._line: Any = None
        self._failures = 0
        self.find_route()
        loop.on_look, loop.on_command = self.look, self.apply
        loop.in_flight, loop.counted = log_queue.in_flight, run.cost.counted
        loop.await_steps = lambda: log_queue.hold_back(run.count.done)

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
        from nbmodule.live.runs.cell_comparison import cell_comparison

        hear, at, cell = self._verbs.hear, self._verbs.at, cell_comparison()
        self._line, self._view = None, MarimoView(self._run, hear=hear, at=at, cell=cell)
        self._guarded("the view", self._view.open, time.monotonic())

    def close_view(self) -> None:
        """Show the final form."""
        if self._view is not None:
            self._guarded("the view", self._view.close, time.monotonic())
        elif self._line is not None:
            self._show_line(self._line.close)
        self._ended_view, self._view, self._line = self._view, None, None
        self._run.updates_per_second = 0.0
        self.conditions.clear()

    def hear_after(self, message: dict[str, Any]) -> None:
        """Act on a message of a page when the run is over."""
        if self._ended_view is not None:
            self._log_queue.drain()
            self._ended_view.hear_after(message)

    def look(self, clock: float, is_due: bool = True) -> None:
        """Do all that is due, or go on with a measurement alone; called by the loop."""
        if is_due:
            self._read(clock)
        self._guarded("watching", self.watching.look, clock, self._run.count.done)
        self.watching.leave()

    def _read(self, clock: float) -> None:
        """Read what was logged, and show it."""
        run, begun = self._run, time.thread_time()
        if run.route.kind != "pump":
            self.find_route()
        run.cost.note_each_step(run.each_step.take())
        run.cost.note(take_compile_seconds())
        if self.late_controls is not None and run.count.done:
            add, self.late_controls = self.late_controls, None
            self._guarded("controls", add)
        self._log_queue.drain()
        self.check_numbers()
        if self.keeper is not None:
            self._guarded("keeping steps", self.keeper.notice)
        if self.offer_state is not None and self._loop.is_after_step:
            self._guarded("saving the state", self.offer_state)
        self._report_compiles()
        if self._view is not None:
            self._guarded("the view", self._view.flush, clock)
        elif self._line is not None:
            self._show_line(self._line.show)
        # a page answers what it is sent
        spent = time.thread_time() - begun + self._loop.pump.take_seconds()
        # what somebody looks at keeps its pace, however much the work of every step takes
        is_shown = self._view is not None or self._line is not None
        share = run.budget / 2 if is_shown else run.share
        self._loop.tell_every = rest_after(spent, share, least=_OFTENEST, most=_RAREST)
        run.most_ahead = steps_ahead(run.count.meter.rate, before=run.most_ahead)

    def _show_line(self, write: Callable[..., None]) -> None:
        run = self._run
        newest = dict(list(self._log_queue.newest.items())[:_NUMBERS_IN_A_LINE])
        self._guarded("the progress line", write, run.progress, newest, run.messages)

    def add_condition(self, condition: Callable[..., Any]) -> None:
        """Let a function, of the history or without arguments, end the loop."""
        name = getattr(condition, "__name__", "stop_when")
        history = self._log_queue.history
        check = (lambda: condition(history)) if _takes_argument(condition) else condition
        self.conditions.append(("stop_when" if name == "<lambda>" else name, check))

    def check_conditions(self) -> None:
        """End the loop if a condition is true; called after every step where there are some."""
        run = self._run
        with run.cost.counted():
            self._log_queue.drain()
            for name, condition in self.conditions:
                if self._tried(name, condition):
                    self._loop.stop(f"{name} after step {format_count(run.count.done)}")

    def apply(self, command: Command) -> None:
        """Act on a message of a page."""
        message = command.content.get("message")
        if command.kind not in ("page", RECEIPT) or not isinstance(message, dict):
            return
        kind = message.get("kind")
        if kind in ("at", "rewind", "what_if", "take"):
            self._loop.tasks.append(lambda: self._go_back(kind, message))
        elif kind == "set":
            self._set(str(message.get("name", "")), message.get("value"))
        elif kind == "clear":
            self._verbs.forget_earlier()
        else:
            self._pass_to_view(kind, message)

    def _set(self, name: str, value: object) -> None:
        run = self._run
        before = run.controls[name].value if name in run.controls else None
        self._tried(f"setting {name!r}", run.controls.set, name, value)
        after = run.controls[name].value if name in run.controls else None
        if after != before:
            run.messages.add_change(run.count.done + 1, name, before, after)

    def _go_back(self, kind: str, message: dict[str, Any]) -> None:
        """Repeat a step, go back to it, or try what would follow, for a reader."""
        verbs = self._verbs
        actions: dict[str, tuple[str, Callable[[], Any]]] = {
            "at": ("repeating a step", lambda: self._show_step(message)),
            "rewind": ("rewinding", lambda: verbs.rewind(int(message.get("step", 0)))),
            "what_if": ("looking ahead", lambda: self._branch(message)),
            "take": ("looking ahead", lambda: verbs.take(int(message.get("branch", -1)))),
        }
        label, action = actions[kind]
        _, failure = guard(label, action)
        self.compiled_since()  # what was compiled for that is not part of a step
        if failure is not None:
            self._run.messages.add_failure(self._run.step, failure)
        elif kind == "rewind" and self._view is not None:
            self._guarded("the view", self._view.tell_all, time.monotonic())

    def _branch(self, message: dict[str, Any]) -> None:
        """Run branches with the factors of the rate that a page sent, otherwise the usual ones."""
        rates = message.get("rates")
        if rates is not None:
            rates = [float(rate) for rate in rates[:_MOST_RATES] if rate > 0]
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

    def find_route(self) -> None:
        """Find out how a click reaches the loop."""
        loop = self._loop
        self._run.route = find_route(loop.pump, running_kernel(), delivered_by=loop.last_thread)

    def check_numbers(self) -> None:
        """Sound the alarm where the training loss first ceased to be finite."""
        for series in self._run.history:
            first = series.first_nonfinite
            if first is not None and is_training_loss(series.name):
                text = f"{series.name} is {first[1]} at step {format_count(first[0])}"
                self.sound_alarm(series.name, text)

    def sound_alarm(self, quantity: str, text: str) -> None:
        """Report once that a quantity is not finite; end the loop where that is wanted."""
        run = self._run
        if run.nonfinite == "ignore" or quantity in self.alarmed:
            return
        self.alarmed.add(quantity)
        step = run.first_bad_step() or run.step_of(run.count.done)
        bad, cause = run.bad_input(step), ""
        if bad is not None:
            cause = f"; {bad[1]} at step {format_count(bad[0])}"
        elif run.can_repeat:
            cause = f"; live.at({step}) shows where it began"
        text = f"{text} (seen after step {format_count(run.count.done)}){cause}"
        run.messages.add(run.count.done, "error", text, mark="not finite")
        if run.nonfinite == "stop" and not run.count.is_stopping:
            self._loop.stop(text)

    def compiled_since(self) -> float:
        """Return the seconds that this thread has spent in compiling since the last call."""
        thread, total = threading.get_ident(), compiled_seconds()
        before, self._compiled[thread] = self._compiled.get(thread, 0.0), total
        return total - before

    def _report_compiles(self) -> None:
        run, keeper = self._run, self.keeper
        seconds, done = self.compiled_since(), run.count.done
        if seconds >= _SHOWN_COMPILE:
            cause = "" if done <= 1 or keeper is None else keeper.new_shapes(done)
            text = f"spent {format_seconds(seconds)} compiling{cause and f': {cause}'}"
            run.messages.add(run.step_of(done), "note", text, mark="compiled")
            # otherwise the time left would count on a compile every few steps
            run.count.meter.restart(done - self._log_queue.in_flight(), time.monotonic())

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
            self.watching.switch_off()


def _takes_argument(function: Callable[..., Any]) -> bool:
    """Return True if a function takes the history."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return any(p.kind in positional and p.default is p.empty for p in parameters)
