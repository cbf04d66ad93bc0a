"""Spelling a place three ways, sorting places, and finding them again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from nbmodule.base import paths


def test_list_items_are_sorted_by_number_and_names_as_text():
    expected = ["b10", "b2", "v", "v2", "v10", "w"]
    assert paths.sort_names(reversed(expected)) == expected


@given(
    st.lists(
        st.one_of(st.from_regex(r"v[0-9]{1,3}", fullmatch=True), st.text("uvw0129_", max_size=4)),
        unique=True,
    )
)
def test_the_quick_sort_of_names_is_the_sort_by_the_natural_key(names):
    assert paths.sort_names(names) == sorted(names, key=paths.natural)


def test_the_closest_of_many_thousand_names_is_found_quickly():
    names = [f"layers.{index}.attention.weight" for index in range(20_000)]
    assert paths.closest("layers.77.atention.weight", names) == "layers.77.attention.weight"
