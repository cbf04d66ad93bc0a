"""Folders of a class as five learning platforms make them; nothing is run here but one notebook."""

from __future__ import annotations

from pathlib import Path

import pytest

from nbmodule.marking import mark
from nbmodule.marking.submissions import copy_data, find_submissions
from tests.marking.notebooks import notebook

NOTEBOOK = notebook()
LAYOUTS = {
    "one folder for each": ["anna/lesson.ipynb", "ben/lesson.ipynb"],
    "files": ["anna.ipynb", "ben.ipynb"],
    "Moodle": [
        "anna_4711_assignsubmission_file/lesson.ipynb",
        "ben_4712_assignsubmission_file_/lesson (1).ipynb",
    ],
    "Canvas": ["anna_1234_5678_lesson.ipynb", "ben_LATE_1235_5679_lesson-2.ipynb"],
    "GitHub Classroom": ["lesson-17-anna/lesson.ipynb", "lesson-17-ben/lesson.ipynb"],
    "nbgrader": ["anna/week1/lesson.ipynb", "ben/week1/lesson.ipynb"],
}


def write(folder, names, text=NOTEBOOK):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_students_are_named_as_the_platform_names_them(tmp_path, layout):
    write(tmp_path, LAYOUTS[layout])
    write(tmp_path, ["marks/old.ipynb", "anna/.ipynb_checkpoints/lesson-checkpoint.ipynb"])
    write(tmp_path, ["lesson_handed_out.ipynb"])
    found = find_submissions([tmp_path], tmp_path / "lesson_handed_out.ipynb")
    assert [each.name for each in found] == ["anna", "ben"]


def test_of_several_notebooks_those_named_like_the_original_count(tmp_path):
    write(tmp_path, ["anna/lesson.ipynb", "anna/scratch.ipynb", "ben/one.ipynb", "ben/two.ipynb"])
    found = find_submissions([tmp_path], tmp_path.parent / "lesson.ipynb")
    assert [each.name for each in found] == ["anna", "ben one", "ben two"]


def test_names_are_different_and_fit_for_files(tmp_path):
    write(tmp_path, ["a_1_2_x.ipynb", "a_3_4_x.ipynb", "A.ipynb", "..\\up.ipynb", "\x1b[2J.ipynb"])
    names = [each.name for each in find_submissions([tmp_path], None)]
    assert len({name.casefold() for name in names}) == len(names) == 5
    assert not any("/" in name or "\\" in name or "\x1b" in name for name in names)


def test_data_in_subfolders_is_copied_and_neither_notebooks_nor_links(tmp_path):
    folder, target = tmp_path / "class", tmp_path / "run"
    write(folder, ["anna/lesson.ipynb", "ben/lesson.ipynb", "ben/secret.csv"])
    write(folder, ["anna/data/deep/x.csv", "anna/helper.py"], "1")
    (folder / "anna" / "link.csv").symlink_to(folder / "ben" / "secret.csv")
    (folder / "anna" / "others").symlink_to(folder / "ben")
    (submission, _) = find_submissions([folder], None)
    copy_data(Path(submission.path), Path(submission.root), target, 10**6)
    copied = sorted(str(path.relative_to(target)) for path in target.rglob("*") if path.is_file())
    assert copied == ["data/deep/x.csv", "helper.py"]


def test_beside_flat_files_folders_of_other_students_are_not_copied(tmp_path):
    write(tmp_path, ["anna.ipynb", "ben/lesson.ipynb"])
    write(tmp_path, ["data/x.csv", "ben/answers.csv"], "1")
    copy_data(tmp_path / "anna.ipynb", tmp_path, tmp_path / "run", 10**6)
    assert (tmp_path / "run" / "data" / "x.csv").exists()
    assert not (tmp_path / "run" / "ben").exists()


def test_a_notebook_in_a_folder_of_its_own_reads_its_data(tmp_path):
    source = "import nbmodule as nb\nnb.check(open('data/x.csv').read(), '1')"
    write(tmp_path, ["anna/week1/lesson.ipynb"], notebook(source))
    write(tmp_path, ["anna/week1/data/x.csv"], "1")
    (marks,) = mark(tmp_path)
    assert (marks.name, marks.points, marks.file) == ("anna", 1, "anna/week1/lesson.ipynb")


def test_several_folders_are_one_class_with_different_names(tmp_path):
    for layout, names in LAYOUTS.items():
        write(tmp_path / layout, names)
    found = find_submissions([tmp_path / layout for layout in LAYOUTS], None)
    assert len({each.name for each in found}) == len(found) == 2 * len(LAYOUTS)
    assert found[-1].name == "ben (6)"
