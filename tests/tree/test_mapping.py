"""Functions over the leaves and the parts of Containers."""

from __future__ import annotations

import collections

import jax.numpy as jnp
import numpy as np
import pytest

from nbmodule.errors import ArgumentTypeError, StructureError
from nbmodule.tree import Container

Pair = collections.namedtuple("Pair", "x y")


@pytest.fixture
def container():
    return Container(a=1, b={"c": 2, "d": 3})


@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({}, {"a": 2, "b": {"c": 3, "d": 4}}),
        ({"key_chains": ["a", "b/c"]}, {"a": 2, "b": {"c": 3, "d": 3}}),
        ({"key_chains": "b"}, {"a": 1, "b": {"c": 3, "d": 4}}),
        ({"key_chains": ["a", "b/c"], "prune_unapplied": True}, {"a": 2, "b": {"c": 3}}),
        (
            {"key_chains": {"a": None, "b": {"d": None}}, "to_apply": False},
            {"a": 1, "b": {"c": 3, "d": 3}},
        ),
        (
            {"key_chains": Container(a=0, b={"d": 0}), "to_apply": False, "prune_unapplied": True},
            {"b": {"c": 3}},
        ),
        ({"key_chains": "a", "prune_unapplied": True}, {"a": 2}),
    ],
)
def test_a_function_is_applied_to_the_chosen_leaves(container, options, found, inplace):
    before, part = container.cont_to_dict(), container.b
    mapped = container.cont_map(lambda x, kc: x + 1, inplace=inplace, **options)
    assert mapped.cont_to_dict() == found
    assert (mapped is container) is inplace
    if inplace and "b" in found:
        assert container.b is part
    if not inplace:
        assert container.cont_to_dict() == before


def test_items_of_sequences_are_mapped_where_asked():
    container = Container(a=1, b=[2, (3, 4)], c=Pair(5, 6))
    assert container.cont_map(lambda x, kc: f"{kc}={x}", map_sequences=True).cont_to_dict() == {
        "a": "a=1",
        "b": ["b/v0=2", ("b/v1/v0=3", "b/v1/v1=4")],
        "c": Pair("c/v0=5", "c/v1=6"),
    }
    assert container.cont_map(lambda x, kc: type(x)).b is list


def test_an_error_in_the_function_names_the_leaf(container):
    with pytest.raises(TypeError) as caught:
        container.cont_map(lambda x, kc: x + "text" if kc == "b/c" else x)
    assert caught.value.__notes__ == ['This was met at "b/c" of a Container.']


# Parts
@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({}, {"a": 1, "b": {"c": 2, "d": 3, "n": 2}, "n": 2}),
        ({"include_self": False}, {"a": 1, "b": {"c": 2, "d": 3, "n": 2}}),
        ({"key_chains": "b"}, {"a": 1, "b": {"c": 2, "d": 3, "n": 2}}),
        ({"key_chains": "b", "prune_unapplied": True}, {"b": {"c": 2, "d": 3, "n": 2}}),
        ({"key_chains": "b", "to_apply": False}, {"a": 1, "b": {"c": 2, "d": 3}, "n": 2}),
    ],
)
def test_a_function_is_applied_to_the_chosen_parts_from_the_bottom_up(
    container, options, found, inplace
):
    order = []

    def count(part, kc):
        order.append(kc)
        part.n = len(part)
        return part

    mapped = container.cont_map_sub_conts(count, inplace=inplace, **options)
    assert mapped.cont_to_dict() == found
    assert (mapped is container) is inplace
    assert order == sorted(order, key=len, reverse=True)
    assert inplace or container.cont_to_dict() == {"a": 1, "b": {"c": 2, "d": 3}}


def test_what_the_function_returns_takes_the_place_of_a_part(container):
    assert container.cont_map_sub_conts(
        lambda part, kc: len(part), include_self=False
    ).cont_to_dict() == {"a": 1, "b": 2}
    assert container.cont_map_sub_conts(lambda part, kc: len(part)) == 2


# Several
def test_a_function_is_applied_to_the_leaves_of_several_containers():
    a, b = Container(a=1, b={"c": 2, "d": 3}), Container(a=3, b={"c": 4, "d": 5})
    assert Container.cont_multi_map(lambda xs, _: xs[0] + xs[1], [a, b]).cont_to_dict() == {
        "a": 4,
        "b": {"c": 6, "d": 8},
    }
    assert Container.cont_multi_map(lambda xs, kc: (kc, xs), [10, a]).b.c == ("b/c", [10, 2])
    chosen = Container.cont_multi_map(
        lambda xs, _: sum(xs), [a, b], key_chains="b/c", prune_unapplied=True
    )
    assert chosen.cont_to_dict() == {"b": {"c": 6}}
    kept = Container.cont_multi_map(lambda xs, _: sum(xs), [a, b], key_chains="b/c", to_apply=False)
    assert kept.cont_to_dict() == {"a": 4, "b": {"c": 2, "d": 8}}


def test_items_of_sequences_of_several_containers_are_mapped_where_asked():
    a, b = Container(x=[jnp.ones(2), 2], y=1), Container(x=[jnp.ones(2), 3], y=4)
    total = Container.cont_multi_map(
        lambda xs, _: xs[0] + xs[1] * xs[2], [a, b, 10], map_sequences=True
    )
    np.testing.assert_array_equal(total.x[0], [11, 11])
    assert total.x[1] == 32
    assert total.y == 41


def test_several_containers_must_have_one_structure():
    with pytest.raises(StructureError, match='map over several Containers.*\nunexpected: "b"'):
        Container.cont_multi_map(lambda xs, _: xs, [Container(a=1), Container(a=1, b=2)])
    with pytest.raises(ArgumentTypeError, match="there is no Container in the list"):
        Container.cont_multi_map(lambda xs, _: xs, [1, 2])
