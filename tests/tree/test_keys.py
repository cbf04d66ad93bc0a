"""Input of a Container: chains as keys, keys of any type, and two entries for one place."""

from __future__ import annotations

import collections
import enum
import types

import pytest

from nbmodule.errors import StructureError
from nbmodule.tree import Container


class Color(enum.Enum):
    RED = 1


PART = {"w": 1}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"b/c": 1, "b.d": 2, "a": 3}, {"a": 3, "b": {"c": 1, "d": 2}}),
        ({"a": {"b/c": 1, "b": {"d": 2}}}, {"a": {"b": {"c": 1, "d": 2}}}),
        ({"b": {}, "b/c": 1}, {"b": {"c": 1}}),
        ({"b/c": 1, "b": {}}, {"b": {"c": 1}}),
        (
            {0: "zero", (1, 2): "pair", None: "none"},
            {"(1, 2)": "pair", "0": "zero", "None": "none"},
        ),
        ({"<b>bold</b>": 1}, {"<b>bold<": {"b>": 1}}),
        ({"a": PART, "b": PART}, {"a": {"w": 1}, "b": {"w": 1}}),
        *(({key: 1}, {key: 1}) for key in ("<b>", "a b", "ключ", "a\nb", "{}", "keys", "\x1b[31m")),
    ],
)
def test_mappings_become_levels_of_text_keys(given, expected):
    made = Container(given)
    assert made.cont_to_dict() == expected
    assert all(made[str(key)] == value for key, value in given.items() if value in (1, "zero"))
    levels = [id(part) for part in made.values() if isinstance(part, Container)]
    assert len(set(levels)) == len(levels)


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
