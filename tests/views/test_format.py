import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbmodule.base import format as spelled

CASES = json.loads((Path(__file__).parent / "format_cases.json").read_text())
FUNCTIONS = {
    "count": spelled.format_count,
    "bytes": spelled.format_bytes,
    "number": spelled.format_number,
    "seconds": spelled.format_seconds,
}


@pytest.mark.parametrize("name", CASES)
def test_numbers_are_spelled_as_the_front_end_spells_them(name):
    assert [FUNCTIONS[name](value) for value, _ in CASES[name]] == [text for _, text in CASES[name]]


@given(
    st.floats(-1.797e308, 1.797e308)
)  # what lies above may be rounded to a number that no float holds
def test_four_significant_digits_are_close_to_the_number(x):
    assert float(spelled.format_number(x)) == pytest.approx(x, rel=5.001e-4)


@given(st.text(max_size=300))
def test_plain_text_has_one_line_and_no_hidden_characters(text):
    shown = spelled.plain(text)
    assert shown.isprintable() or all(c.isprintable() or c in "  　" or c.isspace() for c in shown)
    assert len(shown.splitlines()) <= 1
    assert "‮" not in shown


def test_a_megabyte_name_is_cut_in_its_middle():
    assert spelled.plain("a" * 1_000_000 + "end").endswith("end")
    assert len(spelled.plain("a" * 1_000_000)) == spelled.LONGEST_NAME


@given(st.text(max_size=40), st.integers(1, 30))
def test_a_cut_name_fits(text, width):
    assert len(spelled.cut_middle(text, width)) <= width


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0, "0 %"),
        (0.0825, "8.25 %"),
        (0.9949, "99.5 %"),
        (0.99951, "99.9 %"),
        (1, "100 %"),
        (0.00004, "0.004 %"),
    ],
)
def test_only_the_whole_is_a_hundred_percent(share, text):
    assert spelled.format_percent(share) == text
