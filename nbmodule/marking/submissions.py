"""Find the notebooks of a class in the folders that learning platforms make."""

from __future__ import annotations

import itertools
import os
import re
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nbmodule.base.format import printable

# Anna Muster_123456_assignsubmission_file_ (Moodle), annamuster_LATE_12345_67890_lesson (Canvas)
_MOODLE = re.compile(r"(.+?)_\d+_assignsubmission_\w+")
_CANVAS = re.compile(r"(.+?)(?:_LATE)?_\d+_\d+_.+")
_SKIPPED = frozenset({"marks", "__pycache__"})


@dataclass(frozen=True)
class Submission:
    """A notebook of a student.

    Attributes:
        name: Of the student; different for each submission.
        path: Of the notebook.
        root: The folder whose files are copied beside it: that of the student, or the class's.
        folder: That of the class.
    """

    name: str
    path: Path
    root: Path
    folder: Path


def find_submissions(folders: Sequence[Path], original: Path | None) -> list[Submission]:
    """List the notebooks to be marked, in the order of the folders and of the names in them.

    A notebook in the folder itself is named by its file (Canvas: by the student's part of it). One
    in subfolders belongs to the student of the first of them, at any depth: one folder for each
    student, Moodle, GitHub Classroom, nbgrader. Of several notebooks of a student those with the
    name of the original count, where there are any.

    Args:
        folders: Of the class.
        original: The notebook that was handed out; it is not marked.
    """
    rows = [(folder, *row) for folder in folders for row in _rows(folder, original)]
    counts: Counter[str] = Counter()
    submissions = []
    for folder, name, path, root in rows:
        shown = printable(name).replace("/", "-").replace("\\", "-").strip(". ") or "unnamed"
        shown = shown[:100]
        key = shown.casefold()  # file systems may not tell Anna from anna
        counts[key] += 1
        if counts[key] > 1:
            shown = f"{shown} ({counts[key]})"
        submissions.append(Submission(shown, path, root, folder))
    return submissions


def _rows(folder: Path, original: Path | None) -> list[tuple[str, Path, Path]]:
    """List (name, notebook, folder of the student) in one folder of a class."""
    flat = [path for path in sorted(folder.glob("*.ipynb")) if _is_marked(path, original)]
    rows = [(_student(path.stem), path, folder) for path in flat]
    subfolders = {path: _notebooks(path) for path in sorted(folder.iterdir()) if _is_open(path)}
    prefix = _common_prefix([path.name for path, below in subfolders.items() if below])
    for subfolder, below in subfolders.items():
        paths = [path for path in below if _is_marked(path, original)]
        if original is not None:
            paths = [path for path in paths if path.name == original.name] or paths
        name = _student(subfolder.name.removeprefix(prefix))
        for path in paths:
            rows.append((name if len(paths) == 1 else f"{name} {path.stem}", path, subfolder))
    return rows


def copy_data(submission: Submission, target: Path, limit: int) -> None:
    """Copy the files of a student, also in subfolders, but no notebook and no link.

    In a folder that several students share, subfolders that hold notebooks are left out.

    Args:
        submission: Whose files.
        target: Where the notebook will run.
        limit: Bytes; what goes beyond is left out.
    """
    beside = submission.path.parent
    is_shared = submission.root == beside and any(_notebooks(beside, but=submission.path))
    left = limit
    for parent, folders, files in os.walk(beside):
        here = Path(parent)
        folders[:] = [
            name
            for name in sorted(folders)
            if _is_open(here / name) and not (is_shared and any(_notebooks(here / name)))
        ]
        for name in sorted(files):
            source = here / name
            if name.endswith(".ipynb") or source.is_symlink() or not source.is_file():
                continue
            left -= source.stat().st_size
            if left < 0:
                return
            copied = target / source.relative_to(beside)
            copied.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, copied)


def _notebooks(folder: Path, *, but: Path | None = None) -> list[Path]:
    """List the notebooks below a folder, without following links."""
    paths = []
    for parent, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if _is_open(Path(parent) / name))
        paths += [Path(parent) / name for name in sorted(files) if name.endswith(".ipynb")]
    return [path for path in paths if path != but and not path.is_symlink()]


def _is_open(folder: Path) -> bool:
    return (
        folder.is_dir()
        and not folder.is_symlink()
        and not folder.name.startswith(".")
        and folder.name not in _SKIPPED
    )


def _is_marked(path: Path, original: Path | None) -> bool:
    return not path.is_symlink() and (original is None or path.resolve() != original.resolve())


def _student(name: str) -> str:
    match = _MOODLE.fullmatch(name) or _CANVAS.fullmatch(name)
    return match[1] if match else name


def _common_prefix(names: list[str]) -> str:
    """Return the prefix `lesson-` that GitHub Classroom puts before each student's name."""
    if len(names) < 2:
        return ""
    letters = itertools.takewhile(lambda column: len(set(column)) == 1, zip(*names, strict=False))
    shared = "".join(column[0] for column in letters)
    return shared[: shared.rfind("-") + 1]
