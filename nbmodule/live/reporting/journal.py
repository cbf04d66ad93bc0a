"""Write a run to disk while it goes on, so that nothing is lost when its kernel dies, and read it.

A journal is a file to which records are only added: a head, names of series, points, statistics,
and how far the run is. Each record has a length and a checksum, so that one that is damaged or was
cut off when the process died ends the reading there and not before.

A thread writes changes about once a second. If the disk is full, the view reports it, the write is
tried again, and the training goes on. A record is in the file whole or not at all, and noted as
written only then. A second thread writes copies of all variables: that may take long, and points do
not wait for it.

A process holds a lock on its journal while it lives. So others distinguish a run that goes on from
one that died, and nobody removes the journal of a run that goes on.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import struct
import threading
import time
import warnings
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np

from nbmodule.base.format import format_bytes, format_count, printable_repr
from nbmodule.base.notebook import running_shell
from nbmodule.base.whole_file import hold, is_held, remove_abandoned, whole_file
from nbmodule.errors import FileFormatError, NbModuleError
from nbmodule.live.run_data.history import History
from nbmodule.live.run_data.media import Media
from nbmodule.live.run_data.state import RunState, origin
from nbmodule.live.run_data.strips import Sample, Strips

if TYPE_CHECKING:
    from nbmodule.live.replay.saved_state import SavedState

FOLDER = ".nbmodule_runs"
SUFFIX = ".nbrun"
EVERY = 1.0
"""Seconds between two writes."""
TRY_AGAIN = 5.0
"""Seconds after which a failed write is tried again."""
MOST_RUNS = 1000
"""Journals that stay in a folder; the oldest go first."""
_MOST_SNAPSHOTS = 30
"""Journals of a folder that keep their snapshots."""
_MAGIC = b"nbrun\x002\n"
_FRAME = struct.Struct("<cII")
"""Kind, length, checksum."""
_POINTS = struct.Struct("<IIc")
"""Number of the series, how many points, NumPy's code of the values' dtype."""
_BEAT = struct.Struct("<dqq")
"""Time, steps that are done, step as the curves count."""
_SNAPSHOT_EVERY = 5.0
_MOST_MEDIA = 2**25
"""Bytes of samples, texts and pictures that a journal keeps; later ones are left out."""
_SNAPSHOT_SHARE = 0.01
"""Share of the time that writing snapshots may take."""
_STAMP = "%Y%m%d-%H%M%S"
_STEP, _DTYPES, _NOTES = "//step", "//dtypes", "//notes"
"""Entries of a snapshot beside the variables."""


class Journal:
    """Writes one run to a folder.

    Args:
        run: The run.
        folder: The folder; it is created if it does not exist.
        read: Reads computed values of the log queue into the history.
        take_state: Returns the newest training state that was not taken yet; None if there is none.
    """

    def __init__(
        self,
        run: RunState,
        folder: Path,
        *,
        read: Callable[[], object],
        take_state: Callable[[], SavedState | None],
    ) -> None:
        self._run, self._read, self._take_state = run, read, take_state
        self._lock = threading.RLock()
        self._over = threading.Event()
        self._is_closed = False
        self._end: dict[str, str] = {}
        """How the run ended; empty while it goes on."""
        self._failed = ""
        """Why the last write failed; '' if it did not."""
        self._snapshot_at = time.monotonic() + _SNAPSHOT_EVERY
        self._has_reported = False
        """True if it was reported that no snapshot can be written."""
        self._snapshot = threading.Thread(target=self._write_snapshot)
        folder = folder.absolute()  # code of the notebook may go to another folder
        folder.mkdir(parents=True, exist_ok=True)
        drop_oldest(folder)
        self.path = folder / f"{time.strftime(_STAMP)}-{run.run_id}{SUFFIX}"
        self._process = os.getpid()
        self._begin_file()
        self.write()
        threading.Thread(target=self._work, name="nbmodule-journal", daemon=True).start()

    def _begin_file(self) -> None:
        self._numbers: dict[str, int] = {}
        """Number of each series."""
        self._written: dict[str, int] = {}
        """How many points of each series are in records."""
        self._samples: dict[str, int] = {}
        """Step of the newest sample that is in a record, by quantity."""
        self._settings = dict(self._run.settings)
        self._media: dict[str, int] = {}
        """Step of the newest entry that is in a record, by name."""
        self._media_bytes = 0
        head = {
            "name": self._run.name,
            "run": self._run.run_id,
            "began": time.time(),
            "process": self._process,
            "settings": self._run.settings,
            "tags": list(self._run.tags),
            "parent": self._run.parent,
            **origin(),
        }
        self._pending = _MAGIC + _framed(b"H", json.dumps(head).encode())
        """Records that are not in the file yet."""
        self._size = 0
        """Bytes of the file that are whole records."""
        self._file = open(self.path, "xb", buffering=0)  # noqa: SIM115 - open during the run
        hold(self._file)

    def _flush(self) -> None:
        """Append the pending records, in place of what a failed write has left."""
        if not self.path.exists():
            raise FileNotFoundError(errno.ENOENT, "others have removed it")
        self._file.seek(self._size)
        self._file.truncate()
        rest = memoryview(self._pending)
        while rest:
            rest = rest[self._file.write(rest) :]
        self._size += len(self._pending)
        self._pending = b""

    def _work(self) -> None:
        while not self._over.wait(TRY_AGAIN if self._failed else EVERY):
            with self._run.cost.counted():
                self.write()

    def write(self) -> bool:
        """Append changes; return False if that fails, which is reported until it works again."""
        if os.getpid() != self._process:  # a forked child has the same file open
            return False
        try:
            with self._lock:
                if self._is_closed:
                    return False
                self._collect()
                self._flush()
        except Exception as error:  # noqa: BLE001 - no fault of a journal ends a training
            self._note_failure(_reason(error))
            return False
        self._note_failure("")
        self._begin_snapshot()
        return True

    def _note_failure(self, why: str) -> None:
        before, self._failed = self._failed, why
        if why and not before:
            text = f"the journal of this run cannot be written: {why} ({self.path})"
            self._report("warning", f"{text}. It is tried again.")
        elif before and not why:
            self._report("note", "the journal of this run is written again, and complete.")

    def _report(self, kind: str, text: str) -> None:
        self._run.messages.add(self._run.step, kind, text)

    def _add(self, record_type: bytes, payload: bytes) -> None:
        self._pending += _framed(record_type, payload)

    def _collect(self) -> None:
        """Make records of what has changed."""
        self._read()
        run = self._run
        for series in run.history:
            name, begin = series.name, self._written.get(series.name, 0)
            steps, values = series.since(begin)
            if not len(values):
                continue
            if name not in self._numbers:
                self._numbers[name] = len(self._numbers)
                self._add(b"N", json.dumps(name).encode())
            self._written[name] = begin + len(values)
            self._add(b"P", _pack_points(self._numbers[name], steps, values))
        for quantity, strips in list(run.watched.items()):
            newest, step = strips.newest, max(strips.steps, default=-1)
            if newest is not None and self._samples.get(quantity) != step:
                self._samples[quantity] = step
                self._add(b"S", _pack_sample(quantity, int(step), strips.paths, newest))
        if run.settings != self._settings:
            self._settings = dict(run.settings)
            self._add(b"U", json.dumps(self._settings).encode())
        self._collect_media()
        self._add(b"B", _BEAT.pack(time.time(), run.count.done, run.step))
        if self._end:
            self._add(b"E", json.dumps(self._end | {"time": time.time()}).encode())

    def _collect_media(self) -> None:
        """Make records of the media and texts logged since the last time."""
        for name, items in self._run.history.media.items():
            for item in items:
                if item.step <= self._media.get(name, -1) or item.kind not in ("media", "text"):
                    continue
                data = item.value.encode() if item.kind == "text" else item.value.to_bytes()
                self._media_bytes += len(data)
                if self._media_bytes <= _MOST_MEDIA:
                    head = json.dumps({"name": name, "step": item.step, "kind": item.kind}).encode()
                    self._add(b"M", struct.pack("<I", len(head)) + head + data)
            self._media[name] = items[-1].step

    def cut(self, step: int, forget: Callable[[], object]) -> None:
        """After a rewind: cut the journal at this step; `forget` cuts the run."""
        with self._lock:  # nothing is written in between
            for series in self._run.history:
                written = series.since(0).steps[: self._written.get(series.name, 0)]
                self._written[series.name] = int((written < step).sum())
            forget()
            self._samples.clear()
            self._media = {name: min(last, step - 1) for name, last in self._media.items()}
            self._add(b"C", struct.pack("<q", step))

    def close(self, state: str, reason: str) -> None:
        """Write the remaining changes and how the run ended."""
        if os.getpid() != self._process:
            return
        self._over.set()
        if self._snapshot.is_alive():
            self._snapshot.join()
        self._write_snapshot()
        self._end = {"state": state, "reason": reason}
        self.write()
        with self._lock:
            self._is_closed = True
            self._file.close()

    @property
    def wants_state(self) -> bool:
        """True if a snapshot is due at the next write."""
        return time.monotonic() >= self._snapshot_at - EVERY and not self._snapshot.is_alive()

    def _begin_snapshot(self) -> None:
        """Start to write the newest training state, if it is time."""
        if time.monotonic() >= self._snapshot_at and not self._snapshot.is_alive():
            self._snapshot_at = time.monotonic() + _SNAPSHOT_EVERY
            self._snapshot = threading.Thread(
                target=self._write_snapshot, name="nbmodule-snapshot", daemon=True
            )
            self._snapshot.start()

    def _write_snapshot(self) -> None:
        """Write the newest training state, whole or not at all."""
        try:
            state = self._take_state()
            if state is None:
                return
            if not state.arrays:
                self._report_no_snapshot(f"they take {format_bytes(state.nbytes)}, too much")
                return
            begun = time.monotonic()
            with (
                self._run.cost.counted(),
                whole_file(self.path.with_suffix(".npz")) as file,
            ):
                np.savez(file, **_packed_values(state))
                with self._lock:  # the curves are not behind the state
                    self._collect()
                    self._flush()
            took = time.monotonic() - begun
            self._snapshot_at = begun + max(_SNAPSHOT_EVERY, took / _SNAPSHOT_SHARE)
        except Exception as error:  # noqa: BLE001 - as above
            self._report_no_snapshot(_reason(error))

    def _report_no_snapshot(self, why: str) -> None:
        if not self._has_reported:
            self._has_reported = True
            self._report(
                "warning",
                f"the values of all variables cannot be written beside the journal: {why}",
            )


class LastRun:
    """A run read from its journal, also after its kernel died.

    Attributes:
        name: Its title.
        began: Start, in seconds since 1970.
        history: All points that were written.
        watched: Statistics of submodules, by quantity.
        step: The last known step.
        seen: When it was last alive, in seconds since 1970.
        state: How it ended; `died` if its journal has no end, `running` if its process is alive.
        reason: Why it ended, if known.
        path: The journal.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name, self.began, self.state, self.reason, self.run_id = "", 0.0, "died", "", ""
        self.step, self.seen, self.is_whole = 0, 0.0, True
        self.history = History()
        self.watched: dict[str, Strips] = {}
        self._names: list[str] = []
        is_running = is_held(path)
        for record_type, payload in self._records():
            try:
                self._take(record_type, payload)
            except Exception:  # noqa: BLE001 - a crafted or damaged record ends the reading there
                self.is_whole = False
                break
        if self.state == "died" and is_running:
            self.state, self.is_whole = "running", True  # its last record may be on its way

    def _records(self) -> Iterator[tuple[bytes, bytes]]:
        try:
            with open(self.path, "rb") as file:
                data = file.read()
        except OSError as error:
            raise FileFormatError(f"{self.path} cannot be read: {error.strerror}.") from error
        if not data.startswith(_MAGIC):
            raise FileFormatError(f"{self.path} is no journal of a run: it does not begin as one.")
        start = len(_MAGIC)
        while start + _FRAME.size <= len(data):
            record_type, length, check = _FRAME.unpack_from(data, start)
            start += _FRAME.size
            payload = data[start : start + length]
            is_valid = zlib.crc32(record_type + payload) == check
            if len(payload) < length or not is_valid:
                self.is_whole = False
                return
            start += length
            yield record_type, payload
        self.is_whole = self.is_whole and start == len(data)

    def _take_head(self, head: dict[str, Any]) -> None:
        """Read other entries of the head; `Run` reads settings and tags."""

    def _take(self, record_type: bytes, payload: bytes) -> None:
        if record_type == b"H":
            head = json.loads(payload)
            self.name, self.began = str(head.get("name", "")), float(head.get("began", 0.0))
            self.seen, self.run_id = self.began, str(head.get("run", ""))
            self._take_head(head)
        elif record_type == b"N":
            self._names.append(str(json.loads(payload)))
        elif record_type == b"P":
            number, steps, values = _unpack_points(payload)
            self.history.extend(self._names[number], steps, values)
        elif record_type == b"S":
            sample = _unpack_sample(payload)
            self.watched.setdefault(sample.quantity, Strips(sample.quantity)).add(sample)
        elif record_type == b"M":
            (length,) = struct.unpack_from("<I", payload)
            head, data = json.loads(payload[4 : 4 + length]), payload[4 + length :]
            value = data.decode() if head["kind"] == "text" else Media.from_bytes(data)
            self.history.media.put(str(head["name"]), int(head["step"]), value)
        elif record_type == b"B":
            self.seen, _, self.step = _BEAT.unpack(payload)
        elif record_type == b"C":
            (step,) = struct.unpack("<q", payload)
            self.history.cut(step)
            for strips in self.watched.values():
                strips.cut(step)
        elif record_type == b"E":
            ended = json.loads(payload)
            self.state, self.reason = str(ended["state"]), str(ended["reason"])
            self.seen = float(ended["time"])

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
        from nbmodule.files import read_flat

        try:
            return _unpacked_values(read_flat(path))
        except (KeyError, ValueError, TypeError) as error:
            if isinstance(error, FileFormatError):
                raise
            raise FileFormatError(f"cannot load {path}: it is no snapshot of a run.") from error

    @property
    def when(self) -> str:
        """The local time at which it was last alive, with the date if that is not today."""
        seen = time.localtime(self.seen)
        is_today = seen[:3] == time.localtime()[:3]
        return time.strftime("%H:%M:%S" if is_today else "%Y-%m-%d %H:%M:%S", seen)

    @printable_repr
    def __repr__(self) -> str:
        how = f"{self.state} at step {format_count(self.step)}"
        how += "" if self.state == "running" else f", {self.when}"
        reason = f" ({self.reason})" if self.reason else ""
        cut = "" if self.is_whole else "; the last record was cut off"
        return f"{self.name}: {how}{reason}{cut}\n{self.history!r}"


