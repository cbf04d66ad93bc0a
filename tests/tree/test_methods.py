"""Methods of Container that look up, set, drop, map, rename, cut and join: what each gives, that it
leaves its own Container as it was, and that `inplace=True` gives the same in the Container itself.
"""

from __future__ import annotations

import collections
import inspect
import operator

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbmodule.errors import ArgumentError, ArgumentTypeError, PathError, ShapeError, StructureError
from nbmodule.tree import Container

Pair = collections.namedtuple("Pair", "x y")
KEYS = st.text("abv0129", min_size=1, max_size=3)
LEAVES = st.one_of(st.integers(), st.none(), st.lists(st.integers(), max_size=2))
TREES = st.dictionaries(
    KEYS,
    st.recursive(LEAVES, lambda parts: st.dictionaries(KEYS, parts, max_size=3), max_leaves=8),
    max_size=4,
)


class Call:
    """A call of a method, to be made on a Container."""

    def __init__(self, method, *args, **options):
        self.method, self.args, self.options = f"cont_{method}", args, options
        parameters = inspect.signature(getattr(Container, self.method)).parameters
        self.has_inplace = "inplace" in parameters

    def __call__(self, container, **more):
        return getattr(container, self.method)(*self.args, **self.options, **more)

    def __repr__(self):
        return self.method


def plain(value):
    return value.cont_to_dict() if isinstance(value, Container) else value


AB = {"a": 1, "b": {"c": 2, "d": 3}}
C, D, NO_A = {"b": {"c": 2}}, {"b": {"d": 3}}, {"b": {"c": 2, "d": 3}}
ONE, OTHER = Container(a=1, b={"c": 2, "d": 3}), Container(a=3, b={"c": 4, "d": 5})
PART = Container(C)
LOOKED_UP = [
    (Call("at_key_chain", "b/c"), 2),
    (Call("at_key_chain", "b"), {"c": 2, "d": 3}),
    (Call("at_key_chain", "b/x", ignore_key_errors=True), None),
    (Call("if_exists", "b/x"), None),
    (Call("at_key_chains", ["b/c", "b/d"]), NO_A),
    (Call("at_key_chains", "b/c"), C),
    (Call("at_key_chains", ("a",)), {"a": 1}),
    (Call("at_key_chains", {"a": True, "b": {"c": None}}), {"a": 1, **C}),
    (Call("at_key_chains", Container(a=0, b={"d": 0})), {"a": 1, **D}),
    (Call("at_key_chains", {"b": {}}), NO_A),
    (Call("at_key_chains", ["b", "b/c"]), NO_A),
    (Call("at_key_chains", []), {}),
    (Call("at_keys", ["a", "c"]), {"a": 1, **C}),
    (Call("at_keys", "b"), NO_A),
    (Call("at_keys", ["x"]), {}),
    (Call("all_key_chains"), ["a", "b/c", "b/d"]),
    (Call("key_chains_containing", "b"), ["b/c", "b/d"]),
    *((Call("has_key", key), True) for key in ("a", "b", "c", "d", "b/c")),
    *((Call("has_key", key), False) for key in ("e", "bc", "")),
    *((Call("has_key_chain", chain), True) for chain in ("a", "b", "b/c", "b.d")),
    *((Call("has_key_chain", chain), False) for chain in ("b/e", "c")),
]
SET = [
    (Call("set_at_key_chain", "b/e/f", 4), {"a": 1, "b": {"c": 2, "d": 3, "e": {"f": 4}}}),
    (
        Call("set_at_key_chains", {"a": 4, "b/d": 5, "x": {"y": {}}}),
        {"a": 4, "b": {"c": 2, "d": 5}, "x": {"y": {}}},
    ),
    (Call("set_at_key_chains", Container(b={"c": 7})), {"a": 1, "b": {"c": 7, "d": 3}}),
    (Call("overwrite_at_key_chain", "b/d", 4), {"a": 1, "b": {"c": 2, "d": 4}}),
    (Call("overwrite_at_key_chains", {"a": 4, "b": {"d": 5}}), {"a": 4, "b": {"c": 2, "d": 5}}),
    (Call("create_if_absent", "a", 4), AB),
    (Call("create_if_absent", "e", 4), {**AB, "e": 4}),
]
DROPPED = [
    (Call("prune_key_chain", "b/c"), {"a": 1, **D}),
    (Call("prune_key_chain", "b"), {"a": 1}),
    (Call("prune_key_chains", ["b/c", "b/d"]), {"a": 1}),
    (Call("prune_key_chains", {"a": True, "b": {"c": True}}), D),
    (Call("prune_key_chains", ["b", "b/c"]), {"a": 1}),
    (Call("prune_key_chains", "a"), NO_A),
    (Call("prune_keys", ["a", "c"]), D),
    (Call("prune_keys", "b"), {"a": 1}),
    (Call("prune_keys", "x"), AB),
    (Call("prune_keys", ["c", "d"]), {"a": 1}),
]


