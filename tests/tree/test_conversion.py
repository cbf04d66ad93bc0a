"""A Container as dict, lists and iterators, and back."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbmodule.errors import StructureError
from nbmodule.tree import Container

KEYS = st.text("abv0129", min_size=1, max_size=3)
LEAVES = st.one_of(st.integers(), st.none(), st.lists(st.integers(), max_size=2))
TREES = st.dictionaries(
    KEYS,
    st.recursive(LEAVES, lambda parts: st.dictionaries(KEYS, parts, max_size=3), max_leaves=8),
    max_size=4,
)


@given(TREES, st.booleans())
def test_from_flat_list_undoes_to_flat_list(tree, alphabetical):
    container = Container(tree, alphabetical_keys=alphabetical)
    again = container.cont_from_flat_list(container.cont_to_flat_list())
    assert again.cont_to_dict() == container.cont_to_dict()
    assert list(again.cont_to_iterator()) == list(container.cont_to_iterator())


@given(TREES)
def test_a_plain_dict_and_a_container_are_made_from_each_other(tree):
    plain = Container(tree).cont_to_dict()
    assert plain == tree
    assert all(type(value) is not Container for value in plain.values())


def test_other_values_are_put_into_the_same_structure():
    values = (value for value in (4, 5, 6))
    assert Container(a=1, b={"c": 2, "d": 3}).cont_from_flat_list(values).cont_to_dict() == {
        "a": 4,
        "b": {"c": 5, "d": 6},
    }
    given_list = [4]
    Container(a=1).cont_from_flat_list(given_list)
    assert given_list == [4]


@pytest.mark.parametrize("values", [[], [1], [1, 2, 3]])
def test_a_list_of_another_length_is_refused(values):
    with pytest.raises(StructureError, match=f"has 2 leaves and the list has {len(values)} values"):
        Container(a=1, b={"c": 2}).cont_from_flat_list(values)


def test_the_flat_list_is_in_the_order_of_jax():
    container = Container({"v10": 1, "v2": {"b": 2, "a": 3}}, alphabetical_keys=False)
    assert container.cont_to_flat_list() == jax.tree.leaves(container) == [3, 2, 1]


def test_nested_lists_have_no_keys():
    assert Container(a=1, b={"c": True, "d": {"g": 2.0, "h": None}}).cont_to_nested_list() == [
        1,
        [True, [2.0, None]],
    ]


def test_iterators_give_chains_or_last_keys():
    container = Container(a=1, b={"c": 2, "d": {}}, e={})
    assert list(container.cont_to_iterator()) == [("a", 1), ("b/c", 2)]
    assert list(container.cont_to_iterator(leaf_keys_only=True)) == [("a", 1), ("c", 2)]
    assert [kc for kc, _ in container.cont_to_iterator(include_empty=True)] == [
        "a",
        "b/c",
        "b/d",
        "e",
    ]
    assert list(container.cont_to_iterator_keys()) == ["a", "b/c"]
    assert list(container.cont_to_iterator_keys(leaf_keys_only=True, include_empty=True)) == [
        "a",
        "c",
        "d",
        "e",
    ]
    assert list(container.cont_to_iterator_values()) == [1, 2]
    *_, first, second = container.cont_to_iterator_values(include_empty=True)
    assert first is container.b.d
    assert second is container.e


def test_arrays_become_numpy_and_other_leaves_stay():
    container = Container(
        a=jnp.ones(2, "bfloat16"), b={"c": "text", "d": [jnp.ones(2), 3]}, e=np.ones(1)
    )
    numpy = container.to_numpy()
    assert type(numpy.a) is np.ndarray
    assert numpy.a.dtype == container.a.dtype
    assert numpy.b.c == "text"
    assert type(numpy.b.d[0]) is np.ndarray
    assert numpy.b.d[1] == 3
    assert numpy.e is container.e
