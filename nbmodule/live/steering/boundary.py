"""What happens between two steps of a run: values are read, clicks applied, the model measured, the view told.

All of it is guarded: a callback, a control or a part of the view that fails is shown with its line, and the training goes
on. A part that only shows and fails again and again is left out.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from nbmodule.base.format import format_count, format_seconds
from nbmodule.base.series_names import group_of
from nbmodule.live.run.control import Command
from nbmodule.live.run.cost import WINDOW, CostMeter, Pace
from nbmodule.live.run.failure import guard
from nbmodule.live.steering.compiles import CompileClock
from nbmodule.live.steering.intake import Intake, steps_ahead
from nbmodule.live.steering.loop import LOOK_EVERY
from nbmodule.live.steering.pump import running_kernel
from nbmodule.live.steering.route import Route, find_route, is_marimo
from nbmodule.live.watching.watching import Sampling

if TYPE_CHECKING:
    from nbmodule.live.live import Live

_COMPILE_WORTH_TELLING = 0.2
"""Seconds."""
_MOST_VIEW_FAILURES = 3
_RAREST = 1.0
"""Seconds between two looks where a look costs much beside the steps; clicks are heard more often."""
_NUMBERS_IN_A_LINE = 4


class Boundary:
    """The work of one run between its steps."""

    def __init__(self, live: Live, intake: Intake, watching: Sampling, cost: CostMeter) -> None:
        self._live, self._intake, self._watching, self._cost = live, intake, watching, cost
        self.compiles = CompileClock()
        self._pace = Pace(live.budget / 2, least=LOOK_EVERY, most=_RAREST)
        self.conditions: list[tuple[str, Callable[[], Any]]] = []
        """What ends the loop, with names."""
        self.route: Route | None = None
        self._view: Any = None
        self._after: Any = None
        """The view of a run that is over."""
        self._line: Any = None
        self._failures = 0
        self._alarmed: set[str] = set()

    @property
    def updates_per_second(self) -> float:
        """How often the view was told something, lately."""
        return self._view.sender.rate(time.monotonic()) if self._view is not None else 0.0

    def open_view(self) -> None:
        """Show the run, in the way of the place."""
        from nbmodule.views.showing.show import in_notebook

        if in_notebook():
            from nbmodule.live.telling.view import NotebookView

            self._view = NotebookView(self._live, running_kernel())
            self._guarded("the view", self._view.open, time.monotonic())
        else:
            from nbmodule.live.telling.terminal import make_line

            self._line = make_line()

    def open_in_background(self) -> None:
        """Show a run that goes on while its cell is over, where that makes a difference."""
        if self._line is None or not is_marimo():
            return
        from nbmodule.live.telling.view import MarimoView

        self._line, self._view = None, MarimoView(self._live)
        self._guarded("the view", self._view.open, time.monotonic())

    def close_view(self) -> None:
        """Leave the final form."""
        if self._view is not None:
            self._guarded("the view", self._view.close, time.monotonic())
        elif self._line is not None:
            self._guarded("the progress line", self._line.close, self._live.progress, self._newest())
        self._after, self._view, self._line = self._view, None, None
        self.conditions.clear()

    def hear_after(self, message: dict[str, Any]) -> None:
        """Act on a message of a page when the run is over."""
        if self._after is not None:
            self._after.hear_after(message)

    def look(self, now: float) -> None:
        """Do what is due; called by the loop at most every twentieth of a second."""
        live = self._live
        if self.route is None or self.route.kind != "pump":
            self.route = self.find_route()
        began = time.thread_time()
        self._cost.note(live.each_step.take())
        with self._cost:
            self._intake.drain()
            self._check_numbers()
            self._guarded("keeping steps", live.notice_losses)
            self._tell_compiles()
            self._guarded("watching", self._watching.look, now, live.loop.done)
        begun = time.thread_time()
        if self._view is not None:
            self._guarded("the view", self._view.flush, now)
        elif self._line is not None:
            self._guarded("the progress line", self._line.show, live.progress, self._newest())
        ended = time.thread_time()
        self._cost.note(ended - begun)
        self._pace.note(ended - began)
        over = live.cost / live.budget if live.progress.elapsed > WINDOW else 1.0
        live.loop.tell_every = min(self._pace.interval * max(over, 1.0), _RAREST)
        live.most_ahead = steps_ahead(live.loop.rate)
        self._watching.leave()

    def add_condition(self, condition: Callable[..., Any]) -> None:
        """Let a function of the history, or of nothing, end the loop."""
        name = getattr(condition, "__name__", "stop_when")
        history = self._intake.history
        check = (lambda: condition(history)) if _takes_argument(condition) else condition
        self.conditions.append(("stop_when" if name == "<lambda>" else name, check))

    def check_conditions(self) -> None:
        """End the loop if a condition is true; called after every step where there are some."""
        live = self._live
        with self._cost:
            self._intake.drain()
            for name, condition in self.conditions:
                is_true, failure = guard(name, condition)
                if failure is not None:
                    live.messages.add_failure(live.step, failure)
                elif is_true:
                    live.stop(f"{name} after step {format_count(live.loop.done)}")

    def apply(self, command: Command) -> None:
        """Act on a message of a page."""
        live, message = self._live, command.content.get("message")
        if command.kind != "page" or not isinstance(message, dict):
            return
        kind = message.get("kind")
        if kind == "set":
            name = str(message.get("name", ""))
            before = live.controls[name].value if name in live.controls else None
            _, failure = guard(f"setting {name!r}", live.controls.set, name, message.get("value"))
            if failure is not None:
                live.messages.add_failure(live.step, failure)
            elif live.controls[name].value != before:
                live.messages.add_change(live.loop.done + 1, name, before, live.controls[name].value)
        elif kind == "clear":
            live.forget_earlier()
        elif kind == "drop_last":
            _, failure = guard("leaving the last batch out", self._drop_last)
            if failure is not None:
                live.messages.add_failure(live.step, failure)
        elif kind in ("at", "rewind", "what_if", "take"):
            live.loop.tasks.append(lambda: self._go_back(kind, message))
        else:
            self._pass_to_view(kind, message)

    def _drop_last(self) -> None:
        live = self._live
        if live.may_drop_last:
            live.drop_last()
            live.messages.add(
                live.loop.done + 1,
                "note",
                "batches that are not full are left out from the next epoch on",
                mark="changed",
            )

    def _go_back(self, kind: str, message: dict[str, Any]) -> None:
        """Look at a step, go back to it, or try what would follow, for a reader."""
        live = self._live
        acts: dict[str, Callable[[], Any]] = {
            "at": lambda: self._show_moment(message),
            "rewind": lambda: live.rewind_now(int(message.get("step", 0))),
            "what_if": lambda: live.what_if(int(message.get("steps", 20))),
            "take": lambda: live.take_now(int(message.get("future", -1))),
        }
        _, failure = guard({"at": "repeating a step", "rewind": "rewinding"}.get(kind, "looking ahead"), acts[kind])
        self.compiles.take()  # what was compiled for that is no part of a step
        if failure is not None:
            live.messages.add_failure(live.step, failure)
        if kind == "rewind" and failure is None and self._view is not None:
            self._guarded("the view", self._view.tell_all, time.monotonic())

    def _show_moment(self, message: dict[str, Any]) -> None:
        view = self._view
        if view is not None:
            view.show_moment(self._live, int(message.get("step", 0)), str(message.get("page", ""))[:64])

    def forget_alarms(self) -> None:
        """After a rewind: what was told of steps that are left behind may be told again."""
        self._alarmed.clear()

    def _pass_to_view(self, kind: object, message: dict[str, Any]) -> None:
        if kind == "hello":
            self._live.greeted(message.get("page"))
        if self._view is not None:
            self._guarded("the view", self._view.hear, message, time.monotonic())

    def find_route(self) -> Route:
        """Find by which way a click reaches the loop."""
        loop = self._live.loop
        return find_route(loop.pump, running_kernel(), delivered_by=loop.last_thread)

    def alarm(self, what: str, text: str) -> None:
        """Say once that something is not finite, and end the loop if that is wanted."""
        live = self._live
        if live.nonfinite == "ignore" or what in self._alarmed:
            return
        self._alarmed.add(what)
        told = f"{text} (seen after step {format_count(live.loop.done)})"
        live.messages.add(live.loop.done, "error", told, mark="not finite")
        if live.nonfinite == "stop" and not live.stopped:
            live.stop(told)

    def _check_numbers(self) -> None:
        """Raise the alarm where the training loss first ceased to be finite, also if a later one is finite again."""
        for series in self._live.history_now:
            first, (group, role) = series.first_nonfinite, group_of(series.name)
            if first is not None and role == "train" and group.lower().endswith("loss"):
                self.alarm(series.name, f"{series.name} is {first[1]} at step {format_count(first[0])}")

    def _tell_compiles(self) -> None:
        seconds, done = self.compiles.take(), self._live.loop.done
        if seconds >= _COMPILE_WORTH_TELLING:
            keeper = self._live.keeper
            why = "" if done <= 1 or keeper is None else keeper.new_shapes(done)
            text = f"spent {format_seconds(seconds)} compiling{why and f': {why}'}"
            self._live.messages.add(self._live.step_of(done), "note", text, mark="compiled")

    def _newest(self) -> dict[str, float]:
        return dict(list(self._intake.newest.items())[:_NUMBERS_IN_A_LINE])

    def _guarded(self, what: str, function: Callable[..., Any], *arguments: object) -> None:
        _, failure = guard(what, function, *arguments)
        if failure is None:
            return
        self._live.messages.add_failure(self._live.step, failure)
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