def add(x, _):
    return x + 1


def count(part, _):
    part.n = len(part)
    return part


def size(part, _):
    return len(part)


MAPPED = [
    (Call("map", add), {"a": 2, "b": {"c": 3, "d": 4}}),
    (Call("map", add, ["a", "b/c"]), {"a": 2, "b": {"c": 3, "d": 3}}),
    (Call("map", add, "b"), {"a": 1, "b": {"c": 3, "d": 4}}),
    (Call("map", add, ["a", "b/c"], prune_unapplied=True), {"a": 2, "b": {"c": 3}}),
    (
        Call("map", add, {"a": None, "b": {"d": None}}, to_apply=False),
        {"a": 1, "b": {"c": 3, "d": 3}},
    ),
    (
        Call("map", add, Container(a=0, b={"d": 0}), to_apply=False, prune_unapplied=True),
        {"b": {"c": 3}},
    ),
    (Call("map", add, "a", prune_unapplied=True), {"a": 2}),
    (Call("map_sub_conts", count), {"a": 1, "b": {"c": 2, "d": 3, "n": 2}, "n": 2}),
    (Call("map_sub_conts", count, include_self=False), {"a": 1, "b": {"c": 2, "d": 3, "n": 2}}),
    (Call("map_sub_conts", count, "b"), {"a": 1, "b": {"c": 2, "d": 3, "n": 2}}),
    (Call("map_sub_conts", count, "b", prune_unapplied=True), {"b": {"c": 2, "d": 3, "n": 2}}),
    (Call("map_sub_conts", count, "b", to_apply=False), {"a": 1, "b": {"c": 2, "d": 3}, "n": 2}),
    (Call("map_sub_conts", size, include_self=False), {"a": 1, "b": 2}),
]
REARRANGED = [
    (Call("restructure_key_chains", {"a": "A"}), {"A": 1, **NO_A}),
    (
        Call("restructure_key_chains", {"a": "A", "b/c": "B/C", "b/d": "B/D"}),
        {"A": 1, "B": {"C": 2, "D": 3}},
    ),
    (Call("restructure_key_chains", {"b": "x/y"}), {"a": 1, "x": {"y": {"c": 2, "d": 3}}}),
    (Call("restructure_key_chains", {"a": "A"}, keep_orig=False), {"A": 1}),
    (Call("restructure_key_chains", {"a": "A"}, replace=False), {"A": 1, **AB}),
    (Call("restructure_key_chains", {"a": "b/c", "b/c": "a"}), {"a": 2, "b": {"c": 1, "d": 3}}),
    (Call("restructure_key_chains", {"b/c": "b/x"}), {"a": 1, "b": {"d": 3, "x": 2}}),
    (Call("restructure_key_chains", {"b": "b/inner"}), {"a": 1, "b": {"inner": {"c": 2, "d": 3}}}),
    (Call("restructure_key_chains", {}), AB),
    (Call("format_key_chains", str.upper), {"A": 1, "B": {"C": 2, "D": 3}}),
    (Call("prune_keys_from_key_chains", ["b"]), {"a": 1, "c": 2, "d": 3}),
    (Call("prune_keys_from_key_chains", containing=["b"]), {"a": 1, "c": 2, "d": 3}),
    (Call("from_flat_list", (4, 5, 6)), {"a": 4, "b": {"c": 5, "d": 6}}),
    (Call("to_nested_list"), [1, [2, 3]]),
    (Call("slice_keys", "b:"), NO_A),
]


@pytest.mark.parametrize(
    ("call", "expected"), [*LOOKED_UP, *SET, *DROPPED, *MAPPED, *REARRANGED], ids=repr
)
def test_a_method_gives_something_new_or_changes_the_container_in_place(call, expected):
    container = Container(AB)
    assert plain(call(container)) == expected
    assert container.cont_to_dict() == AB
    if call.has_inplace:
        part = container.b
        assert call(container, inplace=True) is container
        assert container.cont_to_dict() == expected
        assert "b" not in container or not isinstance(container.b, Container) or container.b is part


