"""`RunState`: what is known of one run, as plain data that its parts take.

`Live` makes it and hands it to the parts; each reads what it needs and writes what it finds out. A
part that has to *do* something is given the one function for it. So no part knows `Live`, and a
view can be made of the state alone.
"""

from __future__ import annotations

import uuid
from collections.abc import Sized
from typing import Any, Protocol

from nbmodule.live.run.control import Controls, Route
from nbmodule.live.run.cost import CostMeter, SampledCost
from nbmodule.live.run.earlier import EarlierRun
from nbmodule.live.run.finding import RunFinding
from nbmodule.live.run.future import Future
from nbmodule.live.run.history import MOST_SERIES, History
from nbmodule.live.run.logged import ScannedSteps
from nbmodule.live.run.messages import Messages
from nbmodule.live.run.outliers import Outliers, is_training_loss
from nbmodule.live.run.progress import Progress, StepCount
from nbmodule.live.run.watch import Strips, Watcher


class KeptSteps(Protocol):
    """Steps that can be made again, as far as others ask for them."""

    @property
    def nbytes(self) -> int:
        """Bytes that they take."""
        ...

    @property
    def functions(self) -> Sized:
        """What they called that can be repeated."""
        ...

    @property
    def why(self) -> str:
        """Why no step can be repeated, if something is known."""
        ...

    def input_fault(self, turn: int) -> str:
        """Return where the inputs of this turn hold NaN or Inf; '' if they do not, or are not kept."""
        ...


