"""A run as data, without its model: one of this process, kept in memory, or one of a journal."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
import warnings
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nbmodule.base.curves import Curve
from nbmodule.base.format import format_count, printable_repr
from nbmodule.base.notebook import running_cell_id, running_execution
from nbmodule.base.whole_file import is_held, whole_file
from nbmodule.core.variables.traceback import level_of_user_code
from nbmodule.errors import (
    ArgumentTypeError,
    FileFormatError,
    MissingDependencyError,
    NbModuleError,
)
from nbmodule.live.reporting.journal import NOTES, SNAPSHOT, folders_of, journals_in, read_records
from nbmodule.live.run_data.epochs import EpochTable, epoch_table, times_of, when
from nbmodule.live.run_data.history import History, load_extra
from nbmodule.live.run_data.media import Media
from nbmodule.live.run_data.state import (
    Branch,
    RunState,
    checked_tags,
    notebook_cell,
    reduced_curves,
)
from nbmodule.live.run_data.strips import Sample, Strips

if TYPE_CHECKING:
    from nbmodule.live.diagnosis.rule import Diagnosis

MOST_RUNS = 200
MOST_BYTES = 2**28
"""Host memory of logged values; the oldest runs are dropped first."""
MOST_PALE = 5
"""Earlier runs of a cell that are drawn pale."""


class RunRecord:
    """A run as data, without its model: one of this process, a branch, or one read from a journal.

    Attributes:
        name: Its title.
        run_id: Its identifier.
        began: Start, in seconds since 1970.
        seen: When it was last alive, in seconds since 1970.
        state: How it ended; `died` if nobody noted an end, `running` while it goes on.
        reason: Why it ended, if known.
        step: The last known step.
        history: All that it logged.
        watched: Statistics of submodules, by quantity.
        settings: Those of `nb.Live(config=...)`, and those known of optimizer and model.
        parent: Identifier of the run that it continues or branches off, empty if none.
        branches: The branches that rewinds cut off.
        notebook: File name of its notebook, empty if unknown.
        cell: Number of its cell, 0 if unknown.
        code: Text of that cell.
        commit: Git commit of the working folder, empty if there is none.
        path: The journal; None for a run in memory alone.
        is_whole: False if the journal was damaged or cut off.
    """

    name = run_id = parent = reason = notebook = code = commit = ""
    state, step, cell = "running", 0, 0
    path: Any = None
    is_whole = True
    cell_id = execution = ""
    """Identifiers of the notebook cell, and of its execution; empty outside of a notebook."""
    ended = ""
    """How a run of this process ended, in words; empty while it goes on."""
    has_journal = False
    is_pale = True
    """True if later runs of the cell draw its curves pale."""
    snapshot: Any = None
    """The newest training state on disk; of a run in memory `live.best` and `live.at` have it."""
    _tags: tuple[str, ...] = ()
    _branched = 0
    _diagnosis: Diagnosis | None = None
    _run: weakref.ref[RunState] | None = None

    def __init__(self) -> None:
        self.began = self.seen = time.time()
        self.history = History()
        self.watched: dict[str, Strips] = {}
        self.settings: dict[str, Any] = {}
        self.branches: list[RunRecord] = []
        self.beats: list[tuple[float, int]] = []
        """Times at which steps were made, as pairs of seconds since 1970 and step."""
        self._notes: dict[str, Any] = {}

    def update(self) -> None:
        """Note how far the run is, while it goes on."""
        if self.state != "running" or self._run is None:
            return
        run = self._run()
        if run is None:  # its `with` block was never left
            self.state = "died"
            return
        progress, self.step, self.name = run.count.progress, run.count.step, run.name
        self._tags, self.parent, self.seen = run.tags, run.parent, time.time()
        self.beats = [(self.began, 0), (self.seen, self.step)]
        if run.count.has_ended:
            self.state, self.reason, self.ended = progress.state, progress.reason, str(progress)
            self._diagnosis = None

    def keep(self) -> RunRecord:
        """Add this run to those of the process, in place of one of the same identifier; the oldest
        above the bounds are dropped.
        """
        _runs[:] = [other for other in _runs if other.run_id != self.run_id]
        _runs.append(self)
        del _runs[:-MOST_RUNS]
        nbytes = sum(other.history.nbytes for other in _runs)
        while nbytes > MOST_BYTES and len(_runs) > 1:
            nbytes -= _runs.pop(0).history.nbytes
        return self

    def branch(self, label: str, curves: Mapping[str, Curve], state: str) -> RunRecord:
        """Return a run that branches off this one and differs from it in the setting `branch`."""
        self.update()
        branch, self._branched = RunRecord(), self._branched + 1
        branch.run_id, branch.parent = f"{self.run_id}.{self._branched}", self.run_id
        branch.name, branch._tags, branch.state = self.name, self.tags, state
        branch.began, branch.seen, branch.beats = self.began, self.seen, list(self.beats)
        branch.settings = {**self.settings, "branch": label}
        branch.is_pale = False
        for name, (steps, values) in curves.items():
            branch.history.extend(name, steps, values)
            branch.step = max([branch.step, *steps[-1:].tolist()])
        return branch

    def left_behind(self, step: int) -> RunRecord:
        """Return the branch that a rewind to a step leaves behind: this run as it is."""
        branch = self.branch("", self.history.to_numpy(), "rewound")
        ends = f"{format_count(branch.step)} → {format_count(step)}"
        branch.settings["branch"] = f"rewound {ends}"
        return branch

    @printable_repr
    def __repr__(self) -> str:
        how = f"{self.state} at step {format_count(self.step)}"
        how += "" if self.state == "running" else f", {when(self.seen)}"
        reason = f" ({self.reason})" if self.reason else ""
        cut = "" if self.is_whole else "; the last record was cut off"
        return f"{self.name}: {how}{reason}{cut}\n{self.history!r}"

    @property
    def tags(self) -> tuple[str, ...]:
        """Words to find the run by: those of `nb.Live(tags=...)` until others are set.

        Setting `tags` or `note` writes to a file beside the journal, which stays as it is.

        Example:
            >>> import nbmodule as nb, tempfile
            >>> folder = tempfile.mkdtemp()
            >>> with nb.Live(display=False, journal=folder, tags=["first"]) as live:
            ...     for i in live.steps(range(2)):
            ...         live.log(loss=1.0)
            >>> run = nb.runs(folder)[0]
            >>> run.tags, run.note = ["kept"], "the baseline"
            >>> nb.runs(folder)[0].tags, nb.runs(folder)[0].note
            (('kept',), 'the baseline')
        """
        words = self._read_notes().get("tags")
        return tuple(map(str, words)) if isinstance(words, list) else self._tags

    @tags.setter
    def tags(self, words: Sequence[str]) -> None:
        self._write_note("tags", list(checked_tags(words)))

    @property
    def note(self) -> str:
        """A text about the run, kept as `tags` are; empty if none."""
        return str(self._read_notes().get("note", ""))

    @note.setter
    def note(self, text: str) -> None:
        if not isinstance(text, str):
            raise ArgumentTypeError(f"note must be a str, got {text!r}.")
        self._write_note("note", text)

    def _read_notes(self) -> dict[str, Any]:
        """Return tags and note that a user has set."""
        return self._notes

    def _write_note(self, name: str, value: object) -> None:
        self._notes[name] = value

    @property
    def origin(self) -> str:
        """Its notebook and cell, empty if unknown."""
        return f"{self.notebook} {f'[{self.cell}]' if self.cell else ''}".strip()

    @property
    def seconds(self) -> float:
        """Its duration in seconds."""
        return max(self.seen - self.began, 0.0)

    @property
    def best(self) -> dict[str, float]:
        """The best value of each series: the lowest, or the highest of accuracies and scores."""
        return {s.name: s.best[1] for s in self.history if s.best is not None}

    @property
    def last(self) -> dict[str, float]:
        """The last value of each series."""
        return {s.name: float(s.last) for s in self.history}

    def seconds_at(self, steps: Any) -> Any:
        """Return how many seconds after its begin each of some steps was made.

        A journal notes the time about once a second; times between are interpolated.
        """
        times = times_of(self.beats, steps)
        return np.zeros(len(steps)) if times is None else times - self.began

    @property
    def model(self) -> Any:
        """The saved variables of its model as a Container; None if the run saved none, or they
        cannot be read.
        """
        from nbmodule.tree.container import Container

        try:
            state = self.snapshot
        except FileFormatError:
            return None
        return Container(state["model"]) if state and state.get("model") else None

    @property
    def diagnosis(self) -> Diagnosis:
        """The verdicts of the rules for curves; see `nb.rule`."""
        from nbmodule.live.diagnosis.evidence import Evidence, logged_curves, number_or_none
        from nbmodule.live.diagnosis.rule import judge

        if self._diagnosis is None or self.state == "running":
            rate = number_or_none(self.settings.get("lr"))
            self._diagnosis = judge(Evidence(logged_curves(self.history), rate=rate))
        return self._diagnosis

    def epochs(self) -> EpochTable:
        """Return one row per validation: the means of training series since the one before, and the
        validation series. Without a validation series, ten rows of equal length.

        Example:
            >>> import nbmodule as nb, tempfile
            >>> folder = tempfile.mkdtemp()
            >>> with nb.Live(display=False, journal=folder) as live:
            ...     for i in live.steps(range(4)):
            ...         live.log(loss=4.0 - i)
            ...         if i % 2:
            ...             live.log(val_loss=5.0 - i)
            >>> for row in nb.runs(folder)[0].epochs().rows:
            ...     print(row["step"], row["loss"], row["val_loss"])
            2 3.5 4.0
            4 1.5 2.0
        """
        return epoch_table(self.history, self.beats)

    def report(self, path: str | os.PathLike[str]) -> None:
        """Write one offline HTML page: settings, curves, table per epoch, findings, environment.

        Args:
            path: Of the page; written atomically.
        """
        from nbmodule.live.runs.run_views import report_page

        with whole_file(path) as file:
            file.write(report_page(self).encode())

    def to_csv(self, path: str | Path) -> None:
        """Write the logged series as a CSV file: a row per step, a column per series."""
        self.history.to_csv(path)

    def to_parquet(self, path: str | Path) -> None:
        """Write the logged series as a Parquet file, with the settings in its metadata.

        Raises:
            MissingDependencyError: If pandas or pyarrow is missing.
        """
        steps, columns = self.history.to_table()
        write_parquet({"step": steps, **columns}, path, {"name": self.name, **self.settings})

    def to_tensorboard(self, folder: str | Path) -> None:
        """Write the logged series as TensorBoard event files, through tensorboardX.

        Raises:
            MissingDependencyError: If tensorboardX is missing.
        """
        self.history.to_tensorboard(folder)


def write_parquet(data: object, path: str | Path, about: Mapping[str, Any]) -> None:
    """Write a table as a Parquet file; pandas reads `about` back as `attrs` of the frame.

    Raises:
        MissingDependencyError: If pandas or pyarrow is missing.
    """
    try:
        frame = load_extra("pandas", "to_parquet").DataFrame(data)
        frame.attrs = dict(about)
        packed = frame.to_parquet()
    except ImportError as error:
        raise MissingDependencyError(
            'Parquet files need pandas and pyarrow: `pip install "nbmodule[parquet]"`. '
            "`.to_csv(path)` and `.to_records()` need nothing."
        ) from error
    with whole_file(path) as file:
        file.write(packed)


# -- the runs of this process --
_runs: list[RunRecord] = []


def keep_run(run: RunState) -> RunRecord:
    """Keep a run that begins."""
    kept = RunRecord()
    kept.run_id, kept.name, kept.cell_id = run.run_id, run.name, run.cell
    kept.history, kept.settings, kept.watched = run.history, run.settings, run.watched
    kept.execution, kept._run = running_execution(), weakref.ref(run)
    vars(kept).update(notebook_cell())
    return kept.keep()


def kept_runs() -> list[RunRecord]:
    """Return the runs of this process, oldest first."""
    for kept in _runs:
        kept.update()
    return list(_runs)


def earlier_runs(cell: str) -> list[Branch]:
    """Return the pale curves of the runs of a cell that are over, oldest first."""
    kept = [run for run in kept_runs() if run.cell_id == cell and run.is_pale and run.ended]
    earlier = [Branch(run.ended, reduced_curves(run.history)) for run in kept[-MOST_RUNS:]]
    return [run for run in earlier if run.curves][-MOST_PALE:]


def forget_earlier(cell: str) -> None:
    """Draw the earlier runs of a cell no more."""
    for kept in _runs:
        kept.is_pale = kept.is_pale and kept.cell_id != cell


def current_cell() -> str:
    """Return the identifier of the running notebook cell, otherwise the line of the caller."""
    if (cell := running_cell_id()) is not None:
        return cell
    frame = sys._getframe(level_of_user_code() - 1)
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


# -- runs of journals --
class RecordedRun(RunRecord):
    """A run read from its journal, also after its kernel died: all that was written."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path, self.state = path, "died"
        is_running, records = is_held(path), read_records(path)
        try:
            for head, data in records:
                self._take(head, data)
        except Exception:  # noqa: BLE001 - a crafted or damaged record ends the reading there
            self.is_whole = False
        if self.state == "died" and is_running:
            self.state, self.is_whole = "running", True  # its last record may be on its way

    def _take(self, head: dict[str, Any], data: bytes) -> None:
        """Read one record."""
        record = head["record"]
        if record == "run":
            self._take_head(head)
        elif record == "points":
            steps = np.frombuffer(data, "<i8", head["count"])
            values = np.frombuffer(data, head["dtype"], head["count"], steps.nbytes)
            self.history.extend(str(head["name"]), steps, values)
        elif record == "statistics":
            quantity, values = str(head["quantity"]), np.frombuffer(data, "<f4")
            values = values.reshape(head["shape"])
            sample = Sample(int(head["step"]), quantity, tuple(head["paths"]), values)
            self.watched.setdefault(quantity, Strips(quantity)).add(sample)
        elif record == "media":
            value = data.decode() if head["kind"] == "text" else Media.from_bytes(data)
            self.history.media.put(str(head["name"]), int(head["step"]), value)
        elif record == "beat":
            self.seen, self.step = float(head["time"]), int(head["step"])
        elif record == "cut":
            self._cut(int(head["step"]))
        elif record == "settings":
            self._take_settings(head["settings"])
        elif record == "end":
            self.state, self.reason = str(head["state"]), str(head["reason"])
        if record in ("run", "beat"):
            self.beats.append((self.seen, self.step))

    def _take_head(self, head: Mapping[str, Any]) -> None:
        tags, cell = head.get("tags"), head.get("cell")
        self.began = self.seen = float(head.get("began", 0.0))
        self.name, self.run_id = str(head.get("name", "")), str(head.get("run", ""))
        self._take_settings(head.get("settings"))
        self._tags = tuple(map(str, tags)) if isinstance(tags, list) else ()
        self.cell = cell if isinstance(cell, int) else 0
        for name in ("parent", "notebook", "code", "commit"):
            setattr(self, name, str(head.get(name, "")))

    def _take_settings(self, settings: object) -> None:
        self.settings |= settings if isinstance(settings, dict) else {}

    def _cut(self, step: int) -> None:
        """Go back to a step; the run as it was before is a branch."""
        self.branches.append(self.left_behind(step))
        for kept in (self.history, *self.watched.values()):
            kept.cut(step)

    @property
    def snapshot(self) -> dict[str, Any] | None:
        """The newest training state that went to disk: `step`, `model`, `optimizer`, `random` and
        `controls`; None if there is none. `nb.Live(resume=run)` continues from there.

        `model.load_state_dict(run.snapshot["model"])` and
        `optimizer.load_state_dict(run.snapshot["optimizer"])` put them back. Of several models,
        `run.snapshot["model"]` has a dict for each, under the name it was given with.

        Raises:
            FileFormatError: If it is damaged.
        """
        path = self.path.with_suffix(SNAPSHOT)
        if not path.is_file():
            return None
        from nbmodule.files import read

        contents = read(path)
        if "step" not in (contents.metadata or ()):
            raise FileFormatError(f"cannot load {path}: it is no snapshot of a run.")
        return {"model": {}, "optimizer": {}, **contents.variables, **contents.metadata}

    def _read_notes(self) -> dict[str, Any]:
        """Return tags and note of this run; nothing where their file is missing or damaged."""
        with contextlib.suppress(OSError, ValueError):
            notes = json.loads(self.path.with_suffix(NOTES).read_text(encoding="utf-8"))
            return notes if isinstance(notes, dict) else {}
        return {}

    def _write_note(self, name: str, value: object) -> None:
        with whole_file(self.path.with_suffix(NOTES)) as file:
            file.write(json.dumps({**self._read_notes(), name: value}).encode())


