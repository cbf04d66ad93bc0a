"""`python -m nbmodule course LESSONS`: a version of each lesson for students, one for teachers."""

from __future__ import annotations

import argparse
import copy
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nbmodule.base.whole_file import whole_file
from nbmodule.errors import ArgumentError, FileFormatError, NbModuleError

_SOLUTION = "solution"
_MENTION = re.compile(r"\s*(?:The|Each)\s+solutions?\s+(?:is|are)\s+folded\s+below\.")


def make_course(lessons: Sequence[Path], out: Path) -> list[Path]:
    """Write both versions of each lesson, below `students` and `teacher`.

    Students' versions lack the cells with the tag `solution`, and all outputs. Cell ids stay, so
    that `mark --against` finds the cells that check.

    Returns:
        The notebooks that were written.

    Raises:
        ArgumentError: There is no notebook.
        FileFormatError: A file is no notebook.
    """
    paths = [
        path
        for lesson in lessons
        for path in (sorted(lesson.glob("*.ipynb")) if lesson.is_dir() else [lesson])
    ]
    if not paths:
        raise ArgumentError(f"course: there is no notebook (.ipynb) in {lessons[0]}.")
    written = []
    for path in paths:
        try:
            notebook = json.loads(path.read_bytes())
            versions = {"students": students_version(notebook), "teacher": notebook}
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise FileFormatError(f"{path} is no notebook: {type(error).__name__}.") from error
        for name, version in versions.items():
            target = out / name / path.name
            with whole_file(target) as file:
                text = json.dumps(version, indent=1, ensure_ascii=False)
                file.write((text + "\n").encode("utf-8", "backslashreplace"))
            written.append(target)
    return written


def students_version(notebook: dict[str, Any]) -> dict[str, Any]:
    """Return a notebook without solutions and outputs."""
    version = copy.deepcopy(notebook)
    tagged = [(cell, cell.get("metadata", {}).get("tags", [])) for cell in version["cells"]]
    version["cells"] = [cell for cell, tags in tagged if _SOLUTION not in tags]
    for cell in version["cells"]:
        if cell["cell_type"] == "code":
            cell["outputs"], cell["execution_count"] = [], None
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            source = _MENTION.sub("", source)
        cell["source"] = source.splitlines(keepends=True)
    return version


def main(arguments: Sequence[str]) -> int:
    """Write a course; return 0, or 2 for an error."""
    parser = argparse.ArgumentParser(
        prog="python -m nbmodule course",
        description="Write each lesson twice: without solutions for students, with them for you.",
    )
    parser.add_argument("lessons", nargs="+", type=Path, help="notebooks, or folders of them")
    parser.add_argument("--out", type=Path, default=Path("course"), help="%(default)s by default")
    options = parser.parse_args(arguments)
    try:
        written = make_course(options.lessons, options.out)
    except (NbModuleError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    print(
        f"Wrote {len(written) // 2} lessons to {options.out / 'students'} and "
        f"{options.out / 'teacher'}."
    )
    return 0
