"""Trees as lines for a terminal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbmodule.tree import Row, tree_lines
from nbmodule.tree.rows import cut_end, cut_middle, printable

MODEL = [
    Row(0, "Net", ["", "9,610"]),
    Row(1, "features", ["Sequential", "1,312"]),
    Row(2, "0", ["Conv2d(1, 16, 3)", "160", "float32[16, 3, 3, 1]"]),
    Row(2, "1", ["BatchNorm2d(16)", "32"]),
    Row(1, "head", ["Linear(16, 10)", "170"]),
]


def test_rows_have_branches_and_aligned_columns():
    assert tree_lines(MODEL, align="lr") == [
        "Net                            9,610",
        "├─ features  Sequential        1,312",
        "│  ├─ 0      Conv2d(1, 16, 3)    160  float32[16, 3, 3, 1]",
        "│  └─ 1      BatchNorm2d(16)      32",
        "└─ head      Linear(16, 10)      170",
    ]


def test_a_level_that_goes_on_far_below_is_drawn_through():
    rows = [Row(0, "a"), Row(1, "b"), Row(2, "c"), Row(3, "d"), Row(2, "e"), Row(1, "f"), Row(0, "g"), Row(1, "h")]
    assert tree_lines(rows) == ["a", "├─ b", "│  ├─ c", "│  │  └─ d", "│  └─ e", "└─ f", "g", "└─ h"]


def test_what_is_left_out_is_counted():
    rows = [Row(0, "a"), *[Row(1, str(index)) for index in range(1500)]]
    assert tree_lines(rows, limit=3) == ["a", "├─ 0", "├─ 1", "… 1,498 more rows"]
    assert len(tree_lines(rows[:3], limit=3)) == 3


def test_lines_are_cut_to_the_width():
    rows = [
        Row(0, "Net"),
        Row(1, "a_very_long_name_of_a_layer_that_goes_on", ["Linear(in_features=3, out_features=2)"]),
    ]
    lines = tree_lines(rows, width=40)
    assert all(len(line) <= 40 for line in lines)
    assert lines[1] == "└─ a_very_l…_goes_on  Linear(in_feature…"


def test_no_name_can_break_a_line():
    assert tree_lines([Row(0, "a\nb\x1b[31m", ["c\td"])]) == ["a\\nb\\x1b[31m  c\\td"]
    assert tree_lines([]) == []


@given(st.lists(st.tuples(st.integers(0, 4), st.text(max_size=8)), max_size=12), st.integers(20, 100))
def test_any_rows_give_one_line_each_that_fits(rows, width):
    lines = tree_lines([Row(depth, name) for depth, name in rows], width=width)
    assert len(lines) == len(rows)
    assert all(len(line) <= width and "\n" not in line for line in lines)


@given(st.text(max_size=30), st.integers(0, 20))
def test_cut_texts_fit_and_keep_their_ends(text, length):
    middle, end = cut_middle(text, length), cut_end(text, length)
    assert len(middle) <= length or len(text) <= length
    assert len(middle) == min(len(text), length)
    assert len(end) <= max(length, 1)
    if length >= 5 and len(text) > length:
        assert middle[0] == text[0]
        assert middle[-1] == text[-1]
        assert "…" in middle


@pytest.mark.parametrize(
    ("text", "shown"), [("abc", "abc"), ("a\nb", "a\\nb"), ("\x00", "\\x00"), ("ü…│", "ü…│"), ("\u202e", "\\u202e")]
)
def test_control_characters_are_written_out(text, shown):
    assert printable(text) == shown
