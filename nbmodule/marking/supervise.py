"""The process that supervises one notebook: `python -P -m nbmodule.marking.supervise`.

It reads a task, runs the notebook in a confined child, ends it at its limits, and writes the marks.
Each notebook has a supervisor of its own, so that nothing in one notebook can end the marking of
the class.

A process can leave its session (`setsid`) and its parents (by forking twice). On Linux an orphan
goes to the nearest ancestor that adopts orphans, which the supervisor does: all its descendants
belong to its notebook.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import glob
import json
import os
import pickle
import re
import select
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from nbmodule.base.format import format_bytes, printable
from nbmodule.errors import FileFormatError
from nbmodule.marking.notebook import Cell, read_cells, with_checks_of
from nbmodule.marking.results import CellRun, Exercise, Limits, Marks, Task, not_run
from nbmodule.marking.submissions import copy_data

_INTERVAL = 0.1  # seconds between two measurements of the use of resources
_MOST_REPORTED = 50_000_000  # bytes; a notebook that reports more is ended
_MISSING = re.compile(r"name '(\w+)' is not defined")
NOBODY = 65534
_SET_CHILD_SUBREAPER = 36  # prctl
_ROUNDS = 200  # a bomb forks while it is being ended: repeat until none is left
# Fields of `/proc/PID/stat` after the name; times are with those of children that have ended.
_STATE, _PARENT, _TIMES, _PAGES = 0, 1, slice(11, 15), 21


def main(task: Task) -> Marks:
    """Mark one notebook."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # for its whole life
    submission, original = task.submission, task.original
    try:
        own = read_cells(submission.path)
    except (FileFormatError, OSError) as error:
        return not_run(task, str(error))
    marks = Marks(submission.name, submission.file)
    cells = own if original is None else with_checks_of(own, original)
    _lay_out(marks, cells, own, original)
    with tempfile.TemporaryDirectory(prefix="nbmodule-mark-", ignore_cleanup_errors=True) as folder:
        copy_data(submission.path, submission.root, Path(folder), task.limits.disk)
        started = time.perf_counter()
        _run(marks, task, Path(folder), cells)
        marks.seconds = time.perf_counter() - started
    _name_obstacles(marks)
    return marks


def _lay_out(marks: Marks, cells: list[Cell], own: list[Cell], original: list[Cell] | None) -> None:
    """Make a record for each cell, and find the cells with the answer to each exercise.

    These are the cells since the exercise before that are not as they were handed out; without an
    original, the cell before the one that checks.
    """
    sources = {cell.number: cell.source for cell in own}
    handed_out = {cell.source for cell in original or ()}
    since: list[int] = []
    for cell in cells:
        if not cell.checks:
            marks.cells.append(CellRun(cell.number, cell.source))
            since.append(cell.number)
            continue
        exercise = Exercise(cell.number, cell.source, answers=since[-1:])
        if original is not None:
            changed = [n for n in since if sources[n] not in handed_out]
            exercise.answers = changed or exercise.answers
            is_own = sources.get(cell.number, cell.source) == cell.source
            exercise.was_changed = not is_own and cell.source not in sources.values()
        marks.exercises.append(exercise)
        since = []


def _name_obstacles(marks: Marks) -> None:
    """Note the reason at each exercise that cannot be checked: it is not marked."""
    failed = [cell for cell in marks.cells if cell.error is not None]
    for exercise in marks.exercises:
        missing = _MISSING.search(exercise.error or "")
        if not exercise.is_done:
            exercise.obstacle = marks.ended or "not reached"
        elif (exercise.error or "").startswith(("ModuleNotFoundError", "SyntaxError")):
            exercise.obstacle = exercise.fault
        elif missing is not None:
            word = re.compile(rf"\b{re.escape(missing[1])}\b")
            causes = [cell for cell in failed if cell.number < exercise.number]
            exercise.obstacle = next((c.fault for c in causes if word.search(c.source)), None)


class _EndedError(Exception):
    """A notebook is ended before its end; the message is the reason."""


