"""Records of marking one notebook: the task of its supervisor, and the marks it returns as JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from nbmodule.marking.notebook import Cell
from nbmodule.marking.submissions import Submission


@dataclass(frozen=True)
class Limits:
    """Limits of one notebook.

    Attributes:
        seconds: Wall time from its start to its end.
        cpu: Processor seconds of all its processes together (Linux); a busy machine does not use
            them up.
        memory: Bytes of main memory of all its processes together (Linux).
        output: Characters that one cell may print.
        disk: Bytes that it may write into its folder, with deleted files that it holds open.
        network: Whether it may open connections (Linux; elsewhere it may).
        processes: How many it may have at a time (Linux).
    """

    seconds: float = 900.0
    cpu: float = 300.0
    memory: int = 4 * 2**30
    output: int = 100_000
    disk: int = 2**29
    network: bool = False
    processes: int = 64


class Task(NamedTuple):
    """One notebook to be marked.

    Attributes:
        submission: The notebook, and its student.
        original: Cells of the notebook that was handed out, with the checks that count.
        limits: Of time, memory, output, disk, connections and processes.
        hidden: Files and folders that it may not read.
        user: Number of the user that runs it; None for the present one.
    """

    submission: Submission
    original: list[Cell] | None
    limits: Limits
    hidden: list[Path]
    user: int | None


@dataclass
class CellRun:
    """A code cell that was run.

    Attributes:
        number: Counted from 1 among the code cells.
        source: Its text.
        output: The printed text.
        error: The error that ended it; None if there was none.
        line: The line of the cell with the error.
        is_done: Whether it came to its end.
    """

    number: int
    source: str
    output: str = ""
    error: str | None = None
    line: int | None = None
    is_done: bool = False

    @property
    def fault(self) -> str:
        """The error with its location."""
        return f"{_location(self.number, self.line)}: {self.error}"


@dataclass
class Exercise(CellRun):
    """A cell that calls `nb.check`, as it was run.

    Attributes:
        checks: For each call of `nb.check`: the line, whether it is right, the sentence.
        answers: Numbers of the cells that hold the student's answer.
        was_changed: Whether the student's own checking cell had another text.
        obstacle: Why the answer cannot be checked; None if it was checked.
    """

    checks: list[tuple[int | None, bool, str]] = field(default_factory=list)
    answers: list[int] = field(default_factory=list)
    was_changed: bool = False
    obstacle: str | None = None

    @property
    def right(self) -> bool:
        """True if all of its checks are right, and there is one."""
        is_complete = self.is_done and self.error is None and bool(self.checks)
        return is_complete and all(right for _, right, _ in self.checks)

    @property
    def status(self) -> str:
        """`right`, `wrong` or `not marked`."""
        return "right" if self.right else "wrong" if self.obstacle is None else "not marked"

    @property
    def says(self) -> str:
        """The first mistake with its location, the obstacle, or the sentence of a right check."""
        if self.obstacle is not None:
            return f"cell {self.number}: not marked: {self.obstacle}"
        changed = ""
        if self.was_changed and not self.right:
            changed = (
                ". The cell that checks was changed, and the one that was handed out was run: "
                "an answer belongs into a cell before it"
            )
        if self.error is not None:
            return self.fault + changed
        mistakes = [check for check in self.checks if not check[1]] or self.checks[-1:]
        if mistakes:
            line, _, sentence = mistakes[0]
            return f"{_location(self.number, line)}: {sentence}{changed}"
        return f"cell {self.number}: nothing was checked{changed}"


@dataclass
class Marks:
    """Marks of one notebook.

    Attributes:
        name: Of the student, as the layout of the folder says.
        file: The notebook, below the folder that is marked.
        exercises: In the order of the cells.
        cells: All other cells that were run.
        ended: Why it was ended before its end, or could not be run; None if neither.
        seconds: Wall time that it took.
        cpu: Processor time that it took.
        is_confined: Whether the system kept it from writing elsewhere.
    """

    name: str
    file: str = ""
    exercises: list[Exercise] = field(default_factory=list)
    cells: list[CellRun] = field(default_factory=list)
    ended: str | None = None
    seconds: float = 0.0
    cpu: float = 0.0
    is_confined: bool = False

    @property
    def points(self) -> int:
        """The number of right exercises."""
        return sum(exercise.right for exercise in self.exercises)

    @property
    def unmarked(self) -> int:
        """The number of exercises that are neither right nor wrong."""
        return sum(exercise.status == "not marked" for exercise in self.exercises)

    @property
    def faults(self) -> list[str]:
        """Errors in cells that do not check, each with its location."""
        return [cell.fault for cell in self.cells if cell.error is not None]

    def answer(self, exercise: Exercise) -> list[CellRun]:
        """List the cells that hold the student's answer."""
        return [cell for cell in self.cells if cell.number in exercise.answers]


def from_json(record: dict[str, Any]) -> Marks:
    """Build marks from the JSON of `dataclasses.asdict`."""
    cells = [CellRun(**cell) for cell in record["cells"]]
    exercises = [Exercise(**exercise) for exercise in record["exercises"]]
    return Marks(**record | {"exercises": exercises, "cells": cells})


def not_run(task: Task, ended: str) -> Marks:
    """Return the marks of a notebook that could not be run: no exercise is marked."""
    checking = (cell for cell in task.original or () if cell.checks)
    exercises = [Exercise(cell.number, cell.source, obstacle=ended) for cell in checking]
    return Marks(task.submission.name, task.submission.file, exercises, ended=ended)


def _location(cell: int, line: int | None) -> str:
    return f"cell {cell}" if line is None else f"cell {cell}, line {line}"
