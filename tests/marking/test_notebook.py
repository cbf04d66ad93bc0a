"""Which cells of a notebook are marked, and what cannot be marked at all; nothing is run here."""

from __future__ import annotations

import pytest

from nbmodule.errors import ArgumentError
from nbmodule.marking import mark
from nbmodule.marking.notebook import Cell, with_checks_of
from tests.marking.notebooks import notebook


def cells(*rows):
    return [Cell(n, *row) for n, row in enumerate(rows, 1)]


def test_a_cell_checks_if_its_code_does_and_not_its_comments():
    for source in ("nb.check(x, 1)", "check(x, 1)", "nb.check(x, "):
        assert Cell(1, source, "").checks  # also where Python cannot read it
    for source in ("%time nb.check(x, 1)", "# nb.check(x, 1)"):
        assert not Cell(1, source, "").checks


def test_checks_are_found_by_their_ids_and_else_by_their_order():
    first, second = "nb.check(x, 1)", "nb.check(x, 2)"
    original = cells(("x = ...", "a"), (first, "b"), (second, "c"))
    moved = cells(("nb.check(1, 1)", "b"), ("x = 3", "a"), ("nb.check(2, 2)  # mine", "new"))
    assert [cell.source for cell in with_checks_of(moved, original)] == [first, "x = 3", second]
    assert [cell.number for cell in with_checks_of([Cell(1, "x = 3", "a")], original)] == [1, 2, 3]


def test_a_check_of_the_lesson_itself_is_no_exercise():
    asks = {frozenset(tags): not tags for tags in ((), ("solution", "hide-cell"), ("example",))}
    assert {tags: Cell(1, "nb.check(x, 1)", "", tags).checks for tags in asks} == asks


def test_a_program_that_loses_ids_and_tags_does_not_move_the_checks():
    example = "nb.check(1, 1)", "a", frozenset({"example"})
    original = cells(example, ("x = ...", "b"), ("nb.check(x, 2)", "c"))
    saved = cells(("nb.check(1, 1)", ""), ("x = 2", ""), ("nb.check(x, 2)", ""))
    assert [cell.source for cell in with_checks_of(saved, original)] == ["x = 2", "nb.check(x, 2)"]


def test_of_copies_of_a_check_the_last_counts_once():
    check = "nb.check(x, 1)"
    original = cells(("x = ...", "a"), (check, "b"))
    for first, last in (("b", "b"), ("", "b"), ("", "")):
        copies = cells((check, first), ("x = 1", "a"), (check, last))
        assert [cell.number for cell in with_checks_of(copies, original)] == [2, 3]


@pytest.mark.parametrize(
    ("folder", "against", "message"),
    [
        ("none", None, "is no folder"),
        ("class", None, "there is no notebook"),
        ("class", "none.ipynb", "is no file"),
        ("class", "lesson.ipynb", "calls nb.check"),
    ],
)
def test_a_class_that_cannot_be_marked_is_refused(tmp_path, folder, against, message):
    (tmp_path / "class").mkdir()
    (tmp_path / "lesson.ipynb").write_text(notebook("1"))
    with pytest.raises(ArgumentError, match=message):
        mark(tmp_path / folder, against and tmp_path / against)


def test_a_long_expression_does_not_end_the_search_for_checks():
    for source in ("x = " + "-" * 100_000 + "1", "(" * 5000, "nb.check(" + "-" * 100_000 + "1)"):
        assert Cell(1, source, "").checks == ("nb.check(" in source)