def _run(marks: Marks, task: Task, home: Path, cells: list[Cell]) -> None:
    """Run the cells in a child process and record its reports."""
    reading, writing = os.pipe()
    request = {
        "pipe": writing,
        "folder": home,
        "hidden": [*task.hidden, Path(f"/proc/{os.getpid()}")],
        "cells": [(cell.number, cell.source, cell.checks) for cell in cells],
        "limits": task.limits,
    }
    user = task.user
    if user is not None:  # students' code never runs as root
        for parent, folders, files in os.walk(home):
            for name in (".", *folders, *files):
                os.chown(os.path.join(parent, name), user, user, follow_symlinks=False)
    child = subprocess.Popen(
        [sys.executable, "-P", "-m", "nbmodule.marking.child"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=(writing,),
        start_new_session=True,
        env=_environment(home),
        user=user,
        group=user,
        extra_groups=None if user is None else [],
    )
    os.close(writing)
    started, current = time.monotonic(), 0

    def check_limits() -> None:
        used = _usage(home) | {"seconds": time.monotonic() - started}
        marks.cpu = max(marks.cpu, used["cpu"])
        reason = _excess(used, task.limits)
        if reason is not None:
            raise _EndedError(f"it {reason}")

    try:
        with contextlib.suppress(BrokenPipeError):  # it ended at once, as is noted below
            assert child.stdin is not None
            child.stdin.write(pickle.dumps(request))
            child.stdin.close()
        lines = _lines(reading, check_limits)
        marks.is_confined = next(lines) == b"true"
        for run in sorted((*marks.cells, *marks.exercises), key=lambda run: run.number):
            current = run.number
            _write_down(run, next(lines))
    except StopIteration:
        where = f"by itself in cell {current}" if current else "before the first cell"
        marks.ended = f"its process ended {where}"
    except _EndedError as error:
        marks.ended = str(error) + (f", in cell {current}" if current else "")
    finally:
        marks.cpu = max(marks.cpu, _usage(home)["cpu"])
        _end_descendants(child)
        os.close(reading)


def _lines(pipe: int, check_limits: Callable[[], None]) -> Iterator[bytes]:
    """Yield the lines that a child reports, while nothing is over its limits."""
    left, rest = _MOST_REPORTED, b""
    while True:
        is_ready = select.select([pipe], [], [], _INTERVAL)[0]
        check_limits()
        if not is_ready:
            continue
        data = os.read(pipe, 2**16)
        if not data:
            return
        left -= len(data)
        if left < 0:
            raise _EndedError(f"it reported more than {format_bytes(_MOST_REPORTED)}")
        *lines, rest = (rest + data).split(b"\n")
        yield from lines


def _write_down(run: CellRun, line: bytes) -> None:
    """Complete the record of a cell by the line that a child reports of it."""
    try:
        output, error, place, checks = json.loads(line)
        run.output, run.error = str(output), None if error is None else printable(str(error))
        run.line = None if place is None else int(place)
        if isinstance(run, Exercise):
            run.checks = [
                (None if place is None else int(place), bool(right), printable(str(says)))
                for place, right, says in checks
            ]
    except Exception:  # noqa: BLE001 - whatever a hostile line makes of the parser
        reported = printable(repr(line[:60]))
        raise _EndedError(f"it reported {reported}, which is no event of a notebook") from None
    run.is_done = True


# -- descendants --
def _excess(used: dict[str, float], limits: Limits) -> str | None:
    """Return the excess of a notebook over its limits as text, or None."""
    memory, disk = format_bytes(limits.memory), format_bytes(limits.disk)
    wall = (
        f"ran for more than {limits.seconds:g} seconds, {used['cpu']:.0f} of them on the processor"
    )
    reasons = {
        "seconds": wall,
        "cpu": f"used more than {limits.cpu:g} seconds of the processor",
        "memory": f"used {format_bytes(int(used['memory']))} of memory, more than {memory}",
        "processes": f"started more than {limits.processes} processes",
        "disk": f"wrote more than {disk}",
    }
    return next(
        (text for name, text in reasons.items() if used[name] > getattr(limits, name)), None
    )


def _usage(home: Path) -> dict[str, float]:
    """Measure the use of all descendants together now, under the names of `Limits`.

    Memory is in bytes, and so is the disk: files in the folder, and open files without a name.
    Where there is no /proc, processes count as nothing.
    """
    rows, ended, files = _descendants(), os.times(), {}
    for folder, _, names in os.walk(home):
        for path in (os.path.join(folder, name) for name in names):
            with contextlib.suppress(OSError):
                files[path] = os.lstat(path).st_size
    for path in (path for pid in rows for path in glob.iglob(f"/proc/{pid}/fd/*")):
        with contextlib.suppress(OSError):
            about = os.stat(path)
            if stat.S_ISREG(about.st_mode) and not about.st_nlink:
                files[about.st_dev, about.st_ino] = about.st_blocks * 512
    ticks = sum(int(ticks) for row in rows.values() for ticks in row[_TIMES])
    own = ended.children_user + ended.children_system
    return {
        "cpu": ticks / os.sysconf("SC_CLK_TCK") + own,
        "memory": sum(int(row[_PAGES]) for row in rows.values()) * os.sysconf("SC_PAGE_SIZE"),
        "processes": len(rows),
        "disk": sum(files.values()),
    }


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


def _end_descendants(leader: subprocess.Popen[bytes]) -> None:
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


# Other variables may hold secrets, or sockets that lead out of the cage.
_SHOWN = re.compile(
    r"PATH|LANG|LC_\w+|TZ|VIRTUAL_ENV|CONDA_PREFIX|LD_LIBRARY_PATH|PYTHONPATH|PYTHONHOME|"
    r"(?!.*(TOKEN|SECRET|PASSW|CREDENTIAL|_KEY))(JAX|XLA|NBMODULE|CUDA|OMP|OPENBLAS|MKL)_\w+"
)


def shown_environment() -> dict[str, str]:
    """Return the part of this process's environment that a notebook may see."""
    return {name: value for name, value in os.environ.items() if _SHOWN.fullmatch(name)}


def _environment(home: Path) -> dict[str, str]:
    """Return an environment whose home is in the folder of the notebook."""
    names = "HOME TMPDIR IPYTHONDIR MPLCONFIGDIR JUPYTER_CONFIG_DIR XDG_CACHE_HOME".split()
    (home / ".home").mkdir(exist_ok=True)
    return (
        shown_environment()
        | dict.fromkeys(names, str(home / ".home"))
        | {"MPLBACKEND": "agg", "NBMODULE_DISPLAY": "static", "PYTHONDONTWRITEBYTECODE": "1"}
    )


if __name__ == "__main__":
    sys.stdout.write(json.dumps(dataclasses.asdict(main(pickle.load(sys.stdin.buffer)))))
