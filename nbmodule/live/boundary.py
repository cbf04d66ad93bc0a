"""What happens between two steps of a run: values are read, clicks applied, the model measured, the
view told.

All of it is guarded: a callback, a control or a part of the view that fails is shown with its line,
and the training goes on. A part that only shows and fails again and again is left out.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from nbmodule.base.format import format_count, format_seconds
from nbmodule.live.controls.alarms import Alarms
from nbmodule.live.controls.compiles import CompileClock
from nbmodule.live.controls.intake import Intake, steps_ahead
from nbmodule.live.controls.loop import LOOK_EVERY, Loop
from nbmodule.live.controls.pump import running_kernel
from nbmodule.live.controls.route import find_route, is_marimo
from nbmodule.live.monitors.watching import Sampling
from nbmodule.live.run.control import RECEIPT, Command, Route
from nbmodule.live.run.failure import guard
from nbmodule.live.run.outliers import is_training_loss
from nbmodule.live.run.state import RunState

if TYPE_CHECKING:
    from nbmodule.live.replay.keeper import StepKeeper
    from nbmodule.live.replay.moment import Moment

_COMPILE_WORTH_TELLING = 0.2
"""Seconds."""
_MOST_VIEW_FAILURES = 3
_RAREST = 1.0
"""Seconds between two looks where a look costs much beside the steps; clicks are heard more often."""
_NUMBERS_IN_A_LINE = 4


class Verbs(NamedTuple):
    """What a reader may ask of a run that its loop alone cannot do: the function for each."""

    hear: Callable[[dict[str, Any]], None]
    """Takes a message of a page, in any thread."""
    at: Callable[[int], Moment]
    rewind: Callable[[int], object]
    what_if: Callable[..., object]
    take: Callable[[int], object]
    forget_earlier: Callable[[], None]


class Boundary:
    """The work of one run between its steps.

    Args:
        run: The run.
        loop: Its loop.
        intake: What has been logged.
        watching: What measures the model.
        alarms: Where numbers that are not finite are told.
        verbs: What is called for a reader.
    """

    def __init__(
        self,
        run: RunState,
        loop: Loop,
        intake: Intake,
        watching: Sampling,
        alarms: Alarms,
        verbs: Verbs,
    ) -> None:
        self._run, self._loop, self._intake, self._watching = run, loop, intake, watching
        self._alarms, self._verbs = alarms, verbs
        self.keeper: StepKeeper | None = None
        """What keeps the steps; None where nothing is kept."""
        self.offer_state: Callable[[], None] | None = None
        """Copies the training state for the journal, where that is due."""
        self.compiles = CompileClock()
        self.conditions: list[tuple[str, Callable[[], Any]]] = []
        """What ends the loop, with names."""
        self.late_controls: Callable[[], object] | None = None
        """Adds, after the first step, controls of what there is only then: an optimizer of optax has no rate before it has state."""
        run.route = self.find_route()
        self._view: Any = None
        self._after: Any = None
        """The view of a run that is over."""
        self._line: Any = None
        self._failures = 0

    def open_view(self) -> None:
        """Show the run, in the way of the place."""
        verbs = self._verbs
        from nbmodule.views.display.show import in_notebook

        if in_notebook():
            from nbmodule.live.reporting.view import NotebookView

            self._view = NotebookView(self._run, running_kernel(), hear=verbs.hear, at=verbs.at)
            self._guarded("the view", self._view.open, time.monotonic())
        else:
            from nbmodule.live.reporting.terminal import make_line

            self._line = make_line()

    def show_widget(self) -> None:
        """Draw the run as a widget, where there is a notebook."""
        if self._view is not None:
            self._guarded("the view", self._view.show_widget)

    def open_in_background(self) -> None:
        """Show a run that goes on while its cell is over, where that makes a difference."""
        if self._line is None or not is_marimo():
            return
        from nbmodule.live.reporting.view import MarimoView

        verbs = self._verbs
        self._line, self._view = None, MarimoView(self._run, hear=verbs.hear, at=verbs.at)
        self._guarded("the view", self._view.open, time.monotonic())

    def close_view(self) -> None:
        """Leave the final form."""
        if self._view is not None:
            self._guarded("the view", self._view.close, time.monotonic())
        elif self._line is not None:
            self._guarded("the progress line", self._line.close, self._run.progress, self._newest())
        self._after, self._view, self._line = self._view, None, None
        self._run.updates_per_second = 0.0
        self.conditions.clear()

    def hear_after(self, message: dict[str, Any]) -> None:
        """Act on a message of a page when the run is over."""
        if self._after is not None:
            self._intake.drain()
            self._after.hear_after(message)

    def look(self, now: float) -> None:
        """Do what is due; called by the loop at most every twentieth of a second."""
        run = self._run
        if run.route.kind != "pump":
            run.route = self.find_route()
        run.cost.note(run.each_step.take())
        with self._run.cost:
            if self.late_controls is not None and run.count.done:
                add, self.late_controls = self.late_controls, None
                self._guarded("controls", add)
            self._intake.drain()
            self.check_numbers()
            if self.keeper is not None:
                self._guarded("keeping steps", self.keeper.notice)
            if self.offer_state is not None:
                self._guarded("saving the state", self.offer_state)
            self._tell_compiles()
            self._guarded("watching", self._watching.look, now, run.count.done)
        begun = time.thread_time()
        if self._view is not None:
            self._guarded("the view", self._view.flush, now)
        elif self._line is not None:
            self._guarded("the progress line", self._line.show, run.progress, self._newest())
        run.cost.note(time.thread_time() - begun)
        self._loop.tell_every = min(max(run.cost.rest(), LOOK_EVERY), _RAREST)
        run.most_ahead = steps_ahead(run.count.meter.rate, before=run.most_ahead)
        self._watching.leave()

    def measure(self, now: float) -> None:
        """Go on with a measurement of the model, at a boundary at which nothing else is due."""
        with self._run.cost:
            self._guarded("watching", self._watching.look, now, self._run.count.done)
        self._watching.leave()

    def add_condition(self, condition: Callable[..., Any]) -> None:
        """Let a function of the history, or of nothing, end the loop."""
        name = getattr(condition, "__name__", "stop_when")
        history = self._intake.history
        check = (lambda: condition(history)) if _takes_argument(condition) else condition
        self.conditions.append(("stop_when" if name == "<lambda>" else name, check))

    def check_conditions(self) -> None:
        """End the loop if a condition is true; called after every step where there are some."""
        run = self._run
        with self._run.cost:
            self._intake.drain()
            for name, condition in self.conditions:
                is_true, failure = guard(name, condition)
                if failure is not None:
                    run.messages.add_failure(run.step, failure)
                elif is_true:
                    self._loop.stop(f"{name} after step {format_count(run.count.done)}")

    def apply(self, command: Command) -> None:
        """Act on a message of a page."""
        run, message = self._run, command.content.get("message")
        if command.kind not in ("page", RECEIPT) or not isinstance(message, dict):
            return
        with run.cost:
            self._act_on(message)

    def _act_on(self, message: dict[str, Any]) -> None:
        run, kind = self._run, message.get("kind")
        if kind == "set":
            name = str(message.get("name", ""))
            before = run.controls[name].value if name in run.controls else None
            _, failure = guard(f"setting {name!r}", run.controls.set, name, message.get("value"))
            if failure is not None:
                run.messages.add_failure(run.step, failure)
            elif run.controls[name].value != before:
                run.messages.add_change(run.count.done + 1, name, before, run.controls[name].value)
        elif kind == "clear":
            self._verbs.forget_earlier()
        elif kind == "drop_last":
            _, failure = guard("leaving the last batch out", self._drop_last)
            if failure is not None:
                run.messages.add_failure(run.step, failure)
        elif kind in ("at", "rewind", "what_if", "take"):
            self._loop.tasks.append(lambda: self._go_back(kind, message))
        else:
            self._pass_to_view(kind, message)

    def _drop_last(self) -> None:
        run = self._run
        if run.count.may_drop_last:
            self._loop.drop_last()
            run.messages.add(
                run.count.done + 1,
                "note",
                "batches that are not full are left out from the next epoch on",
                mark="changed",
            )

    def _go_back(self, kind: str, message: dict[str, Any]) -> None:
        """Look at a step, go back to it, or try what would follow, for a reader."""
        run, verbs = self._run, self._verbs
        acts: dict[str, Callable[[], Any]] = {
            "at": lambda: self._show_moment(message),
            "rewind": lambda: verbs.rewind(int(message.get("step", 0))),
            "what_if": lambda: verbs.what_if(
                int(message.get("steps", 20)), rates=_rates_of(message.get("rates"))
            ),
            "take": lambda: verbs.take(int(message.get("future", -1))),
        }
        _, failure = guard(
            {"at": "repeating a step", "rewind": "rewinding"}.get(kind, "looking ahead"), acts[kind]
        )
        self.compiles.take()  # what was compiled for that is no part of a step
        if failure is not None:
            run.messages.add_failure(run.step, failure)
        if kind == "rewind" and failure is None and self._view is not None:
            self._guarded("the view", self._view.tell_all, time.monotonic())

    def _show_moment(self, message: dict[str, Any]) -> None:
        view = self._view
        if view is not None:
            view.show_moment(int(message.get("step", 0)), str(message.get("page", ""))[:64])

    def _pass_to_view(self, kind: object, message: dict[str, Any]) -> None:
        if kind == "hello":
            self._intake.drain()
            self._run.greetings.discard(message.get("page"))
        if self._view is not None:
            self._guarded("the view", self._view.hear, message, time.monotonic())

    def find_route(self) -> Route:
        """Find by which way a click reaches the loop."""
        loop = self._loop
        return find_route(loop.pump, running_kernel(), delivered_by=loop.last_thread)

    def check_numbers(self) -> None:
        """Raise the alarm where the training loss first ceased to be finite, also if a later one is
        finite again.
        """
        for series in self._run.history:
            first = series.first_nonfinite
            if first is not None and is_training_loss(series.name):
                self._alarms.sound(
                    series.name, f"{series.name} is {first[1]} at step {format_count(first[0])}"
                )

    def _tell_compiles(self) -> None:
        run, keeper = self._run, self.keeper
        seconds, done = self.compiles.take(), run.count.done
        if seconds >= _COMPILE_WORTH_TELLING:
            why = "" if done <= 1 or keeper is None else keeper.new_shapes(done)
            text = f"spent {format_seconds(seconds)} compiling{why and f': {why}'}"
            run.messages.add(run.step_of(done), "note", text, mark="compiled")

    def _newest(self) -> dict[str, float]:
        return dict(list(self._intake.newest.items())[:_NUMBERS_IN_A_LINE])

    def _guarded(self, what: str, function: Callable[..., Any], *arguments: object) -> None:
        _, failure = guard(what, function, *arguments)
        if failure is None:
            return
        self._run.messages.add_failure(self._run.step, failure)
        self._failures += 1
        if self._failures >= _MOST_VIEW_FAILURES:
            self._view = self._line = None
            self._watching.switch_off()


def _takes_argument(function: Callable[..., Any]) -> bool:
    """Whether a function wants the history."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return any(p.kind in positional and p.default is p.empty for p in parameters)


def _rates_of(rates: Any) -> list[float] | None:
    """Return factors of the learning rate that a page sent; None for the usual ones."""
    if not isinstance(rates, list):
        return None
    return [float(rate) for rate in rates[:5] if isinstance(rate, (int, float)) and rate > 0]
