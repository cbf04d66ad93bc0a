"""Find the notebooks of a class in the folders that learning platforms make."""

from __future__ import annotations

import itertools
import os
import re
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from nbmodule.base.format import printable

# Anna Muster_123456_assignsubmission_file_ (Moodle), annamuster_LATE_12345_67890_lesson (Canvas)
_MOODLE = re.compile(r"(.+?)_\d+_assignsubmission_\w+")
_CANVAS = re.compile(r"(.+?)(?:_LATE)?_\d+_\d+_.+")
_SKIPPED = frozenset({"marks", "__pycache__"})


class Submission(NamedTuple):
    """A notebook of a student.

    Attributes:
        name: Of the student; different for each submission.
        file: The notebook, below the folder of the class.
        path: Of the notebook.
        root: The folder whose files are copied with it: that of the student, or the class's.
    """

    name: str
    file: str
    path: Path
    root: Path


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
    counts: Counter[str] = Counter()
    submissions = []
    for folder in folders:
        for name, path, root in _rows(folder, original):
            shown = printable(name).replace("/", "-").replace("\\", "-").strip(". ")
            shown = (shown or "unnamed")[:100]
            key = shown.casefold()  # file systems may not tell Anna from anna
            counts[key] += 1
            shown += f" ({counts[key]})" if counts[key] > 1 else ""
            file = str(path.relative_to(folder))
            submissions.append(Submission(shown, file, path.resolve(), root.resolve()))
    return submissions


def _rows(folder: Path, original: Path | None) -> list[tuple[str, Path, Path]]:
    """List (name, notebook, folder of the student) in one folder of a class."""
    flat = [path for path in sorted(folder.glob("*.ipynb")) if _is_marked(path, original)]
    rows = [(_student(path.stem), path, folder) for path in flat]
    subfolders = {path: _notebooks(path) for path in sorted(folder.iterdir()) if _is_open(path)}
    # GitHub Classroom puts `lesson-` before each student's name.
    words = [path.name.split("-")[:-1] for path, below in subfolders.items() if below]
    columns = zip(*words, strict=False) if len(words) > 1 else ()
    shared = itertools.takewhile(lambda column: len(set(column)) == 1, columns)
    prefix = "".join(f"{column[0]}-" for column in shared)
    for subfolder, below in subfolders.items():
        paths = [path for path in below if _is_marked(path, original)]
        if original is not None:
            paths = [path for path in paths if path.name == original.name] or paths
        name = _student(subfolder.name.removeprefix(prefix))
        for path in paths:
            rows.append((name if len(paths) == 1 else f"{name} {path.stem}", path, subfolder))
    return rows


def copy_data(notebook: Path, root: Path, target: Path, limit: int) -> None:
    """Copy the files in the folder of a notebook, also in subfolders, but no notebook and no link.

    In a folder that several students share, subfolders that hold notebooks are left out.

    Args:
        notebook: Of the student.
        root: The folder of the student, or of the class.
        target: Where the notebook will run.
        limit: Bytes; further files are left out.
    """
    folder = notebook.parent
    others = [path.relative_to(folder) for path in _notebooks(folder)] if root == folder else []
    closed = {parent for path in others for parent in path.parents} - {Path()}
    left = limit
    for source in _files(folder):
        inside = source.relative_to(folder)
        if source.suffix == ".ipynb" or not source.is_file() or closed & set(inside.parents):
            continue
        left -= source.stat().st_size
        if left < 0:
            return
        copied = target / inside
        copied.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, copied)


def _files(folder: Path) -> Iterator[Path]:
    """Yield the files below a folder, without following links."""
    for parent, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if _is_open(Path(parent, name)))
        paths = (Path(parent, name) for name in sorted(files))
        yield from (path for path in paths if not path.is_symlink())


def _notebooks(folder: Path) -> list[Path]:
    return [path for path in _files(folder) if path.suffix == ".ipynb"]


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
