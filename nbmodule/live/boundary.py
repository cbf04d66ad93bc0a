"""The work of a run between two steps: read values, apply clicks, measure the model, show progress.

All of it is guarded: a callback, a control or a part of the view that fails is shown with its line,
and the training goes on. A part that only shows and fails again and again is left out.
"""

from __future__ import annotations

import inspect
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from nbmodule.base.compiling import compiled_seconds
from nbmodule.base.format import format_count, format_seconds
from nbmodule.base.notebook import running_kernel
from nbmodule.live.controls.knobs import add_learning_rate, why_no_rate
from nbmodule.live.controls.log_queue import LogQueue, steps_ahead
from nbmodule.live.controls.loop import Loop
from nbmodule.live.controls.pump import find_route, is_marimo
from nbmodule.live.monitors.compile_queue import take_compile_seconds
from nbmodule.live.monitors.watching import Sampling
from nbmodule.live.run_data.progress import rest_after
from nbmodule.live.run_data.series import is_training_loss
from nbmodule.live.run_data.state import RunState

if TYPE_CHECKING:
    from nbmodule.live.replay.replayed_step import ReplayedStep
    from nbmodule.live.reporting.journal import Journal
    from nbmodule.live.reporting.view import NotebookView, TerminalView

_SHOWN_COMPILE = 0.2
"""Seconds of compiling from which a message is shown."""
_MOST_VIEW_FAILURES = 3
_OFTENEST, _RAREST = 0.1, 1.0
"""Seconds between two times at which all is read and shown; clicks are handled more often."""


