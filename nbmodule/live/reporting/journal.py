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
import json
import os
import struct
import sys
import threading
import time
import warnings
import zlib
from collections.abc import Callable, Iterator
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np

from nbmodule.base.format import format_bytes, format_count, printable_repr
from nbmodule.base.whole_file import hold, is_held, remove_abandoned, whole_file
from nbmodule.errors import FileFormatError, NbModuleError
from nbmodule.live.run.history import History
from nbmodule.live.run.media import Media
from nbmodule.live.run.settings import origin
from nbmodule.live.run.state import RunState
from nbmodule.live.run.strips import Sample, Strips

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
_MAGIC = b"nbrun\x001\n"
_FRAME = struct.Struct("<cII")
"""Kind, length, checksum."""
_POINTS = struct.Struct("<HIq")
"""Number of the series, how many points, first step."""
_BEAT = struct.Struct("<dqq")
"""Time, steps that are done, step as the curves count."""
_SNAPSHOT_EVERY = 5.0
_MOST_MEDIA = 2**25
"""Bytes of samples, texts and pictures that a journal keeps; later ones are left out."""
_SNAPSHOT_SHARE = 0.01
"""Share of the time that writing snapshots may take."""
_LONGEST = 2**28
_MOST_BYTES = 2**30
"""Bytes of a journal that are read."""
_END_OF_TIME = 2.0**37
"""Seconds since 1970."""
_MOST_NAMES = 2**16
"""Series that a journal can tell apart; those beyond are left out."""
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
        self._failed = ""
        """Why the last write failed; '' if it did not."""
        self._snapshot_at = time.monotonic() + _SNAPSHOT_EVERY
        self._has_reported = False
        """Whether it was reported that no snapshot can be written."""
        self._snapshot = threading.Thread(target=self._write_snapshot)
        folder = folder.absolute()  # code of the notebook may go to another folder
        folder.mkdir(parents=True, exist_ok=True)
        drop_oldest(folder)
        self.path = folder / f"{time.strftime(_STAMP)}-{run.run_id}{SUFFIX}"
        self._began, self._process = time.time(), os.getpid()
        self._origin = origin()
        self._begin_file()
        self.write()
        threading.Thread(target=self._work, name="nbmodule-journal", daemon=True).start()

    def _begin_file(self) -> None:
        """Begin an empty file."""
        self._numbers: dict[str, int] = {}
        self._written: dict[str, int] = {}
        self._samples: dict[str, int | None] = {}
        self._settings = dict(self._run.settings)
        self._media: dict[str, int] = {}
        self._media_bytes = 0
        head = {
            "name": self._run.name,
            "run": self._run.run_id,
            "began": self._began,
            "process": os.getpid(),
            "settings": self._run.settings,
            "tags": list(self._run.tags),
            "parent": self._run.parent,
            **self._origin,
        }
        self._unwritten = _MAGIC + _framed(b"H", json.dumps(head).encode())
        """Records to be written before anything else."""
        self._size, self._is_torn = 0, False
        self._file = open(self.path, "xb", buffering=0)  # noqa: SIM115 - open during the run
        hold(self._file)

    def _find_file(self) -> None:
        """Write the file anew where others removed, moved, replaced or cut it."""
        if not self._file.closed and _is_at(self._file, self.path, self._size):
            return
        self._file.close()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.unlink(missing_ok=True)
        self._begin_file()

    def _append(self, data: bytes) -> None:
        """Append bytes; remove those of a failed write before anything else is added."""
        if self._is_torn:
            self._file.seek(self._size)
            self._file.truncate()
        self._is_torn = True
        rest = memoryview(data)
        while rest:
            rest = rest[self._file.write(rest) :]
        self._size += len(data)
        self._is_torn = False

    def _work(self) -> None:
        while not self._over.wait(TRY_AGAIN if self._failed else EVERY):
            self.write()

    def write(self) -> bool:
        """Append changes; return False if that fails, which is reported until it works again."""
        if os.getpid() != self._process:  # a forked child has the same file open
            return False
        try:
            with self._lock:
                if self._is_closed:
                    return False
                self._find_file()
                self._add_new()
        except Exception as error:  # noqa: BLE001 - no fault of a journal ends a training
            self._note_failure(_reason(error))
            return False
        self._note_failure("")
        self._begin_snapshot()
        return True

    def _note_failure(self, why: str) -> None:
        before, self._failed = self._failed, why
        if why and not before:
            self._report(
                "warning",
                f"the journal of this run cannot be written: {why} ({self.path}). "
                "It is tried again.",
            )
        elif before and not why:
            self._report("note", "the journal of this run is written again, and complete.")

    def _report(self, kind: str, text: str) -> None:
        self._run.messages.add(self._run.step, kind, text)

    def _add_new(self) -> None:
        self._read()
        run, parts = self._run, [self._unwritten]
        numbers, written, samples = dict(self._numbers), dict(self._written), dict(self._samples)
        for series in run.history:
            begin = written.get(series.name, 0)
            steps, values = series.since(begin)
            if not len(values) or (series.name not in numbers and len(numbers) >= _MOST_NAMES):
                continue
            if series.name not in numbers:
                numbers[series.name] = len(numbers)
                parts.append(_framed(b"N", json.dumps(series.name).encode()))
            written[series.name] = begin + len(values)
            parts.append(_framed(b"P", _pack_points(numbers[series.name], steps, values)))
        for quantity, strips in list(run.watched.items()):
            newest, step = strips.newest, int(strips.steps[-1]) if len(strips) else None
            if newest is not None and samples.get(quantity) != step:
                samples[quantity] = step
                parts.append(_framed(b"S", _pack_sample(quantity, step or 0, strips.paths, newest)))
        if run.settings != self._settings:
            self._settings = dict(run.settings)
            parts.append(_framed(b"U", json.dumps(self._settings).encode()))
        media, media_bytes = self._new_media()
        parts += media
        parts.append(_framed(b"B", _BEAT.pack(time.time(), run.count.done, run.step)))
        self._append(b"".join(parts))
        self._numbers, self._written, self._samples = numbers, written, samples
        self._unwritten = b""
        self._media_bytes += media_bytes
        for name in run.history.shelf:
            self._media[name] = run.history.shelf[name][-1].step

    def _new_media(self) -> tuple[list[bytes], int]:
        """Return records of the media and texts logged since the last write, and their bytes."""
        media, records, total = self._run.history.shelf, [], 0
        for name in media:
            for item in media[name]:
                if item.step <= self._media.get(name, -1) or item.kind not in ("media", "text"):
                    continue
                data = item.value.encode() if item.kind == "text" else item.value.to_bytes()
                total += len(data)
                if self._media_bytes + total <= _MOST_MEDIA:
                    head = json.dumps({"name": name, "step": item.step, "kind": item.kind})
                    packed = struct.pack("<I", len(head)) + head.encode() + data
                    records.append(_framed(b"M", packed))
        return records, total

    def cut(self, step: int, forget: Callable[[], object]) -> None:
        """After a rewind: cut the journal at this step; `forget` cuts the run."""
        run = self._run
        with self._lock:  # nothing is written in between
            for series in run.history:
                written = series.since(0).steps[: self._written.get(series.name, 0)]
                self._written[series.name] = int((written < step).sum())
            forget()
            self._samples = {
                quantity: int(s.steps[-1]) for quantity, s in run.watched.items() if len(s)
            }
            self._media = {name: min(last, step - 1) for name, last in self._media.items()}
            self._unwritten += _framed(b"C", struct.pack("<q", step))

    def close(self, state: str, reason: str) -> None:
        """Write the remaining changes and how the run ended."""
        if os.getpid() != self._process:
            return
        self._over.set()
        if self._snapshot.is_alive():
            self._snapshot.join()
        self._write_snapshot()
        if self.write():
            ended = {"state": state, "reason": reason, "time": time.time()}
            with self._lock, contextlib.suppress(OSError):
                self._append(_framed(b"E", json.dumps(ended).encode()))
        with self._lock, contextlib.suppress(OSError):
            self._is_closed = True
            self._file.close()

    @property
    def wants_state(self) -> bool:
        """Whether a snapshot is due at the next write."""
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
            with whole_file(self.path.with_suffix(".npz")) as file:
                np.savez(file, **_packed_values(state))
                with self._lock:  # the curves are not behind the state
                    self._find_file()
                    self._add_new()
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
                data = file.read(_MOST_BYTES + 1)
        except OSError as error:
            raise FileFormatError(f"{self.path} cannot be read: {error.strerror}.") from error
        if not data.startswith(_MAGIC):
            raise FileFormatError(f"{self.path} is no journal of a run: it does not begin as one.")
        if len(data) > _MOST_BYTES:
            raise FileFormatError(
                f"{self.path} is larger than {_MOST_BYTES >> 20} MiB, more than a journal may be."
            )
        start = len(_MAGIC)
        while start + _FRAME.size <= len(data):
            record_type, length, check = _FRAME.unpack_from(data, start)
            start += _FRAME.size
            payload = data[start : start + length]
            is_valid = zlib.crc32(record_type + payload) == check
            if length > _LONGEST or len(payload) < length or not is_valid:
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
            self.name, self.began = str(head.get("name", "")), _time(head.get("began", 0.0))
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
            self.history.shelf.put(str(head["name"]), int(head["step"]), value)
        elif record_type == b"B":
            seen, _, self.step = _BEAT.unpack(payload)
            self.seen = _time(seen)
        elif record_type == b"C":
            (step,) = struct.unpack("<q", payload)
            self.history.cut(step)
            for strips in self.watched.values():
                strips.cut(step)
        elif record_type == b"E":
            ended = json.loads(payload)
            state, reason, seen = str(ended["state"]), str(ended["reason"]), _time(ended["time"])
            self.state, self.reason, self.seen = state, reason, seen

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
    ipython = sys.modules.get("IPython")
    shell = ipython and ipython.get_ipython()
    start = getattr(shell, "starting_dir", None)
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


