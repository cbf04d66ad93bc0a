"""`RunState`: the data of one run, which its parts share, its branches and its origin.

`Live` makes it and hands it to the parts; each reads what it needs, writes what it finds out, and
puts messages for the loop in its queue. So no part knows `Live`, and a view can be made of the
state alone.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import uuid
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, NamedTuple

import numpy as np

from nbmodule.base.curves import Curve, reduce_curve
from nbmodule.base.format import count_noun, format_count, format_number, printable_repr
from nbmodule.base.kinds import is_real
from nbmodule.base.notebook import names_of_notebook, running_shell
from nbmodule.base.trees import flat
from nbmodule.core.numbers import random
from nbmodule.core.structure.walk import is_module
from nbmodule.errors import ArgumentError, ArgumentTypeError
from nbmodule.live.run_data.control import CommandQueue, Controls, Route
from nbmodule.live.run_data.history import MOST_SERIES, History
from nbmodule.live.run_data.messages import CaughtException, Messages, describe_caught
from nbmodule.live.run_data.progress import CostMeter, ScannedSteps, StepCount
from nbmodule.live.run_data.series import Outliers, is_training_loss
from nbmodule.live.run_data.strips import Strips

NONFINITE = ("stop", "warn", "ignore")
_LONGEST = 300
_COLUMNS = 200
"""Detail of a curve that is drawn pale."""
_MOST_CODE = 20_000


# -- curves drawn pale: earlier runs of the cell, parts that a rewind left behind, branches --
class Attempt(NamedTuple):
    """A change to try: `make` and `undo` it for a branch, or `take` it for good."""

    label: str
    make: Callable[[], Any]
    undo: Callable[[], Any]
    take: Callable[[], Any]


@dataclass(eq=False, repr=False)
class Branch:
    """Some steps that would follow from a change, or that were made before.

    Attributes:
        label: The change, or how the steps ended.
        curves: The logged values of the steps, by name.
        note: The batches that the steps use, if not those to come.
        take: Makes the change for good.
    """

    label: str
    curves: dict[str, Curve]
    note: str = ""
    take: Callable[[], Any] | None = None

    @printable_repr
    def __repr__(self) -> str:
        logged = {name: curve.values for name, curve in self.curves.items() if len(curve.values)}
        ends = ", ".join(f"{name} {format_number(float(v[-1]))}" for name, v in logged.items())
        count = max(map(len, logged.values()), default=0)
        return f"Branch({self.label}: {ends or 'nothing logged'} after {count_noun(count, 'step')})"


def reduced_curves(history: History, step: int = 0) -> dict[str, Curve]:
    """Return the curves of a history from a step on, as copies of at most 200 columns."""
    curves = {}
    for series in history:
        steps, values = series.since(0)
        late = steps >= step
        if late.sum() > 1:
            reduced = reduce_curve(Curve(steps[late], values[late]), _COLUMNS)
            curves[series.name] = Curve(reduced.steps.copy(), reduced.values.copy())
    return curves


# -- the run --
@dataclass(eq=False, repr=False)
class RunState:
    """The data of one run.

    Attributes:
        name: Its title.
        model: The model; released when the run is over.
        optimizer: The optimizer, likewise.
        budget: Largest share of the time that watching may take.
        nonfinite: The reaction to a weight or training loss that is not finite.
        settings: Configuration of the run, kept in its journal.
        tags: Words to find the run by.
        run_id: Its identifier.
        parent: Identifier of the run that this one continues; '' if none.
        cell: Identifier of the notebook cell.
        count: State and steps of its loop.
        commands: Messages of pages and of code, which the loop acts on between two steps.
        history: The logged values that have been computed.
        drain: Moves logged values that are computed into the history.
        scanned: The steps of an iteration that makes several.
        controls: The values that a reader may change.
        messages: Reports for the reader.
        route: How a click reaches the loop; found when the run begins.
        updates_per_second: Recent rate of messages to the pages.
        watchers: Parts of `monitors` that measure the model; None until it is first watched, and
            when it is to be watched anew.
        examiner: Collects evidence for the rules of diagnosis; None where no step can be observed.
        unwatched: Why the model is not watched; '' if there is no reason.
        unsteered: Why the rate is not steered, likewise; None before that is known.
        watched: Statistics per submodule over the steps, by quantity.
        verdicts: Verdicts of the last judgment: a `Diagnosis`.
        judged_until: When the run is judged again, on the monotonic clock.
        cost: The cost of watching.
        earlier: Earlier runs of this cell, and parts of this one that rewinds left behind.
        tape: Recorded steps (`replay/tape.py`); None where nothing is kept.
        outliers: Steps that stand out, likewise.
        no_calls: Why no call of its steps is seen, and what to do.
        alarmed: Quantities that were reported as not finite.
        branches: The branches of the last `what_if`.

    Raises:
        ArgumentError: If an argument has an unknown value.

    Example:
        >>> run = RunState("digits")
        >>> run.history.add(1, {"loss": 0.5})
        >>> run.count.step, run.history.loss.last, run.notes()
        (0, 0.5, [])
    """

    name: str
    _: KW_ONLY
    model: Any = None
    optimizer: Any = None
    budget: float = 0.02
    nonfinite: str = "stop"
    settings: dict[str, Any] = field(default_factory=dict)
    tags: tuple[str, ...] = ()
    run_id: str = field(default_factory=lambda: uuid.uuid4().hex[:16])
    parent: str = ""
    cell: str = ""
    count: StepCount = field(default_factory=StepCount)
    commands: CommandQueue = field(default_factory=CommandQueue)
    history: History = field(default_factory=History)
    drain: Callable[[], object] = bool
    scanned: ScannedSteps = field(default_factory=ScannedSteps)
    controls: Controls = field(default_factory=Controls)
    messages: Messages = field(default_factory=Messages)
    route: Route = field(default_factory=Route)
    updates_per_second: float = 0.0
    watchers: list[Any] | None = None
    examiner: Any = None
    unwatched: str = ""
    unsteered: str | None = None
    watched: dict[str, Strips] = field(default_factory=dict)
    verdicts: Any = ()
    judged_until: float = 0.0
    cost: CostMeter = field(default_factory=CostMeter)
    earlier: list[Branch] = field(default_factory=list)
    tape: Any = None
    outliers: Outliers | None = None
    no_calls: str = ""
    alarmed: set[str] = field(default_factory=set)
    branches: list[Branch] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise ArgumentTypeError(f"name must be a str, got {type(self.name).__name__}.")
        if not is_real(self.budget) or not 0 < self.budget <= 1:
            expected = "budget must be a share above 0 and at most 1"
            raise ArgumentError(f"{expected}, got {self.budget!r}.")
        if self.nonfinite not in NONFINITE:
            choices = ", ".join(NONFINITE)
            raise ArgumentError(f"nonfinite must be one of {choices}, got {self.nonfinite!r}.")
        self.budget = float(self.budget)
        self._has_model = self.model is not None or self.optimizer is not None
        self._input_faults: dict[int, str] = {}

    @property
    def share(self) -> float:
        """The share of the time for each kind of work that can wait, such as watching or judging: a
        quarter of what the work of every step leaves of the budget, and a sixteenth of the budget
        at least.
        """
        return max(self.budget - self.cost.each_step_share, self.budget / 4) / 4

    @property
    def kept_bytes(self) -> int:
        """Bytes of recorded values, batches, and batches of the steps that stand out."""
        return sum(kept.nbytes for kept in (self.tape, self.outliers) if kept is not None)

    @property
    def can_repeat(self) -> bool:
        """Return True if a recorded step can be repeated."""
        return self.tape is not None and bool(self.tape.functions) and not self.tape.refusal

    @property
    def why_not_repeatable(self) -> str:
        """The reason why no step can be repeated, known after the first step; else ''."""
        if self.tape is None:
            return "its steps are not kept (keep=False)"
        is_fine = self.count.done < 2 or self.tape.functions
        return self.tape.refusal or ("" if is_fine else self.no_calls)

    def nonfinite_input(self, step: int) -> str:
        """Return where the inputs of a step hold NaN or Inf; '' if nowhere, or not kept."""
        if self.tape is not None and step >= 1 and step not in self._input_faults:
            self._input_faults[step] = self.tape.input_fault(self.iteration_of(step))
        return self._input_faults.get(step, "")

    def first_bad_step(self) -> int | None:
        """Return the first step whose training loss is not finite; None if there is none."""
        losses = (series for series in self.history if is_training_loss(series.name))
        return min((s.first_nonfinite[0] for s in losses if s.first_nonfinite), default=None)

    def bad_input(self, step: int) -> tuple[int, str] | None:
        """Return the step, this or the one before, with inputs that are not finite, and where."""
        faults = ((number, self.nonfinite_input(number)) for number in (step - 1, step))
        return next(((number, fault) for number, fault in faults if fault), None)

    def guard(
        self, label: str, function: Callable[..., Any], *arguments: object
    ) -> tuple[Any, CaughtException | None]:
        """Call a function; return value and None, or None and the failure, which is reported."""
        try:
            return function(*arguments), None
        except Exception as error:  # noqa: BLE001 - a user's function may raise anything
            failure = describe_caught(label, error)
            self.messages.add_failure(self.count.step, failure)
            return None, failure

    def sound_alarm(self, quantity: str, text: str) -> None:
        """Report once that a quantity is not finite; end the loop where that is wanted."""
        if self.nonfinite == "ignore" or quantity in self.alarmed:
            return
        self.alarmed.add(quantity)
        done = self.count.done
        step = self.first_bad_step() or self.step_of(done)
        bad, cause = self.bad_input(step), ""
        if bad is not None:
            cause = f"; {bad[1]} at step {format_count(bad[0])}"
        elif self.can_repeat:
            cause = f"; live.at({step}) shows where it began"
        text = f"{text} (seen after step {format_count(done)}){cause}"
        self.messages.add(done, "error", text, mark="not finite")
        if self.nonfinite == "stop" and not self.count.is_stopping:
            self.commands.put({"kind": "stop", "reason": text})

    def step_of(self, iteration: int) -> int:
        """Return the step that curves show for an iteration, which may make several steps."""
        return self.scanned.at(iteration)

    def iteration_of(self, step: int) -> int:
        """Return the iteration that made a step."""
        done = range(self.count.done + 1)
        return bisect_left(done, step, key=self.step_of) if self.scanned else step

    def notes(self) -> list[str]:
        """Return the footer of the view: what is not watched or repeated, and why."""
        notes = [self.unwatched, self.unsteered]
        if self._has_model and self.tape is not None and self.why_not_repeatable:
            notes.append(f"no step can be repeated: {self.why_not_repeatable}")
        notes += [watcher.about for watcher in self.watchers or ()]
        if self.scanned:
            each = f"each iteration of the loop makes {self.scanned.each} steps"
            notes.append(f"{each}; the curves count steps")
        hidden = len(self.history) - MOST_SERIES
        if hidden > 0:
            notes.append(f"{hidden:,} more series than are drawn: live.history")
        return [note for note in notes if note]

    def picture(self, path: str, quantity: str = "weight") -> Any:
        """Return an array to draw of a submodule; None if no watcher has one."""
        pictures = (watcher.picture(path, quantity) for watcher in self.watchers or ())
        return next((picture for picture in pictures if picture is not None), None)


# -- where a run comes from --


def describe_settings(
    config: Mapping[str, Any] | None, model: Any, optimizer: object
) -> dict[str, Any]:
    """Return settings as JSON values: `config` with nested keys joined by dots, then those of model
    and optimizer.

    Raises:
        ArgumentTypeError: If `config` is not a mapping.
    """
    if config is not None and not isinstance(config, Mapping):
        raise ArgumentTypeError(f"config must be a dict of settings, got {type(config).__name__}.")
    settings = {".".join(chain): _plain(value) for chain, value in flat(config or {})}
    if model is not None:
        settings.setdefault("model", type(model).__name__)
        if is_module(model):
            settings.setdefault("parameters", sum(p.size for p in model.parameters()))
    if optimizer is not None:
        settings.setdefault("optimizer", type(optimizer).__name__)
        rate = _plain(getattr(optimizer, "lr", None))
        if isinstance(rate, (int, float)):  # not a schedule
            settings.setdefault("lr", float(f"{rate:.6g}"))
    seed = np.asarray(random.default.state.value)
    if seed[0] == 0:  # the first word of a key is 0 where `nb.seed` was given a whole number
        settings.setdefault("seed", int(seed[1]))
    return settings


def checked_tags(tags: Any) -> tuple[str, ...]:
    """Return the tags of a run.

    Raises:
        ArgumentTypeError: If they are no list of texts.
    """
    if isinstance(tags, str) or not all(isinstance(tag, str) for tag in tags):
        raise ArgumentTypeError(f"tags must be a list of str, got {tags!r}.")
    return tuple(tags)


def _plain(value: Any) -> Any:
    if hasattr(value, "item") and getattr(value, "shape", None) == ():
        value = value.item()
    if isinstance(value, (bool, int, float)) or value is None:
        return value
    if isinstance(value, (list, tuple)) and len(value) <= 32:
        return [_plain(part) for part in value]
    return (value if isinstance(value, str) else repr(value))[:_LONGEST]


def notebook_cell() -> dict[str, Any]:
    """Return number and code of the running cell and the notebook's name, where they are known."""
    if running_shell() is None:
        return {}
    names = names_of_notebook()
    cells = names.get("In") or [""]
    facts = {"cell": len(cells) - 1, "code": str(cells[-1])[:_MOST_CODE]}
    notebook = os.environ.get("JPY_SESSION_NAME") or names.get("__vsc_ipynb_file__")
    if notebook:  # set by Jupyter's server and VS Code
        facts["notebook"] = os.path.basename(str(notebook))
    return facts


def origin() -> dict[str, Any]:
    """Return number and code of the notebook cell, and the commit, where they are known."""
    facts = notebook_cell()
    command = ["git", "rev-parse", "--short", "HEAD"]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        commit = subprocess.check_output(command, text=True, timeout=2, stderr=subprocess.DEVNULL)
        facts["commit"] = commit.strip()
    return facts
