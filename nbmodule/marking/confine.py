"""Confine a process to its own folder: Landlock and seccomp on Linux, nothing elsewhere.

Landlock (Linux 5.13 and later, no rights needed) takes rights from a process and from all it
starts, for good. Reading stays allowed but for hidden locations: the kernel knows no exceptions
from a rule, so everything around them is allowed instead. Seccomp closes calls for which Landlock
has no right: sockets, modes and times of files, limits of other processes.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import struct
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

_CREATE, _ADD, _RESTRICT = 444, 445, 446  # Landlock's calls, the same on every architecture
_SET_PARENT_DEATH_SIGNAL, _SET_SECCOMP, _NO_NEW_PRIVILEGES = 1, 22, 38  # prctl
_PATH = 1  # the type of a rule: below a path
# linux/landlock.h: the rights to write, make, remove or rename.
_WRITING = sum(1 << bit for bit in (1, 4, 5, 6, 7, 8, 9, 10, 11, 12))
_READ = 1 << 2  # a file; names of files stay visible
_REFER, _TRUNCATE, _TCP, _SCOPED = 1 << 13, 1 << 14, 0b11, 0b11
_ON_FILES = 1 << 1 | _TRUNCATE
_DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom")

# Audit number of each architecture, and its numbers of system calls; "files" are chmod, fchmod,
# fchmodat, fchmodat2, utime, utimes, futimesat and utimensat, as far as there are such.
_X86 = {"socket": 41, "prlimit": 302, "files": (90, 91, 268, 452, 132, 235, 261, 280)}
_ARM = {"socket": 198, "prlimit": 261, "files": (52, 53, 452, 88)}
_ARCHITECTURES: dict[str, tuple[int, dict[str, Any]]] = {
    "x86_64": (0xC000003E, _X86),
    "aarch64": (0xC00000B7, _ARM),
}
_IO_URING_SETUP = 425  # would open sockets past this filter
_UNIX = 1  # the family of local sockets
_ALLOW, _FAIL = 0x7FFF0000, 0x00050000  # SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO
_EPERM = 1


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]


def can_confine() -> bool:
    """Return True if this system can confine a process to a folder."""
    return _version() >= 1


def confine(folder: Path, *, network: bool, hidden: Sequence[Path] = ()) -> bool:
    """Let this process, and all it starts, write below `folder` only, and open no socket.

    Args:
        folder: Its own.
        network: Whether it may open sockets, other than local ones.
        hidden: Files and folders of which nothing may be read.

    Returns:
        Whether the system does so; False where it cannot.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, 9, 0, 0, 0)
    version = _version()
    if version < 1:
        return False
    files = _WRITING | (_REFER if version >= 2 else 0) | (_TRUNCATE if version >= 3 else 0)
    # One that may not be looked at needs no hiding.
    locations = [path.resolve() for path in hidden if os.path.exists(path)]
    rules = struct.pack(
        "QQQ",
        files | (_READ if locations else 0),
        0 if network or version < 4 else _TCP,
        0 if version < 6 else _SCOPED,
    )
    length = 8 if version < 4 else 16 if version < 6 else 24
    rights = _call(_CREATE, rules, ctypes.c_size_t(length), 0)
    if rights < 0:
        return False
    try:
        for path in _around(Path("/"), locations) if locations else ():
            with contextlib.suppress(OSError):
                _allow(rights, path, _READ)
        _allow(rights, folder, files | (_READ if locations else 0))
        for device in _DEVICES:
            with contextlib.suppress(OSError):
                _allow(rights, Path(device), files & _ON_FILES)
        if ctypes.CDLL(None).prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) != 0:
            return False
        return _call(_RESTRICT, rights, 0) == 0 and _filter_calls(network)
    finally:
        os.close(rights)


def _around(folder: Path, hidden: Sequence[Path]) -> Iterator[Path]:
    """Yield as few paths as cover all of a folder that is not hidden, without links to the rest."""
    with contextlib.suppress(OSError):
        for path in folder.iterdir():
            real = path.resolve()
            if any(real == secret or secret in real.parents for secret in hidden):
                continue
            if not any(real in secret.parents for secret in hidden):
                yield path
            elif real == path:
                yield from _around(path, hidden)


def _filter_calls(network: bool) -> bool:
    """Install a seccomp filter for this process and all it starts.

    It is a classic BPF program over (number, architecture, instruction pointer, arguments). An
    unknown architecture has no filter, and counts as not confined.
    """
    if platform.machine() not in _ARCHITECTURES:
        return False
    # Harmless programs change modes and times of their own files, so these calls do nothing.
    audit, calls = _ARCHITECTURES[platform.machine()]
    refuse, ignore, allow = ((0x06, 0, 0, result) for result in (_FAIL | _EPERM, _FAIL, _ALLOW))
    # Sockets: local ones are closed where others may be opened, else all.
    sockets = [_load(16), *_if_equal(_UNIX, [refuse]), allow] if network else [refuse]
    # Limits: 0 is the process itself.
    limits = [_load(16), *_unless_equal(0, _FAIL | _EPERM), allow]
    program = [
        _load(4),
        *_unless_equal(audit, _FAIL | _EPERM),
        _load(0),
        (0x35, 0, 1, 0x40000000),  # the x32 interface would go around the numbers below
        refuse,
        *_if_equal(_IO_URING_SETUP, [refuse]),
        *(step for number in calls["files"] for step in _if_equal(number, [ignore])),
        *_if_equal(calls["socket"], sockets),
        *_if_equal(calls["prlimit"], limits),
        allow,
    ]
    code = b"".join(struct.pack("HBBI", *instruction) for instruction in program)
    packed = _Program(len(program), code)
    return ctypes.CDLL(None).prctl(_SET_SECCOMP, 2, ctypes.byref(packed), 0, 0) == 0


_Step = tuple[int, int, int, int]


def _load(offset: int) -> _Step:
    """Load a word of the call's data; the lower half of argument 0 is at 16."""
    return 0x20, 0, 0, offset


def _if_equal(value: int, then: list[_Step]) -> list[_Step]:
    return [(0x15, 0, len(then), value), *then]


def _unless_equal(value: int, result: int) -> list[_Step]:
    return [(0x15, 1, 0, value), (0x06, 0, 0, result)]


def _allow(rights: int, path: Path, files: int) -> None:
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        rule = struct.pack("=Qi", files, descriptor)
        if _call(_ADD, rights, _PATH, rule, 0) < 0:
            raise OSError(ctypes.get_errno(), f"no rule for {path}")
    finally:
        os.close(descriptor)


def _version() -> int:
    """Return the version of Landlock's interface; 0 where there is none."""
    return max(0, _call(_CREATE, None, ctypes.c_size_t(0), 1)) if sys.platform == "linux" else 0


def _call(number: int, *arguments: object) -> int:
    return ctypes.CDLL(None, use_errno=True).syscall(number, *arguments)
