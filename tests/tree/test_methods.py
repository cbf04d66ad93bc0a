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
from hypothesis import given, settings
from hypothesis import strategies as st

from nbmodule.errors import ArgumentError, ArgumentTypeError, PathError, ShapeError, StructureError
from nbmodule.tree import Container
from tests.tree.strategies import trees

Pair = collections.namedtuple("Pair", "x y")
TREES = trees(st.sampled_from(["a", "b", "c", "v2", "v10"]), st.integers(), min_size=1)


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


def assert_gives(base, call, expected):
    """Check the value of a call, that it leaves its Container as it was, and that in place it
    changes the Container and keeps the parts of it.
    """
    container = Container(base)
    assert plain(call(container)) == expected
    assert container.cont_to_dict() == base
    if call.has_inplace and isinstance(expected, dict):
        parts = dict(container.items())
        assert call(container, inplace=True) is container
        assert container.cont_to_dict() == expected
        both = {key for key in parts.keys() & set(container) if isinstance(container[key], dict)}
        assert all(container[key] is parts[key] for key in both if isinstance(parts[key], dict))


def nested(leaves):
    tree = {}
    for (*levels, key), leaf in leaves.items():
        level = tree
        for name in levels:
            level = level.setdefault(name, {})
        level[key] = leaf
    return tree


def add(x, _):
    return x + 1


# Calls with key chains, and what becomes of one leaf, given its path and whether a chain leads to it
LAWS = {
    "choose": (lambda kc: Call("at_key_chains", kc), lambda p, x, hit: {p: x} if hit else {}),
    "prune": (lambda kc: Call("prune_key_chains", kc), lambda p, x, hit: {} if hit else {p: x}),
    "map": (lambda kc: Call("map", add, kc), lambda p, x, hit: {p: x + hit}),
    "map others": (
        lambda kc: Call("map", add, kc, to_apply=False),
        lambda p, x, hit: {p: x + (not hit)},
    ),
    "map alone": (
        lambda kc: Call("map", add, kc, prune_unapplied=True),
        lambda p, x, hit: {p: x + 1} if hit else {},
    ),
    "move": (
        lambda kc: Call("restructure_key_chains", {chain: f"x/{chain}" for chain in kc}),
        lambda p, x, hit: {("x", *p) if hit else p: x},
    ),
    "rename": (
        lambda kc: Call("format_key_chains", str.upper),
        lambda p, x, _: {tuple(map(str.upper, p)): x},
    ),
    "join": (lambda kc: Call("flatten_key_chains"), lambda p, x, _: {("__".join(p),): x}),
}
FORMS = [list, tuple, dict.fromkeys, lambda chains: Container(dict.fromkeys(chains))]


@pytest.mark.parametrize("law", LAWS)
@settings(max_examples=25)
@given(TREES, st.sampled_from(FORMS), st.data())
def test_a_method_does_to_all_leaves_what_it_does_to_one(law, tree, form, data):
    leaves = {
        tuple(entry.key for entry in path): x
        for path, x in jax.tree_util.tree_leaves_with_path(tree)
    }
    paths = sorted({path[:depth] for path in leaves for depth in range(1, len(path) + 1)})
    drawn = data.draw(st.sets(st.sampled_from(paths)) if paths else st.just(set()))
    chosen = [p for p in drawn if not any(p[:n] in drawn for n in range(1, len(p)))]
    call, of_leaf = LAWS[law]
    expected = {}
    for path, x in leaves.items():
        expected |= of_leaf(path, x, any(path[: len(keys)] == keys for keys in chosen))
    assert_gives(tree, call(form(["/".join(keys) for keys in chosen])), nested(expected))


def count(part, _):
    part.n = len(part)
    return part


def size(part, _):
    return len(part)


