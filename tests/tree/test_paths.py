"""Spelling a place three ways, sorting places, and finding them again."""

from __future__ import annotations

import keyword

import jax
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.tree_util import DictKey, FlattenedIndexKey, GetAttrKey, SequenceKey

from nbmodule.errors import PathError, StructureError
from nbmodule.tree import paths

NAMES = st.from_regex(r"[a-z][a-z0-9]{0,5}", fullmatch=True).filter(lambda name: not keyword.iskeyword(name))
ENTRIES = st.one_of(
    st.builds(GetAttrKey, NAMES),
    st.builds(GetAttrKey, NAMES.map(lambda name: f"_{name}")),
    st.builds(SequenceKey, st.integers(0, 20)),
    st.builds(DictKey, NAMES),
    st.builds(DictKey, st.integers(0, 20)),
)
PLACES = st.lists(ENTRIES, min_size=1, max_size=4).map(tuple)


def test_a_place_has_three_spellings():
    place = (GetAttrKey("_layers"), SequenceKey(0), DictKey("_x"), GetAttrKey("weight"))
    assert paths.dotted(place) == "_layers.0._x.weight"
    assert paths.chain(place) == "layers/v0/_x/weight"
    assert paths.keystr(place) == "._layers[0]['_x'].weight"


def test_keystr_is_the_spelling_of_jax():
    tree = {"a": [1, {"b": 2}]}
    for place, _ in jax.tree_util.tree_leaves_with_path(tree):
        assert paths.keystr(place) == jax.tree_util.keystr(place)


@pytest.mark.parametrize(
    ("name", "link"), [("_linear", "linear"), ("__linear", "_linear"), ("linear", "linear"), ("_", "_")]
)
def test_an_attribute_loses_one_leading_underscore(name, link):
    assert paths.chain((GetAttrKey(name),)) == link


def test_entries_of_unknown_kind_count_by_their_text():
    assert paths.dotted((FlattenedIndexKey(3), "free")) == "3.free"


@given(st.lists(PLACES, min_size=1, max_size=8))
def test_a_place_survives_each_of_its_spellings(places):
    for spell in (paths.dotted, paths.chain, paths.keystr):
        names = [spell(place) for place in dict.fromkeys(places)]
        everything = [
            each(place) for place in dict.fromkeys(places) for each in (paths.dotted, paths.chain, paths.keystr)
        ]
        for place, name in zip(dict.fromkeys(places), names, strict=True):
            if everything.count(name) == len(
                [each for each in (paths.dotted, paths.chain, paths.keystr) if each(place) == name]
            ):
                assert paths.find(places, name) == place


def test_finding_an_unknown_place_gives_the_closest_name_in_the_spelling_that_was_used():
    places = [(GetAttrKey("encoder"), GetAttrKey("linear"), GetAttrKey("weight")), (GetAttrKey("head"), SequenceKey(0))]
    with pytest.raises(PathError, match=r'no place "encoder.lin.weight"; the closest name is "encoder.linear.weight"'):
        paths.find(places, "encoder.lin.weight")
    with pytest.raises(PathError, match=r'closest name is "head/v0"'):
        paths.find(places, "heed/v0")
    with pytest.raises(PathError, match=r'closest name is "\.head\[0\]"'):
        paths.find(places, ".heed[0]")


def test_finding_a_place_that_two_could_mean_names_both():
    places = [(GetAttrKey("a"), SequenceKey(0)), (GetAttrKey("a"), DictKey("0"))]
    with pytest.raises(PathError, match=r'"a.0" could mean 2 places: \.a\[0\], \.a\[\'0\'\]'):
        paths.find(places, "a.0")
    assert paths.find(places, "a/v0") == places[0]


def test_two_places_with_one_name_are_an_error_that_names_both():
    places = [(GetAttrKey("x"),), (GetAttrKey("_x"),)]
    with pytest.raises(StructureError, match=r'both be called "x": \.x and \._x'):
        paths.unique_names(places, paths.chain)
    assert paths.unique_names(places, paths.dotted) == ["x", "_x"]


def test_dict_keys_with_the_same_text_are_an_error():
    with pytest.raises(StructureError, match=r"\[1\] and \['1'\]"):
        paths.unique_names([(DictKey(1),), (DictKey("1"),)], paths.dotted)


def test_list_items_are_sorted_by_number_and_names_as_text():
    assert paths.sort_names(["v10", "w", "v2", "b10", "b2", "v"]) == ["b10", "b2", "v", "v2", "v10", "w"]


@given(st.lists(st.one_of(st.from_regex(r"v[0-9]{1,3}", fullmatch=True), st.text("uvw0129_", max_size=4)), unique=True))
def test_the_quick_sort_of_names_is_the_sort_by_the_natural_key(names):
    assert paths.sort_names(names) == sorted(names, key=paths.natural)


@given(st.lists(PLACES, max_size=8, unique=True))
def test_places_sort_as_their_chains_do_level_by_level(places):
    ordered = sorted(places, key=paths.sort_key)
    keys = [[paths.natural(key)[:2] for key in paths.chain(place).split("/")] for place in ordered]
    assert keys == sorted(keys)


def test_a_single_entry_can_be_sorted_too():
    assert sorted([SequenceKey(10), SequenceKey(9)], key=paths.sort_key) == [SequenceKey(9), SequenceKey(10)]


@pytest.mark.parametrize(
    ("pattern", "name", "fits"),
    [
        ("blocks.*", "blocks.0", True),
        ("blocks.*", "blocks.0.norm", True),
        ("blocks.*", "blocks", False),
        ("blocks.?.norm", "blocks.3.norm", True),
        ("blocks.[01]", "blocks.2", False),
        ("*", "", True),
        ("Head", "head", False),
        (("stem", "head*"), "head.linear", True),
        ((), "head", False),
    ],
)
def test_globs_run_over_dots(pattern, name, fits):
    assert paths.match(pattern, name) is fits


@pytest.mark.parametrize(
    ("name", "names", "found"),
    [
        ("Weight", ["bias", "weight"], "weight"),
        ("wieght", ["bias", "weight"], "weight"),
        ("zzzz", ["bias", "weight"], None),
        ("a", [], None),
        ("keys", [1, None, "key"], "key"),
    ],
)
def test_the_closest_name_is_found_or_none(name, names, found):
    assert paths.closest(name, names) == found


def test_the_closest_of_many_thousand_names_is_found_quickly():
    names = [f"layers.{index}.attention.weight" for index in range(20_000)]
    assert paths.closest("layers.77.atention.weight", names) == "layers.77.attention.weight"
