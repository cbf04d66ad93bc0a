"""Container: construction, attributes, indices, copies, PyTree."""

from __future__ import annotations

import contextlib
import copy
import io
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbmodule.errors import (
    ArgumentError,
    ArgumentTypeError,
    AttributePathError,
    DtypeError,
    NbModuleError,
    StructureError,
)
from nbmodule.tree import Container
from tests.tree.strategies import trees

LEAVES = st.one_of(st.integers(), st.text(max_size=3), st.none(), st.booleans(), st.just([1, 2]))
KEYS = st.text("abv0129_", min_size=1, max_size=3)
TREES = trees(KEYS, LEAVES)


@pytest.fixture
def container():
    return Container(
        a=jnp.arange(6.0).reshape(2, 3), b={"c": jnp.ones((2, 3)), "d": {"e": jnp.zeros((2, 3))}}
    )


# Construction
def test_a_container_is_made_of_a_dict_of_keywords_of_pairs_or_of_nothing():
    for made in (
        Container({"a": 1, "b": {"c": 2}}),
        Container(a=1, b={"c": 2}),
        Container([("a", 1), ("b", {"c": 2})]),
    ):
        assert made.cont_to_dict() == {"a": 1, "b": {"c": 2}}
        assert type(made.b) is Container
    assert Container().cont_to_dict() == Container(None).cont_to_dict() == {}
    assert Container({"a": 1, "b": 2}, b=3).cont_to_dict() == {"a": 1, "b": 3}


@pytest.mark.parametrize("given", [5, "text", [1, 2], jnp.ones(3), object()])
def test_a_container_is_made_of_nothing_else(given):
    with pytest.raises(ArgumentTypeError, match="a Container is made of a mapping or of pairs"):
        Container(given)


@pytest.mark.parametrize(
    ("option", "value"),
    [("print_limit", -1), ("print_limit", True), ("print_indent", None), ("key_length_limit", 0.5)],
)
def test_settings_are_checked_and_hold_for_all_levels(option, value):
    with pytest.raises(ArgumentError, match=f"{option} must be an integer of at least 0, got"):
        Container({}, **{option: value})
    container = Container({"b": {"d": 1, "c": 2}}, alphabetical_keys=False, **{option: 2})
    part = container["x/y"] = Container(z=1, print_limit=3)
    assert container.x.y is part
    assert list(container.b) == ["d", "c"]
    assert getattr(container.x._settings, option) == getattr(container.b._settings, option) == 2


# Attributes
def test_attributes_are_methods_then_keys_then_attributes_of_all_leaves(container):
    container["items"] = jnp.ones((2, 3))
    container["shape"] = jnp.ones((2, 3))
    assert callable(container.items)
    assert container["items"].shape == (2, 3)
    assert container.shape is container["shape"]
    assert container.dtype.cont_to_flat_list() == [jnp.float32] * 5


def test_an_attribute_of_all_leaves_is_mapped(container):
    assert container.shape.cont_to_dict() == {"a": (2, 3), "b": {"c": (2, 3), "d": {"e": (2, 3)}}}
    means = container.mean(axis=0)
    assert type(means) is Container
    np.testing.assert_allclose(means.a, [1.5, 2.5, 3.5])
    assert container.astype("int32").b.d.e.dtype == "int32"
    np.testing.assert_array_equal(container.T.b.c, np.ones((3, 2)))
    changed = container.at[0].set(9.0)
    np.testing.assert_array_equal(changed.b.c, [[9, 9, 9], [1, 1, 1]])
    assert Container(a="x", b="y").upper().cont_to_dict() == {"a": "X", "b": "Y"}


def test_hasattr_is_honest(container):
    for name in ("shape", "a"):
        assert hasattr(container, name)
    for name in ("upper", "c", "__array__", "_value", "__jax_array__", "_repr_html_", "_x"):
        assert not hasattr(container, name)
    container["text"] = "no array"
    for other in (container, Container(), Container(a={})):
        assert not hasattr(other, "shape")


