"""All processes that a notebook has started, so that none goes on when it is over.

A process can leave its session (`setsid`) and its parents (by forking twice). On Linux an orphan
goes to the nearest ancestor that adopts. Each notebook has a supervising process of its own, which
adopts; so every descendant of the supervisor belongs to the notebook.
"""

from __future__ import annotations

import contextlib
import ctypes
import glob
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

_SET_CHILD_SUBREAPER = 36  # prctl
_ROUNDS = 200  # a bomb forks while it is being ended: repeat until none is left
# Fields of `/proc/PID/stat` after the name; times are with those of children that have ended.
_STATE, _PARENT, _TIMES, _PAGES = 0, 1, slice(11, 15), 21


def adopt_orphans() -> None:
    """Make orphaned descendants children of this process, for its whole life (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


class Usage(NamedTuple):
    """Resources that some processes use together.

    Attributes:
        processes: How many there are.
        cpu: Seconds of the processor, with those of children that have ended.
        memory: Bytes of main memory.
        unlinked: Bytes of files that they hold open though these have no name any more.
    """

    processes: int
    cpu: float
    memory: int
    unlinked: int


def _descendants() -> dict[int, list[str]]:
    """Return the fields of all that come from this process and run; none where there is no /proc.

    Those that have ended are left out.
    """
    table = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            table[int(path.parent.name)] = (
                path.read_text(errors="replace").rpartition(")")[2].split()
            )
    members = {os.getpid()}
    while more := {pid for pid, row in table.items() if int(row[_PARENT]) in members} - members:
        members |= more
    running = (pid for pid in members if pid != os.getpid() and table[pid][_STATE] not in "ZX")
    return {pid: table[pid] for pid in running}


def end_descendants(leader: subprocess.Popen[bytes]) -> None:
    """End all descendants; first they are stopped, so that none starts another meanwhile.

    Args:
        leader: The one that was started, with a session of its own.
    """
    for _ in range(_ROUNDS):
        members = _descendants()
        if not members:
            break
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in members:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, number)
        time.sleep(0.01)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if leader.poll() is None:  # without /proc its session is all that is known
            os.killpg(leader.pid, signal.SIGKILL)
    leader.wait()
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:  # adopted ones, which nobody else waits for
            pass


def descendants_usage() -> Usage:
    """Measure what all descendants use together now; zeros where the system does not say."""
    rows, ended = _descendants(), os.times()
    ticks = sum(int(ticks) for row in rows.values() for ticks in row[_TIMES])
    pages = sum(int(row[_PAGES]) for row in rows.values())
    unlinked = {}
    for path in (path for pid in rows for path in glob.iglob(f"/proc/{pid}/fd/*")):
        with contextlib.suppress(OSError):
            about = os.stat(path)
            if stat.S_ISREG(about.st_mode) and not about.st_nlink:
                unlinked[about.st_dev, about.st_ino] = about.st_blocks * 512
    return Usage(
        len(rows),
        ticks / os.sysconf("SC_CLK_TCK") + ended.children_user + ended.children_system,
        pages * os.sysconf("SC_PAGE_SIZE"),
        sum(unlinked.values()),
    )
