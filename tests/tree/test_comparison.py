"""Differences and identity of Containers, and the place of one in another."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbmodule.errors import ArgumentError, ArgumentTypeError, StructureError
from nbmodule.tree import Container, NotIdenticalError
from tests.tree.strategies import trees

TREES = trees(st.sampled_from(["a", "b", "c"]), st.integers(0, 2))


def diff(*containers, **options):
    return Container.cont_diff(*map(Container, containers), **options).cont_to_dict()


# Differences
ONE_ONLY = {"a": {"diff_0": 1}, "b": {"diff_0": {"c": 2}}, "e": {"diff_1": 1}}
SHARED = {"a": {"diff_0, 2": 1, "diff_1": 2}}
LEAF_OR_LEVEL = {"a": {"diff_0": 1, "diff_1": {"b": 1}}}


@pytest.mark.parametrize(
    ("containers", "everything", "different", "same"),
    [
        (
            [{"a": 1, "b": {"c": 2, "d": 3}}, {"a": 1, "b": {"c": 5, "d": 3}}],
            {"a": 1, "b": {"c": {"diff_0": 2, "diff_1": 5}, "d": 3}},
            {"b": {"c": {"diff_0": 2, "diff_1": 5}}},
            {"a": 1, "b": {"d": 3}},
        ),
        ([{"a": 1, "b": {"c": 2}}, {"e": 1}], ONE_ONLY, ONE_ONLY, {}),
        ([{"a": 1}, {"a": 1}], {"a": 1}, {}, {"a": 1}),
        ([{"a": 1}, {"a": 2}, {"a": 1}], SHARED, SHARED, {}),
        ([{"a": 1}, {"a": {"b": 1}}], LEAF_OR_LEVEL, LEAF_OR_LEVEL, {}),
        ([{"a": {}}, {"a": {}}], {"a": {}}, {}, {"a": {}}),
    ],
)
def test_values_stand_side_by_side_where_they_differ(containers, everything, different, same):
    assert diff(*containers) == everything
    assert diff(*containers, mode="diff_only") == different
    assert diff(*containers, mode="same_only") == same


def test_arrays_are_compared_by_shape_dtype_and_elements():
    two, nan = jnp.ones(2), [1, np.nan]
    a = Container(s=two, d=two, v=two, n=jnp.array(nan), same=two, k=1)
    b = Container(s=jnp.ones(3), d=jnp.ones(2, "float16"), v=two * 0, same=two + 0, k=1.0)
    b.n = np.array(nan, "float32")
    only = {"mode": "diff_only"}
    assert list(Container.cont_diff(a, b, **only)) == ["d", "k", "s", "v"]
    assert list(Container.cont_diff(a, b, detect_value_diffs=False, **only)) == ["s"]
    assert list(Container.cont_structural_diff(a, b, **only)) == ["s"]
    assert not Container.cont_structural_diff(a, b, detect_shape_diffs=False, **only)
    kept = Container.cont_structural_diff(a, b)
    assert kept.v is a.v
    assert kept.s.diff_1 is b.s


def test_other_keys_may_be_taken_for_granted():
    containers = [{"a": 1, "b": 2}, {"a": 1, "c": 3}, {"a": 1, "c": 4}]
    assert diff(*containers, detect_key_diffs=False) == {
        "a": 1,
        "b": 2,
        "c": {"diff_1": 3, "diff_2": 4},
    }
    assert diff(*containers, detect_key_diffs=False, mode="diff_only") == {
        "c": {"diff_1": 3, "diff_2": 4}
    }
    assert diff(*containers, detect_key_diffs=False, mode="same_only") == {"a": 1}
    assert diff(*containers[1:], {"a": 1}) == {"a": 1, "c": {"diff_0": 3, "diff_1": 4}}


def test_the_keys_of_a_difference_can_be_chosen():
    assert diff({"a": 1}, {"a": 2}, diff_keys="run") == {"a": {"run_0": 1, "run_1": 2}}
    assert diff({"a": 1}, {"a": 2, "b": 3}, diff_keys=["old", "new"]) == {
        "a": {"new": 2, "old": 1},
        "b": {"new": 3},
    }
    with pytest.raises(ArgumentError, match="diff_keys names 1 Containers; there are 2"):
        diff({"a": 1}, {"a": 2}, diff_keys=["old"])
    with pytest.raises(ArgumentError, match="one of all, diff_only, same_only, got 'some'"):
        diff({"a": 1}, {"a": 2}, mode="some")
    with pytest.raises(ArgumentTypeError, match="can be compared, got int"):
        Container.cont_diff(Container(a=1), 5)
    with pytest.raises(ArgumentTypeError, match="there is no Container"):
        Container.cont_diff({"a": 1})


@given(TREES, TREES)
def test_the_two_halves_of_a_difference_are_the_whole(one, other):
    different = set(Container(diff(one, other, mode="diff_only")).cont_all_key_chains())
    same = set(Container(diff(one, other, mode="same_only")).cont_all_key_chains())
    assert different.isdisjoint(same)
    assert different | same == set(Container(diff(one, other)).cont_all_key_chains())
    assert diff(one, one, mode="diff_only") == {}
    assert diff(one, one) == one


@given(TREES, TREES)
def test_containers_differ_if_and_only_if_they_are_not_identical(one, other):
    identical = Container.cont_identical([Container(one), Container(other)])
    assert identical is (one == other)
    assert identical is (not diff(one, other, mode="diff_only"))


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (jnp.ones(2), np.ones(2, "float32"), True),
        (jnp.ones(2), jnp.ones(2, "float16"), False),
        (jnp.ones(2), jnp.ones((2, 1)), False),
        (jnp.array([jnp.nan]), jnp.array([jnp.nan]), True),
        (jnp.array([jnp.nan]), jnp.array([1.0]), False),
        (jax.random.key(0), jax.random.key(0), True),
        (jax.random.key(0), jax.random.key(1), False),
        (jnp.ones(()), 1.0, False),
        (1, 1.0, False),
        (True, 1, False),
        (float("nan"), float("nan"), True),
        ("a", "a", True),
        ([1, jnp.ones(1)], [1, jnp.ones(1)], True),
        ([1], (1,), False),
        ([1], [1, 2], False),
        ([{"a": jnp.ones(1)}], [{"a": jnp.ones(1)}], True),
        ([{"a": 1}], [{"b": 1}], False),
        (None, None, True),
        (np.array(["x", "y"]), np.array(["x", "y"]), True),
    ],
)
def test_leaves_are_equal_by_type_shape_dtype_and_elements(one, other, same):
    for pair in ((one, other), (other, one)):
        containers = [Container(a=leaf) for leaf in pair]
        assert Container.cont_identical(containers, same_arrays=False) is same
        assert (not Container.cont_diff(*containers, mode="diff_only")) is same


def test_a_difference_has_levels_of_its_own():
    container = Container(x={"w": 1})
    for other, options in ((Container(y=2), {}), (Container(), {"detect_key_diffs": False})):
        different = Container.cont_diff(container, other, **options)
        different.cont_map(lambda *_: 5, inplace=True)
    assert container.x.w == 1


# Identity
@pytest.fixture
def arrays():
    return [jnp.array([index]) for index in range(3)]


def tree(arrays):
    return Container(a=arrays[0], b={"c": arrays[1], "d": arrays[2]})


def test_identical_means_the_same_arrays_unless_equal_ones_will_do(arrays):
    one, two = tree(arrays), tree(arrays)
    part, elsewhere = Container(b={"d": arrays[2]}), Container(d=arrays[2])
    for expected, containers, options in [
        (True, [one, two, one], {}),
        (False, [one, one + 0], {}),
        (False, [one, two, one + 0], {}),
        (True, [one, one + 0], {"same_arrays": False}),
        (False, [one, one + 1], {"same_arrays": False}),
        (True, [one, one + 1], {"same_arrays": False, "arrays_equal": False}),
        (True, [one, part], {"partial": True}),
        (True, [part, one], {"partial": True}),
        (False, [one, elsewhere], {"partial": True}),
        (False, [one, part], {}),
        (True, [Container(a="x", b=[1]), Container(a="x", b=[1])], {}),
        (False, [Container(a=1), Container(a=True)], {}),
        (False, [Container(a=1), Container(a=True)], {"check_types": False}),
        (True, [Container(a=1), Container(a=2)], {"arrays_equal": False}),
        (False, [Container(a=jnp.ones(1)), Container(a=1)], {}),
    ]:
        assert Container.cont_identical(containers, **options) is expected


def test_structure_means_chains_types_and_shapes(arrays):
    one = tree(arrays)
    longer, text = (one.cont_set_at_key_chain("a", leaf) for leaf in (jnp.ones(2), "text"))
    part, elsewhere = Container(b={"d": jnp.array([7])}), Container(d=jnp.array([7]))
    for expected, containers, options in [
        (True, [one, one * 2, one + 1, one.to_numpy()], {}),
        (False, [one, longer], {}),
        (True, [one, longer], {"check_shapes": False}),
        (False, [one, text], {}),
        (True, [one, text], {"check_types": False}),
        (False, [one, one.cont_set_at_key_chain("e", 1)], {}),
        (True, [one, part], {"partial": True}),
        (False, [one, elsewhere], {"partial": True}),
        (False, [Container(a={}), Container(a=1)], {}),
    ]:
        assert Container.cont_identical_structure(containers, **options) is expected


def test_assertions_show_the_difference(arrays):
    one = tree(arrays)
    Container.cont_assert_identical([one, tree(arrays)])
    Container.cont_assert_identical_structure([one, one * 2])
    with pytest.raises(NotIdenticalError, match="the Containers are not identical") as caught:
        Container.cont_assert_identical([one, one.cont_set_at_key_chain("b/c", jnp.array([9]))])
    shown = {"b": {"c": {"diff_0": arrays[1], "diff_1": jnp.array([9])}}}
    assert str(caught.value).endswith(f":\n{Container(shown)}")
    assert isinstance(caught.value, StructureError)
    assert isinstance(caught.value, AssertionError)
    with pytest.raises(ValueError, match="equal, but the arrays are not the same objects"):
        Container.cont_assert_identical([one, one + 0])
    with pytest.raises(
        StructureError, match=r"differ in structure:\n\{\n    x: \{\n        diff_1"
    ):
        Container.cont_assert_identical_structure([one, one.cont_set_at_key_chain("x", 1)])


# One in another
def assert_found(kind, container, expected, other, options):
    found = getattr(container, f"cont_find_sub_{kind}")(other, **options)
    assert found == expected and (found is False) is (expected is False)
    contains = getattr(container, f"cont_contains_sub_{kind}")(other, **options)
    assert contains is (expected is not False)


def test_a_part_is_found_by_its_arrays_or_by_its_structure(arrays):
    container, part = tree(arrays), Container(d=arrays[2])
    for expected, other, options in [
        ("b", Container(c=arrays[1], d=arrays[2]), {}),
        ("", container, {}),
        (False, part, {}),
        ("b", part, {"partial": True}),
        ("", {"b": {"d": arrays[2]}}, {"partial": True}),
        (False, container.b + 0, {}),
    ]:
        assert_found("container", container, expected, other, options)
    longer = Container(c=jnp.ones(2), d=jnp.ones(2))
    for expected, other, options in [
        ("b", container.b + 1, {}),
        ("", container * 2, {}),
        ("b", Container(d=jnp.array([5])), {"partial": True}),
        (False, longer, {}),
        ("b", longer, {"check_shapes": False}),
        (False, Container(x=1), {}),
    ]:
        assert_found("structure", container, expected, other, options)
    assert part.cont_find_sub_container(container, partial=True) is False
    with pytest.raises(ArgumentTypeError, match="expected a Container, got int"):
        container.cont_find_sub_container(3)
