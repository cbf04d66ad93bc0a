"""The processes that a notebook has started, also those that have left its session, so that none goes on when it is over.

A process can leave its session (`setsid`) and its parents (by forking twice). On Linux an orphan comes to the nearest ancestor that adopts,
and while a notebook runs this process does: a child of another session that was not there before is the notebook's. (So no other thread of
this process may start sessions meanwhile.)
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_ADOPT, _ADOPTS = 36, 37  # PR_SET_CHILD_SUBREAPER, PR_GET_CHILD_SUBREAPER
_ROUNDS = 200  # a bomb forks while it is being ended: as many looks until none is left


@contextlib.contextmanager
def adopting() -> Iterator[None]:
    """Orphans of what runs inside become children of this process; afterwards as before."""
    if sys.platform != "linux":
        yield
        return
    prctl, before = ctypes.CDLL(None).prctl, ctypes.c_int(0)
    prctl(_ADOPTS, ctypes.byref(before), 0, 0, 0)
    prctl(_ADOPT, 1, 0, 0, 0)
    try:
        yield
    finally:
        prctl(_ADOPT, before.value, 0, 0, 0)


class _Process(NamedTuple):
    """A process as the system tells of it."""

    state: str
    parent: int
    session: int


class Use(NamedTuple):
    """What some processes use.

    Attributes:
        processes: How many there are.
        memory: Bytes of main memory that they hold.
        unlinked: Bytes of files that they hold open though these have no name any more, on a disk or in memory.
    """

    processes: int
    memory: int
    unlinked: int


class Family:
    """A process that leads a session, and all that come from it.

    Args:
        leader: Started with a session of its own.
    """

    def __init__(self, leader: subprocess.Popen[bytes]) -> None:
        self.leader = leader
        self._strangers = {pid for pid, each in _table().items() if each.parent == os.getpid()} - {leader.pid}

    def members(self) -> list[int]:
        """All that run; those that have ended and were not waited for are not among them."""
        known = _table()
        here, own = os.getpid(), known.get(os.getpid())
        found = set()
        for pid, each in known.items():
            is_adopted = each.parent == here and pid not in self._strangers and own and each.session != own.session
            if each.session == self.leader.pid or is_adopted or pid == self.leader.pid:
                found.add(pid)
        waiting = True
        while waiting:  # children of those, and theirs
            waiting = {pid for pid, each in known.items() if each.parent in found and pid not in found}
            found |= waiting
        return [pid for pid in found if pid in known and known[pid].state not in "ZX"]

    def end(self) -> None:
        """End all of them; first they are stopped, so that none starts another meanwhile."""
        for _ in range(_ROUNDS):
            left = self.members()
            if not left:
                break
            for sign in (signal.SIGSTOP, signal.SIGKILL):
                for pid in left:
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.kill(pid, sign)
            time.sleep(0.01)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if (
                self.leader.poll() is None
            ):  # where the system does not tell of processes, its session is all that is known
                os.killpg(self.leader.pid, signal.SIGKILL)
        self.leader.wait()
        self._bury()

    def _bury(self) -> None:
        """Wait for those that were adopted, which nobody else does."""
        own = _table()
        here = own.get(os.getpid())
        for pid, each in own.items():
            if each.parent == os.getpid() and pid not in self._strangers and here and each.session != here.session:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)

    def look(self) -> Use:
        """What they use together at this moment; nothing where that cannot be told."""
        members = self.members()
        pages, files = 0, {}
        for pid in members:
            with contextlib.suppress(OSError, IndexError):
                pages += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
            with contextlib.suppress(OSError):
                files.update(_unlinked(pid))
        return Use(len(members), pages * os.sysconf("SC_PAGE_SIZE") if pages else 0, sum(files.values()))


def _unlinked(pid: int) -> Iterator[tuple[tuple[int, int], int]]:
    """The files that a process holds open though they have no name any more, with what they take."""
    for each in os.scandir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):
            about = os.stat(each.path)
            if stat.S_ISREG(about.st_mode) and not about.st_nlink:
                yield (about.st_dev, about.st_ino), about.st_blocks * 512


def _table() -> dict[int, _Process]:
    """All processes, on Linux."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, IndexError, ValueError):
            state, parent, _, session = entry.read_text(errors="replace").rpartition(")")[2].split()[:4]
            found[int(entry.parent.name)] = _Process(state, int(parent), int(session))
    return found