DEEP = {"a": 1, "b": {"c": {"d": 2}, "e": {"f": {"g": 3}}}}
TWO = {"a": {"c": {"d": 2}}, "b": {"c": {"d": {"e": 3}}}}
JOINED = {"a": 1, "b__c__d": 2, "b__e__f__g": 3}
SHAPED = [
    (DEEP, Call("flatten_key_chains"), JOINED),
    (
        DEEP,
        Call("flatten_key_chains", above_height=1),
        {"a": 1, "b__c": {"d": 2}, "b__e__f": {"g": 3}},
    ),
    (DEEP, Call("flatten_key_chains", below_depth=1), {"a": 1, "b": {"c__d": 2, "e__f__g": 3}}),
    (
        DEEP,
        Call("flatten_key_chains", above_height=1, below_depth=1),
        {"a": 1, "b": {"c": {"d": 2}, "e__f": {"g": 3}}},
    ),
    (DEEP, Call("flatten_key_chains", above_height=0, below_depth=0), JOINED),
    (DEEP, Call("flatten_key_chains", above_height=9), JOINED),  # no chain is so long
    (DEEP, Call("cutoff_at_depth", 0), {}),
    (DEEP, Call("cutoff_at_depth", 1), {"a": 1, "b": {}}),
    (DEEP, Call("cutoff_at_depth", 2), {"a": 1, "b": {"c": {}, "e": {}}}),
    (DEEP, Call("cutoff_at_depth", 3), {"a": 1, "b": {"c": {"d": 2}, "e": {"f": {}}}}),
    (DEEP, Call("cutoff_at_depth", 4), DEEP),
    (TWO, Call("cutoff_at_height", 0), TWO),
    (TWO, Call("cutoff_at_height", 1), {"a": {"c": {}}, "b": {"c": {"d": {}}}}),
    (TWO, Call("cutoff_at_height", 2), {"a": {}, "b": {"c": {}}}),
    (TWO, Call("cutoff_at_height", 3), {"a": {}, "b": {}}),
    (TWO, Call("cutoff_at_height", 4), {}),
    (TWO, Call("slice_via_key", "c"), {"a": {"d": 2}, "b": {"d": {"e": 3}}}),
    ({"a": {"x": {"b": 1}}}, Call("prune_keys_from_key_chains", "x"), {"a": {"b": 1}}),
    ({"a": 1}, Call("format_key_chains", lambda chain: "x/y"), {"x": {"y": 1}}),
    ({"a": 1, "head": {"w": 4}}, Call("at_keys", "ea", containing=True), {"head": {"w": 4}}),
    ({"a": 1, "b": {"c": {}, "d": None}, "e": {"f": {}}}, Call("prune_empty"), {"a": 1}),
    (
        {"a": 1, "b": {"c": {}, "d": None}},
        Call("prune_empty", keep_nones=True),
        {"a": 1, "b": {"d": None}},
    ),
    ({"a": {}}, Call("prune_empty"), {}),
    ({"a": {}, "b": {"c": {}, "d": 1}}, Call("all_key_chains"), ["b/d"]),
    (
        {"a": {}, "b": {"c": {}, "d": 1}},
        Call("all_key_chains", include_empty=True),
        ["a", "b/c", "b/d"],
    ),
    (
        {"a": 1, "b": [2, (3, 4)]},
        Call("map", lambda x, chain: f"{chain}={x}", map_sequences=True),
        {"a": "a=1", "b": ["b/v0=2", ("b/v1/v0=3", "b/v1/v1=4")]},
    ),
    ({"p": Pair(5, 6)}, Call("map", add, map_sequences=True), {"p": Pair(6, 7)}),
    ({"a": [1]}, Call("map", lambda x, _: type(x)), {"a": list}),
    (AB, Call("map_sub_conts", size), 2),
    (DEEP, Call("map_sub_conts", lambda part, _: sum(part.values())), 6),  # from the bottom up
]


@pytest.mark.parametrize(("base", "call", "expected"), SHAPED, ids=repr)
def test_a_method_on_other_structures(base, call, expected):
    container = Container(base)
    assert plain(call(container)) == expected
    assert container.cont_to_dict() == base
    if call.has_inplace and isinstance(expected, dict):
        assert call(container, inplace=True) is container
        assert container.cont_to_dict() == expected