def last_run(folder: str | Path | None = None) -> LastRun:
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
        return LastRun(Path(folder))
    folders = folders_of(folder)
    paths = [path for each in folders for path in _journals(each) if _written_at(path)]
    if not paths:
        raise NbModuleError(
            f"there is no journal of a run in {' or '.join(map(str, folders))}. In a notebook each "
            "run writes one; elsewhere give nb.Live(..., journal='runs'), and nb.last_run('runs') "
            "reads it."
        )
    errors: list[FileFormatError] = []
    for path in sorted(paths, key=lambda path: (_written_at(path), path.name), reverse=True):
        try:
            run = LastRun(path)
        except FileFormatError as error:
            errors.append(error)
            continue
        for error in errors:
            warnings.warn(f"skipped a journal: {error}", stacklevel=2)
        return run
    raise errors[0]


def folders_of(folder: object = None) -> list[Path]:
    """Return the folders of journals: `folder`, or those of the notebook and of the working
    directory.
    """
    if isinstance(folder, (str, Path)):
        return [Path(folder).absolute()]
    start = getattr(running_shell(), "starting_dir", None)
    return list(dict.fromkeys(Path(path) / FOLDER for path in (start, Path.cwd()) if path))


def drop_oldest(folder: Path) -> None:
    """Remove the oldest snapshots and journals of a folder, to make room for one; never of a run
    that goes on.
    """
    remove_abandoned(folder, ".")  # snapshots whose writers were killed
    paths = _journals(folder)
    ended = [path for path in paths if not is_held(path)]
    for path in ended[: max(len(paths) - _MOST_SNAPSHOTS + 1, 0)]:
        with contextlib.suppress(OSError):
            path.with_suffix(".npz").unlink(missing_ok=True)
    for path in ended[: max(len(paths) - MOST_RUNS + 1, 0)]:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)


