"""Which cells of a notebook are marked, and what cannot be marked at all; nothing is run here."""

from __future__ import annotations

from pathlib import Path

import pytest

from nbmodule.errors import ArgumentError
from nbmodule.marking import mark
from nbmodule.marking.notebook import Cell, with_checks_of
from tests.marking.notebooks import notebook


def test_a_cell_checks_if_its_code_does_and_not_its_comments():
    asks = {
        "nb.check(x, 1)": True,
        "check(x, 1)": True,
        "%time nb.check(x, 1)": False,
        "# nb.check(x, 1)": False,
    }
    assert {source: Cell(1, source, "").checks for source in asks} == asks
    assert Cell(1, "nb.check(x, ", "").checks  # also where Python cannot read it


def test_checks_are_found_by_their_ids_and_else_by_their_order():
    original = [
        Cell(1, "x = ...", "a"),
        Cell(2, "nb.check(x, 1)", "b"),
        Cell(3, "nb.check(x, 2)", "c"),
    ]
    moved = [
        Cell(1, "nb.check(1, 1)", "b"),
        Cell(2, "x = 3", "a"),
        Cell(3, "nb.check(2, 2)  # mine", "new"),
    ]
    assert [cell.source for cell in with_checks_of(moved, original)] == [
        "nb.check(x, 1)",
        "x = 3",
        "nb.check(x, 2)",
    ]
    assert [cell.number for cell in with_checks_of([Cell(1, "x = 3", "a")], original)] == [1, 2, 3]


def test_what_the_lesson_itself_checks_is_no_exercise():
    asks = {frozenset(tags): not tags for tags in ((), ("solution", "hide-cell"), ("example",))}
    assert {tags: Cell(1, "nb.check(x, 1)", "", tags).checks for tags in asks} == asks


def test_a_program_that_loses_ids_and_tags_does_not_move_the_checks():
    original = [
        Cell(1, "nb.check(1, 1)", "a", frozenset({"example"})),
        Cell(2, "x = ...", "b"),
        Cell(3, "nb.check(x, 2)", "c"),
    ]
    saved = [Cell(1, "nb.check(1, 1)", ""), Cell(2, "x = 2", ""), Cell(3, "nb.check(x, 2)", "")]
    assert [cell.source for cell in with_checks_of(saved, original)] == ["x = 2", "nb.check(x, 2)"]


def test_of_copies_of_a_check_the_last_counts_once():
    original = [Cell(1, "x = ...", "a"), Cell(2, "nb.check(x, 1)", "b")]
    for ids in (("b", "b"), ("", "b"), ("", "")):
        copies = [
            Cell(1, "nb.check(x, 1)", ids[0]),
            Cell(2, "x = 1", "a"),
            Cell(3, "nb.check(x, 1)", ids[1]),
        ]
        assert [cell.number for cell in with_checks_of(copies, original)] == [2, 3]


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda folder: mark(folder / "none"), "is no folder"),
        (lambda folder: mark(folder), "there is no notebook"),
        (lambda folder: mark(folder, folder / "none.ipynb"), "is no file"),
        (
            lambda folder: mark(
                folder, Path(folder, "x.ipynb").write_text(notebook("1")) and folder / "x.ipynb"
            ),
            "calls nb.check",
        ),
    ],
)
def test_what_cannot_be_marked_is_said_before_anything_runs(tmp_path, make, says):
    with pytest.raises(ArgumentError, match=f"{says}"):
        make(tmp_path)


def test_a_long_expression_does_not_end_the_search_for_checks():
    for source in ("x = " + "-" * 100_000 + "1", "(" * 5000, "nb.check(" + "-" * 100_000 + "1)"):
        assert Cell(1, source, "").checks == ("nb.check(" in source)
