"""One run read from its journal, with its settings, a table per epoch and a report."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nbmodule.base.whole_file import whole_file
from nbmodule.errors import ArgumentTypeError, FileFormatError, MissingDependencyError
from nbmodule.live.diagnosis.evidence import Evidence, logged_curves, number_or_none
from nbmodule.live.diagnosis.judge import Diagnosis, judge
from nbmodule.live.reporting.journal import LastRun
from nbmodule.live.run_data.epochs import EpochTable, epoch_table, times_of
from nbmodule.live.run_data.in_memory import KeptRun, branch_of, rewound

_NOTES = "notes.json"


class RecordedRun(LastRun):
    """A run read from its journal.

    Attributes beyond those of `nb.last_run()`:
        settings: What `nb.Live(config=...)` was given, and what was known of optimizer and model.
        parent: Identifier of the run it continues, empty if none.
        notebook: File name of its notebook, empty if unknown.
        cell: Number of its cell, 0 if unknown.
        code: Text of that cell.
        commit: Git commit of the working folder, empty if there is none.
    """

    def __init__(self, path: Path) -> None:
        self.settings: dict[str, Any] = {}
        self._tags: tuple[str, ...] = ()
        self.parent = self.notebook = self.code = self.commit = ""
        self.cell = 0
        self._beats: list[tuple[float, int]] = []
        self.branches: list[KeptRun] = []
        """The branches that rewinds cut off."""
        super().__init__(path)

    def _take_head(self, head: Mapping[str, Any]) -> None:
        tags, cell = head.get("tags"), head.get("cell")
        self._take_settings(head.get("settings"))
        self._tags = tuple(map(str, tags)) if isinstance(tags, list) else ()
        self.cell = cell if isinstance(cell, int) else 0
        for name in ("parent", "notebook", "code", "commit"):
            setattr(self, name, str(head.get(name, "")))

    def _take_settings(self, settings: Any) -> None:
        self.settings |= settings if isinstance(settings, dict) else {}

    def _take(self, record_type: bytes, payload: bytes) -> None:
        if record_type == b"C":
            self.branches.append(self._branch(*struct.unpack("<q", payload)))
        super()._take(record_type, payload)
        if record_type in (b"H", b"B", b"E"):
            self._beats.append((self.seen, self.step))
        elif record_type == b"U":
            self._take_settings(json.loads(payload))

    def _branch(self, back_to: int) -> KeptRun:
        """Return the run as it was before a rewind cut it off."""
        last = max((int(s.steps[-1]) for s in self.history if len(s)), default=0)
        label, number = rewound(back_to, last), len(self.branches)
        curves = self.history.to_numpy()
        branch = branch_of(self.run_id, self.name, self.settings, label, curves, number)
        branch.began, branch.seen, branch.tags = self.began, self.seen, self._tags
        return branch

    @property
    def tags(self) -> tuple[str, ...]:
        """Words to find the run by: those of `nb.Live(tags=...)` until others are set.

        Setting `tags` or `note` writes to a file beside the journals; the journal stays as it is.

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
        found = self._read_notes().get("tags")
        return tuple(map(str, found)) if isinstance(found, list) else self._tags

    @tags.setter
    def tags(self, words: Sequence[str]) -> None:
        if isinstance(words, str) or not all(isinstance(word, str) for word in words):
            raise ArgumentTypeError(f"tags must be a list of str, got {words!r}.")
        self._write_note("tags", list(words))

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
        """Return tags and note of this run; nothing where the file is missing or damaged."""
        folder = self.path.parent
        with contextlib.suppress(OSError, ValueError):
            status = os.stat(folder / _NOTES)
            kept = _all_notes(folder, status.st_mtime_ns, status.st_size, status.st_ino)
            found = kept.get(self.path.name)
            return found if isinstance(found, dict) else {}
        return {}

    def _write_note(self, name: str, value: Any) -> None:
        file = self.path.parent / _NOTES
        try:
            notes = dict(_all_notes.__wrapped__(file.parent)) if file.exists() else {}
        except ValueError as error:
            raise FileFormatError(
                f"{file} cannot be read, so nothing is written to it: {error}. Repair or delete it."
            ) from error
        notes[self.path.name] = {**self._read_notes(), name: value}
        with whole_file(file) as out:
            out.write(json.dumps(notes, indent=1).encode())

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
        times = times_of(self._beats, steps)
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

    @functools.cached_property
    def diagnosis(self) -> Diagnosis:
        """The verdicts of the rules for curves; see `nb.rule`."""
        curves = logged_curves(self.history)
        rate = number_or_none(self.settings.get("lr"))
        return judge(Evidence(curves, is_finished=self.state != "running", rate=rate))

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
        return epoch_table(self.history, self._beats)

    def report(self, path: str | os.PathLike[str]) -> None:
        """Write one offline HTML page: settings, curves, table per epoch, findings, environment.

        Args:
            path: Of the page; written atomically.
        """
        from nbmodule.live.runs.page import report_page

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


