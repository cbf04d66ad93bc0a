"""Write a run to disk while it goes on, so that nothing is lost when its kernel dies, and read it.

A journal is a file to which records are only added: a head, points of series, statistics, media,
and how far the run is. A record is a description in JSON and the bytes of its arrays, after a
length and a checksum, so that one that is damaged or was cut off when the process died ends the
reading there and not before.

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
import math
import os
import struct
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nbmodule.base.format import format_bytes
from nbmodule.base.notebook import running_shell
from nbmodule.base.trees import nest
from nbmodule.base.whole_file import hold, is_held, remove_abandoned
from nbmodule.errors import FileFormatError
from nbmodule.live.run_data.media import Media
from nbmodule.live.run_data.state import RunState, origin

if TYPE_CHECKING:
    from nbmodule.live.replay.saved_state import StateSaver

FOLDER = ".nbmodule_runs"
SUFFIX, NOTES, SNAPSHOT = ".nbrun", ".notes.json", ".h5"
"""Endings of a journal, of the file with tags and note that a user has set, and of the newest
training state."""
EVERY = 1.0
"""Seconds between two writes."""
MOST_RUNS = 1000
"""Journals that stay in a folder; the oldest go first."""
_MOST_SNAPSHOTS = 30
"""Journals of a folder that keep their snapshots."""
_MAGIC = b"nbrun\x003\n"
_FRAME = struct.Struct("<II")
"""Length and checksum of a record."""
_LENGTH = struct.Struct("<I")
"""Length of the description of a record."""
_SNAPSHOT_EVERY = 5.0
_MOST_MEDIA = 2**25
"""Bytes of samples, texts and pictures that a journal keeps; later ones are left out."""
_SNAPSHOT_SHARE = 0.01
"""Share of the time that writing snapshots may take."""
_STAMP = "%Y%m%d-%H%M%S"


class Journal:
    """Writes one run to a folder.

    Args:
        run: The run.
        folder: The folder; it is created if it does not exist.
        saver: Copies the training state.
    """

    def __init__(self, run: RunState, folder: Path, saver: StateSaver) -> None:
        self._run, self.saver = run, saver
        self._lock = threading.RLock()
        self._over = threading.Event()
        self._end: dict[str, str] = {}
        """How the run ended; empty while it goes on."""
        self._failed = ""
        """Why the last write failed; '' if it did not."""
        self._snapshot_at = time.monotonic() + _SNAPSHOT_EVERY
        self._has_reported = False
        """True if it was reported that no snapshot can be written."""
        folder = folder.absolute()  # code of the notebook may go to another folder
        folder.mkdir(parents=True, exist_ok=True)
        drop_oldest(folder)
        self.path = folder / f"{time.strftime(_STAMP)}-{run.run_id}{SUFFIX}"
        self._process = os.getpid()
        self._written: dict[str, int] = {}
        """How many points of each series are in records."""
        self._samples: dict[str, int | None] = {}
        """Step of the newest sample that is in a record, by quantity."""
        self._settings = dict(run.settings)
        self._media: dict[str, int] = {}
        """Step of the newest entry that is in a record, by name."""
        self._media_bytes = 0
        head = {
            "name": run.name,
            "run": run.run_id,
            "began": time.time(),
            "settings": run.settings,
            "tags": list(run.tags),
            "parent": run.parent,
            **origin(),
        }
        self._pending = _MAGIC + _record("run", head)
        """Records that are not in the file yet."""
        self._size = 0
        """Bytes of the file that are whole records."""
        self._file = open(self.path, "xb", buffering=0)  # noqa: SIM115 - open during the run
        hold(self._file)
        self.write()
        threading.Thread(target=self._work, name="nbmodule-journal", daemon=True).start()
        self._snapshots = threading.Thread(
            target=self._work_on_snapshots, name="nbmodule-snapshot", daemon=True
        )
        self._snapshots.start()

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
        while not self._over.wait(EVERY):
            with self._run.cost.counted():
                self.write()

    def _work_on_snapshots(self) -> None:
        while not self._over.wait(max(self._snapshot_at - time.monotonic(), EVERY)):
            self._write_snapshot()

    def write(self) -> bool:
        """Append changes; return False if that fails, which is reported until it works again."""
        if os.getpid() != self._process:  # a forked child has the same file open
            return False
        try:
            with self._lock:
                if self._file.closed:
                    return False
                self._collect()
                self._flush()
        except Exception as error:  # noqa: BLE001 - no fault of a journal ends a training
            self._note_failure(reason_of(error))
            return False
        self._note_failure("")
        return True

    def _note_failure(self, why: str) -> None:
        before, self._failed = self._failed, why
        if why and not before:
            text = f"the journal of this run cannot be written: {why} ({self.path})"
            self._report("warning", f"{text}. It is tried again.")
        elif before and not why:
            self._report("note", "the journal of this run is written again, and complete.")

    def _report(self, kind: str, text: str) -> None:
        self._run.messages.add(self._run.count.step, kind, text)

    def _add(self, record: str, head: dict[str, Any], data: bytes = b"") -> None:
        self._pending += _record(record, head, data)

    def _collect(self) -> None:
        """Make records of what has changed."""
        run = self._run
        run.drain()
        for series in run.history:
            name, begin = series.name, self._written.get(series.name, 0)
            steps, values = series.since(begin)
            if len(values):
                self._written[name] = begin + len(values)
                head = {"name": name, "count": len(values), "dtype": values.dtype.str}
                self._add("points", head, steps.tobytes() + values.tobytes())
        for quantity, strips in list(run.watched.items()):
            newest, step = strips.newest, strips.last_step
            if newest is not None and self._samples.get(quantity) != step:
                self._samples[quantity] = step
                head = {"quantity": quantity, "step": step, "paths": strips.paths}
                self._add("statistics", head | {"shape": newest.shape}, newest.tobytes())
        if run.settings != self._settings:
            self._settings = dict(run.settings)
            self._add("settings", {"settings": self._settings})
        self._collect_media()
        self._add("beat", {"time": round(time.time(), 3), "step": run.count.step})
        if self._end:
            self._add("end", self._end)

    def _collect_media(self) -> None:
        """Make records of the media and texts logged since the last time."""
        for name, items in self._run.history.media.items():
            for item in items:
                is_kept = isinstance(item.value, str | Media)
                if item.step <= self._media.get(name, -1) or not is_kept:
                    continue
                is_text = isinstance(item.value, str)
                data = item.value.encode() if is_text else item.value.to_bytes()
                self._media_bytes += len(data)
                if self._media_bytes <= _MOST_MEDIA:
                    head = {"name": name, "step": item.step, "kind": "text" if is_text else "media"}
                    self._add("media", head, data)
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
            self._add("cut", {"step": step})

    def close(self, state: str, reason: str) -> None:
        """Write the remaining changes and how the run ended."""
        if os.getpid() != self._process:
            return
        self._over.set()
        self._snapshots.join()
        self._write_snapshot()
        self._end = {"state": state, "reason": reason}
        self.write()
        with self._lock:
            self._file.close()

    def offer_state(self) -> None:
        """Copy the training state if a snapshot is due soon and has none yet."""
        if time.monotonic() >= self._snapshot_at - EVERY and self.saver.newest is None:
            self.saver.offer()

    def _write_snapshot(self) -> None:
        """Write the newest training state, whole or not at all."""
        from nbmodule.files import save

        begun = time.monotonic()
        try:
            state = self.saver.take()
            if state is None:
                return
            self._snapshot_at = math.inf  # no other is offered while this one is written
            if state.arrays:
                with self._run.cost.counted():
                    with self._lock:  # the curves are not behind the state
                        self._collect()
                        self._flush()
                    notes = {"step": state.step, **state.notes}
                    save(self.path.with_suffix(SNAPSHOT), nest(state.arrays), metadata=notes)
            else:
                self._report_no_snapshot(f"they take {format_bytes(state.nbytes)}, too much")
        except Exception as error:  # noqa: BLE001 - as above
            self._report_no_snapshot(reason_of(error))
        took = time.monotonic() - begun
        self._snapshot_at = begun + max(_SNAPSHOT_EVERY, took / _SNAPSHOT_SHARE)

    def _report_no_snapshot(self, why: str) -> None:
        text = f"the values of all variables cannot be written beside the journal: {why}"
        if not self._has_reported:
            self._report("warning", text)
        self._has_reported = True


def read_records(path: Path) -> Iterator[tuple[dict[str, Any], bytes]]:
    """Return an iterator over description and data of the records of a journal; it raises at a
    record that is damaged or cut off.

    Raises:
        FileFormatError: If the file cannot be read, or is no journal.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise FileFormatError(f"{path} cannot be read: {error.strerror}.") from error
    if not data.startswith(_MAGIC):
        raise FileFormatError(f"{path} is no journal of a run: it does not begin as one.")
    return _records_in(data[len(_MAGIC) :])


