"""A folder of students' notebooks with planted mistakes: each is named with its location, and none
does harm.
"""

from __future__ import annotations

import copy
import csv
import re
import subprocess
import sys
from pathlib import Path

import jupytext
import pytest

from nbmodule.marking import Limits, mark
from nbmodule.marking.confine import can_confine
from nbmodule.marking.pages import as_csv, student_page, summary_page, table
from tests.marking.notebooks import notebook
from tests.notebooks import mistakes

LESSON = Path(__file__).parents[2] / "notebooks" / "17_find_the_bug.py"

FIRST = ["import numpy as np\nimport nbmodule as nb\n\ndata = np.loadtxt('data.csv')"]
ANSWER, MEAN = "def doubled(x):\n    return 2 * x", "nb.check(doubled(data), [2.0, 4.0, 6.0])"
SECOND = "def centered(x):\n    return x - x.mean()"
CENTER = "out = centered(data)\nnb.check(out, [-1.0, 0.0, 1.0])"


SAME = "def doubled(x):\n    return x"


def student(answer=ANSWER, mean=MEAN, second=SECOND, center=CENTER, first=FIRST[0], more=()):
    return notebook(first, answer, mean, second, center, *more)


STUDENTS = {
    "ada": student(),
    "factor": student(answer="def doubled(x):\n    return 4 * x"),
    "raises": student(second="def centered(x):\n    return x - x.mean"),
    "syntax": student(second="def centered(x)\n    return x"),
    "nothing": student(answer="doubled = lambda x: None"),
    "asks no more": student(answer=SAME, mean="# nb.check(doubled(data), [2.0, 4.0, 6.0])"),
    "own check": student(
        answer=f"{SAME}\nnb.check = lambda *a: True\nclass nb2: check = nb.check\nnb = nb2"
    ),
    "ends": student(second="import os\nos._exit(0)"),
    "prints": student(second="while True:\n    print('spam' * 1000)"),
    "package": student(first="import absent_package\n" + FIRST[0]),
    "in the check": student(mean="def doubled(x):\n    return 4 * x\n" + MEAN, answer="pass"),
    "writes": student(
        second="open({elsewhere!r}, 'w')", more=["open('own.txt', 'w').write('mine')"]
    ),
}


@pytest.fixture(scope="module")
def marked(tmp_path_factory):
    folder = tmp_path_factory.mktemp("students")
    elsewhere = folder / "elsewhere.txt"
    (folder / "data.csv").write_text("1\n2\n3\n")
    for name, text in STUDENTS.items():
        (folder / f"{name}.ipynb").write_text(text.replace("{elsewhere!r}", repr(str(elsewhere))))
    (folder / "torn.ipynb").write_text('{"cells": [')
    (folder / "original.ipynb").write_text(student(answer="doubled = ...", second="centered = ..."))
    before = sorted(path.name for path in folder.iterdir())
    found = {marks.name: marks for marks in mark(folder, folder / "original.ipynb", jobs=2)}
    assert sorted(path.name for path in folder.iterdir()) == before
    return found


MISTAKES = {
    "factor": "cell 3, line 1: every element is 2 times the expected one",
    "raises": "cell 5, line 1: TypeError",
    "nothing": "cell 3, line 1: ",
    "asks no more": "cell 3, line 1: every element is 0.5 times the expected one",
    "own check": "cell 3, line 1: every element is 0.5 times the expected one",
    "prints": "cell 5, line 1: NameError",
    "writes": "cell 5, line 1: NameError",
}
OBSTACLES = {
    "ends": "cell 5: not marked: its process ended by itself in cell 4",
    "syntax": "cell 5: not marked: cell 4, line 1: SyntaxError",
    "package": "cell 3: not marked: cell 1, line 1: ModuleNotFoundError",
}


def test_right_answers_get_all_points(marked):
    assert [exercise.right for exercise in marked["ada"].exercises] == [True, True]
    assert (marked["ada"].faults, marked["ada"].ended) == ([], None)


@pytest.mark.parametrize("name", MISTAKES)
def test_each_mistake_is_named_with_its_place(marked, name):
    wrong = [exercise.says for exercise in marked[name].exercises if not exercise.right]
    assert len(wrong) == 1
    assert MISTAKES[name] in wrong[0]
    assert marked[name].points == 1


@pytest.mark.parametrize("name", OBSTACLES)
def test_an_answer_that_cannot_be_checked_is_not_marked_and_names_the_cause(marked, name):
    unmarked = [each for each in marked[name].exercises if each.status == "not marked"]
    assert OBSTACLES[name] in unmarked[0].says
    assert marked[name].unmarked == len(unmarked) == 2 - marked[name].points
    row = next(csv.DictReader(as_csv([marked[name]]).splitlines()))
    assert row["not marked"] == str(len(unmarked))


def test_the_page_of_an_answer_in_the_cell_that_checks_names_the_cell_before_it(marked):
    first = marked["in the check"].exercises[0]
    assert first.status == "wrong"
    assert "an answer belongs into a cell before it" in first.says


