from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbmodule.errors import ArgumentError, FileFormatError
from nbmodule.files.chains import escape_key, flatten_levels, nest, unescape
from tests.files.trees import names

any_text = names | st.text(st.characters(exclude_categories=[]))
plain_trees = st.recursive(
    st.dictionaries(any_text, st.integers(), max_size=4),
    lambda inner: st.dictionaries(any_text, st.integers() | inner, max_size=4),
    max_leaves=12,
)


@given(any_text, st.booleans())
def test_a_spelled_name_can_stand_in_an_hdf5_file_and_is_read_again(name, at_root):
    spelled = escape_key(name, at_root=at_root)
    assert unescape(spelled) == name
    assert spelled not in ("", ".")
    assert not re.search("[/\0]", spelled)
    spelled.encode("utf-8")
    if at_root:
        assert spelled not in ("__buffers__", "__packed__", "__metadata__")


@given(plain_trees)
def test_nesting_undoes_flattening(tree):
    assert nest(flatten_levels(tree, what="tree"), where="file") == tree


@pytest.mark.parametrize(
    "paths", [["a", "a"], ["a", "a/b"], ["a/b", "a"], ["a/b/c", "a/b"], ["%61", "a"]]
)
def test_two_rows_for_one_place_are_refused(paths):
    with pytest.raises(
        FileFormatError, match=r"cannot load w\.h5: .*(listed twice|both an array and a group)"
    ):
        nest([(path, 1) for path in paths], where="w.h5")


def test_too_many_levels_are_refused_in_both_directions():
    tree: dict = {}
    level = tree
    for _ in range(1099):
        level["a"] = level = {}
    level["w"] = 1
    entries = list(flatten_levels(tree, what="tree"))
    assert list(flatten_levels(nest(entries, where="file"), what="tree")) == entries
    with pytest.raises(ArgumentError, match=r"cannot save tree: .* more than 1100 levels deep"):
        list(flatten_levels({"b": tree}, what="tree"))
    with pytest.raises(FileFormatError, match="more than 1100 levels deep"):
        nest([("a/" * 1100 + "w", 1)], where="file")
