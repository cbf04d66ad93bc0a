"""`Live`: a training loop that can be watched and steered while its cell is busy.

This file ties the parts together and holds no mechanism of its own: `run_data/state` is the data of
a run, which every part takes; `controls/loop` acts between the steps, `controls/log_queue` reads
what was logged, `monitors` measure the model, `reporting` shows the run, `replay` repeats steps.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from nbmodule.base.format import format_count, is_better_when_higher, printable_repr
from nbmodule.base.interpreter import is_of_signal
from nbmodule.base.kinds import as_flag, is_whole
from nbmodule.base.notebook import running_kernel
from nbmodule.errors import ArgumentError, ArgumentTypeError, NotBuiltError
from nbmodule.live.boundary import RunLoop
from nbmodule.live.controls.interrupt import SoftInterrupt, shield
from nbmodule.live.controls.knobs import add_knobs
from nbmodule.live.controls.log_queue import LogQueue
from nbmodule.live.controls.loop import BackgroundRun
from nbmodule.live.controls.pump import CommPump
from nbmodule.live.replay.verbs import EVERY, ReplayVerbs
from nbmodule.live.run_data.control import Controls
from nbmodule.live.run_data.history import History
from nbmodule.live.run_data.messages import describe_caught
from nbmodule.live.run_data.progress import Progress
from nbmodule.live.run_data.series import Best
from nbmodule.live.run_data.sources import title_of, trained_module
from nbmodule.live.run_data.state import RunState, checked_tags, describe_settings
from nbmodule.live.runs import record
from nbmodule.scale.mesh import has_other_hosts, is_first_host

if TYPE_CHECKING:
    from nbmodule.live.diagnosis.rule import Diagnosis
    from nbmodule.live.runs.resume import Resumed
    from nbmodule.views.records.records import Finding

T = TypeVar("T")
_PATIENCE = 1.0
"""Seconds to wait for the last values after an interrupt or an exception."""


class Live(ReplayVerbs):
    """Watch and steer a training loop while it runs.

    ```python
    with nb.Live(model, optimizer) as live:
        for x, y in live.steps(batches, epochs=10):
            loss = step(x, y)
            live.log(loss=loss)
    ```

    In a notebook the output of the cell shows progress, curves and statistics of each submodule,
    with buttons to pause, make one step and stop, and with sliders; clicks act between two steps
    although the cell is busy. Elsewhere it is a line of progress.

    Args:
        model: A module, a native model of Flax NNX, Equinox, Keras or PyTorch, a training state,
            nested dicts and lists of models or arrays, or a function that returns the current ones,
            as in `nb.Live(lambda: state.params)`. None to watch the numbers alone.
        optimizer: An optimizer whose learning rate can be steered, or a list or dict of several;
            also those of PyTorch, Keras and NNX (where optax has injected the rate).
        returns: 'stats' to watch statistics of returns and gradients, None for nothing.
        recorder: A `nb.Recorder`; it records the steps of this run under their numbers, each of its
            `every`-th.
        budget: Largest share of the time that watching may take.
        name: The title; the class of the model if not given.
        nonfinite: The reaction to a weight or training loss that is not finite: 'stop' ends
            the loop, 'warn' reports it and goes on, 'ignore' does neither.
        display: False to show nothing.
        keep: Memory for the steps that the run keeps to repeat them (`live.at`, `live.rewind`,
            `live.what_if`): True for at most one copy of model and optimizer, or 64 MB of copies
            where that is more, and as much of batches; other sizes as `"1GB"`; False for nothing. A
            run that keeps steps keeps model and optimizer as long as the `Live` exists.
        keep_every: Steps from one copy to the next: so many are repeated at most to reach a step.
        journal: Folder in which the run is written while it goes on, so that `nb.last_run` has it
            when the kernel has died; True for `.nbmodule_runs` next to the notebook, which is the
            default in a notebook; False for none.
        config: Settings of the run, kept in its journal: `nb.runs()` lists and compares them.
        tags: Words to find the run by, kept likewise.
        resume: A run of `nb.last_run()` or `nb.runs()` to continue: its curves, the state of model
            and optimizer, the default random stream and the controls of its newest snapshot.
            `live.steps` leaves out the items of the steps that were made, so the same program ends
            as if it had never been killed. Variables of the loop itself are not restored.

    Attributes:
        name: The title.
        budget: Largest share of the time that watching may take.
        nonfinite: The reaction to a weight or training loss that is not finite.
        watched: Statistics per submodule over the steps, by quantity ('weight', 'gradient',
            'return', 'update').

    Raises:
        ArgumentError: If an argument has an unknown value.

    Example:
        >>> with Live(display=False) as live:
        ...     for x in live.steps([1.0, 2.0, 3.0], epochs=2):
        ...         live.log(loss=1 / x)
        >>> live.history.loss.last, live.step
        (0.3333333333333333, 6)
    """

    _kept: record.RunRecord
    """The run in memory, set when it begins."""

    def __init__(
        self,
        model: object = None,
        optimizer: object = None,
        returns: str | None = "stats",
        recorder: object = None,
        budget: float = 0.02,
        *,
        name: str | None = None,
        nonfinite: str = "stop",
        display: bool = True,
        keep: bool | int | str = True,
        keep_every: int = EVERY,
        journal: bool | str | Path | None = None,
        config: Mapping[str, Any] | None = None,
        tags: Sequence[str] = (),
        resume: record.RunRecord | None = None,
    ) -> None:
        if has_other_hosts():  # all must run the same programs at the same steps, and one shows
            returns, display, keep = None, display and is_first_host(), False
            journal = journal if is_first_host() else False
        display = as_flag("display", display)
        if not isinstance(journal, bool | str | os.PathLike | None):
            got = type(journal).__name__
            raise ArgumentTypeError(f"journal must be a folder, True or False, got {got}.")
        title = name or title_of(model)
        run = RunState(title, model=model, optimizer=optimizer, budget=budget, nonfinite=nonfinite)
        run.settings, run.tags = describe_settings(config, model, optimizer), checked_tags(tags)
        self._state = run
        """The data of the run, which its parts share."""
        self.name, self.budget, self.nonfinite = run.name, run.budget, nonfinite
        self.watched = run.watched
        self._set_keeping(keep, keep_every)
        self._journal_at, self._journal, self._display = journal, None, display
        self._log_queue = LogQueue(run)
        self._loop = RunLoop(run, self._log_queue, returns, recorder, at=self.at)
        self._loop.act = self._act
        self._watching = self._loop.watching
        self._best_of: str | None = None
        self._best: Best | None = None
        self._logged_names: set[Any] = set()
        """Names that were logged at this step, where `steps` is not used."""
        self._background: BackgroundRun | None = None
        self._resumed: Resumed | None = None
        if resume is not None:
            from nbmodule.live.runs.resume import Resumed

            self._resumed = Resumed(run, self._loop, resume)
        self._entered, self._process = False, os.getpid()

    def steps(self, iterable: Iterable[T], *, epochs: int = 1) -> Iterator[T]:
        """Iterate over the steps of a training; pauses, stops and controls act between them.

        Args:
            iterable: The items, such as batches. For more than one epoch it must restart.
            epochs: Number of passes over it.

        Raises:
            ArgumentError: For several epochs over an iterator, which can be used only once.
        """
        self._require_open("steps")
        size = getattr(iterable, "batch_size", getattr(iterable, "batch", None))
        if isinstance(size, int):
            self._state.settings.setdefault("batch_size", size)
        return self._loop.run(iterable, epochs=epochs)

    def _begin_keeping(self) -> None:
        if self._kept_bytes:
            from nbmodule.live.replay.keeper import StepKeeper

            keeper = StepKeeper(
                self._state,
                model=trained_module(self.model),
                room=self._kept_bytes,
                every=self._kept_every,
                settle=partial(self._log_queue.settle, _PATIENCE),
            )
            self._keeper = self._loop.keeper = keeper

    def show_widget(self) -> None:
        """Draw the run as a widget, in an output of its own.

        The output of the cell is HTML that connects to its kernel. It cannot where a front end
        keeps HTML and widgets in separate documents; VS Code and Colab show the widget anyway.
        Use this where the view says that no kernel answers. Outside of a notebook nothing is shown.

        Raises:
            NotBuiltError: If the run has not begun, or is over.

        Example:
            >>> with Live(display=False) as live:  # without a display there is no widget
            ...     live.show_widget()
            ...     for i in live.steps(range(3)):
            ...         live.log(loss=i)
        """
        self._require_open("show_widget")
        self._loop.show_widget()

    def epochs(self, count: int) -> Iterator[int]:
        """Iterate over epochs, around loops over `steps`; a stop ends both.

        Args:
            count: Number of epochs.

        Example:
            >>> with Live(display=False) as live:
            ...     for epoch in live.epochs(3):
            ...         for x in live.steps([1.0, 2.0]):
            ...             live.log(loss=x)
            ...         if epoch == 1:
            ...             live.stop()
            >>> live.step, live.progress.epoch, live.progress.epochs
            (4, 2, 3)
        """
        self._require_open("epochs")
        if not is_whole(count) or count < 0:
            raise ArgumentError(f"epochs must be an integer of at least 0, got {count!r}.")
        try:
            for epoch in range(count):
                self._state.count.outer = (epoch + 1, int(count))
                yield epoch
                self._loop.obey()
                if self.stopped:
                    return
        finally:
            self._state.count.outer = None

    def log(
        self, values: Mapping[str, Any] | None = None, at: int | None = None, /, **named: object
    ) -> None:
        """Log values of this step: numbers for the curves, and texts, arrays and pictures.

        Never waits for the device: a JAX array is read once it has been computed. Never raises: a
        value that cannot be kept is one line in the view. Dicts and lists give several names
        (`train/loss`, `lr/0`), None none. If the first logged value is a vector of n numbers, as a
        scanned step returns it, each iteration of the loop makes n steps. Without `live.steps`, a
        name that is logged again begins the next step.

        Args:
            values: Values whose names are no Python names, as a dict.
            at: Another step than the current one; a vector begins there.
            named: Values by name. `loss` and `val_loss` share a plot.
        """
        cost = self._state.cost
        begun = cost.begin()
        try:
            logged = {**values, **named} if values else named
            if at is None and not self._state.count.has_begun:
                self._begin_step(logged)
            if at is None and self._resumed is not None:
                logged = self._resumed.unlogged(logged)
            step = self._state.count.step if at is None else int(np.int64(int(at)))
            if self._best_of is not None and self._best_of in logged:
                self._note_best(step, self._best_of, logged[self._best_of])
            self._log_queue.put(step, logged, exactly=at is not None)
            if at is None and self._keeper is not None:
                for name, value in logged.items():
                    self._keeper.tape.logged(name, value)
        except Exception as error:  # a number is no reason to lose a training
            if is_of_signal(error):
                raise
            text = "live.log takes names and values, as live.log(loss=loss)"
            self._log_queue.report("log", f"{text}: {type(error).__name__}: {error}")
        cost.end(begun)

    def watch(self, params: object = None, grads: object = None) -> None:
        """Watch arrays of this step, in a loop that is written in functions of arrays.

        References are kept until the next step and reduced when it is time; arrays that a later
        step donates are left out.

        Args:
            params: The current parameters, in any nested form.
            grads: Gradients of this step, likewise.

        Example:
            >>> with Live(display=False) as live:
            ...     for x in live.steps([1.0, 2.0]):
            ...         live.watch(params={"w": jnp.ones(3) * x})
        """
        self._watching.give(params, grads)

    def _begin_step(self, names: Mapping[str, Any]) -> None:
        """Begin the next step if one of the names was logged before, in a loop without `steps`."""
        if not self._logged_names.isdisjoint(names):
            self._logged_names.clear()
            self._loop.tick()
            self._state.cost.next_step()
        self._logged_names.update(names)

    def stop_when(self, condition: Callable[..., Any]) -> Callable[..., Any]:
        """End the loop at the first boundary at which a condition is true.

        Args:
            condition: A function without arguments, or of the history, which holds what has been
                computed so far and may lack the last step. If it raises, the view reports it and
                the loop goes on.

        Returns:
            The condition, so that this works as a decorator.
        """
        self._loop.add_condition(condition)
        return condition

    def keep_best(self, series: str) -> None:
        """Keep the state of the model at the best value of a series; `live.best` has it.

        Args:
            series: Name of a logged series, such as `val_loss`. Scores improve upward. Its values
                are read when they are logged, which waits for the device.

        Raises:
            ArgumentTypeError: If the run has no module whose state can be kept.

        Example:
            >>> model = nb.Linear(2, 1)
            >>> with Live(model, display=False) as live:
            ...     live.keep_best("val_loss")
            ...     for i in live.steps(range(5)):
            ...         model.bias.value = jnp.array([float(i)])
            ...         live.log(val_loss=abs(i - 2.0))
            >>> live.best.step, float(live.best.state["bias"][0])
            (3, 2.0)
        """
        if not hasattr(self._state.model, "state_dict"):
            raise ArgumentTypeError("keep_best needs the model: nb.Live(model, ...).")
        self._best_of = series

    @property
    def best(self) -> Best | None:
        """Step, value and `state_dict` of the best value of the series of `keep_best`; None before
        it was logged.
        """
        return self._best

    def _note_best(self, step: int, series: str, logged: Any) -> None:
        value, sign = float(logged), 1 if is_better_when_higher(series) else -1
        is_best = self._best is None or sign * value > sign * self._best.value
        if is_best and not np.isnan(value):
            model: Any = self._state.model
            self._best = Best(step, value, {k: np.array(v) for k, v in model.state_dict().items()})

    # -- what a reader does by clicks --

    def pause(self) -> None:
        """Pause at the next boundary, until `resume`, a button, or the interrupt key; from any
        thread.
        """
        self._state.commands.put({"kind": "pause"})

    def resume(self) -> None:
        """Continue after a pause; from any thread."""
        self._state.commands.put({"kind": "resume"})

    def stop(self, reason: str = "") -> None:
        """End the loop at the next boundary; from any thread."""
        self._loop.stop(reason)

    def set(self, name: str, value: object) -> None:
        """Set a control at the next boundary, as if a reader had moved it; from any thread.

        Args:
            name: The control, such as `learning rate`.
            value: The value. One that the control refuses is shown as an error.

        Raises:
            PathError: If there is no such control.

        Example:
            >>> import nbmodule as nb
            >>> optimizer = nb.SGD(0.1)
            >>> with nb.Live(optimizer=optimizer, display=False) as live:
            ...     for i in live.steps(range(3)):
            ...         live.set("learning rate", 0.5)
            >>> optimizer.lr
            Array(0.5, dtype=float32)
        """
        self.controls[name]
        self._loop.commands.put({"kind": "set", "name": name, "value": value})

    def run(
        self,
        function: Callable[[T], Any],
        iterable: Iterable[T],
        *,
        epochs: int = 1,
        background: bool = False,
    ) -> BackgroundRun | None:
        """Call a function for each item, as the body of the loop would be.

        Args:
            function: Called with each item.
            iterable: As for `steps`.
            epochs: As for `steps`.
            background: True to run the loop in a thread, so that the cell ends at once. Buttons
                then work where the kernel takes no clicks while a cell runs (marimo). The run ends
                by itself; leaving the `with` block does not end it.

        Returns:
            In the background a handle with `wait()`, otherwise None.
        """
        steps = self.steps(iterable, epochs=epochs)
        if not background:
            for item in steps:
                function(item)
            return None
        if self._background is not None and self._background.is_running:
            raise ArgumentError(
                "this Live already runs a loop in the background; wait for it or stop it first."
            )
        self._loop.open_in_background()
        self._background = BackgroundRun(self._state, function, steps, finish=self._finish)
        return self._background

    @property
    def model(self) -> Any:
        """The model; None when the run is over."""
        return self._state.model

    @property
    def optimizer(self) -> Any:
        """The optimizer; None when the run is over."""
        return self._state.optimizer

    @property
    def controls(self) -> Controls:
        """The controls of the run by name; `live.controls.slider`, `.field` and `.toggle` add more.

        Example:
            >>> with Live(display=False) as live:
            ...     beta = live.controls.slider("beta", 0.5, low=0.0, high=1.0)
            ...     for i in live.steps(range(2)):
            ...         live.set("beta", 0.25)
            >>> beta.value, "beta" in live.controls
            (0.25, True)
        """
        return self._state.controls

    @property
    def history(self) -> History:
        """All logged values that have been computed."""
        return self._drained.history

    @property
    def _drained(self) -> RunState:
        """The data of the run, with all logged values that have been computed."""
        self._state.drain()
        return self._state

    @property
    def step(self) -> int:
        """The step in progress, counted from 1; after the loop the number of steps made."""
        return self._state.count.step

    def _begin_journal(self) -> None:
        folder = self._journal_at
        if folder is None:
            folder = self._display and running_kernel() is not None
        if not folder:
            return
        from nbmodule.live.replay.saved_state import StateSaver
        from nbmodule.live.reporting.journal import Journal, folders_of, reason_of

        run, saver = self._state, StateSaver(self._state)
        try:
            journal = Journal(run, folders_of(folder)[0], saver)
        except (OSError, ValueError) as error:  # a name with a null byte is a ValueError
            text = f"this run has no journal: {reason_of(error)} ({folder})"
            run.messages.add(0, "warning", text)
            return
        self._journal = self._loop.journal = journal
        self._kept.has_journal = True

    @property
    def progress(self) -> Progress:
        """State, steps, epochs, rate and remaining time."""
        return self._state.count.progress

    @property
    def has_ended(self) -> bool:
        """True if the run is over."""
        return self._state.count.has_ended

    @property
    def stopped(self) -> bool:
        """True if a button, `stop` or a condition ended the loop."""
        return self._state.count.is_stopping

    @property
    def diagnosis(self) -> Diagnosis:
        """The verdicts of all rules on the run, the worst first, with explanations and fixes.

        Example:
            >>> with Live(display=False) as live:
            ...     for i in live.steps(range(40)):
            ...         live.log(loss=1.0 + i / 10)
            >>> live.diagnosis.names
            ('diverges',)
        """
        from nbmodule.live.reporting.verdicts import verdicts_of

        return verdicts_of(self._drained)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings of the run, the worst first; see `nb.findings`.

        Example:
            >>> with Live(display=False, nonfinite="warn") as live:
            ...     for x in live.steps([1.0, 2.0, float("nan")]):
            ...         live.log(loss=x)
            >>> [finding.text for finding in live.findings]
            ['NaN in loss from step 3']
        """
        from nbmodule.live.reporting.verdicts import findings_of

        return findings_of(self._drained)

    @property
    def cost(self) -> float:
        """Share of the last ten seconds spent on watching, logging, keeping and sending: of the CPU
        time where JAX computes on the CPU, otherwise of the time.
        """
        return self._state.cost.fraction()

    def notes(self) -> list[str]:
        """Return the footer of the view: what is not watched or repeated, and why."""
        return self._state.notes()

    def plot(self, *names: str, log: bool = False) -> Any:
        """Draw the curves with matplotlib; see `History.plot`."""
        return self.history.plot(*names, log=log)

    # -- beginning and end --

    def __enter__(self) -> Live:
        if self._entered:
            raise ArgumentError("a Live shows one run; make a new one for the next.")
        self._entered, self._process = True, os.getpid()
        run = self._state
        run.cell = record.current_cell()
        run.earlier = record.earlier_runs(run.cell)
        self._kept = record.keep_run(run)
        add_knobs(self.controls, self.model, self.optimizer)
        self._watching.add_control()
        self._loop.compiled_since()
        self._loop.pump = CommPump(running_kernel())
        self._loop.find_route()
        if self._display:
            self._loop.open_view()
        self._begin_keeping()
        if self._resumed is not None:
            self._resumed.begin()
        self._begin_journal()
        run.cost.start()
        return self

    def __exit__(self, kind: object, error: BaseException | None, tb: object) -> None:
        if self._background is None:
            self._finish(error)
        elif error is not None:
            self.stop("the cell that began it failed")

    def _finish(self, error: BaseException | None = None) -> None:
        """Read the last values and leave the static form; `with` calls it."""
        if self.has_ended or os.getpid() != self._process:  # a forked child has no view of its own
            return
        self._state.cost.stop()
        self._watching.end_step(error)
        if self._keeper is not None:
            self._keeper.end()
        with SoftInterrupt() as interrupt:  # a press ends the waiting, not the reading
            patience = None if error is None else _PATIENCE
            self._log_queue.settle(patience, until=lambda: interrupt.pressed)
            if interrupt.pressed and error is None:
                error = KeyboardInterrupt()
            with shield():
                if self._keeper is not None:
                    self._keeper.outliers.is_over = True
                    self._keeper.notice()
                self._loop.check_numbers()
                self._state.guard("watching", self._watching.measure_last, self._state.count.done)
                self._note_end(error)
                if self._journal is not None:
                    if self.progress.state != "failed":
                        self._state.guard("saving the state", self._journal.saver.offer)
                    self._journal.close(self.progress.state, self.progress.reason)
                self._loop.close_view()
                self._watching.close()
                self._release()
            if interrupt.pressed:
                interrupt.take()

    def _release(self) -> None:
        for control in self.controls:
            if control.settle is not None:
                control.settle()
            control.apply = control.settle = None
        self._state.model = self._state.optimizer = None

    def _note_end(self, error: BaseException | None) -> None:
        if error is None:
            self._loop.finish("stopped" if self.stopped else "done")
        elif isinstance(error, KeyboardInterrupt):
            self._loop.finish("interrupted", f"at step {format_count(self._state.count.done)}")
        else:
            failure = describe_caught("the loop", error)
            self._state.messages.add_failure(self.step, failure)
            self._loop.finish("failed", failure.error)
        self._kept.update()

    @printable_repr
    def __repr__(self) -> str:
        from nbmodule.live.reporting.payload import text_form

        return text_form(self._drained)

    _draws_itself = True

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        from nbmodule.live.reporting.view import bundle_of

        return bundle_of(self._drained)

    # -- called by its parts --

    def _act(self, message: dict[str, Any]) -> None:
        """Act on a message of a page, or of a method of this class, between two steps."""
        loop, kind = self._loop, str(message.get("kind"))
        tasks = {
            "at": ("repeating a step", loop.pass_to_view),
            "rewind": ("rewinding", self._rewind_now),
            "what_if": ("looking ahead", self._what_if_now),
            "take": ("looking ahead", self._take_now),
        }
        if kind in tasks:
            loop.tasks.append(lambda: loop.repeat(*tasks[kind], message))
        elif kind == "set":
            loop.set(str(message.get("name", "")), message.get("value"))
        elif kind == "clear":  # draw the earlier runs of this cell no more
            self._state.earlier = []
            record.forget_earlier(self._state.cell)
        else:
            loop.pass_to_view(message)

    def _require_open(self, name: str) -> None:
        if not self._entered or self.has_ended:
            ended = " This run is over." if self.has_ended else ""
            raise NotBuiltError(
                f"live.{name}() needs a `with` block: `with nb.Live(model) as live: ...`.{ended}"
            )