def _is_at(file: FileIO, path: Path, size: int) -> bool:
    """Return True if `path` is this open file, and holds at least what was written."""
    try:
        status = os.fstat(file.fileno())
        return os.path.samestat(path.stat(), status) and status.st_size >= size
    except OSError:
        return False


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


def _time(seconds: Any) -> float:
    """Return a time since 1970 that the calendar can show; 0 for anything else."""
    seconds = float(seconds)
    return seconds if 0 <= seconds < _END_OF_TIME else 0.0


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
    """Pack steps as differences from the first, in 32 bits if they fit, and values unchanged."""
    first = int(steps[0])
    offsets = np.asarray(steps, np.int64) - first
    step_code = "i8" if (np.abs(offsets) > 2**31 - 1).any() else "i4"
    value_code = "f4" if values.dtype == np.float32 else "f8"
    codes = {"i8": b"q", "i4": b"i", "f4": b"f", "f8": b"d"}
    header = _POINTS.pack(number, len(values), first) + codes[step_code] + codes[value_code]
    body = offsets.astype(f"<{step_code}").tobytes() + values.astype(f"<{value_code}").tobytes()
    return header + body


def _unpack_points(payload: bytes) -> tuple[int, Any, Any]:
    number, count, first = _POINTS.unpack_from(payload)
    codes, start = payload[_POINTS.size : _POINTS.size + 2], _POINTS.size + 2
    step_dtype = np.dtype("<i8" if codes[:1] == b"q" else "<i4")
    value_dtype = np.dtype("<f4" if codes[1:] == b"f" else "<f8")
    steps = np.frombuffer(payload, step_dtype, count, start).astype(np.int64) + first
    values = np.frombuffer(payload, value_dtype, count, start + count * step_dtype.itemsize)
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
