"""Read runs from their journals."""

from __future__ import annotations

import contextlib
import json
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nbmodule.base.trees import flat
from nbmodule.base.whole_file import is_held, whole_file
from nbmodule.errors import FileFormatError, NbModuleError
from nbmodule.live.reporting.journal import (
    NOTES,
    folders_of,
    journals_in,
    read_records,
    unpack_state,
)
from nbmodule.live.run_data.media import Media
from nbmodule.live.run_data.strips import Sample, Strips
from nbmodule.live.runs.record import RunRecord


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
            FileFormatError: If it is damaged, or claims to be larger than 100 times its size and
                256 MiB.
        """
        path = self.path.with_suffix(".npz")
        if not path.is_file():
            return None
        from nbmodule.files import read

        arrays = flat(read(path).variables)
        try:
            return unpack_state({"/".join(chain): array for chain, array in arrays})
        except FileFormatError:
            raise
        except (KeyError, ValueError, TypeError) as error:
            raise FileFormatError(f"cannot load {path}: it is no snapshot of a run.") from error

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


def varying_settings(runs: Sequence[RunRecord]) -> list[str]:
    """Return the settings that differ among runs."""
    names = dict.fromkeys(name for run in runs for name in run.settings)
    return [n for n in names if len({repr(run.settings.get(n)) for run in runs}) > 1]


def series_names(runs: Sequence[RunRecord]) -> list[str]:
    """Return the names of the series of some runs, those that most runs have first."""
    counts = Counter(series.name for run in runs for series in run.history)
    return [name for name, _ in counts.most_common()]
