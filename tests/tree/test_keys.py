"""What a user gives to a Container: chains as keys, keys of any type, and two entries for one
place.
"""

from __future__ import annotations

import collections
import enum
import types

import pytest

from nbmodule.errors import StructureError
from nbmodule.tree import Container


class Color(enum.Enum):
    RED = 1


def test_a_key_with_separators_makes_levels():
    assert Container({"b/c": 1, "b.d": 2, "a": 3}).cont_to_dict() == {"a": 3, "b": {"c": 1, "d": 2}}


def test_chains_inside_of_levels_make_levels_too():
    assert Container({"a": {"b/c": 1, "b": {"d": 2}}}).cont_to_dict() == {
        "a": {"b": {"c": 1, "d": 2}}
    }


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"b/c": 1, "b": {"c": 2}}, r"'b/c' and 'b' > 'c' would both lie at \"b/c\""),
        ({"b": {"c": 1}, "b.c": 2}, r"'b' > 'c' and 'b.c' would both lie at \"b/c\""),
        ({"b/c": 1, "b": 5}, r"'b/c' and 'b' would both lie at \"b\""),
        ({"b": 5, "b/c": 1}, r"'b' and 'b/c' would both lie at \"b\""),
        ({"a/b": 1, "a.b": 2}, r"'a/b' and 'a.b' would both lie at \"a/b\""),
        ({1: "x", "1": "y"}, r"1 and '1' would both lie at \"1\""),
        ({"b/c": 1, "b": {"c": {}}}, r"'b/c' and 'b' > 'c' would both lie at \"b/c\""),
        ({"": 1}, "the key '' has an empty part"),
        ({"a//b": 1}, "the key 'a//b' has an empty part"),
        ({"/a": 1}, "has an empty part"),
        ({0.5: 1}, r'the key 0.5 has the text "0.5", in which "/" and "." would separate levels'),
        ({Color.RED: 1}, 'has the text "Color.RED"'),
    ],
)
def test_nothing_is_lost_silently(given, message):
    with pytest.raises(StructureError, match=message):
        Container(given)


def test_empty_levels_go_together_with_full_ones():
    assert Container({"b": {}, "b/c": 1}).cont_to_dict() == {"b": {"c": 1}}
    assert Container({"b/c": 1, "b": {}}).cont_to_dict() == {"b": {"c": 1}}


def test_keys_that_are_not_text_count_by_their_text():
    container = Container({0: "zero", 1: "one", (1, 2): "pair", None: "none"})
    assert container["0"] == "zero"
    assert container["(1, 2)"] == "pair"
    assert container["None"] == "none"


def test_keys_of_any_hostile_kind_are_kept_as_they_are():
    for key in ("<b>", "a b", "ключ", "a\nb", "{}", "keys", "__class__", "a:b", "\x1b[31m"):
        container = Container({key: 1})
        assert list(container) == [key]
        assert container[key] == 1


def test_a_slash_separates_levels_in_markup_too():
    assert Container({"<b>bold</b>": 1})["<b>bold</b>"] == 1
    assert Container({"<b>bold</b>": 1}).cont_to_dict() == {"<b>bold<": {"b>": 1}}


@pytest.mark.parametrize(
    "mapping",
    [
        collections.OrderedDict(b=1, a=2),
        collections.defaultdict(int, b=1, a=2),
        types.MappingProxyType({"b": 1, "a": 2}),
        collections.ChainMap({"b": 1}, {"a": 2}),
    ],
)
def test_any_mapping_becomes_a_container(mapping):
    container = Container(outer=mapping)
    assert type(container.outer) is Container
    assert container.cont_to_dict() == {"outer": {"a": 2, "b": 1}}


def test_a_dict_that_contains_itself_is_refused():
    given = {"a": 1}
    given["b"] = {"c": given}
    with pytest.raises(StructureError, match="a dict that contains itself"):
        Container(given)
    chained = {"a/b": 1}
    chained["c"] = chained
    with pytest.raises(StructureError, match="a dict that contains itself"):
        Container(chained)


def test_one_dict_may_stand_in_two_places():
    part = {"w": 1}
    container = Container(a=part, b=part)
    container.a.w = 2
    assert container.b.w == 1
