"""Queries of a Container about the arrays in it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nbmodule.errors import ArgumentTypeError
from nbmodule.tree import Container


@pytest.fixture
def container():
    return Container(a=jnp.ones((2, 3)), b={"c": np.ones((2, 4, 5)), "d": "text"})


def test_the_shape_is_what_the_arrays_share(container):
    assert container.cont_shape == [2, None]
    assert Container(a=jnp.ones((1, 3, 1)), b=jnp.ones((1, 2, 1))).cont_shape == [1, None, 1]
    assert Container(a=jnp.ones((0, 3)), b=jnp.ones((0, 3))).cont_shape == [0, 3]
    assert Container(a=jnp.ones((2, 3)), b=[1, 2]).cont_shape == [2]
    assert Container(a=jnp.float32(1)).cont_shape == []
    assert Container().cont_shape == Container(a="text").cont_shape == []


def test_empty_levels_count_in_the_depth():
    assert Container().cont_max_depth == 0
    assert Container(a={"b": {}}).cont_max_depth == 2


def test_the_device_is_given_where_there_is_one(container, run_python):
    assert container.cont_dev == "cpu:0"
    assert Container(a=np.ones(2)).cont_dev is None
    code = """
    import jax, jax.numpy as jnp
    from nbmodule.tree import Container
    one, two = (jax.device_put(jnp.ones(2), device) for device in jax.devices())
    print(Container(a=two).cont_dev, Container(a=one, b=two).cont_dev)
    """
    assert run_python(code, devices=2) == "cpu:1 None"


def test_chains_that_hold_one_array_are_grouped():
    one, two = jnp.ones(2), np.ones(2)
    container = Container(a=one, b={"c": two, "d": one, "e": jnp.ones(2)}, f=two, g=5, h=5)
    assert container.cont_duplicate_array_keychains() == (("a", "b/d"), ("b/c", "f"))


def test_questions_about_shapes_are_answered_inside_a_trace():
    seen = []
    jax.jit(lambda c: seen.append((c.cont_shape, c.cont_num_arrays, c.cont_dev)))(
        Container(a=jnp.ones((2, 3)))
    )
    assert seen == [([2, 3], 1, None)]


@pytest.mark.parametrize(
    ("leaves", "all_true", "all_false"),
    [
        ({"a": jnp.array([1, 1]), "b": {"c": True}}, True, False),
        ({"a": jnp.array([1, 0]), "b": True}, False, False),
        ({"a": jnp.array([0, 0]), "b": {"c": [], "d": 0, "e": None}}, False, True),
        ({"a": [1], "b": "x"}, True, False),
        ({"a": np.bool_(True)}, True, False),
        ({"a": jnp.ones((0,))}, True, True),
        ({}, True, True),
    ],
)
def test_truth_counts_all_elements_of_all_leaves(leaves, all_true, all_false):
    assert Container(leaves).cont_all_true() is all_true
    assert Container(leaves).cont_all_false() is all_false


def test_leaves_that_are_not_boolean_are_named_where_booleans_are_wanted():
    booleans = Container(a=jnp.array([True]), b=np.bool_(False), c=True)
    assert not booleans.cont_all_true(assert_is_bool=True)
    for question in ("cont_as_bools", "cont_all_true", "cont_all_false"):
        with pytest.raises(ArgumentTypeError, match='"b/c" is not boolean: it is int'):
            getattr(Container(a=True, b={"c": 1}), question)(assert_is_bool=True)


def test_truth_of_a_traced_leaf_is_the_error_of_jax():
    with pytest.raises(jax.errors.TracerBoolConversionError):
        jax.jit(lambda c: (c > 0).cont_all_true())(Container(a=jnp.ones(2)))