def test_a_missing_attribute_names_the_closest_key():
    with pytest.raises(
        AttributePathError,
        match='Container has no method or key "wieght"; the closest name is "weight"',
    ):
        Container(weight=1).wieght
    with pytest.raises(KeyError):
        Container().x


def test_setting_an_attribute_sets_a_key_whatever_its_name():
    container = Container()
    container.a = {"b": 1}
    container._private = 2
    container.items = 3
    assert container.cont_to_dict() == {"_private": 2, "a": {"b": 1}, "items": 3}
    assert container._private == 2
    assert container["items"] == 3


def test_tab_completion_offers_keys_and_chains(container):
    container["not an identifier"] = 1
    assert {"a", "b", "cont_map", "keys"} <= set(dir(container))
    assert "not an identifier" not in dir(container)
    chains = ["a", "b", "b/c", "b/d", "b/d/e", "not an identifier"]
    assert container._ipython_key_completions_() == chains


# In
def test_in_asks_for_chains_and_for_parts(container):
    assert "a" in container
    assert "b/d/e" in container
    assert ("b", "d") in container
    assert "c" not in container
    assert "a/b" not in container
    assert container in container
    assert container.b.d in container
    assert container.b.cont_copy() in container  # the same leaves
    assert Container(c=jnp.ones((2, 3)), d={"e": jnp.zeros((2, 3))}) not in container
    assert container not in container.b
    assert 3 not in container
    assert None not in container


# Indices
INDICES = [0, (slice(None), 1), (..., 1), None, jnp.array([True, False]), np.array([1, 1])]


@pytest.mark.parametrize("index", INDICES, ids=str)
def test_an_index_goes_to_all_leaves(container, index):
    found, expected = container[index], jax.tree.map(lambda x: x[index], container)
    assert found.cont_identical([found, expected], same_arrays=False)
    values = Container(a={"b": jnp.ones(3)}, n=1, s="text", none=None)
    assert values[0].cont_to_dict() == {"a": {"b": 1}, "n": 1, "none": None, "s": "text"}
    with pytest.raises(IndexError) as caught:
        values[:, 0]
    assert 'This was met at "a/b" of a Container.' in caught.value.__notes__


def test_a_container_of_the_same_structure_is_an_index_leaf_by_leaf():
    container = Container(a=jnp.array([1, -2, 3]), b={"c": jnp.array([-4])})
    assert container[container > 0].a.tolist() == [1, 3]
    assert container[container > 0].b.c.tolist() == []
    with pytest.raises(StructureError, match="differ"):
        container[Container(a=0)]


def test_setting_an_index_sets_it_in_all_leaves(container):
    old = container.a
    container[0] = 7
    np.testing.assert_array_equal(container.a, [[7, 7, 7], [3, 4, 5]])
    np.testing.assert_array_equal(old[0], [0, 1, 2])
    container[:, 0] = container[:, 0] * 0
    np.testing.assert_array_equal(container.b.c, [[0, 7, 7], [0, 1, 1]])
    numpy = Container(a=np.zeros(3), b=[1, 2, 3])
    before = numpy.a
    numpy[1:] = np.array([5, 6])
    assert numpy.a.tolist() == [0, 5, 6]
    assert numpy.b == [1, 5, 6]
    assert before.tolist() == [0, 0, 0]


def test_an_index_that_would_lose_the_kind_of_a_number_is_refused():
    container = Container(a=jnp.ones(2, int), b=jnp.ones(2))
    with pytest.raises(DtypeError, match=r"cannot set elements of int32\[2\] to float32"):
        container[0] = 0.5
    with pytest.raises(DtypeError, match="to complex64"):
        Container(a=np.ones(2))[0] = 1j
    container[0] = True
    assert container.a.tolist() == [1, 1]


# Copies
def test_a_deep_copy_has_its_own_leaves_and_keeps_sharing():
    shared = np.ones(2)
    container = Container(a=shared, b={"c": shared})
    for copied in (copy.deepcopy(container), container.cont_deep_copy()):
        assert copied.a is not shared
        assert copied.a is copied.b.c
        np.testing.assert_array_equal(copied.a, shared)


