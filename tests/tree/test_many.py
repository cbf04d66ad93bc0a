"""One Container of many, and many of one."""

from __future__ import annotations

import operator

import jax.numpy as jnp
import numpy as np
import pytest

from nbmodule.errors import ArgumentError, ArgumentTypeError, ShapeError, StructureError
from nbmodule.tree import Container


def test_lists_are_joined():
    joined = Container.cont_list_join(
        [Container(a=[1], b={"c": [2]}), Container(a=[3, 4], b={"c": (5,)})]
    )
    assert joined.cont_to_dict() == {"a": [1, 3, 4], "b": {"c": [2, 5]}}
    with pytest.raises(ArgumentTypeError, match='cannot join "a": int is no list'):
        Container.cont_list_join([Container(a=1), Container(a=2)])


def test_leaves_are_put_into_lists():
    a, b = Container(x=jnp.ones(1), y={"z": 2}), Container(x=jnp.zeros(1), y={"z": 3})
    stacked = Container.cont_list_stack([a, b], 0)
    assert stacked.x[0] is a.x
    assert stacked.x[1] is b.x
    assert stacked.y.z == [2, 3]
    with pytest.raises(ArgumentError, match="axis must be at least 0, got -1"):
        Container.cont_list_stack([a, b], -1)
    with pytest.raises(StructureError):
        Container.cont_list_stack([a, Container(x=1)], 0)


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
    assert kept[0].a.ndim == 2
    np.testing.assert_array_equal(np.concatenate([part.a for part in kept], axis), arrays["a"])


def test_unstacking_undoes_stacking_into_lists():
    parts = [Container(a=index, b={"c": str(index)}) for index in range(3)]
    again = Container.cont_list_stack(parts, 0).cont_unstack_conts(0)
    assert [part.cont_to_dict() for part in again] == [part.cont_to_dict() for part in parts]


def test_leaves_of_different_length_cannot_be_unstacked():
    with pytest.raises(ShapeError, match='along axis 0: "a" is 2 long and "b/c" is 3 long'):
        Container(a=jnp.ones(2), b={"c": jnp.ones(3)}).cont_unstack_conts(0)
    with pytest.raises(ShapeError, match='along axis 1: "a" has 1 axes'):
        Container(a=jnp.ones(2)).cont_unstack_conts(1)
    assert (
        len(Container(a=jnp.ones(2), b={"c": jnp.ones(3)}).cont_unstack_conts(0, dim_size=2)) == 2
    )
    assert Container().cont_unstack_conts(0) == []


def test_containers_are_reduced_to_one():
    a, b = Container(a=1, b={"c": 2}), Container(a=2, b={"c": 4})
    assert Container.cont_reduce([a, b], lambda leaves: leaves[0] * leaves[1]).cont_to_dict() == {
        "a": 2,
        "b": {"c": 8},
    }
    for two_at_a_time in (operator.sub, np.subtract, lambda one, other: one - other):
        reduced = Container.cont_reduce([a, b, a], two_at_a_time).cont_to_dict()
        assert reduced == {"a": 1 - 2 - 1, "b": {"c": 2 - 4 - 2}}
    assert float(Container.cont_reduce([a, b], jnp.maximum).b.c) == 4
    with pytest.raises(ZeroDivisionError) as caught:
        Container.cont_reduce([a, b], lambda leaves: leaves[0] / 0)
    assert 'This was met at "a" of a Container.' in caught.value.__notes__


def test_arrays_are_joined_along_an_axis():
    a, b = (
        Container(a=jnp.ones((2, 1)), n=np.ones((2, 1))),
        Container(a=jnp.zeros((2, 2)), n=np.zeros((2, 2))),
    )
    joined = Container.cont_concat([a, b], 1)
    np.testing.assert_array_equal(joined.a, [[1, 0, 0], [1, 0, 0]])
    assert type(joined.n) is np.ndarray
    with pytest.raises((TypeError, ValueError)) as caught:
        Container.cont_concat([a, b], 0)
    assert 'This was met at "a" of a Container.' in caught.value.__notes__


def test_the_right_most_wins_where_containers_are_combined():
    a, b = Container(a=1, b={"c": 2, "d": 3}), Container(a=4, b={"c": 5, "e": 6})
    assert Container.cont_combine(a, b).cont_to_dict() == {"a": 4, "b": {"c": 5, "d": 3, "e": 6}}
    assert Container.cont_combine(a, {"b": 7}, {"y": {"z": 9}}).cont_to_dict() == {
        "a": 1,
        "b": 7,
        "y": {"z": 9},
    }
    assert Container.cont_combine(Container(a=1), Container(a={"b": 2})).cont_to_dict() == {
        "a": {"b": 2}
    }
    assert Container.cont_combine(Container(a={}), Container(b={})).cont_to_dict() == {
        "a": {},
        "b": {},
    }
    assert a.cont_to_dict() == {"a": 1, "b": {"c": 2, "d": 3}}


def test_combining_makes_levels_of_its_own():
    a = Container(b={"c": 1})
    combined = Container.cont_combine(a)
    combined.b.c = 2
    assert a.b.c == 1
    with pytest.raises(
        ArgumentTypeError, match="only Containers and dicts can be combined, got int"
    ):
        Container.cont_combine(a, 3)
    with pytest.raises(ArgumentTypeError, match="there is no Container"):
        Container.cont_combine({"a": 1})
