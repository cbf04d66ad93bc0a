"""One run read from its journal, with its settings, a table per epoch and a report."""

from __future__ import annotations

import contextlib
import csv
import functools
import io
import json
import math
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nbmodule.base.format import format_count, format_number, printable, shown
from nbmodule.base.series_names import group_of, is_better_when_higher
from nbmodule.base.whole_file import whole_file
from nbmodule.errors import ArgumentTypeError, FileFormatError, MissingDependencyError
from nbmodule.live.diagnosis.evidence import Evidence, LoggedCurve
from nbmodule.live.diagnosis.judge import Diagnosis, judge
from nbmodule.live.reporting.journal import LastRun

_NOTES = "notes.json"


class RecordedRun(LastRun):
    """A run read from its journal.

    Attributes beyond those of `nb.last_run()`:
        settings: What `nb.Live(config=...)` was given, and what was known of optimizer and model.
        parent: Identifier of the run it continues, empty if none.
    """

    def __init__(self, path: Path) -> None:
        self.settings: dict[str, Any] = {}
        self._tags: tuple[str, ...] = ()
        self.parent = ""
        super().__init__(path)

    def _take_head(self, head: Mapping[str, Any]) -> None:
        settings, tags = head.get("settings"), head.get("tags")
        self.settings = dict(settings) if isinstance(settings, dict) else {}
        self._tags = tuple(map(str, tags)) if isinstance(tags, list) else ()
        self.parent = str(head.get("parent", ""))

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
        found = _read_notes(self.path).get("tags")
        return tuple(map(str, found)) if isinstance(found, list) else self._tags

    @tags.setter
    def tags(self, words: Sequence[str]) -> None:
        if isinstance(words, str) or not all(isinstance(word, str) for word in words):
            raise ArgumentTypeError(f"tags must be a list of words, got {words!r}.")
        _write_note(self.path, "tags", list(words))

    @property
    def note(self) -> str:
        """A text about the run, kept as `tags` are; empty if none."""
        return str(_read_notes(self.path).get("note", ""))

    @note.setter
    def note(self, text: str) -> None:
        if not isinstance(text, str):
            raise ArgumentTypeError(f"note must be a text, got {text!r}.")
        _write_note(self.path, "note", text)

    @property
    def seconds(self) -> float:
        """How long it ran, in seconds."""
        return max(self.seen - self.began, 0.0)

    @property
    def best(self) -> dict[str, float]:
        """The best value of each series: the lowest, or the highest of accuracies and scores."""
        return {s.name: s.best[1] for s in self.history if s.best is not None}

    @property
    def last(self) -> dict[str, float]:
        """The last value of each series."""
        return {s.name: float(s.last) for s in self.history}

    @property
    def diagnosis(self) -> Diagnosis:
        """What the rules for curves say of the run; see `nb.rule`."""
        curves = {
            s.name: LoggedCurve(s.name, s.steps, s.values.astype(np.float64)) for s in self.history
        }
        return judge(Evidence(curves, is_finished=self.state != "running"))

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
            >>> nb.runs(folder)[0].epochs().rows
            [{'step': 2, 'loss': 3.5, 'val_loss': 4.0}, {'step': 4, 'loss': 1.5, 'val_loss': 2.0}]
        """
        held = [s for s in self.history if group_of(s.name)[1] != "train"]
        train = [s for s in self.history if group_of(s.name)[1] == "train"]
        if held:
            ends = sorted({int(step) for s in held for step in s.steps})
        else:
            last = max((int(s.steps[-1]) for s in train if len(s)), default=0)
            ends = sorted({math.ceil(last * k / 10) for k in range(1, 11)} - {0})
        rows, begin = [], -1
        for end in ends:
            row: dict[str, float] = {"step": end}
            for series in train:
                inside = series.values[(series.steps > begin) & (series.steps <= end)]
                if len(inside):
                    row[series.name] = float(np.mean(inside, dtype=np.float64))
            for series in held:
                at = np.flatnonzero(series.steps == end)
                if len(at):
                    row[series.name] = float(series.values[at[-1]])
            rows.append(row)
            begin = end
        return EpochTable(rows)

    def report(self, path: str | os.PathLike[str]) -> None:
        """Write one offline HTML page: settings, curves, table per epoch, findings, environment.

        Args:
            path: Of the page; written atomically.
        """
        from nbmodule.live.runs.report import report_page

        with whole_file(path) as file:
            file.write(report_page(self).encode())

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Write the logged series as a CSV file: a row per step, a column per series."""
        steps, columns = self.history.to_table()
        text = io.StringIO()
        writer = csv.writer(text)
        writer.writerow(["step", *columns])
        writer.writerows(zip(steps, *columns.values()))
        with whole_file(path) as file:
            file.write(text.getvalue().encode())

    def to_parquet(self, path: str | os.PathLike[str]) -> None:
        """Write the logged series as a Parquet file, through pandas.

        Raises:
            MissingDependencyError: If pandas or its Parquet engine is missing.
        """
        steps, columns = self.history.to_table()
        try:
            data_frame({"step": steps, **columns}).to_parquet(path)
        except ImportError as error:
            raise MissingDependencyError(f"cannot write Parquet: {error}") from error

    def to_tensorboard(self, folder: str | os.PathLike[str]) -> None:
        """Write the logged series as TensorBoard event files, through tensorboardX.

        Raises:
            MissingDependencyError: If tensorboardX is missing.
        """
        try:
            from tensorboardX import SummaryWriter
        except ImportError as error:
            message = 'TensorBoard files need tensorboardX: `pip install "nbmodule[live]"`.'
            raise MissingDependencyError(message) from error
        with SummaryWriter(os.fspath(folder)) as writer:
            for series in self.history:
                for step, value in zip(series.steps.tolist(), series.values.tolist()):
                    writer.add_scalar(series.name, value, step, walltime=self.began)


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


