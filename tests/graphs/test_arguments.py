"""Arguments as leaves: what is an input, what is fixed, what it is called."""

from __future__ import annotations

from collections import namedtuple

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from nbmodule.base.trees import separated
from nbmodule.graphs.reading.trace import input_names, is_array, output_names

leaves = st.sampled_from(
    [np.ones(2), jnp.zeros(3), jax.ShapeDtypeStruct((1,), np.float32), 3, 2.5, True, "mode", None]
)
trees = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner),
    max_leaves=6,
)


@settings(max_examples=60, deadline=None)
@given(st.lists(trees, max_size=3), st.dictionaries(st.sampled_from("xyz"), trees))
def test_arrays_go_back_to_where_they_were(args, kwargs):
    arrays, joined = separated((tuple(args), kwargs), is_array)
    found, named = joined(arrays)

    same = jax.tree.map(
        lambda a, b: a is b or (not is_array(a) and a == b), (tuple(args), kwargs), (found, named)
    )
    assert all(jax.tree.leaves(same))
    assert len(arrays) == sum(map(is_array, jax.tree.leaves((args, kwargs))))


@settings(max_examples=40, deadline=None)
@given(st.lists(trees, max_size=3), st.dictionaries(st.sampled_from("xyz"), trees))
def test_every_array_has_a_name_in_the_same_order(args, kwargs):
    names = input_names(lambda *args, **kwargs: None, args, kwargs)

    assert len(names) == len(separated((args, kwargs), is_array)[0])


def test_named_fields_are_used():
    pair = namedtuple("Pair", "mean deviation")

    assert output_names(jax.tree.structure(pair(1, [2]))) == ["output.mean", "output.deviation.0"]
