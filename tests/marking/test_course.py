"""The course that a teacher hands out, from the lessons of the repository."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from nbmodule.errors import ArgumentError, FileFormatError
from nbmodule.marking.course import make_course, students_version
from nbmodule.marking.notebook import read_cells

LESSONS = Path(__file__).parents[2] / "notebooks"


@pytest.fixture
def course(tmp_path):
    command = [sys.executable, "-m", "nbmodule", "course", LESSONS, "--out", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return tmp_path


def test_students_get_every_lesson_with_its_checks_and_without_solutions(course):
    lessons = sorted(LESSONS.glob("*.ipynb"))
    assert len(lessons) >= 19
    names = sorted(path.name for path in (course / "students").iterdir())
    assert names == [path.name for path in lessons]
    for lesson in lessons:
        text = (course / "students" / lesson.name).read_text(encoding="utf-8")
        assert '"solution"' not in text and "folded below" not in text, lesson.name
        handed_out = read_cells(course / "students" / lesson.name)
        checks = [cell.source for cell in read_cells(lesson) if cell.checks]
        assert [cell.source for cell in handed_out if cell.checks] == checks
        ids = {cell.id for cell in read_cells(lesson)}
        assert {cell.id for cell in handed_out} < ids or len(handed_out) == len(ids)
        teacher = json.loads((course / "teacher" / lesson.name).read_bytes())
        assert teacher == json.loads(lesson.read_bytes())


def test_outputs_are_taken_out_and_the_notebook_itself_is_unchanged():
    cell = {"cell_type": "code", "source": ["x = 1\n", "x"], "outputs": [1], "metadata": {}}
    notebook = {"cells": [cell], "nbformat": 4}
    assert students_version(notebook)["cells"][0]["outputs"] == []
    assert cell["outputs"] == [1]


def test_files_that_are_no_notebooks_are_refused(tmp_path):
    with pytest.raises(ArgumentError, match="there is no notebook"):
        make_course([tmp_path], tmp_path / "out")
    (tmp_path / "x.ipynb").write_text("[1]")
    with pytest.raises(FileFormatError, match="is no notebook"):
        make_course([tmp_path], tmp_path / "out")