def test_the_teachers_page_counts_by_exercise_and_groups_answers(marked):
    copies = [copy.deepcopy(marked["factor"]) for _ in range(2)]
    copies[0].name = "copied"
    answer = copies[0].answer(copies[0].exercises[0])[0]
    answer.source = answer.source.replace("x", "y") + "  # my own"
    for marks in copies:
        for cell in marks.cells:
            cell.source += "\nlong_enough_to_be_no_accident = [1, 2, 3, 4, 5]"
    text = summary_page([*copies, marked["ada"]], "class")
    assert "<tr><th>1</th><td>1</td><td>2</td><td>0</td></tr>" in text
    assert re.search("2 × every element is 2 times the expected one.*: copied, factor<", text)
    assert "The commonest wrong answer, 2 times" in text
    assert "The same up to names and comments: copied, factor" in text


def test_errors_in_other_cells_are_named_too(marked):
    assert marked["syntax"].faults[0].startswith("cell 4, line 1: SyntaxError")
    printed = "cell 4, line 2: more was printed than is allowed; the cell was ended"
    assert marked["prints"].faults == [printed]
    assert marked["ends"].ended == "its process ended by itself in cell 4"
    assert marked["torn"].ended.startswith("torn.ipynb is no notebook")
    assert (marked["torn"].unmarked, len(marked["torn"].exercises)) == (2, 2)


def test_a_confined_notebook_writes_into_its_own_folder_only(marked):
    assert marked["writes"].is_confined == can_confine()
    if can_confine():  # the last cell writes into its own folder
        (fault,) = marked["writes"].faults
        assert fault.startswith("cell 4, line 1: PermissionError")


LARGE = "x = b'x' * 2_000_000_000"


@pytest.mark.parametrize(
    ("first", "limits", "ended"),
    [
        ("", Limits(seconds=12), r"it ran for more than 12 seconds, \d+ of them on the processor"),
        ("", Limits(cpu=6), "it used more than 6 seconds of the processor"),
        (LARGE, Limits(memory=1_200_000_000), r"it used 1\.\d+ GiB of memory, more than 1\.12 GiB"),
    ],
)
def test_a_notebook_beyond_its_limits_is_ended(tmp_path, first, limits, ended):
    loops = notebook(f"{first}\nwhile True: pass", "nb.check(1, 1)")
    (tmp_path / "loops.ipynb").write_text(loops)
    (marks,) = mark(tmp_path, limits=limits)
    assert re.fullmatch(f"{ended}, in cell 1", marks.ended)
    assert marks.exercises[0].says == f"cell 2: not marked: {marks.ended}"


def test_the_table_the_csv_and_the_pages_agree(marked):
    found, factor = list(marked.values()), marked["factor"]
    assert re.search("ada +2/2 ", table(found))
    rows = {row["student"]: row for row in csv.DictReader(as_csv(found).splitlines())}
    points = [rows["factor"][name] for name in ("right", "exercise 1", "exercise 2")]
    assert points == ["1", "0", "1"]
    assert MISTAKES["factor"] in rows["factor"]["mistakes"]
    for text in (MISTAKES["factor"], "return 4 * x", "doubled(data)"):
        assert text in student_page(factor)
    for text in ("SyntaxError", "def centered(x)\n    return x"):
        assert text in student_page(marked["syntax"])
    factor.name = "=1+1<script>"
    assert "'=1+1<script>" in as_csv([factor])
    assert "<script>" not in student_page(factor)


def test_a_lesson_of_the_course_is_marked_against_what_was_handed_out(tmp_path):
    """Answers count, and neither the solutions that stand beside them nor what the lesson checks
    itself.
    """
    handed_out = jupytext.read(LESSON)
    answered = copy.deepcopy(handed_out)
    begins, mask, _ = [cell for cell in answered.cells if "# your answer" in cell.source]
    begins.source = "begins = 'layers.5.act'"
    answers = {(each.lesson, each.exercise): each.answer for each in mistakes.MISTAKES}
    mask.source = answers["17", 2]
    jupytext.write(handed_out, tmp_path / "lesson.ipynb")
    (tmp_path / "students").mkdir()
    jupytext.write(answered, tmp_path / "students" / "cleo.ipynb")
    (marks,) = mark(tmp_path / "students", tmp_path / "lesson.ipynb")
    assert (marks.ended, marks.faults) == (None, [])
    assert [exercise.right for exercise in marks.exercises] == [True, False, False]
    begins, mask, first = (exercise.says.partition(": ") for exercise in marks.exercises)
    assert begins[2] == "right: 'layers.5.act'"
    assert mask[2] == "5 of 36 elements differ, the first at [0, 1]"
    assert first[2] == "no answer yet"
    code = [cell.source for cell in handed_out.cells if cell.cell_type == "code"]
    numbers = [n for n, source in enumerate(code, 2) if "# your answer" in source]
    assert [says[0] for says in (begins, mask, first)] == [f"cell {n}, line 1" for n in numbers]


def test_the_command_writes_a_sheet_and_pages(tmp_path):
    (tmp_path / "bo.ipynb").write_text(notebook("import nbmodule as nb\nnb.check(1, 2)"))
    command = [sys.executable, "-m", "nbmodule", "mark", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stderr
    assert re.search(r"bo +0/1 .* cell 1, line 2: 1 is too small", done.stdout)
    assert "<h1>" in (tmp_path / "marks" / "summary.html").read_text()
    assert (tmp_path / "marks" / "marks.csv").exists()
    assert "<h1>bo: 0/1</h1>" in (tmp_path / "marks" / "bo.html").read_text()
