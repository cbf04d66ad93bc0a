"""Looking up, setting and dropping places of a Container."""

from __future__ import annotations

import pytest

from nbmodule.errors import ArgumentTypeError, PathError, StructureError
from nbmodule.tree import Container


@pytest.fixture
def container():
    return Container(a=1, b={"c": 2, "d": 3})


def unchanged(container):
    return container.cont_to_dict() == {"a": 1, "b": {"c": 2, "d": 3}}


# Looking up
def test_a_leaf_or_a_part_is_given_at_a_chain(container):
    assert container.cont_at_key_chain("b/c") == 2
    assert container.cont_at_key_chain("b") is container.b
    assert container.cont_at_key_chain("b/x", ignore_key_errors=True) is None
    with pytest.raises(PathError, match='no "b/x"'):
        container.cont_at_key_chain("b/x")
    with pytest.raises(ArgumentTypeError, match="a key chain must be a str, got int"):
        container.cont_at_key_chain(3)


@pytest.mark.parametrize(
    ("chains", "found"),
    [
        (["b/c", "b/d"], {"b": {"c": 2, "d": 3}}),
        ("b/c", {"b": {"c": 2}}),
        (("a",), {"a": 1}),
        ({"a": True, "b": {"c": None}}, {"a": 1, "b": {"c": 2}}),
        (Container(a=0, b={"d": 0}), {"a": 1, "b": {"d": 3}}),
        ({"b": {}}, {"b": {"c": 2, "d": 3}}),
        (iter(["b", "b/c"]), {"b": {"c": 2, "d": 3}}),
        ([], {}),
    ],
)
def test_key_chains_may_be_a_list_a_dict_or_one_string(container, chains, found):
    assert container.cont_at_key_chains(chains).cont_to_dict() == found


def test_chains_that_do_not_exist_raise(container):
    with pytest.raises(PathError, match='no "b/x"; the closest name is'):
        container.cont_at_key_chains(["a", "b/x"])
    with pytest.raises(
        ArgumentTypeError, match="key chains must be a list, a dict or a str, got int"
    ):
        container.cont_at_key_chains(5)
    with pytest.raises(PathError, match="3 is no key chain"):
        container.cont_at_key_chains([3])


@pytest.mark.parametrize(
    ("keys", "containing", "found"),
    [
        (["a", "c"], False, {"a": 1, "b": {"c": 2}}),
        ("b", False, {"b": {"c": 2, "d": 3}}),
        (["x"], False, {}),
        ("ea", True, {"head": {"w": 4}}),
    ],
)
def test_keys_are_found_at_any_level(container, keys, containing, found):
    if containing:
        container.head = {"w": 4}
    assert container.cont_at_keys(keys, containing).cont_to_dict() == found


def test_chains_are_listed_with_empty_levels_where_asked():
    container = Container(a={}, b={"c_sub": {}, "d": 1})
    assert container.cont_all_key_chains() == ["b/d"]
    assert container.cont_all_key_chains(include_empty=True) == ["a", "b/c_sub", "b/d"]
    assert container.cont_key_chains_containing("sub") == []


def test_a_key_is_found_at_any_level_and_a_chain_from_the_root(container):
    assert [container.cont_has_key(key) for key in ("a", "b", "c", "d", "e", "bc", "b/c", "")] == [
        True
    ] * 4 + [False, False, True, False]
    assert [container.cont_has_key_chain(kc) for kc in ("a", "b", "b/c", "b.d", "b/e", "c")] == [
        True
    ] * 4 + [False] * 2


# Setting
def test_setting_gives_a_new_container_unless_asked_in_place(container):
    new = container.cont_set_at_key_chain("b/e/f", 4)
    assert new.cont_to_dict() == {"a": 1, "b": {"c": 2, "d": 3, "e": {"f": 4}}}
    assert unchanged(container)
    assert container.cont_set_at_key_chain("x", 4, inplace=True) is container
    assert container.x == 4


def test_setting_many_takes_nested_dicts_and_chains(container):
    new = container.cont_set_at_key_chains({"a": 4, "b/d": 5, "x": {"y": {}}})
    assert new.cont_to_dict() == {"a": 4, "b": {"c": 2, "d": 5}, "x": {"y": {}}}
    assert unchanged(container)
    assert container.cont_set_at_key_chains(Container(b={"c": 7}), inplace=True) is container
    assert container.cont_to_dict() == {"a": 1, "b": {"c": 7, "d": 3}}


def test_setting_many_in_place_is_all_or_nothing(container):
    with pytest.raises(StructureError, match='"a" holds a value of type int'):
        container.cont_set_at_key_chains({"b/c": 9, "a/x": 1}, inplace=True)
    with pytest.raises(PathError, match='no "b/e"'):
        container.cont_overwrite_at_key_chains({"a": 9, "b": {"e": 1}}, inplace=True)
    assert unchanged(container)


def test_overwriting_wants_a_place_that_exists(container):
    assert container.cont_overwrite_at_key_chain("b/d", 4).cont_to_dict() == {
        "a": 1,
        "b": {"c": 2, "d": 4},
    }
    assert container.cont_overwrite_at_key_chains({"a": 4, "b": {"d": 5}}).cont_to_dict() == {
        "a": 4,
        "b": {"c": 2, "d": 5},
    }
    with pytest.raises(KeyError, match='no "b/e"'):
        container.cont_overwrite_at_key_chain("b/e", 4)
    assert unchanged(container)
    container.cont_overwrite_at_key_chain("a", 5, inplace=True)
    assert container.a == 5


# Dropping
def test_a_dropped_chain_takes_the_levels_it_leaves_empty_with_it(container):
    assert container.cont_prune_key_chain("b/c").cont_to_dict() == {"a": 1, "b": {"d": 3}}
    assert container.cont_prune_key_chain("b").cont_to_dict() == {"a": 1}
    assert container.cont_prune_key_chains(["b/c", "b/d"]).cont_to_dict() == {"a": 1}
    assert container.cont_prune_key_chains({"a": True, "b": {"c": True}}).cont_to_dict() == {
        "b": {"d": 3}
    }
    assert container.cont_prune_key_chains(["b", "b/c"]).cont_to_dict() == {"a": 1}
    assert container.cont_prune_key_chains("a").cont_to_dict() == {"b": {"c": 2, "d": 3}}
    assert unchanged(container)
    assert container.cont_prune_key_chain("b", inplace=True) is container
    assert container.cont_to_dict() == {"a": 1}


def test_dropping_what_is_not_there_is_an_error(container):
    with pytest.raises(PathError, match='no "b/x"'):
        container.cont_prune_key_chains(["a", "b/x"], inplace=True)
    assert unchanged(container)


def test_keys_are_dropped_at_every_level(container):
    assert container.cont_prune_keys(["a", "c"]).cont_to_dict() == {"b": {"d": 3}}
    assert container.cont_prune_keys("b").cont_to_dict() == {"a": 1}
    assert container.cont_prune_keys("x").cont_to_dict() == container.cont_to_dict()
    assert container.cont_prune_keys(["c", "d"]).cont_to_dict() == {"a": 1}
    with pytest.raises(ArgumentTypeError, match="keys are text"):
        container.cont_prune_keys([1])


def test_empty_levels_and_nones_are_dropped():
    container = Container(a=1, b={"c": {}, "d": None}, e={"f": {"g": {}}})
    assert container.cont_prune_empty().cont_to_dict() == {"a": 1}
    assert container.cont_prune_empty(keep_nones=True).cont_to_dict() == {"a": 1, "b": {"d": None}}
    assert Container(a={}).cont_prune_empty().cont_to_dict() == {}
