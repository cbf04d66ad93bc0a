"""Rows and lines of PyTrees, and the room that large ones take in a notebook."""

import collections
from typing import NamedTuple

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbmodule.views import mimebundle, record_for
from nbmodule.views.builders.pytrees import flatten
from nbmodule.views.records.outline import outline_of_keys


class Pair(NamedTuple):
    left: object
    right: object


def tree_of(count):
    return {
        f"block_{i}": {
            f"p{j}": np.full((2, 3) if j % 2 else (4,), i + j, "float32") for j in range(10)
        }
        for i in range(count // 10)
    }


leaves = st.one_of(st.none(), st.integers(), st.text(max_size=3), st.floats(allow_nan=False))
trees = st.recursive(
    leaves,
    lambda below: st.one_of(
        st.dictionaries(st.text("ab1", max_size=2), below, max_size=3),
        st.lists(below, max_size=3),
        st.tuples(below, below),
        st.builds(Pair, below, below),
        st.builds(
            collections.OrderedDict, st.lists(st.tuples(st.sampled_from("xyz"), below), max_size=3)
        ),
    ),
    max_leaves=12,
)


@given(trees)
def test_the_leaves_are_those_of_jax_in_its_order(tree):
    rows, found, _ = flatten(tree)
    expected = jax.tree.leaves(tree, is_leaf=lambda x: x is None)
    assert len(found) == len(rows) == len(expected)
    assert all(a is b or a == b for a, b in zip(found, expected, strict=True))


@given(trees)
def test_the_lines_lead_to_the_rows(tree):
    rows, _, spelled = flatten(tree)
    outline, above = outline_of_keys([row.steps for row in rows]), []
    for i, row in enumerate(outline.row):
        above[outline.depth[i] :] = [(outline.label[i], *outline.joined.get(i, ()))]
        if row >= 0:
            steps = tuple(step for names in above for step in names)
            assert (rows[row].keys, rows[row].path) == (steps, ".".join(steps))
    assert set(spelled) >= {step for row in rows for step in row.keys}
    ends = outline.ends()
    assert all(row >= 0 or ends[i] > i + 1 for i, row in enumerate(outline.row))


def test_steps_are_spelled_as_python_that_works():
    tree = {"a": [Pair(np.zeros(1), 2)], "b c": {3: np.ones(2)}, "7": None}
    rows, found, spelled = flatten(tree)
    for i, leaf in enumerate(found):
        code = "tree" + "".join(spelled[step] for step in rows[i].keys)
        assert eval(code, {"tree": tree}) is leaf


def test_an_array_that_occurs_twice_is_counted_once():
    x = np.zeros(4, "float32")
    tree = record_for({"a": x, "b": x, "c": np.zeros(4, "float32")})
    assert tree.bytes == 32
    assert [row.shared_with for row in tree.rows] == [None, "a", None]


@pytest.mark.parametrize(("count", "room"), [(1_000, 12_000), (10_000, 200_000)])
def test_a_tree_takes_little_room_in_a_notebook(content_of, count, room):
    assert len(content_of(tree_of(count))) < room
    assert mimebundle(tree_of(count))["text/plain"].count("\n") <= 61


def test_a_large_array_takes_little_room_and_every_element_is_counted(content_of):
    x = np.random.default_rng(0).normal(size=(2048, 1536)).astype("float32")
    record = record_for(x)
    assert sum(record.statistics.histogram) == x.size
    assert len(content_of(x)) < 40_000
