"""Write files atomically: temporary file in the same folder, fsync, rename.

A rename within a folder is atomic, so a reader, a second writer and a process that is killed see
the old file or the new one. A killed process leaves its unfinished file behind; the next writer of
the same file removes it once nobody has written to it for an hour.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import os
import secrets
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from nbmodule.errors import ArgumentError, ArgumentTypeError, FileWriteError, NbModuleError

fcntl: Any
try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

_UNFINISHED = ".unfinished"
_ABANDONED_AFTER = 3600.0  # seconds
_FOLDER_ADVICE = " Choose a folder that you may write to."
_ADVICE = {
    errno.ENOSPC: " Make room on the disk, or save to another one.",
    errno.EDQUOT: " Your quota on this disk is used up: delete something, or save to another disk.",
    errno.EACCES: _FOLDER_ADVICE,
    errno.EPERM: _FOLDER_ADVICE,
    errno.EROFS: _FOLDER_ADVICE,
}


def file_name(path: object, act: str) -> str:
    """Return the name as text.

    Args:
        path: A name from a user.
        act: The attempted action, such as `save`, for errors.

    Raises:
        ArgumentTypeError: The name is bytes, an open file, or another type.
        ArgumentError: The name is empty or holds a NUL character.

    Example:
        >>> from pathlib import Path
        >>> file_name(Path("runs") / "weights.h5", "save")
        'runs/weights.h5'
    """
    name = os.fspath(path) if isinstance(path, (str, os.PathLike)) else path
    if not isinstance(name, str):
        fix = " `os.fsdecode` makes text of bytes." if isinstance(name, bytes) else ""
        raise ArgumentTypeError(
            f"cannot {act}: a file name must be a str or a pathlib.Path, got "
            f"{type(path).__name__}.{fix}"
        )
    if "\0" in name or not name:
        what = "holds a NUL character" if name else "is empty"
        raise ArgumentError(f"cannot {act}: the name {name!r} {what}.")
    return name


@contextlib.contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a file for writing that takes its place only when the block ends without an error.

    Folders that are missing are made. A symbolic link stays, and what it points to is replaced; the
    permissions of a file that is replaced are kept.

    Args:
        path: Where the file shall be.

    Raises:
        FileWriteError: if it cannot be written, for lack of room or of permission; what was there
            is unchanged.

    Example:
        >>> import os, tempfile
        >>> from pathlib import Path
        >>> from nbmodule.base.whole_file import whole_file
        >>> folder = tempfile.mkdtemp()
        >>> with whole_file(os.path.join(folder, "new", "note.txt")) as file:
        ...     _ = file.write(b"whole")
        >>> Path(folder, "new", "note.txt").read_text()
        'whole'
    """
    target = Path(os.path.realpath(file_name(path, "save")))
    unfinished: Path | None = None
    in_place = False
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        remove_abandoned(target.parent, _prefix(target))
        if target.is_dir():
            raise IsADirectoryError(errno.EISDIR, "it is a folder")
        unfinished = target.with_name(f"{_prefix(target)}{secrets.token_hex(6)}{_UNFINISHED}")
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
        descriptor = os.open(unfinished, flags, 0o666)  # the permissions of any new file
        with open(descriptor, "w+b", buffering=1 << 20) as file:
            yield file
            file.flush()
            if hasattr(os, "fchmod"):
                with contextlib.suppress(OSError):
                    os.fchmod(descriptor, stat.S_IMODE(target.stat().st_mode))
            _sync(descriptor)
        os.replace(unfinished, target)
        in_place = True
        _sync_folder(target.parent)
    except OSError as error:
        if isinstance(error, NbModuleError):
            raise
        raise _explained(error, path, target, in_place) from error
    finally:
        if unfinished is not None and not in_place:
            with contextlib.suppress(OSError):
                unfinished.unlink()


def _explained(
    error: OSError, path: str | os.PathLike[str], target: Path, in_place: bool
) -> FileWriteError:
    """Return the error that names the state of the previous file."""
    if in_place:
        state = "The new file is complete, but a power failure may still restore the previous one."
    elif target.is_file():
        state = "The previous file is unchanged."
    else:
        state = "No file was written."
    reason = (error.strerror or str(error) or type(error).__name__).lower()
    explained = FileWriteError(
        f"cannot save {os.fspath(path)}: {reason}. {state}{_ADVICE.get(error.errno or 0, '')}"
    )
    explained.errno, explained.strerror = error.errno, error.strerror
    explained.filename = os.fspath(path)
    return explained


def _prefix(target: Path) -> str:
    """Return the beginning of names of unfinished files; a name has at most 255 bytes."""
    return f".{target.name[:50]}."


def remove_abandoned(folder: Path, prefix: str) -> None:
    """Remove unfinished files whose hidden names begin like this and that nobody writes."""
    with contextlib.suppress(OSError):
        for path in folder.glob(f"{glob.escape(prefix)}*{_UNFINISHED}"):
            if time.time() - path.stat().st_mtime > _ABANDONED_AFTER:
                path.unlink(missing_ok=True)


def hold(file: BinaryIO) -> None:
    """Hold a lock on an open file as long as it is open, so that others see that somebody writes
    it; it ends with the process.
    """
    if fcntl is not None:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(file.fileno(), fcntl.LOCK_EX)


def is_held(path: Path) -> bool:
    """Return True if a process is known to hold a lock on a file."""
    if fcntl is None:
        return False
    try:
        with open(path, "rb") as file:
            fcntl.flock(file.fileno(), fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _sync(descriptor: int) -> None:
    """Wait until the bytes are on the disk; on macOS `fsync` alone leaves them in the cache of the
    drive.
    """
    if fcntl is not None and hasattr(fcntl, "F_FULLFSYNC"):
        with contextlib.suppress(OSError):
            fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
            return
    os.fsync(descriptor)


def _sync_folder(folder: Path) -> None:
    """Wait until a new name is on the disk."""
    if os.name == "nt":  # folders cannot be opened there, and renames are journaled
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
