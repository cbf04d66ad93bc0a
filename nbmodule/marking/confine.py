"""What a student's code may do on this machine: write into its own folder, and nothing else; on Linux the kernel holds it to that.

Landlock (Linux 5.13 and later, no rights needed) takes rights from a process and from all it starts, for good. Reading stays allowed but
for what is hidden: the kernel knows no exceptions from a rule, so what stands around the hidden places is allowed instead.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

_CREATE, _ADD, _RESTRICT = 444, 445, 446  # system calls, the same numbers on every architecture
_NO_NEW_PRIVILEGES = 38
_PATH = 1  # the kind of a rule: below a path
# linux/landlock.h: all that writes, makes, removes or renames; later versions of the interface know more.
_WRITING = sum(1 << bit for bit in (1, 4, 5, 6, 7, 8, 9, 10, 11, 12))
_READ = 1 << 2  # a file; names of files stay visible
_REFER, _TRUNCATE, _TCP, _SCOPED = 1 << 13, 1 << 14, 0b11, 0b11
_ON_FILES = 1 << 1 | _TRUNCATE
_DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom")


class _Ruleset(ctypes.Structure):
    _fields_ = [("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scoped", ctypes.c_uint64)]


class _PathRule(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = [("allowed", ctypes.c_uint64), ("folder", ctypes.c_int32)]


def can_confine() -> bool:
    """Whether this system can hold a process to a folder."""
    return _version() >= 1


def confine(folder: Path, *, network: bool, hidden: Sequence[Path] = ()) -> bool:
    """Let this process, and all it starts, write below `folder` only, and reach no network unless it may.

    Args:
        folder: Its own.
        network: Whether it may.
        hidden: Files and folders of which nothing may be read.

    Returns:
        Whether the system does so; False where it cannot.
    """
    version = _version()
    if version < 1:
        return False
    files = _WRITING | (_REFER if version >= 2 else 0) | (_TRUNCATE if version >= 3 else 0)
    places = [each.resolve() for each in hidden if each.exists()]
    rules = _Ruleset(
        files | (_READ if places else 0), 0 if network or version < 4 else _TCP, 0 if version < 6 else _SCOPED
    )
    length = 8 if version < 4 else 16 if version < 6 else 24
    rights = _call(_CREATE, ctypes.byref(rules), ctypes.c_size_t(length), 0)
    if rights < 0:
        return False
    try:
        for place in _around(Path("/"), places) if places else ():
            with contextlib.suppress(OSError):
                _allow(rights, place, _READ)
        _allow(rights, folder, files | (_READ if places else 0))
        for device in _DEVICES:
            with contextlib.suppress(OSError):
                _allow(rights, Path(device), files & _ON_FILES)
        if ctypes.CDLL(None).prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) != 0:
            return False
        return _call(_RESTRICT, rights, 0) == 0
    finally:
        os.close(rights)


def _around(folder: Path, hidden: Sequence[Path]) -> Iterator[Path]:
    """All below a folder that is not hidden, in as few places as can be; a link that leads to or around a hidden place is none of them."""
    with contextlib.suppress(OSError):
        for each in folder.iterdir():
            real = each.resolve()
            if any(real == place or place in real.parents for place in hidden):
                continue
            if not any(real in place.parents for place in hidden):
                yield each
            elif real == each:
                yield from _around(each, hidden)


def _allow(rights: int, path: Path, files: int) -> None:
    place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        rule = _PathRule(files, place)
        if _call(_ADD, rights, _PATH, ctypes.byref(rule), 0) < 0:
            raise OSError(ctypes.get_errno(), f"no rule for {path}")
    finally:
        os.close(place)


def _version() -> int:
    """The version of Landlock's interface; 0 where there is none."""
    return max(0, _call(_CREATE, None, ctypes.c_size_t(0), 1)) if sys.platform == "linux" else 0


def _call(number: int, *arguments: object) -> int:
    return ctypes.CDLL(None, use_errno=True).syscall(number, *arguments)
