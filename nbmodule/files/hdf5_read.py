"""Read HDF5 files that have no seal: those of other programs, and those that another program has changed.

Their structures are read by HDF5 in a child process (`hdf5_child`), which says where each array lies; arrays in one piece are
then read or mapped here, others arrive through a pipe. A crash, an endless loop or a hunger for memory ends the child, and the
user sees `FileFormatError`. A second of start-up and of work without any progress is the most that a file can cost.

What this does not protect from: HDF5 could be made to run code by a file that exploits an unknown fault in it, in the child,
with the user's rights. Files as this package wrote them never take this way.
"""

from __future__ import annotations

import os
import select
import signal
import struct
import subprocess
import sys
from functools import cache
from io import FileIO
from pathlib import Path
from typing import Any

import numpy as np

from nbmodule.errors import FileFormatError
from nbmodule.files.bounded_json import parse_json
from nbmodule.files.chains import escape
from nbmodule.files.fetch import empty
from nbmodule.files.hdf5_write import import_h5py
from nbmodule.files.seal import SealedRow, check_row, check_total, check_version, read_at

SIGNATURE = b"\x89HDF\r\n\x1a\n"
_MEMORY = 800 << 20  # bytes of address space: what Python, NumPy and HDF5 take, and half a gigabyte
_PATIENCE = 30.0  # seconds without a message, for a disk that does not answer; busy loops end after one second


def read_unsealed(file: FileIO, where: str) -> list[SealedRow]:
    """List the arrays of an HDF5 file, with their bytes where they do not lie in one piece.

    Raises:
        FileFormatError: if it is no HDF5 file, is damaged, or holds what is not read (links to other files, cycles ...).
        MissingDependencyError: if h5py is not installed.
    """
    size = os.fstat(file.fileno()).st_size
    end = _check_superblock(file, size, where)
    import_h5py()
    with _Child(file, size, where) as child:
        head = child.message()
        ours = bool(head.get("ours"))
        if ours:
            check_version(head.get("version"), where)
            if end is not None and size > end:
                raise FileFormatError(f"cannot load {where}: the index behind byte {end} is damaged.")
        rows: dict[tuple[str, ...], SealedRow] = {}
        while not (message := child.message()).get("end"):
            names = _names(message.get("names"), where)
            if names in rows:
                raise FileFormatError(f'cannot load {where}: "/{"/".join(names)}" is listed twice.')
            rows[names] = _row(message, names, rows, child, size, ours, where)
        check_total((row for row in rows.values() if row.data is None), size, where)
        return list(rows.values())


def _names(found: object, where: str) -> tuple[str, ...]:
    if not isinstance(found, list) or not found or not all(isinstance(name, str) for name in found):
        raise FileFormatError(f"cannot load {where}: an array has no name.")
    return tuple(found)


def _row(
    message: dict[str, Any],
    names: tuple[str, ...],
    rows: dict[tuple[str, ...], SealedRow],
    child: _Child,
    size: int,
    ours: bool,
    where: str,
) -> SealedRow:
    """Make a row of a message. Names of our own files are spelled already; others are spelled here."""
    path = "/".join(names if ours else (escape(name, at_root=not level) for level, name in enumerate(names)))
    if "same" in message:
        first = rows.get(_names(message["same"], where))
        if first is None:
            raise FileFormatError(f'cannot load {where}: "/{path}" is a link to nothing.')
        return SealedRow(path, first.dtype, first.shape, first.offset, first.size, notes=first.notes, data=first.data)
    stream = message.get("stream")
    row = check_row(message | {"path": path}, size, where, is_located=stream is None)
    if stream is not None:
        if row.size != stream:
            raise FileFormatError(f'cannot load {where}: "/{path}" takes {row.size} bytes and has {stream}.')
        row.data = child.bytes(row.size)
    return row