def _journals(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob(f"*{SUFFIX}") if path.is_file())


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"


def _written_at(path: Path) -> int:
    """Return the time of the last write; 0 for an empty or removed file."""
    try:
        status = path.stat()
    except OSError:
        return 0
    return status.st_mtime_ns if status.st_size else 0


def _packed_values(state: SavedState) -> dict[str, Any]:
    """Return arrays of NumPy's dtypes; others, such as bfloat16, as bytes, with their dtypes."""
    arrays = {name: np.asarray(value) for name, value in state.on_host().items()}
    dtypes = {name: array.dtype.name for name, array in arrays.items() if array.dtype.kind == "V"}
    values = {
        name: array.view(f"u{array.dtype.itemsize}") if name in dtypes else array
        for name, array in arrays.items()
    }
    return {
        _STEP: np.int64(state.step),
        _DTYPES: np.str_(json.dumps(dtypes)),
        _NOTES: np.str_(json.dumps(state.notes)),
        **values,
    }


def _unpacked_values(file: dict[str, Any]) -> dict[str, Any]:
    state: dict[str, Any] = {"model": {}, "optimizer": {}, "step": int(file[_STEP])}
    dtypes = json.loads(str(file.get(_DTYPES, "{}")))
    notes = json.loads(str(file.get(_NOTES, "{}")))
    for key in file:
        if key in (_STEP, _DTYPES, _NOTES):
            continue
        prefix, _, name = key.partition("/")
        part, _, model = prefix.partition(":")
        values = state.setdefault(part, {})
        values = values.setdefault(model, {}) if model else values
        values[name] = file[key].view(jnp.dtype(dtypes[key])) if key in dtypes else file[key]
    return state | notes