REFUSED = [
    (Call("at_key_chain", "b/x"), PathError, 'no "b/x"'),
    (Call("at_key_chain", 3), ArgumentTypeError, "a key chain must be a str, got int"),
    (Call("at_key_chains", ["a", "b/x"]), PathError, 'no "b/x"; the closest name is'),
    (Call("at_key_chains", 5), ArgumentTypeError, "must be a list, a dict or a str, got int"),
    (Call("at_key_chains", [3]), PathError, "3 is no key chain"),
    (Call("set_at_key_chains", {"b/c": 9, "a/x": 1}), StructureError, '"a" holds a value'),
    (Call("overwrite_at_key_chains", {"a": 9, "b": {"e": 1}}), PathError, 'no "b/e"'),
    (Call("overwrite_at_key_chain", "b/e", 4), PathError, 'no "b/e"'),
    (Call("prune_key_chains", ["a", "b/x"]), PathError, 'no "b/x"'),
    (Call("prune_keys", [1]), ArgumentTypeError, "keys are text"),
    (Call("map", add, "x"), PathError, 'no "x"'),
    (Call("flatten_key_chains", above_height=-1), ArgumentError, "above_height must be at least 0"),
    (Call("flatten_key_chain", 3), ArgumentTypeError, "a key chain, and .*, are text"),
    (Call("format_key_chains", lambda _: "x"), StructureError, '"a" and "b/c" would both lie at'),
    (Call("format_key_chains", lambda _: ""), StructureError, '"", with an empty key'),
    (Call("format_key_chains", lambda _: None), ArgumentTypeError, '"a" would get None'),
    (Call("restructure_key_chains", ["a"]), ArgumentTypeError, "expected a mapping .* got list"),
    (Call("restructure_key_chains", {"a": "b/c"}), StructureError, '"b/c" and "a" would both lie'),
    (Call("restructure_key_chains", {"x": "y"}), PathError, 'no "x"'),
    (Call("prune_keys_from_key_chains", "a"), StructureError, '"a" would get the key chain ""'),
    (Call("prune_keys_from_key_chains"), ArgumentError, "give absolute= or containing="),
    *(
        (Call("slice_keys", wrong), ArgumentTypeError, 'by text such as "b:d" or by a slice')
        for wrong in ("b", "a:b:c", 3, None)
    ),
    (Call("from_flat_list", [1]), StructureError, "has 3 leaves and the list has 1 values"),
    (Call("from_flat_list", range(4)), StructureError, "has 3 leaves and the list has 4 values"),
    (Call("list_join", [Container(a=1)]), ArgumentTypeError, 'cannot join "a": int is no list'),
    (Call("list_stack", [Container(a=1)], -1), ArgumentError, "axis must be at least 0, got -1"),
    (Call("list_stack", [Container(a=1), Container(b=1)]), StructureError, "differ"),
    (Call("combine", ONE, 3), ArgumentTypeError, "can be combined, got int"),
    (Call("combine", {"a": 1}), ArgumentTypeError, "there is no Container"),
    (
        Call("multi_map", add, [ONE, PART]),
        StructureError,
        'several Containers.*\nmissing: "a", "b/d"',
    ),
    (Call("multi_map", add, [1, 2]), ArgumentTypeError, "there is no Container in the list"),
]


@pytest.mark.parametrize(("call", "error", "message"), REFUSED, ids=repr)
def test_a_wrong_call_is_refused_and_changes_nothing(call, error, message):
    container = Container(AB)
    for options in ({}, {"inplace": True})[: 1 + call.has_inplace]:
        with pytest.raises(error, match=message):
            call(container, **options)
    assert container.cont_to_dict() == AB


def test_an_error_in_a_function_names_the_leaf():
    with pytest.raises(TypeError) as caught:
        Container(AB).cont_map(lambda x, chain: x + "text" if chain == "b/c" else x)
    assert caught.value.__notes__ == ['This was met at "b/c" of a Container.']


# Chains
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
    with pytest.raises(StructureError, match='"a/w" and "b/w" would both lie at "w"'):
        Container(a={"w": 1}, b={"w": 2}).cont_prune_keys_from_key_chains(["a", "b"])