class _Child:
    """The process that reads structures, as a source of messages and bytes."""

    def __init__(self, file: FileIO, size: int, where: str) -> None:
        self.file, self.size, self.where = file, size, where
        self.buffer = b""

    def __enter__(self) -> _Child:
        by_descriptor = os.path.exists("/dev/fd")
        descriptor = self.file.fileno()
        # No site packages of its own: it imports from where this process does, and nothing else runs at its start.
        code = f"import sys\nsys.path[:] = {[path for path in sys.path if isinstance(path, str)]!r}\n{_code()}"
        source = str(descriptor) if by_descriptor else os.path.abspath(self.file.name)
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", code, source, str(_MEMORY + min(self.size, 1 << 32))],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            env=_environment(),
            pass_fds=(descriptor,) if by_descriptor else (),
        )
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe:
                pipe.close()

    def message(self) -> dict[str, Any]:
        """Read the next message; one that reports an error raises it."""
        (length,) = struct.unpack("<I", self._read(4))
        if length > 1 << 22:
            raise FileFormatError(f"cannot load {self.where}: a name or attribute in it has {length} bytes.")
        message = parse_json(self._read(length), f"the structures of {self.where}")
        if "error" in message:
            raise FileFormatError(f"cannot load {self.where}: {message['error']}.")
        return message

    def bytes(self, size: int) -> np.ndarray:
        """Read the bytes of an array."""
        room = empty(size)
        done = min(size, len(self.buffer))
        room[:done] = np.frombuffer(self.buffer[:done], np.uint8)
        self.buffer = self.buffer[done:]
        while done < size:
            part = self._next(min(size - done, 1 << 22))
            room[done : done + len(part)] = np.frombuffer(part, np.uint8)
            done += len(part)
        return room

    def _read(self, size: int) -> bytes:
        while len(self.buffer) < size:
            self.buffer += self._next(1 << 16)
        data, self.buffer = self.buffer[:size], self.buffer[size:]
        return data

    def _next(self, size: int) -> bytes:
        """Wait for some bytes; none mean that the child has ended before its time."""
        pipe = self.process.stdout
        assert pipe is not None
        if os.name != "nt" and not select.select([pipe], [], [], _PATIENCE)[0]:
            raise FileFormatError(
                f"cannot load {self.where}: reading its structures did not get on for {_PATIENCE:.0f} seconds."
            )
        return pipe.read(size) or self._fail()

    def _fail(self) -> bytes:
        code = self.process.wait()
        report = self.process.stderr.read(4096).decode(errors="replace").strip() if self.process.stderr else ""
        if code == -getattr(signal, "SIGPROF", 0):
            reason = "reading its structures does not come to an end"
        elif code < 0:
            reason = f"HDF5 crashed while it read the structures (signal {-code}), in a process of its own"
        else:
            reason = report.splitlines()[-1] if report else f"the process that reads its structures ended with {code}"
        raise FileFormatError(f"cannot load {self.where}: {reason}. The file is damaged.")


@cache
def _code() -> str:
    return Path(__file__).with_name("hdf5_child.py").read_text(encoding="utf-8")


def _environment() -> dict[str, str]:
    """No libraries that a file asks for, no locks, no threads that take address space."""
    return os.environ | {
        "HDF5_PLUGIN_PRELOAD": "::",
        "HDF5_USE_FILE_LOCKING": "FALSE",
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
    }


def _check_superblock(file: FileIO, size: int, where: str) -> int | None:
    """Find the head of the file; gives where the file ends by its own account, None if that is not plain to see."""
    place = 0
    while place + 8 <= size:
        if read_at(file, place, 8) == SIGNATURE:
            break
        place = max(512, 2 * place)
    else:
        start = read_at(file, 0, 8)
        raise FileFormatError(
            f"cannot load {where}: it is no HDF5, safetensors or npz file (it has {size} bytes and begins with {start!r})."
        )
    head = read_at(file, 0, 64).ljust(64, b"\0")
    version = head[8]
    width = head[13] if version < 2 else head[9]
    first = {0: 24, 1: 28, 2: 12, 3: 12}.get(version, 0)
    if place or not first or width not in (4, 8):
        return None
    end = int.from_bytes(head[first + 2 * width : first + 3 * width], "little")
    if end > size:
        raise FileFormatError(f"cannot load {where}: it was cut short; it has {size} bytes, its head says {end}.")
    return end