class RunInMemory(RecordedRun):
    """A run of this process that has no journal, or a branch of a run: a list has it too.

    Its `path` is None and its `snapshot` None: `live.best` and `live.at` have states of its model.
    """

    @property
    def snapshot(self) -> None:
        """None: no training state is on disk."""

    def __init__(self, kept: KeptRun) -> None:
        kept.update()
        self.path: Any = None
        self._kept, self.name, self.run_id, self.history = (
            kept,
            kept.name,
            kept.run_id,
            kept.history,
        )
        self.began, self.seen, self.step = kept.began, kept.seen, kept.step
        self.state, self.reason, self.is_whole = kept.state, kept.reason, True
        self.settings, self._tags, self.parent = kept.settings, kept.tags, kept.parent
        self.watched, self.branches = dict(kept.watched), []
        self.notebook, self.code = (str(kept.origin.get(n, "")) for n in ("notebook", "code"))
        self.cell, self.commit = int(kept.origin.get("cell", 0)), ""
        self._beats = [(kept.began, 0), (kept.seen, kept.step)]

    def _read_notes(self) -> dict[str, Any]:
        return self._kept.notes

    def _write_note(self, name: str, value: Any) -> None:
        self._kept.notes[name] = value


def varying_settings(runs: Sequence[RecordedRun]) -> list[str]:
    """Return the settings that differ among runs."""
    names = dict.fromkeys(name for run in runs for name in run.settings)
    return [n for n in names if len({repr(run.settings.get(n)) for run in runs}) > 1]


def series_names(runs: Sequence[RecordedRun]) -> list[str]:
    """Return the names of the series of some runs, those that most runs have first."""
    counts = Counter(series.name for run in runs for series in run.history)
    return [name for name, _ in counts.most_common()]


def data_frame(data: Any) -> Any:
    """Return a `pandas.DataFrame`.

    Raises:
        MissingDependencyError: If pandas is missing.
    """
    try:
        import pandas
    except ImportError as error:
        message = "a DataFrame needs pandas: `pip install pandas`. `.to_records()` needs nothing."
        raise MissingDependencyError(message) from error
    return pandas.DataFrame(data)


def write_parquet(data: Any, path: str | Path, about: Mapping[str, Any]) -> None:
    """Write a table as a Parquet file; pandas reads `about` back as `attrs` of the frame.

    Raises:
        MissingDependencyError: If pandas or pyarrow is missing.
    """
    try:
        frame = data_frame(data)
        frame.attrs = dict(about)
        packed = frame.to_parquet()
    except ImportError as error:
        raise MissingDependencyError(
            'Parquet files need pandas and pyarrow: `pip install "nbmodule[parquet]"`. '
            "`.to_csv(path)` and `.to_records()` need nothing."
        ) from error
    with whole_file(path) as file:
        file.write(packed)


@functools.lru_cache(8)
def _all_notes(folder: Path, *version: int) -> dict[str, Any]:
    """The notes of a folder in one version of their file: a list of runs reads it once."""
    if (folder / _NOTES).stat().st_size >= 2**24:
        raise ValueError("too large")
    notes = json.loads((folder / _NOTES).read_text(encoding="utf-8"))
    if not isinstance(notes, dict):
        raise ValueError("no table of notes")
    return notes