LETTERS = {"a": 1, "b": 2, "c": 3, "d": 4, "e": 5}
SLICES = [
    ("b:d", "bcd"),
    (slice(1, 4, 1), "bcd"),
    (":b", "ab"),
    (slice(None, None, 2), "ace"),
    ("x:z", ""),
]


@pytest.mark.parametrize(("key_slice", "kept"), SLICES)
def test_ranges_of_keys_are_kept_at_the_depths_asked_for(key_slice, kept):
    container = Container(dict.fromkeys("abcde", LETTERS))
    part = {key: LETTERS[key] for key in kept}
    slices = [key_slice, {0: key_slice}, {1: key_slice}, {0: key_slice, 1: key_slice}]
    expected = [(kept, LETTERS), (kept, LETTERS), ("abcde", part), (kept, part)]
    for each, (keys, level) in zip(slices, expected):
        assert container.cont_slice_keys(each).cont_to_dict() == dict.fromkeys(keys, level)
    deep = container.cont_slice_keys(key_slice, all_depths=True)
    assert deep.cont_to_dict() == dict.fromkeys(kept, part)
    first = container.cont_slice_keys({0: slice(1), 1: key_slice}, all_depths=True)
    assert first.cont_to_dict() == {"a": part}


# Conversion
@given(TREES, st.booleans())
def test_from_flat_list_undoes_to_flat_list_and_a_dict_its_container(tree, alphabetical):
    container = Container(tree, alphabetical_keys=alphabetical)
    again = container.cont_from_flat_list(container.cont_to_flat_list())
    assert again.cont_to_dict() == container.cont_to_dict() == tree
    assert list(again.cont_to_iterator()) == list(container.cont_to_iterator())


def test_iterators_give_chains_or_last_keys():
    c = Container(a=1, b={"c": 2, "d": {}}, e={})
    assert list(c.cont_to_iterator()) == [("a", 1), ("b/c", 2)]
    assert list(c.cont_to_iterator(leaf_keys_only=True)) == [("a", 1), ("c", 2)]
    assert list(c.cont_to_iterator_keys(include_empty=True)) == ["a", "b/c", "b/d", "e"]
    assert list(c.cont_to_iterator_keys(True, include_empty=True)) == ["a", "c", "d", "e"]
    assert list(c.cont_to_iterator_keys()) == ["a", "b/c"]
    assert list(c.cont_to_iterator_values()) == [1, 2]
    *_, first, second = c.cont_to_iterator_values(include_empty=True)
    assert first is c.b.d
    assert second is c.e


def test_arrays_become_numpy_and_other_leaves_stay():
    container = Container(
        a=jnp.ones(2, "bfloat16"), b={"c": "text", "d": [jnp.ones(2), 3]}, e=np.ones(1)
    )
    numpy = container.to_numpy()
    assert type(numpy.a) is type(numpy.b.d[0]) is np.ndarray
    assert numpy.a.dtype == container.a.dtype
    assert (numpy.b.c, numpy.b.d[1]) == ("text", 3)
    assert numpy.e is container.e


# Several
def total(leaves, _):
    return sum(leaves)


SEVERAL = [
    (Call("multi_map", total, [ONE, OTHER]), {"a": 4, "b": {"c": 6, "d": 8}}),
    (Call("multi_map", lambda xs, chain: (chain, xs), [10, PART]), {"b": {"c": ("b/c", [10, 2])}}),
    (Call("multi_map", total, [ONE, OTHER], "b/c", prune_unapplied=True), {"b": {"c": 6}}),
    (Call("multi_map", total, [ONE, OTHER], "b", to_apply=False), {"a": 4, **NO_A}),
    (Call("list_join", [Container(a=[1]), Container(a=[3, 4])]), {"a": [1, 3, 4]}),
    (
        Call("list_join", [Container(a={"b": (1, 2)}), Container(a={"b": [3]})]),
        {"a": {"b": [1, 2, 3]}},
    ),
    (Call("list_stack", [ONE, OTHER]), {"a": [1, 3], "b": {"c": [2, 4], "d": [3, 5]}}),
    (Call("list_stack", [Container(x=[1, 2]), Container(x=[3, 4])], 1), {"x": [[1, 3], [2, 4]]}),
    (Call("reduce", [ONE, OTHER], sum), {"a": 4, "b": {"c": 6, "d": 8}}),
    (Call("reduce", [ONE, OTHER, ONE], operator.sub), {"a": -3, "b": {"c": -4, "d": -5}}),
    (Call("reduce", [ONE, OTHER, ONE], np.subtract), {"a": -3, "b": {"c": -4, "d": -5}}),
    (Call("reduce", [ONE, OTHER], lambda x, y: x * y), {"a": 3, "b": {"c": 8, "d": 15}}),
    (Call("combine", ONE, Container(a=4, b={"e": 6})), {"a": 4, "b": {"c": 2, "d": 3, "e": 6}}),
    (Call("combine", ONE, {"b": 7}, {"y": {"z": 9}}), {"a": 1, "b": 7, "y": {"z": 9}}),
    (Call("combine", Container(a=1), Container(a={"b": 2})), {"a": {"b": 2}}),
    (Call("combine", Container(a={}), Container(b={})), {"a": {}, "b": {}}),
]


