"""Read HDF5 files that have no seal: those that another program wrote or changed.

HDF5 reads their structures in a child process (`hdf5_child`), which lists where each array is, and
copies those that do not lie in one piece. A crash, an endless loop or a hunger for memory ends the
child, and the user sees `FileFormatError`. A second of start-up and of work without any progress is
the most that a file can cost.

Not prevented: a file that exploits an unknown fault of HDF5 could run code in the child, with the
user's rights. Files as this package wrote them never get there.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import tempfile
from functools import cache
from io import FileIO
from pathlib import Path
from typing import Any

from nbmodule.errors import FileFormatError
from nbmodule.files.bounded_json import parse_json
from nbmodule.files.chains import escape_key
from nbmodule.files.fetch import empty
from nbmodule.files.hdf5_write import import_h5py
from nbmodule.files.seal import SealedRow, check_row, check_total, check_version, read_at, read_into

SIGNATURE = b"\x89HDF\r\n\x1a\n"
_MEMORY = 800 << 20  # bytes of address space: what Python, NumPy and HDF5 take, and half a gigabyte
# Seconds, and bytes a second, for a disk that does not answer; busy loops end after one second.
_PATIENCE, _SLOWEST = 60.0, 5e6


def read_unsealed(file: FileIO, where: str, *, is_sealed: bool = False) -> list[SealedRow]:
    """List the arrays of an HDF5 file, with their bytes where they do not lie in one piece.

    Args:
        file: Open for reading.
        where: The file, for errors.
        is_sealed: Whether an index of checksums follows the end of the HDF5 file.

    Raises:
        FileFormatError: If it is no HDF5 file, is damaged, or holds links to other files, cycles or
            anything else that is not read.
        MissingDependencyError: If h5py is not installed.
    """
    size = os.fstat(file.fileno()).st_size
    end = _check_superblock(file, size, where)
    import_h5py()
    with tempfile.TemporaryDirectory(prefix="nbmodule-hdf5-") as folder:
        blobs = Path(folder, "blobs")
        listing = _list(file, size, blobs, where)
        is_ours = bool(listing.get("ours"))
        if is_ours:
            check_version(listing.get("version"), where)
            if end is not None and size > end and not is_sealed:
                raise FileFormatError(
                    f"cannot load {where}: the index behind byte {end} is damaged."
                )
        rows: dict[tuple[str, ...], SealedRow] = {}
        with open(blobs, "rb", buffering=0) as copied:
            for entry in listing["rows"]:
                names = _names(entry.get("names"), where)
                if names in rows:
                    raise FileFormatError(
                        f'cannot load {where}: "/{"/".join(names)}" is listed twice.'
                    )
                rows[names] = _row(entry, names, rows, copied, size, is_ours, where)
    check_total((row for row in rows.values() if row.data is None), size, where)
    return list(rows.values())


def _names(names: object, where: str) -> tuple[str, ...]:
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise FileFormatError(f"cannot load {where}: an array has no name.")
    return tuple(names)


def _row(
    entry: dict[str, Any],
    names: tuple[str, ...],
    rows: dict[tuple[str, ...], SealedRow],
    blobs: FileIO,
    size: int,
    is_ours: bool,
    where: str,
) -> SealedRow:
    """Make a row of an entry. Names in our own files are escaped already."""
    path = "/".join(
        names
        if is_ours
        else (escape_key(name, at_root=not level) for level, name in enumerate(names))
    )
    if "same" in entry:
        first = rows.get(_names(entry["same"], where))
        if first is None:
            raise FileFormatError(f'cannot load {where}: "/{path}" is a link to nothing.')
        return dataclasses.replace(first, path=path)
    row = check_row(entry | {"path": path}, size, where, is_located="blob" not in entry)
    if "blob" in entry:
        row.data = empty(row.size)
        if read_into(blobs, entry["blob"], row.data) < row.size:
            raise FileFormatError(f'cannot load {where}: "/{path}" was not copied whole.')
    return row


def _list(file: FileIO, size: int, blobs: Path, where: str) -> dict[str, Any]:
    """Let a child process list the arrays of a file."""
    by_descriptor = os.path.exists("/dev/fd")
    descriptor = file.fileno()
    # No site packages of its own: it imports from where this process does.
    paths = [path for path in sys.path if isinstance(path, str)]
    code = f"import sys\nsys.path[:] = {paths!r}\n{_code()}"
    source = str(descriptor) if by_descriptor else os.path.abspath(file.name)
    memory = str(_MEMORY + min(size, 1 << 32))
    patience = _PATIENCE + size / _SLOWEST
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", code, source, str(blobs), memory],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=patience,
            env=_environment(),
            pass_fds=(descriptor,) if by_descriptor else (),
        )
    except subprocess.TimeoutExpired:
        raise FileFormatError(
            f"cannot load {where}: reading its structures took more than {patience:.0f} seconds."
        ) from None
    if done.returncode:
        raise FileFormatError(f"cannot load {where}: {_reason(done)}. The file is damaged.")
    listing = parse_json(done.stdout, f"the structures of {where}")
    if "error" in listing:
        raise FileFormatError(f"cannot load {where}: {listing['error']}.")
    return listing


def _reason(done: subprocess.CompletedProcess[bytes]) -> str:
    if done.returncode == -getattr(signal, "SIGPROF", 0):
        return "reading its structures does not come to an end"
    if done.returncode < 0:
        return (
            f"HDF5 crashed while it read the structures (signal {-done.returncode}), "
            "in a process of its own"
        )
    lines = done.stderr.decode(errors="replace").strip().splitlines()
    return (
        lines[-1]
        if lines
        else f"the process that reads its structures ended with {done.returncode}"
    )


@cache
def _code() -> str:
    return Path(__file__).with_name("hdf5_child.py").read_text(encoding="utf-8")


def _environment() -> dict[str, str]:
    """Load no libraries that a file names, take no locks, start no threads that take memory."""
    return os.environ | {
        "HDF5_PLUGIN_PRELOAD": "::",
        "HDF5_USE_FILE_LOCKING": "FALSE",
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
    }


def _check_superblock(file: FileIO, size: int, where: str) -> int | None:
    """Find the head of the file; return where it says that the file ends, None if it does not."""
    start = 0
    while start + 8 <= size:
        if read_at(file, start, 8) == SIGNATURE:
            break
        start = max(512, 2 * start)
    else:
        raise FileFormatError(
            f"cannot load {where}: it is no HDF5, safetensors or npz file (it has {size} bytes and "
            f"begins with {read_at(file, 0, 8)!r})."
        )
    head = read_at(file, 0, 64).ljust(64, b"\0")
    version = head[8]
    width = head[13] if version < 2 else head[9]
    first = {0: 24, 1: 28, 2: 12, 3: 12}.get(version, 0)
    if start or not first or width not in (4, 8):
        return None
    end = int.from_bytes(head[first + 2 * width : first + 3 * width], "little")
    if end > size:
        raise FileFormatError(
            f"cannot load {where}: it was cut short; it has {size} bytes, its head says {end}."
        )
    return end
