"""Flattening, renaming, rearranging, cutting and slicing the structure of a Container."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbmodule.errors import ArgumentError, ArgumentTypeError, PathError, StructureError
from nbmodule.tree import Container

KEYS = st.text("abc", min_size=1, max_size=2)
TREES = st.dictionaries(
    KEYS,
    st.recursive(
        st.integers(),
        lambda parts: st.dictionaries(KEYS, parts, min_size=1, max_size=3),
        max_leaves=6,
    ),
    max_size=3,
)


@pytest.fixture
def deep():
    return Container(a=1, b={"c": {"d": 2}, "e": {"f": {"g": 3}}})


# Flattening
@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({}, {"a": 1, "b__c__d": 2, "b__e__f__g": 3}),
        ({"above_height": 1}, {"a": 1, "b__c": {"d": 2}, "b__e__f": {"g": 3}}),
        ({"below_depth": 1}, {"a": 1, "b": {"c__d": 2, "e__f__g": 3}}),
        ({"above_height": 1, "below_depth": 1}, {"a": 1, "b": {"c": {"d": 2}, "e__f": {"g": 3}}}),
        ({"above_height": 0, "below_depth": 0}, {"a": 1, "b__c__d": 2, "b__e__f__g": 3}),
        (
            {"above_height": 9},
            {"a": 1, "b__c__d": 2, "b__e__f__g": 3},
        ),  # no chain is so long: all are joined
    ],
)
def test_chains_are_joined_but_for_the_levels_that_are_kept(deep, options, found):
    assert deep.cont_flatten_key_chains(**options).cont_to_dict() == found


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (("a/b/c",), "a__b__c"),
        (("a.b.c",), "a__b__c"),
        (("a/b/c", "-"), "a-b-c"),
        (("a/b/c", "__", 1), "a__b/c"),
        (("a/b/c", "__", None, 1), "a/b__c"),
        (("a/b/c/d", "__", 1, 1), "a/b__c/d"),
        (("a/b", "__", 1, 1), "a/b"),
        (("a/b/c", "__", 2, 2), "a/b/c"),
        (("a",), "a"),
    ],
)
def test_one_chain_is_joined(arguments, found):
    assert Container.cont_flatten_key_chain(*arguments) == found


def test_leaves_that_would_share_a_chain_are_an_error():
    with pytest.raises(StructureError, match='"a/b" and "a__b" would both lie at "a__b"'):
        Container(a={"b": 1}, a__b=2).cont_flatten_key_chains()
    with pytest.raises(ArgumentError, match=r"above_height must be at least 0 \(levels\), got -1"):
        Container(a=1).cont_flatten_key_chains(above_height=-1)


@given(TREES)
def test_flattening_loses_no_leaf(tree):
    container = Container(tree)
    flat = container.cont_flatten_key_chains()
    assert {key.replace("__", "/"): value for key, value in flat.items()} == dict(
        container.cont_to_iterator()
    )


# Renaming and rearranging
def test_chains_are_renamed_by_a_function():
    container = Container({"_a": 1, "b ": {"c": 2, "d-": 3}})
    renamed = container.cont_format_key_chains(
        lambda kc: kc.replace("_", "").replace(" ", "").replace("-", "")
    )
    assert renamed.cont_to_dict() == {"a": 1, "b": {"c": 2, "d": 3}}
    assert Container(a=1).cont_format_key_chains(lambda kc: "x/y").cont_to_dict() == {"x": {"y": 1}}
    with pytest.raises(StructureError, match='"a" and "b" would both lie at "x"'):
        Container(a=1, b=2).cont_format_key_chains(lambda kc: "x")
    with pytest.raises(StructureError, match='"a" would get the key chain "", with an empty key'):
        Container(a=1).cont_format_key_chains(lambda kc: "")
    with pytest.raises(ArgumentTypeError, match='"a" would get None for a key chain'):
        Container(a=1).cont_format_key_chains(lambda kc: None)
    with pytest.raises(
        ArgumentTypeError, match="expected a mapping from old to new key chains, got list"
    ):
        Container(a=1).cont_restructure_key_chains(["a"])
    with pytest.raises(
        ArgumentTypeError, match="a key chain, and what stands between its joined keys, are text"
    ):
        Container.cont_flatten_key_chain(3)


@pytest.mark.parametrize(
    ("mapping", "options", "found"),
    [
        ({"a": "A"}, {}, {"A": 1, "b": {"c": 2, "d": 3}}),
        ({"a": "A", "b/c": "B/C", "b/d": "B/D"}, {}, {"A": 1, "B": {"C": 2, "D": 3}}),
        ({"b": "x/y"}, {}, {"a": 1, "x": {"y": {"c": 2, "d": 3}}}),
        ({"a": "A"}, {"keep_orig": False}, {"A": 1}),
        ({"a": "A"}, {"replace": False}, {"A": 1, "a": 1, "b": {"c": 2, "d": 3}}),
        ({"a": "b/c", "b/c": "a"}, {}, {"a": 2, "b": {"c": 1, "d": 3}}),
        ({"b/c": "b/x"}, {}, {"a": 1, "b": {"d": 3, "x": 2}}),
        ({"b": "b/inner"}, {}, {"a": 1, "b": {"inner": {"c": 2, "d": 3}}}),
        ({}, {}, {"a": 1, "b": {"c": 2, "d": 3}}),
    ],
)
def test_leaves_and_parts_are_moved(mapping, options, found):
    container = Container(a=1, b={"c": 2, "d": 3})
    assert container.cont_restructure_key_chains(mapping, **options).cont_to_dict() == found
    assert container.cont_to_dict() == {"a": 1, "b": {"c": 2, "d": 3}}


def test_moving_onto_another_leaf_is_an_error():
    container = Container(a=1, b={"c": 2})
    with pytest.raises(StructureError, match='"b/c" and "a" would both lie at "b/c"'):
        container.cont_restructure_key_chains({"a": "b/c"})
    with pytest.raises(PathError, match='no "x"'):
        container.cont_restructure_key_chains({"x": "y"})


def test_levels_are_taken_out_of_chains():
    container = Container(Ayy=1, Bee={"Cee": 2, "Dee": 3}, Eee={"Fff": 4})
    assert container.cont_prune_keys_from_key_chains(["Bee", "Eee"]).cont_to_dict() == {
        "Ayy": 1,
        "Cee": 2,
        "Dee": 3,
        "Fff": 4,
    }
    assert container.cont_prune_keys_from_key_chains("Bee").cont_to_dict() == {
        "Ayy": 1,
        "Cee": 2,
        "Dee": 3,
        "Eee": {"Fff": 4},
    }
    assert container.cont_prune_keys_from_key_chains(containing=["B", "E"]).cont_to_dict() == {
        "Ayy": 1,
        "Cee": 2,
        "Dee": 3,
        "Fff": 4,
    }
    assert Container(a={"x": {"b": 1}}).cont_prune_keys_from_key_chains("x").cont_to_dict() == {
        "a": {"b": 1}
    }
    with pytest.raises(StructureError, match='"a/w" and "b/w" would both lie at "w"'):
        Container(a={"w": 1}, b={"w": 2}).cont_prune_keys_from_key_chains(["a", "b"])
    with pytest.raises(StructureError, match='"w" would get the key chain ""'):
        Container(w=1).cont_prune_keys_from_key_chains("w")
    with pytest.raises(ArgumentError, match="give absolute= or containing="):
        container.cont_prune_keys_from_key_chains()


# Cutting
@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize(
    ("depth", "found"),
    [
        (0, {}),
        (1, {"a": 1, "b": {}}),
        (2, {"a": 1, "b": {"c": {}, "e": {}}}),
        (3, {"a": 1, "b": {"c": {"d": 2}, "e": {"f": {}}}}),
        (4, {"a": 1, "b": {"c": {"d": 2}, "e": {"f": {"g": 3}}}}),
    ],
)
def test_deep_levels_are_cut_away(deep, depth, found, inplace):
    cut = deep.cont_cutoff_at_depth(depth, inplace=inplace)
    assert cut.cont_to_dict() == found
    assert (cut is deep) is inplace


@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize(
    ("height", "found"),
    [
        (0, {"a": {"c": {"d": 2}}, "b": {"c": {"d": {"e": 3}}}}),
        (1, {"a": {"c": {}}, "b": {"c": {"d": {}}}}),
        (2, {"a": {}, "b": {"c": {}}}),
        (3, {"a": {}, "b": {}}),
        (4, {}),
    ],
)
def test_low_levels_are_cut_away(height, found, inplace):
    container = Container(a={"c": {"d": 2}}, b={"c": {"d": {"e": 3}}})
    cut = container.cont_cutoff_at_height(height, inplace=inplace)
    assert cut.cont_to_dict() == found
    assert (cut is container) is inplace


# Slicing
LETTERS = {"a": 1, "b": 2, "c": 3, "d": 4, "e": 5}


@pytest.mark.parametrize(
    ("key_slice", "kept"),
    [
        ("b:d", "bcd"),
        (slice(1, 4, 1), "bcd"),
        ("b:", "bcde"),
        (":b", "ab"),
        (slice(None, None, 2), "ace"),
        ("x:z", ""),
    ],
)
def test_a_range_of_keys_is_kept(key_slice, kept):
    assert list(Container(LETTERS).cont_slice_keys(key_slice)) == list(kept)


@pytest.mark.parametrize("key_slice", ["b:d", slice(1, 4)])
def test_ranges_are_taken_at_the_depths_asked_for(key_slice):
    container = Container(dict.fromkeys("abcde", LETTERS))
    part = {key: LETTERS[key] for key in "bcd"}
    assert container.cont_slice_keys({0: key_slice}).cont_to_dict() == dict.fromkeys("bcd", LETTERS)
    assert container.cont_slice_keys({1: key_slice}).cont_to_dict() == dict.fromkeys("abcde", part)
    assert container.cont_slice_keys({0: key_slice, 1: key_slice}).cont_to_dict() == dict.fromkeys(
        "bcd", part
    )
    assert container.cont_slice_keys(key_slice, all_depths=True).cont_to_dict() == dict.fromkeys(
        "bcd", part
    )
    assert container.cont_slice_keys(
        {0: slice(1), 1: key_slice}, all_depths=True
    ).cont_to_dict() == {"a": part}


@pytest.mark.parametrize("key_slice", ["b", "a:b:c", 3, None])
def test_what_is_no_range_is_refused(key_slice):
    with pytest.raises(ArgumentTypeError, match='by text such as "b:d" or by a slice'):
        Container(LETTERS).cont_slice_keys(key_slice)
