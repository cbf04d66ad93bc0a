"""`nb.Recorder`: calls, gradients and parameters of every n-th step of a training run."""

from __future__ import annotations

import os
import re
import warnings
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax

from nbmodule.base.foreign import is_foreign
from nbmodule.base.format import bytes_of, count_noun, format_bytes, printable_repr
from nbmodule.base.kinds import as_flag, is_whole
from nbmodule.base.sockets import Shown, socket
from nbmodule.calls.call import bytes_in
from nbmodule.calls.calls import Calls, kept_step, list_steps
from nbmodule.calls.reduction import read_statistics, reduce_tree
from nbmodule.calls.rows import hold
from nbmodule.calls.saved_calls import read_record, write_record
from nbmodule.calls.track import STATS, track
from nbmodule.core.call.module import CoreModule
from nbmodule.core.structure.walk import plan_of
from nbmodule.errors import ArgumentError, ArgumentTypeError, FileFormatError

_FILE = re.compile(r"step_(\d{9})\.h5")


class RecordedStep(Calls):
    """The calls of one recorded step.

    Attributes:
        number: Number of the step.
        gradients: Gradients by the parameters, by path: arrays or statistics; empty if not
            recorded.
        parameters: Parameters after the step, likewise.
    """

    def __init__(
        self, number: int, calls: Calls, gradients: dict[str, Any], parameters: dict[str, Any]
    ) -> None:
        super().__init__(list(calls), calls.name, calls.known, (), calls.others)
        self.number, self.gradients, self.parameters = number, gradients, parameters

    @property
    def nbytes(self) -> int:
        return super().nbytes + bytes_in((self.gradients, self.parameters))


class Recorder(Shown):
    """Keeps tracked values over the steps of a training run.

    Wrap each step in `with recorder:`. Only every n-th step is tracked; the others run the same
    executable as without a recorder. `recorder[1200]` is the calls of that step.

    When the budget is full, the oldest steps are dropped. On disk each step is an HDF5 file that is
    written atomically, so that earlier steps can be read whatever happens to the run. A step that
    cannot be written is a warning, and training goes on.

    Args:
        model: The module to track, or an unconverted model of another framework.
        returns: As in `nb.track`; `'stats'` keeps statistics of returns, gradients and parameters.
        parameters: Whether to keep the parameters after each recorded step.
        gradients: Whether to keep gradients by returns and parameters.
        every: Distance of recorded steps.
        budget: Memory, or space on disk.
        where: `'memory'`, or the path of a folder; recording goes on after the steps that an
            earlier run left there.
        depth: As in `nb.track`.
        only: As in `nb.track`.

    Example:
        >>> model = nb.Sequential(nb.Linear(3, 4), nb.ReLU())
        >>> step = nb.jit(lambda x: model(x).sum())
        >>> recorder = nb.Recorder(model, every=10)
        >>> for _ in range(25):
        ...     with recorder:
        ...         _ = step(jnp.ones((2, 3)))
        >>> recorder.steps, recorder[20]["1"].statistics.min >= 0
        ((0, 10, 20), True)
    """

    def __init__(
        self,
        model: CoreModule,
        returns: bool | str = "stats",
        parameters: bool = False,
        gradients: bool = False,
        every: int = 100,
        budget: str | int = "256MB",
        where: str | os.PathLike[str] = "memory",
        *,
        depth: int | None = None,
        only: object = None,
    ) -> None:
        if not is_whole(every) or every < 1:
            raise ArgumentError(f"every must be at least 1 (in steps), got {every!r}.")
        self.every, self.budget = int(every), bytes_of(budget)
        self.returns, self.parameters = returns, as_flag("parameters", parameters)
        if not isinstance(where, (str, os.PathLike)):
            raise ArgumentTypeError(
                f"where must be 'memory' or a folder, got {type(where).__name__}."
            )
        self._model = (lambda: model) if is_foreign(model) else weakref.ref(model)
        self._tracking = track(
            model, returns, gradients=gradients, depth=depth, only=only, last=16, budget=self.budget
        )
        self.name = type(model).__name__
        self._store: _Memory | _Folder = (
            _Memory(self.budget) if where == "memory" else _Folder(where, self.budget)
        )
        steps = self._store.steps()
        self.next = steps[-1] + 1 if steps else 0
        self.errors: list[str] = []
        self._open: list[Any] = []
        hold(
            self, "recorder", lambda x: f"{x.name}, {count_noun(len(x), 'step')}, {x._store.where}"
        )

    # -- recording --
    def __enter__(self) -> Recorder:
        context = self.step()
        context.__enter__()
        self._open.append(context)
        return self

    def __exit__(self, *exc: object) -> None:
        self._open.pop().__exit__(*exc)

    @contextmanager
    def step(self, number: int | None = None) -> Iterator[None]:
        """Record the block, if it is a recorded step.

        Args:
            number: Number of the step; counted by default. A repeated number replaces the earlier
                step.
        """
        number = self.next if number is None else number
        self.next = number + 1
        if number % self.every:
            yield
            return
        calls = None
        try:
            with self._tracking as calls:
                yield
        finally:  # a step that failed is recorded too
            if calls is not None:
                self._keep(number, calls)

    def _keep(self, number: int, calls: Any) -> None:
        if not len(calls):
            return
        gradients = calls.gradients if self._tracking.gradients else {}
        step = RecordedStep(number, calls, gradients, self._parameters())
        try:
            self._store.put(step)
        except OSError as error:
            text = (
                f"step {number} could not be recorded: {error} Steps recorded earlier are "
                f"unchanged."
            )
            self.errors.append(text)
            warnings.warn(f"{text} Training goes on.", RuntimeWarning, stacklevel=4)

    def _parameters(self) -> dict[str, Any]:
        model = self._model()
        if not self.parameters or model is None:
            return {}
        values = (
            socket("native_verb")("variables", model)
            if is_foreign(model)
            else {at.name: variable.value for variable, at in plan_of(model).places.items()}
        )
        if self._tracking.returns == STATS:
            return {name: read_statistics(reduce_tree([x])[0]) for name, x in values.items()}
        # the array itself may be donated to the next step
        return {name: jax.numpy.copy(x) for name, x in values.items()}

    # -- recorded steps --
    @property
    def model(self) -> Any:
        """The tracked model; None once it is deleted."""
        return self._model()

    @property
    def steps(self) -> tuple[int, ...]:
        """Numbers of the recorded steps."""
        return tuple(self._store.steps())

    def __len__(self) -> int:
        return len(self.steps)

    def __iter__(self) -> Iterator[RecordedStep]:
        return (self._store.get(number) for number in self.steps)

    def __contains__(self, number: object) -> bool:
        return number in self.steps

    def __getitem__(self, number: int) -> RecordedStep:
        return self._store.get(kept_step(self.steps, number))

    @property
    def nbytes(self) -> int:
        """Bytes of the recorded steps."""
        return self._store.nbytes()

    def clear(self) -> None:
        """Delete all recorded steps, also their files."""
        self._store.clear()

    @printable_repr
    def __repr__(self) -> str:
        return (
            f"<Recorder of {self.name}: {len(self)} steps ({list_steps(self.steps)}), "
            f"{format_bytes(self.nbytes)} of {format_bytes(self.budget)}, {self._store.where}>"
        )


