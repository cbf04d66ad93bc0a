"""`python -m nbmodule mark FOLDER`: every notebook of a folder run, with limits, and its exercises marked.

An exercise is a cell that asks `nb.check`. It is right when each check in it says so and the cell ends without an error.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nbmodule.base.format import format_bytes, printable
from nbmodule.errors import ArgumentError, FileFormatError
from nbmodule.marking.family import Family, adopting
from nbmodule.marking.notebook import Cell, read_cells, with_checks_of

_LOOK = 0.1  # seconds between two looks at what a process uses
_SECRET = ("TOKEN", "SECRET", "PASSW", "CREDENTIAL", "API_KEY", "ACCESS_KEY", "PRIVATE")
# Below the home of who marks; of these, and of the folder of the notebooks, nothing is read.
_AT_HOME = tuple(
    (
        ".ssh .gnupg .aws .azure .kube .docker .config/gcloud .config/gh .password-store .mozilla .netrc .git-credentials "
        ".pypirc .npmrc .pgpass"
    ).split()
)
_MOST_TOLD = 50_000_000  # bytes of events; a notebook that tells more is ended


@dataclass(frozen=True)
class Limits:
    """What one notebook may use.

    Attributes:
        seconds: From its start to its end.
        memory: Bytes of main memory, of all its processes together (Linux).
        output: Characters that one cell may print.
        disk: Bytes that it may write into its folder, with what it holds open and has deleted.
        network: Whether it may open connections (Linux 6.7 and later; elsewhere it may).
        processes: How many it may have at a time (Linux).
    """

    seconds: float = 300.0
    memory: int = 4 * 2**30
    output: int = 100_000
    disk: int = 2**29
    network: bool = False
    processes: int = 64


@dataclass
class Exercise:
    """A cell that asks `nb.check`.

    Attributes:
        cell: Its number, counted from 1 among the code cells.
        source: Its text.
        checks: What each check said: the line of the cell, whether it is right, and the sentence.
        error: What ended the cell; None if nothing did.
        line: The line of the cell with the error.
        printed: What the cell printed.
        was_run: Whether the cell was begun.
    """

    cell: int
    source: str
    checks: list[tuple[int | None, bool, str]] = field(default_factory=list)
    error: str | None = None
    line: int | None = None
    printed: str = ""
    was_run: bool = False

    @property
    def right(self) -> bool:
        """Whether all of its checks are right, and there is one."""
        return self.error is None and bool(self.checks) and all(right for _, right, _ in self.checks)

    @property
    def says(self) -> str:
        """The first thing that is wrong, with its place; what the check said where nothing is."""
        if self.error is not None:
            return f"{self._place(self.line)}: {self.error}"
        for line, right, sentence in self.checks:
            if not right:
                return f"{self._place(line)}: {sentence}"
        if self.checks:
            return f"{self._place(self.checks[-1][0])}: {self.checks[-1][2]}"
        return f"cell {self.cell}: {'nothing was checked' if self.was_run else 'not reached'}"

    def _place(self, line: int | None) -> str:
        return f"cell {self.cell}" if line is None else f"cell {self.cell}, line {line}"


@dataclass
class Marks:
    """What one notebook got.

    Attributes:
        name: Of the file, without its ending.
        exercises: In the order of the cells.
        faults: Errors in other cells, each with its place.
        ended: Why it was ended before its end; None if it was not.
        seconds: How long it ran.
        is_confined: Whether the system kept it from writing elsewhere.
    """

    name: str
    exercises: list[Exercise] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    ended: str | None = None
    seconds: float = 0.0
    is_confined: bool = False

    @property
    def points(self) -> int:
        """How many exercises are right."""
        return sum(exercise.right for exercise in self.exercises)


def mark(
    folder: str | os.PathLike[str],
    against: str | os.PathLike[str] | None = None,
    limits: Limits | None = None,
    told: Callable[[Marks], None] = lambda marks: None,
) -> list[Marks]:
    """Run each notebook of a folder in a process of its own and mark its exercises.

    Each is run in a fresh folder, with copies of the files that lie beside it, and may write there alone; what it writes is thrown
    away. Notebooks are data from strangers: what one does to itself is its own affair, another one's marks it cannot reach.

    Args:
        folder: Where the notebooks (`.ipynb`) are.
        against: The notebook that was handed out. Cells that check are taken from it, so that changing or deleting them does not help.
        limits: What each may use.
        told: Called with the marks of each, once they are known.

    Returns:
        Marks in the order of the names.

    Raises:
        ArgumentError: there is no notebook to be marked, or none that checks anything.
        FileFormatError: `against` is no notebook.
    """
    folder, limits = Path(folder), limits or Limits()
    if not folder.is_dir():
        raise ArgumentError(f"mark: {str(folder)!r} is no folder. Nothing was run.")
    original = None if against is None else read_cells(_readable(Path(against)))
    if original is not None and not any(cell.checks for cell in original):
        raise ArgumentError(
            f"mark: no cell of {str(against)!r} asks nb.check, so there is nothing to mark. Nothing was run."
        )
    skipped = None if against is None else Path(against).resolve()
    notebooks = [path for path in sorted(folder.glob("*.ipynb")) if path.resolve() != skipped]
    if not notebooks:
        raise ArgumentError(f"mark: there is no notebook (.ipynb) in {str(folder)!r}. Nothing was run.")
    found = []
    for path in notebooks:
        with adopting():
            found.append(_marked(path, original, limits))
        told(found[-1])
    return found


def _readable(path: Path) -> Path:
    if not path.is_file():
        raise ArgumentError(f"mark: {str(path)!r} is no file. Nothing was run.")
    return path


def _marked(path: Path, original: list[Cell] | None, limits: Limits) -> Marks:
    """Run one notebook."""
    marks = Marks(printable(path.stem))
    try:
        cells = read_cells(path)
    except (FileFormatError, OSError) as error:
        marks.ended = str(error)
        marks.exercises = [Exercise(cell.number, cell.source) for cell in original or () if cell.checks]
        return marks
    if original is not None:
        cells = with_checks_of(cells, original)
    checking = {cell.number: Exercise(cell.number, cell.source) for cell in cells if cell.checks}
    marks.exercises = list(checking.values())
    with tempfile.TemporaryDirectory(prefix="nbmodule-mark-", ignore_cleanup_errors=True) as own:
        home = Path(own)
        for beside in path.parent.iterdir():
            if beside.is_file() and beside.suffix != ".ipynb":
                shutil.copy(beside, home / beside.name)
        started = time.perf_counter()
        hidden = [str(path.parent.resolve()), *(str(Path.home() / name) for name in _AT_HOME)]
        _run(home, cells, limits, hidden, lambda event: _noted(event, marks, checking), marks)
        marks.seconds = time.perf_counter() - started
    return marks


def _noted(event: dict[str, Any], marks: Marks, checking: dict[int, Exercise]) -> None:
    """Put down what the process tells."""
    kind, exercise = event.get("kind"), checking.get(event.get("cell", 0))
    if kind == "confined":
        marks.is_confined = bool(event["confined"])
    elif kind == "begin" and exercise is not None:
        exercise.was_run = True
    elif kind == "verdict" and exercise is not None:
        exercise.checks.append((event["line"], bool(event["right"]), printable(str(event["says"]))))
    elif kind == "end":
        error = event["error"]
        if exercise is not None:
            exercise.printed = str(event["text"])
        if error is not None and exercise is not None:
            exercise.error, exercise.line = printable(str(error["what"])), error["line"]
        elif error is not None:
            line = "" if error["line"] is None else f", line {error['line']}"
            marks.faults.append(f"cell {event['cell']}{line}: {printable(str(error['what']))}")


def _run(
    home: Path,
    cells: list[Cell],
    limits: Limits,
    hidden: list[str],
    note: Callable[[dict[str, Any]], None],
    marks: Marks,
) -> None:
    """Run the cells in a process that is watched from here."""
    theirs, ours = os.pipe()[::-1]
    request = {
        "pipe": theirs,
        "folder": str(home),
        "network": limits.network,
        "output": limits.output,
        "hidden": hidden,
        "cells": [(cell.number, cell.source, cell.checks) for cell in cells],
        "limits": {"cpu": int(limits.seconds * 4 * (os.cpu_count() or 1)) + 60, "file": limits.disk},
    }
    child = subprocess.Popen(
        [sys.executable, "-P", "-m", "nbmodule.marking.child"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=(theirs,),
        start_new_session=True,
        env=_environment(home),
    )
    family = Family(child)
    os.close(theirs)
    over = threading.Event()
    watching = threading.Thread(target=_watch, args=(family, home, limits, marks, over), daemon=True)
    watching.start()
    at, is_over = 0, False
    try:
        assert child.stdin is not None
        try:
            child.stdin.write(json.dumps(request).encode())
            child.stdin.close()
        except BrokenPipeError:
            pass  # it ended at once; what is told below says so
        for event in _events(ours):
            at, is_over = event.get("cell", at), event.get("kind") == "over"
            note(event)
            if is_over:
                break
    finally:
        over.set()
        watching.join()
        family.end()
        os.close(ours)
    if not is_over and marks.ended is None:
        marks.ended = f"its process ended by itself in cell {at}" if at else "its process ended before the first cell"
    elif marks.ended is not None and at:
        marks.ended += f", in cell {at}"


def _events(pipe: int) -> Iterator[dict[str, Any]]:
    """What the process tells, line by line, as long as it keeps to the form."""
    left, rest = _MOST_TOLD, b""
    while left > 0 and (read := os.read(pipe, 2**16)):
        left -= len(read)
        *lines, rest = (rest + read).split(b"\n")
        for line in lines:
            try:
                event = json.loads(line)
            except (ValueError, RecursionError):
                return
            if isinstance(event, dict):
                yield event


def _watch(family: Family, home: Path, limits: Limits, marks: Marks, over: threading.Event) -> None:
    """End the process where it uses more than it may."""
    deadline = time.monotonic() + limits.seconds
    while not over.wait(_LOOK):
        use = family.look()
        if time.monotonic() > deadline:
            marks.ended = f"it ran for more than {limits.seconds:g} seconds"
        elif use.memory > limits.memory:
            marks.ended = f"it used {format_bytes(use.memory)} of memory, more than {format_bytes(limits.memory)}"
        elif use.processes > limits.processes:
            marks.ended = f"it started more than {limits.processes} processes"
        elif _written(home) + use.unlinked > limits.disk:
            marks.ended = f"it wrote more than {format_bytes(limits.disk)}"
        else:
            continue
        family.end()
        return


def _written(home: Path) -> int:
    total = 0
    for folder, _, files in os.walk(home):
        for name in files:
            try:
                total += os.lstat(os.path.join(folder, name)).st_size
            except OSError:
                continue
    return total


def _environment(home: Path) -> dict[str, str]:
    """All that programs would write at home they write in the folder of the notebook; what is named as a secret stays here."""
    own = {
        name: str(home / ".home")
        for name in ("HOME", "TMPDIR", "IPYTHONDIR", "MPLCONFIGDIR", "JUPYTER_CONFIG_DIR", "XDG_CACHE_HOME")
    }
    (home / ".home").mkdir()
    shown = {name: value for name, value in os.environ.items() if not any(word in name.upper() for word in _SECRET)}
    return shown | own | {"MPLBACKEND": "agg", "NBMODULE_DISPLAY": "static", "PYTHONDONTWRITEBYTECODE": "1"}