@given(TREES, st.booleans())
def test_a_copy_or_pickle_has_the_same_content_order_structure_and_settings(tree, alphabetical):
    container = Container(tree, alphabetical_keys=alphabetical, print_limit=3)
    for other in (
        container.cont_copy(),
        container.copy(),
        copy.deepcopy(container),
        pickle.loads(pickle.dumps(container)),
    ):
        pairs = [list(each.cont_to_iterator(include_empty=True)) for each in (other, container)]
        assert repr(pairs[0]) == repr(pairs[1])
        assert other._settings == container._settings
        assert jax.tree.structure(other) == jax.tree.structure(container)


# PyTree
def test_key_paths_read_as_those_of_a_dict(container):
    paths = [
        jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(container)
    ]
    assert paths == ["['a']", "['b']['c']", "['b']['d']['e']"]


@given(TREES)
def test_flattening_and_unflattening_is_the_identity(tree):
    container = Container(tree)
    leaves, structure = jax.tree.flatten(
        container, is_leaf=lambda x: x is None or isinstance(x, list)
    )
    again = jax.tree.unflatten(structure, leaves)
    assert type(again) is Container
    assert again.cont_to_dict() == container.cont_to_dict()
    assert leaves == container.cont_to_flat_list()
    assert jax.tree.structure(again) == jax.tree.structure(container)


def test_how_a_container_prints_is_no_part_of_its_structure(container):
    other = container.cont_with_print_limit(3)
    assert jax.tree.structure(other) == jax.tree.structure(container)
    assert jax.tree.map(jnp.add, container, other)._settings.print_limit == 10


def test_unflatten_takes_any_leaf(container):
    structure = jax.tree.structure(container)
    for leaf in (None, True, jax.ShapeDtypeStruct((2,), "float32"), object(), {"plain": 1}):
        again = jax.tree.unflatten(structure, [leaf] * 3)
        assert again.b.d.e is leaf


def test_a_subclass_is_a_pytree_of_its_own_and_stays_itself():
    class Weights(Container):
        def total(self):
            return sum(leaf.sum() for leaf in self.cont_to_flat_list())

    weights = Weights(a=jnp.ones(2), b={"c": jnp.ones(3)})
    assert type(weights.b) is Weights
    for other in (
        weights * 2,
        weights.cont_map(lambda x, _: x),
        jax.tree.map(lambda x: x, weights),
        copy.deepcopy(weights),
        weights[0],
    ):
        assert type(other) is type(other.b) is Weights
    assert (weights * 2).total() == 10
    assert jax.tree.structure(weights) != jax.tree.structure(Container(weights.cont_to_dict()))


POOL = [
    None, 0, -1, 2.5, "", "a", "b/c", "zz", "a//b", [], ["a"], ["zz", 3], {}, {"b/c": {}}, {1: 2}, (), ("a", "b"), {1, 2},
    object(), b"x", 1j, float("nan"), 10**20, int, slice(1), "b:d", len, range(3), np.ones(3), Container(a=1),
]  # fmt: skip
METHODS = sorted(
    name
    for name in dir(Container)
    if name.startswith("cont_") and "disk" not in name and name not in ("cont_save", "cont_load") and callable(getattr(Container, name))
) + ["get", "pop", "setdefault", "update", "__getitem__", "__setitem__", "__delitem__", "__contains__", "__sub__", "__eq__"]  # fmt: skip


@settings(max_examples=300)
@given(st.sampled_from(METHODS), st.lists(st.sampled_from(POOL), max_size=3))
def test_any_misuse_is_an_error_about_the_arguments_and_changes_nothing(method, arguments):
    container = Container(a=np.ones(2), b={"c": np.zeros((2, 3)), "d": {"e": 3}}, f="text")
    before = repr(container)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            getattr(container, method)(*arguments)
    except (NbModuleError, TypeError, ValueError, KeyError, IndexError, OverflowError):
        assert repr(container) == before or method in ("pop", "update", "setdefault")