class RunLoop(Loop):
    """The loop of one run, with the work between its steps.

    Args:
        run: The run.
        log_queue: Its logged values.
        returns: None if the model is not to be watched.
        recorder: Records the steps of the run; None for none.
        at: Repeats a step, for a page that opens it.
    """

    def __init__(
        self,
        run: RunState,
        log_queue: LogQueue,
        returns: str | None,
        recorder: object,
        *,
        at: Callable[[int], ReplayedStep],
    ) -> None:
        super().__init__(run)
        self._run, self._log_queue, self._at = run, log_queue, at
        self.watching = Sampling(run, self, returns, recorder)
        self.journal: Journal | None = None
        """Takes copies of the training state; None where no journal is written."""
        self._conditions: list[tuple[str, Callable[[], Any]]] = []
        """Conditions that end the loop, with names."""
        self._compiled: dict[int, float] = {}
        """Seconds of compiling that were reported, by thread."""
        self._view: Any = None
        self._failed_view: Any = None
        """A view that is left out, whose buttons still work."""
        self._failures = 0
        self._most_ahead = steps_ahead(None)
        """Steps that may be begun and not yet computed."""
        self.in_flight, self.counted = log_queue.in_flight, run.cost.counted
        self.before_step, self.end_step = self.watching.begin_step, self.watching.end_step

    def open_view(self) -> None:
        """Show the run, in the form of the environment."""
        from nbmodule.live.reporting.view import NotebookView, TerminalView
        from nbmodule.views.display.show import in_notebook

        if in_notebook():
            self._open(self._in_notebook(NotebookView, running_kernel()))
        else:
            self._open(TerminalView(self._run))

    def show_widget(self) -> None:
        """Draw the run as a widget, in a notebook."""
        if self._view is not None:
            self._guarded("the view", self._view.show_widget)

    def open_in_background(self) -> None:
        """Show a run that goes on after its cell, where that needs another view."""
        if self._view is not None and is_marimo():
            from nbmodule.live.reporting.view import MarimoView, TerminalView

            if isinstance(self._view, TerminalView):
                self._open(self._in_notebook(MarimoView))

    def _in_notebook(self, view: type[NotebookView], kernel: object = None) -> NotebookView:
        from nbmodule.live.runs.cell_comparison import cell_comparison

        return view(self._run, kernel, at=self._at, cell=cell_comparison())

    def _open(self, view: NotebookView | TerminalView) -> None:
        self._view = view
        self._guarded("the view", self._view.open, time.monotonic())

    def close_view(self) -> None:
        """Show the final form."""
        if self._view is not None:
            self._guarded("the view", self._view.close, time.monotonic())
        self._run.updates_per_second = 0.0
        self._conditions.clear()

    def await_steps(self) -> None:
        """Wait until the steps that were begun are computed."""
        self._log_queue.hold_back(self.count.done)

    def look(self, clock: float, is_due: bool) -> None:
        """Do all that is due, or go on with a measurement alone."""
        if is_due:
            self._read(clock)
        self._guarded("watching", self.watching.look, clock, self.count.done)
        self.watching.leave()

    def _read(self, clock: float) -> None:
        """Read what was logged, and show it."""
        run, begun = self._run, time.thread_time()
        self.find_route()
        run.cost.note_each_step()
        run.cost.note(take_compile_seconds())
        if run.unsteered is None and run.count.done:
            self._guarded("controls", self._add_late_controls)
        run.drain()
        self.check_numbers()
        if self.keeper is not None:
            self._guarded("keeping steps", self.keeper.notice)
        if self.journal is not None and self.is_after_step:
            self._guarded("saving the state", self.journal.offer_state)
        self._report_compiles()
        if self._view is not None:
            self._guarded("the view", self._view.flush, clock)
        # a page answers what it is sent
        spent = time.thread_time() - begun + self.pump.take_seconds()
        # what somebody looks at keeps its pace, however much the work of every step takes
        share = run.share if self._view is None else run.budget / 2
        self.tell_every = rest_after(spent, share, least=_OFTENEST, most=_RAREST)
        self._most_ahead = steps_ahead(run.count.meter.rate, before=self._most_ahead)

    def add_condition(self, condition: Callable[..., Any]) -> None:
        """Let a function, of the history or without arguments, end the loop."""
        name, check = getattr(condition, "__name__", "stop_when"), condition
        try:
            inspect.signature(condition).bind()
        except (TypeError, ValueError):  # an argument is missing
            check = partial(condition, self._run.history)
        self._conditions.append(("stop_when" if name == "<lambda>" else name, check))

    def after_step(self) -> None:
        """Let the loop not run far ahead, and check the conditions that end it."""
        run, cost = self._run, self._run.cost
        begun = cost.begin()
        self._log_queue.hold_back(run.count.done, self._most_ahead)
        cost.end(begun)
        if self._conditions:
            with run.cost.counted():
                run.drain()
                for name, condition in self._conditions:
                    if run.guard(name, condition)[0]:
                        self.stop(f"{name} after step {format_count(run.count.done)}")
        cost.next_step()

    def _add_late_controls(self) -> None:
        """Add the rate of an optimizer of optax, which has none before the first step."""
        run = self._run
        run.unsteered = why_no_rate(run.optimizer)
        add_learning_rate(run.controls, run.optimizer)

    def set(self, name: str, value: object) -> None:
        """Set a control; report the change, or why it failed."""
        controls = self._run.controls
        before = controls[name].value if name in controls else None
        self._run.guard(f"setting {name!r}", controls.set, name, value)
        if name in controls and controls[name].value != before:
            change = (self.count.done + 1, name, before, controls[name].value)
            self._run.messages.add_change(*change)

    def tell_pages(self) -> None:
        """Send the whole run to all pages, after a rewind."""
        if self._view is not None:
            self._guarded("the view", self._view.tell_all)

    def repeat(self, label: str, function: Callable[..., Any], *arguments: object) -> None:
        """Repeat steps for a reader; report a failure."""
        self._run.guard(label, function, *arguments)
        self.compiled_since()  # what was compiled for that is not part of a step

    def pass_to_view(self, message: dict[str, Any]) -> None:
        """Let the view act on a message of a page."""
        if self._view is not None:
            self._guarded("the view", self._view.hear, message, time.monotonic())

    def find_route(self) -> None:
        """Find out how a click reaches the loop."""
        self._run.route = find_route(
            self.pump, running_kernel(), delivered_by=self.commands.last_thread
        )

    def check_numbers(self) -> None:
        """Sound the alarm where the training loss first ceased to be finite."""
        for series in self._run.history:
            first = series.first_nonfinite
            if first is not None and is_training_loss(series.name):
                text = f"{series.name} is {first[1]} at step {format_count(first[0])}"
                self._run.sound_alarm(series.name, text)

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

    def _guarded(self, label: str, function: Callable[..., Any], *arguments: object) -> None:
        """Call a part that only shows; leave all of them out after several failures."""
        _, failure = self._run.guard(label, function, *arguments)
        self._failures += failure is not None
        if failure is not None and self._failures >= _MOST_VIEW_FAILURES:
            self._failed_view, self._view = self._view, None
            self.watching.set_level("off")