# -- notes -----------------------------------------------------------------------------------------
def _read_notes(journal: Path) -> dict[str, Any]:
    """What was set for one run; nothing where the file is missing or damaged."""
    with contextlib.suppress(OSError, ValueError):
        status = os.stat(journal.parent / _NOTES)
        kept = _all_notes(journal.parent, status.st_mtime_ns, status.st_size, status.st_ino)
        found = kept.get(journal.name)
        return found if isinstance(found, dict) else {}
    return {}


@functools.lru_cache(8)
def _all_notes(folder: Path, *version: int) -> dict[str, Any]:
    """The notes of a folder in one version of their file: a list of runs reads it once."""
    if (folder / _NOTES).stat().st_size >= 2**24:
        raise ValueError("too large")
    notes = json.loads((folder / _NOTES).read_text(encoding="utf-8"))
    if not isinstance(notes, dict):
        raise ValueError("no table of notes")
    return notes


def _write_note(journal: Path, name: str, value: Any) -> None:
    file = journal.parent / _NOTES
    try:
        notes = dict(_all_notes.__wrapped__(journal.parent)) if file.exists() else {}
    except ValueError as error:
        raise FileFormatError(
            f"{file} cannot be read, so nothing is written to it: {error}. Repair or delete it."
        ) from error
    notes[journal.name] = {**_read_notes(journal), name: value}
    with whole_file(file) as out:
        out.write(json.dumps(notes, indent=1).encode())


class EpochTable:
    """A row per epoch: training means and validation values, the best of each column marked.

    Attributes:
        rows: A dict per row, with `step` and the series that have a value there.
    """

    def __init__(self, rows: list[dict[str, float]]) -> None:
        self.rows = rows

    @property
    def columns(self) -> list[str]:
        """`step`, then the series in the order in which they first have a value."""
        return list(dict.fromkeys(name for row in self.rows for name in row)) or ["step"]

    @property
    def best(self) -> dict[str, int]:
        """For each series the row with its best value."""
        found = {}
        for name in self.columns[1:]:
            values = [row.get(name, math.nan) for row in self.rows]
            if not all(map(math.isnan, values)):
                pick = np.nanargmax if is_better_when_higher(name) else np.nanargmin
                found[name] = int(pick(values))
        return found

    def cells(self) -> list[list[str]]:
        """The table as text, without its head; the best of each column ends in `*`."""
        best = self.best
        return [
            [
                format_count(int(row["step"]))
                if name == "step"
                else ""
                if name not in row
                else format_number(row[name], 4) + ("*" if best.get(name) == k else "")
                for name in self.columns
            ]
            for k, row in enumerate(self.rows)
        ]

    @shown
    def __repr__(self) -> str:
        return text_table(self.columns, self.cells()) if self.rows else "no epochs yet"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        from nbmodule.live.runs import report  # noqa: F401 registers the record
        from nbmodule.views import mimebundle

        return mimebundle(self)


def text_table(head: list[str], rows: list[list[str]]) -> str:
    """Lines with columns of one width; numbers to the right."""
    cells = [[printable(cell) for cell in row] for row in [head, *rows]]
    widths = [max(len(row[k]) for row in cells) for k in range(len(head))]
    lines = []
    for number, row in enumerate(cells):
        padded = [
            cell.rjust(width) if number and _is_numeric(cell) else cell.ljust(width)
            for cell, width in zip(row, widths)
        ]
        lines.append("  ".join(padded).rstrip())
    return "\n".join(lines)


def _is_numeric(text: str) -> bool:
    return bool(text) and (text[0].isdigit() or text[0] in "-−")


def when(seconds: float) -> str:
    """A moment as `2026-11-23 14:05`, in local time."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))