@pytest.mark.parametrize(("call", "expected"), SEVERAL, ids=repr)
def test_one_container_is_made_of_several_which_stay_as_they_are(call, expected):
    joined = call(Container())
    assert plain(joined) == expected
    joined.cont_map(lambda leaf, _: None, inplace=True)  # it has levels of its own
    assert ONE.cont_to_dict() == {"a": 1, "b": {"c": 2, "d": 3}}
    assert OTHER.cont_to_dict() == {"a": 3, "b": {"c": 4, "d": 5}}


def test_items_of_sequences_of_several_containers_are_mapped_where_asked():
    a, b = Container(x=[jnp.ones(2), 2], y=1), Container(x=[jnp.ones(2), 3], y=4)
    total = Container.cont_multi_map(
        lambda xs, _: xs[0] + xs[1] * xs[2], [a, b, 10], map_sequences=True
    )
    np.testing.assert_array_equal(total.x[0], [11, 11])
    assert (total.x[1], total.y) == (32, 41)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_unstacking_gives_one_container_for_each_place(axis):
    arrays = {"a": np.arange(6).reshape(2, 3), "c": np.arange(6, 12).reshape(2, 3)}
    container = Container(a=jnp.asarray(arrays["a"]), b={"c": jnp.asarray(arrays["c"])})
    parts = container.cont_unstack_conts(axis)
    assert len(parts) == arrays["a"].shape[axis]
    for place, part in enumerate(parts):
        np.testing.assert_array_equal(part.a, np.take(arrays["a"], place, axis))
        np.testing.assert_array_equal(part.b.c, np.take(arrays["c"], place, axis))
    kept = container.cont_unstack_conts(axis, keepdims=True)
    np.testing.assert_array_equal(np.concatenate([part.a for part in kept], axis), arrays["a"])


def test_unstacking_undoes_stacking_and_wants_leaves_of_one_length():
    parts = [Container(a=index, b={"c": str(index)}) for index in range(3)]
    again = Container.cont_list_stack(parts, 0).cont_unstack_conts(0)
    assert [part.cont_to_dict() for part in again] == [part.cont_to_dict() for part in parts]
    uneven = Container(a=jnp.ones(2), b={"c": jnp.ones(3)})
    with pytest.raises(ShapeError, match='along axis 0: "a" is 2 long and "b/c" is 3 long'):
        uneven.cont_unstack_conts(0)
    with pytest.raises(ShapeError, match='along axis 1: "a" has 1 axes'):
        uneven.cont_unstack_conts(1)
    assert len(uneven.cont_unstack_conts(0, dim_size=2)) == 2
    assert Container().cont_unstack_conts(0) == []


def test_arrays_are_joined_along_an_axis_and_reduced():
    a, b = (Container(a=library.ones((2, 1)), n=np.ones((2, 1))) for library in (jnp, np))
    joined = Container.cont_concat([a, b], 1)
    np.testing.assert_array_equal(joined.a, [[1, 1], [1, 1]])
    assert isinstance(joined.a, jax.Array)
    assert type(joined.n) is np.ndarray
    assert float(Container.cont_reduce([a, b * 3], jnp.maximum).a[0, 0]) == 3
    for fail in (
        lambda: Container.cont_concat([a, Container(a=np.ones((1, 3)), n=0)], 0),
        lambda: Container.cont_reduce([a, b], lambda leaves: leaves[0] + "x"),
    ):
        with pytest.raises((TypeError, ValueError)) as caught:
            fail()
        assert 'This was met at "a" of a Container.' in caught.value.__notes__