class RunState:
    """What is known of one run.

    Args:
        name: Its title.
        model: What is trained; let go when the run is over.
        optimizer: Likewise.
        budget: Largest share of the time that watching may take.
        nonfinite: What happens when a weight or the training loss is no longer finite.

    Example:
        >>> run = RunState("digits")
        >>> run.history.add(1, {"loss": 0.5})
        >>> run.step, run.history.loss.last, run.notes()
        (0, 0.5, [])
    """

    def __init__(
        self,
        name: str,
        *,
        model: object = None,
        optimizer: object = None,
        budget: float = 0.02,
        nonfinite: str = "stop",
    ) -> None:
        self.name, self.model, self.optimizer = name, model, optimizer
        self.budget, self.nonfinite = budget, nonfinite
        self._has_model = model is not None or optimizer is not None
        self.run_id = uuid.uuid4().hex[:16]
        self.settings: dict[str, Any] = {}
        """What the run was made with; kept in its journal."""
        self.tags: tuple[str, ...] = ()
        self.parent = ""
        """Identifier of the run that this one continues; '' if none."""
        self.cell = ""
        """The place in the notebook that shows it."""
        # What is counted and logged.
        self.count = StepCount()
        self.history = History()
        self.scanned = ScannedSteps()
        # What a reader may move, and is told.
        self.controls = Controls()
        self.messages = Messages()
        self.route: Route
        """By which way a click reaches the loop; set before anything is shown."""
        self.greetings: set[Any] = set()
        """Pages whose greeting was heard and not yet answered."""
        self.updates_per_second = 0.0
        """How often the view was told something new, lately."""
        # What is measured of the model.
        self.watchers: list[Watcher] | None = None
        """None until the model is looked at, and where it is to be looked at anew."""
        self.examiner: Any = None
        """Collects the evidence for the rules of diagnosis; None where no step can be observed."""
        self.unwatched = ""
        """Why the model is not watched; '' if there is nothing to say."""
        self.watched: dict[str, Strips] = {}
        """Statistics per submodule over the steps, by quantity."""
        self.found: tuple[RunFinding, ...] = ()
        self.found_until = 0.0
        self.verdicts: Any = ()
        """What the rules of diagnosis said when the run was last judged."""
        """When the run is to be judged anew, on the monotonic clock."""
        # What watching takes.
        self.cost = CostMeter(budget)
        self.each_step = SampledCost()
        """What logging and keeping take at every step."""
        self.most_ahead = 0
        """Steps that may be begun and not yet computed."""
        # What went before, and what would follow.
        self.earlier: list[EarlierRun] = []
        """Earlier runs of this cell."""
        self.left_behind: list[EarlierRun] = []
        """Curves that a rewind has left behind."""
        self.tape: KeptSteps | None = None
        """Steps that can be made again; None where nothing is kept."""
        self.outliers: Outliers | None = None
        self.no_calls = ""
        """Why no call of its steps is seen, and what to do."""
        self._input_faults: dict[int, str] = {}
        self.futures: list[Future] = []

    @property
    def step(self) -> int:
        """The step that is being worked on, counted from 1; after the loop the number of steps that
        were made.
        """
        return self.count.step

    @property
    def progress(self) -> Progress:
        """State, steps, epochs, rate and remaining time."""
        return self.count.progress

    @property
    def has_ended(self) -> bool:
        """Whether the run is over."""
        return self.count.has_ended

    @property
    def kept_bytes(self) -> int:
        """Bytes that are kept: values of variables, batches, and those of the steps that stand out."""
        return sum(kept.nbytes for kept in (self.tape, self.outliers) if kept is not None)

    @property
    def can_repeat(self) -> bool:
        """Whether any step is kept that called what can be repeated."""
        return self.tape is not None and bool(self.tape.functions) and not self.tape.why

    @property
    def why_not_repeatable(self) -> str:
        """Why no step of this run can be repeated, known after the first step; '' if some can, or
        while that is not known.
        """
        if self.tape is None:
            return "its steps are not kept (keep=False)"
        if self.tape.why:
            return self.tape.why
        if self.count.done < 2 or self.tape.functions:
            return ""
        return self.no_calls

    @property
    def shown_behind(self) -> list[EarlierRun]:
        """Curves that are drawn pale: of earlier runs of this cell, and what rewinds of this one
        have left behind.
        """
        return [*self.earlier, *self.left_behind]

    def nonfinite_input(self, step: int) -> str:
        """Return where the inputs of a step hold NaN or Inf; '' if they do not, or are not kept."""
        if self.tape is None:
            return ""
        if step not in self._input_faults:
            self._input_faults[step] = self.tape.input_fault(self.turn_of(step))
        return self._input_faults[step]

    def turn_of(self, step: int) -> int:
        """Return the turn of the loop that made a step."""
        if self.step_of(step) == step:
            return step
        low, high = 0, max(self.count.done + 1, 1)
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if self.step_of(middle) < step else (low, middle)
        return low

    def first_bad_step(self) -> int | None:
        """Return the first step whose training loss is not finite; None if there is none."""
        steps = [
            series.first_nonfinite[0]
            for series in self.history
            if series.first_nonfinite is not None and is_training_loss(series.name)
        ]
        return min(steps, default=None)

    def step_of(self, turn: int) -> int:
        """The step that curves show for a turn of the loop: another where a turn makes several
        steps.
        """
        return self.scanned.at(turn)

    def notes(self) -> list[str]:
        """What the foot of the view says: what is watched and what is not, and what a step is."""
        scanned, more = self.scanned, len(self.history) - MOST_SERIES
        said = [self.unwatched] if self.unwatched else []
        why = self.why_not_repeatable if self._has_model and self.tape is not None else ""
        said += [f"no step can be repeated: {why}"] if why else []
        said += [watcher.about for watcher in self.watchers or () if watcher.about]
        said += (
            [f"each turn of the loop makes {scanned.each} steps; the curves count steps"]
            if scanned
            else []
        )
        return said + ([f"{more:,} more series than are drawn: live.history"] if more > 0 else [])

    def picture(self, path: str, quantity: str = "weight") -> Any:
        """The first array to draw that a watcher has of a submodule; None if there is none."""
        found = (watcher.picture(path, quantity) for watcher in self.watchers or ())
        return next((picture for picture in found if picture is not None), None)