AB = {"a": 1, "b": {"c": 2, "d": 3}}
NO_A = {"b": {"c": 2, "d": 3}}
ONE, OTHER = Container(a=1, b={"c": 2, "d": 3}), Container(a=3, b={"c": 4, "d": 5})
PART = Container(b={"c": 2})
DEEP = {"a": 1, "b": {"c": {"d": 2}, "e": {"f": {"g": 3}}}}
TWO = {"a": {"c": {"d": 2}}, "b": {"c": {"d": {"e": 3}}}}
NONES = {"a": 1, "b": {"c": {}, "d": None}, "e": {"f": {}}}
ROWS = [
    (AB, Call("at_key_chains", {"b": {}}), NO_A),
    (AB, Call("at_key_chains", ["b", "b/c"]), NO_A),
    (AB, Call("prune_key_chains", ["b", "b/c"]), {"a": 1}),
    (AB, Call("prune_key_chains", "a"), NO_A),
    *((AB, Call("has_key", key), True) for key in ("a", "b", "c", "d", "b/c")),
    *((AB, Call("has_key", key), False) for key in ("e", "bc", "")),
    *((AB, Call("has_key_chain", chain), True) for chain in ("a", "b", "b/c", "b.d")),
    *((AB, Call("has_key_chain", chain), False) for chain in ("b/e", "c")),
    (AB, Call("set_at_key_chain", "b/e/f", 4), {"a": 1, "b": {"c": 2, "d": 3, "e": {"f": 4}}}),
    (AB, Call("overwrite_at_key_chains", {"a": 4, "b": {"d": 5}}), {"a": 4, "b": {"c": 2, "d": 5}}),
    (AB, Call("prune_keys", ["a", "c"]), {"b": {"d": 3}}),
    (AB, Call("prune_keys", ["c", "d"]), {"a": 1}),
    (AB, Call("set_at_key_chains", {"a": 4, "x": {"y": {}}}), {**AB, "a": 4, "x": {"y": {}}}),
    (AB, Call("set_at_key_chains", Container(b={"c": 7})), {"a": 1, "b": {"c": 7, "d": 3}}),
    (AB, Call("map_sub_conts", count), {"a": 1, "b": {"c": 2, "d": 3, "n": 2}, "n": 2}),
    (AB, Call("map_sub_conts", count, include_self=False), {"a": 1, "b": {**NO_A["b"], "n": 2}}),
    (AB, Call("map_sub_conts", count, "b", prune_unapplied=True), {"b": {**NO_A["b"], "n": 2}}),
    (AB, Call("map_sub_conts", count, "b", to_apply=False), {**AB, "n": 2}),
    (AB, Call("map_sub_conts", size, include_self=False), {"a": 1, "b": 2}),
    (AB, Call("map_sub_conts", size), 2),
    (DEEP, Call("map_sub_conts", lambda part, _: sum(part.values())), 6),  # from the bottom up
    (AB, Call("restructure_key_chains", {"a": "A"}, replace=False), {"A": 1, **AB}),
    (AB, Call("restructure_key_chains", {"a": "b/c", "b/c": "a"}), {"a": 2, "b": {"c": 1, "d": 3}}),
    (AB, Call("restructure_key_chains", {"b": "b/in"}), {"a": 1, "b": {"in": NO_A["b"]}}),
    (AB, Call("prune_keys_from_key_chains", containing=["b"]), {"a": 1, "c": 2, "d": 3}),
    (
        DEEP,
        Call("flatten_key_chains", above_height=1, below_depth=1),
        {"a": 1, "b": {"c": {"d": 2}, "e__f": {"g": 3}}},
    ),
    (DEEP, Call("cutoff_at_depth", 0), {}),
    (DEEP, Call("cutoff_at_depth", 2), {"a": 1, "b": {"c": {}, "e": {}}}),
    (DEEP, Call("cutoff_at_depth", 4), DEEP),
    (TWO, Call("cutoff_at_height", 0), TWO),
    (TWO, Call("cutoff_at_height", 2), {"a": {}, "b": {"c": {}}}),
    (TWO, Call("cutoff_at_height", 4), {}),
    (TWO, Call("slice_via_key", "c"), {"a": {"d": 2}, "b": {"d": {"e": 3}}}),
    ({"a": 1}, Call("format_key_chains", lambda chain: "x/y"), {"x": {"y": 1}}),
    ({"a": 1, "head": {"w": 4}}, Call("at_keys", "ea", containing=True), {"head": {"w": 4}}),
    (NONES, Call("prune_empty"), {"a": 1}),
    (NONES, Call("prune_empty", keep_nones=True), {"a": 1, "b": {"d": None}}),
    (NONES, Call("all_key_chains", include_empty=True), ["a", "b/c", "b/d", "e/f"]),
    (
        {"a": 1, "b": [2, (3, 4)]},
        Call("map", lambda x, chain: f"{chain}={x}", map_sequences=True),
        {"a": "a=1", "b": ["b/v0=2", ("b/v1/v0=3", "b/v1/v1=4")]},
    ),
    ({"p": Pair(5, 6)}, Call("map", add, map_sequences=True), {"p": Pair(6, 7)}),
    ({"a": [1]}, Call("map", lambda x, _: type(x)), {"a": list}),
]


@pytest.mark.parametrize(("base", "call", "expected"), ROWS, ids=repr)
def test_a_method_gives_something_new_or_changes_the_container_in_place(base, call, expected):
    assert_gives(base, call, expected)


REFUSED = [
    (Call("at_key_chain", 3), ArgumentTypeError, "a key chain must be a str, got int"),
    (Call("at_key_chains", ["a", "b/x"]), PathError, 'no "b/x"; the closest name is'),
    (Call("at_key_chains", 5), ArgumentTypeError, "must be a list, a dict or a str, got int"),
    (Call("at_key_chains", [3]), PathError, "3 is no key chain"),
    (Call("set_at_key_chains", {"b/c": 9, "a/x": 1}), StructureError, '"a" holds a value'),
    (Call("overwrite_at_key_chains", {"a": 9, "b": {"e": 1}}), PathError, 'no "b/e"'),
    (Call("prune_keys", [1]), ArgumentTypeError, "keys are text"),
    (Call("flatten_key_chains", above_height=-1), ArgumentError, "above_height must be at least 0"),
    (Call("flatten_key_chain", 3), ArgumentTypeError, "a key chain, and .*, are text"),
    (Call("format_key_chains", lambda _: "x"), StructureError, '"a" and "b/c" would both lie at'),
    (Call("format_key_chains", lambda _: ""), StructureError, '"", with an empty key'),
    (Call("format_key_chains", lambda _: None), ArgumentTypeError, '"a" would get None'),
    (Call("restructure_key_chains", ["a"]), ArgumentTypeError, "expected a mapping .* got list"),
    (Call("restructure_key_chains", {"a": "b/c"}), StructureError, '"b/c" and "a" would both lie'),
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


# Chains
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
    container = Container(tree | {"x": {}}, alphabetical_keys=alphabetical)
    again = container.cont_from_flat_list(container.cont_to_flat_list())
    assert again.cont_to_dict() == container.cont_to_dict() == tree | {"x": {}}
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