def _framed(record_type: bytes, payload: bytes) -> bytes:
    check = zlib.crc32(record_type + payload)
    return _FRAME.pack(record_type, len(payload), check) + payload


def _pack_points(number: int, steps: Any, values: Any) -> bytes:
    code = "f" if values.dtype == np.float32 else "d"
    header = _POINTS.pack(number, len(values), code.encode())
    return header + steps.astype("<i8").tobytes() + values.astype(f"<{code}").tobytes()


def _unpack_points(payload: bytes) -> tuple[int, Any, Any]:
    number, count, code = _POINTS.unpack_from(payload)
    steps = np.frombuffer(payload, "<i8", count, _POINTS.size)
    values = np.frombuffer(payload, f"<{code.decode()}", count, _POINTS.size + steps.nbytes)
    return number, steps, values


def _pack_sample(quantity: str, step: int, paths: tuple[str, ...], values: Any) -> bytes:
    facts = {"quantity": quantity, "step": step, "paths": paths, "shape": values.shape}
    head = json.dumps(facts).encode()
    return struct.pack("<I", len(head)) + head + values.astype("<f4").tobytes()


def _unpack_sample(payload: bytes) -> Sample:
    (length,) = struct.unpack_from("<I", payload)
    head = json.loads(payload[4 : 4 + length])
    values = np.frombuffer(payload, "<f4", offset=4 + length).reshape(head["shape"])
    return Sample(head["step"], head["quantity"], tuple(head["paths"]), values)
