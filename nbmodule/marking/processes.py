"""All processes that a notebook has started, so that none goes on when it is over.

A process can leave its session (`setsid`) and its parents (by forking twice). On Linux an orphan
goes to the nearest ancestor that adopts. Each notebook has a supervising process of its own, which
adopts; so every descendant of the supervisor belongs to the notebook.
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

_SET_CHILD_SUBREAPER = 36  # prctl
_ROUNDS = 200  # a bomb forks while it is being ended: repeat until none is left


def adopt_orphans() -> None:
    """Make orphaned descendants children of this process, for its whole life (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


class _Process(NamedTuple):
    """A process as `/proc` shows it; ticks are those of the processor, with ended children."""

    state: str
    parent: int
    ticks: int


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


def _descendants() -> dict[int, _Process]:
    """List all that come from this process and run; those that ended are left out."""
    table, members = _table(), {os.getpid()}
    waiting = True
    while waiting:
        waiting = {pid for pid, row in table.items() if row.parent in members} - members
        members |= waiting
    members.discard(os.getpid())
    return {pid: table[pid] for pid in members if table[pid].state not in "ZX"}


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
    members = _descendants()
    pages, files = 0, {}
    for pid in members:
        with contextlib.suppress(OSError, IndexError):
            pages += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        with contextlib.suppress(OSError):
            files.update(_unlinked(pid))
    ended = os.times()
    ticks = sum(row.ticks for row in members.values()) / os.sysconf("SC_CLK_TCK")
    return Usage(
        len(members),
        ticks + ended.children_user + ended.children_system,
        pages * os.sysconf("SC_PAGE_SIZE") if pages else 0,
        sum(files.values()),
    )


def _unlinked(pid: int) -> Iterator[tuple[tuple[int, int], int]]:
    """Yield the files that a process holds open though they have no name, with their bytes."""
    for entry in os.scandir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):
            about = os.stat(entry.path)
            if stat.S_ISREG(about.st_mode) and not about.st_nlink:
                yield (about.st_dev, about.st_ino), about.st_blocks * 512


def _table() -> dict[int, _Process]:
    """List all processes, on Linux."""
    table = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, IndexError, ValueError):
            fields = entry.read_text(errors="replace").rpartition(")")[2].split()
            ticks = sum(map(int, fields[11:15]))
            table[int(entry.parent.name)] = _Process(fields[0], int(fields[1]), ticks)
    return table