def _records_in(data: bytes) -> Iterator[tuple[dict[str, Any], bytes]]:
    start = 0
    while start < len(data):
        length, check = _FRAME.unpack_from(data, start)
        start += _FRAME.size
        record = data[start : start + length]
        if zlib.crc32(record) != check:
            raise FileFormatError("a record is damaged or cut off.")
        end = _LENGTH.size + _LENGTH.unpack_from(record)[0]
        yield json.loads(record[_LENGTH.size : end]), record[end:]
        start += length


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
    paths = journals_in(folder)
    ended = [path for path in paths if not is_held(path)]
    for path in ended[: max(len(paths) - _MOST_SNAPSHOTS + 1, 0)]:
        with contextlib.suppress(OSError):
            path.with_suffix(SNAPSHOT).unlink(missing_ok=True)
    for path in ended[: max(len(paths) - MOST_RUNS + 1, 0)]:
        for each in (path, path.with_suffix(NOTES)):
            with contextlib.suppress(OSError):
                each.unlink(missing_ok=True)


def journals_in(folder: Path) -> list[Path]:
    """Return the journals of a folder, oldest first."""
    return sorted(path for path in folder.glob(f"*{SUFFIX}") if path.is_file())


def reason_of(error: Exception) -> str:
    """Return why a write failed, in the words of the system if it has some."""
    return getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"


def _record(kind: str, head: dict[str, Any], data: bytes = b"") -> bytes:
    described = json.dumps({"record": kind, **head}).encode()
    record = _LENGTH.pack(len(described)) + described + data
    return _FRAME.pack(len(record), zlib.crc32(record)) + record