def last_run(folder: str | Path | None = None) -> RecordedRun:
    """Read the newest run from its journal: what it logged, statistics, and the newest snapshot,
    also after its kernel died.

    Args:
        folder: Where the journals are, as given to `nb.Live(journal=...)`; the one beside the
            notebook if not given. Or the path of one journal. A file of the folder that cannot be
            read is skipped with a warning.

    Returns:
        The run: `.history`, `.watched`, `.snapshot`, and how it ended.

    Raises:
        NbModuleError: if there is no journal.
        FileFormatError: if none can be read.

    Example:
        >>> import nbmodule as nb, tempfile
        >>> folder = tempfile.mkdtemp()
        >>> with nb.Live(display=False, journal=folder) as live:
        ...     for i in live.steps(range(3)):
        ...         live.log(loss=1 / (i + 1))
        >>> nb.last_run(folder).history.loss.values.tolist()
        [1.0, 0.5, 0.3333333333333333]
    """
    if folder is not None and Path(folder).is_file():
        return RecordedRun(Path(folder))
    folders = folders_of(folder)
    written = [(path.stat(), path) for each in folders for path in journals_in(each)]
    newest = sorted((-status.st_mtime_ns, path) for status, path in written if status.st_size)
    errors: list[FileFormatError] = []
    for _, path in newest:
        try:
            run = RecordedRun(path)
        except FileFormatError as error:
            errors.append(error)
            continue
        for error in errors:
            warnings.warn(f"skipped a journal: {error}", stacklevel=2)
        return run
    if errors:
        raise errors[0]
    raise NbModuleError(
        f"there is no journal of a run in {' or '.join(map(str, folders))}. In a notebook each "
        "run writes one; elsewhere give nb.Live(..., journal='runs'), and nb.last_run('runs') "
        "reads it."
    )