class _Memory:
    """Steps in memory."""

    where = "in memory"

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.kept: dict[int, tuple[RecordedStep, int]] = {}

    def put(self, step: RecordedStep) -> None:
        self.kept.pop(step.number, None)
        self.kept[step.number] = (step, step.nbytes)
        while self.nbytes() > self.budget and len(self.kept) > 1:
            del self.kept[min(number for number in self.kept if number != step.number)]

    def get(self, number: int) -> RecordedStep:
        return self.kept[number][0]

    def steps(self) -> list[int]:
        return sorted(self.kept)

    def nbytes(self) -> int:
        return sum(size for _, size in self.kept.values())

    def clear(self) -> None:
        self.kept.clear()


class _Folder:
    """Steps as files in a folder."""

    def __init__(self, path: str | os.PathLike[str], budget: int) -> None:
        self.path, self.budget = Path(path), budget
        if self.path.exists() and not self.path.is_dir():
            raise ArgumentError(
                f"a recorder keeps its steps in a folder, and {self.path} is a file. Give "
                f"another path, or 'memory'."
            )
        self.where = f"in {self.path}"

    def file(self, number: int) -> Path:
        return self.path / f"step_{number:09d}.h5"

    def put(self, step: RecordedStep) -> None:
        more = {"gradients": step.gradients, "parameters": step.parameters}
        write_record(self.file(step.number), step, more)
        steps = self.steps()
        while self.nbytes() > self.budget and len(steps) > 1:
            self.file(steps.pop(0)).unlink(missing_ok=True)

    def get(self, number: int) -> RecordedStep:
        file = self.file(number)
        try:
            calls, more = read_record(file)
        except FileFormatError as error:
            raise FileFormatError(f"step {number} cannot be read: {error}") from error
        return RecordedStep(number, calls, more["gradients"], more["parameters"])

    def steps(self) -> list[int]:
        if not self.path.is_dir():
            return []
        return sorted(
            int(match[1]) for name in os.listdir(self.path) if (match := _FILE.fullmatch(name))
        )

    def nbytes(self) -> int:
        return sum(self.file(number).stat().st_size for number in self.steps())

    def clear(self) -> None:
        for number in self.steps():
            self.file(number).unlink(missing_ok=True)
