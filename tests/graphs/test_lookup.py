"""Finding groups by path, pattern and number, and cutting one out."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nbmodule.errors import ArgumentTypeError, PathError
from nbmodule.graphs import trace_graph
from nbmodule.graphs.lookup import resolve

from graph_evaluator import evaluate

X = jnp.linspace(0.0, 1.0, 4)


def model(x):
    for i in range(3):
        with jax.named_scope(f"blocks.{i}"), jax.named_scope("mlp"):
            x = jnp.sin(x) * 2
    with jax.named_scope("head"):
        return x + 1


@pytest.fixture(scope="module")
def graph():
    return trace_graph(model, X)


def test_an_unknown_path_names_the_closest(graph):
    with pytest.raises(
        PathError, match='no submodule "blocks.1.mlq"; the closest path is "blocks.1.mlp"'
    ):
        graph.find("blocks.1.mlq")


def test_an_unknown_call_names_those_there_are(graph):
    with pytest.raises(PathError, match=r'no call 2 of "head"; it has the calls \[0\]'):
        graph.find("head", call=2)


def test_a_graph_without_submodules_says_so():
    with pytest.raises(PathError, match="no operation in it was made by a submodule"):
        trace_graph(jnp.sin, X).find("head")


def test_a_pattern_finds_all_that_match(graph):
    assert [g.path for g in graph.glob("blocks.*.mlp")] == [f"blocks.{i}.mlp" for i in range(3)]


@pytest.mark.parametrize("index", [-1, 99])
def test_an_index_outside_names_the_range(graph, index):
    with pytest.raises(PathError, match=f"no group {index}; it has indices 0 to 6"):
        resolve(graph, index)


def test_what_is_no_place_is_refused(graph):
    with pytest.raises(ArgumentTypeError, match="path or its index, not by float"):
        resolve(graph, 1.5)


def test_ancestors_go_up_to_the_graph(graph):
    assert [g.path for g in graph.ancestors(graph.find("blocks.0.mlp"))] == [
        "blocks.0.mlp",
        "blocks.0",
        "",
    ]


def test_a_subgraph_has_the_groups_below_it(graph):
    part = graph.subgraph("blocks.1")

    assert [g.path for g in part.groups] == ["blocks.1.mlp"]
    assert [part.nodes[i].kind for i in (*part.inputs, *part.outputs)] == ["input", "output"]
    assert part.operations == 2


def test_the_subgraph_of_the_whole_is_the_whole(graph):
    assert graph.subgraph("") is graph


def test_evaluating_parts_one_after_another_gives_the_whole(graph):
    value = X
    for path in ("blocks.0", "blocks.1", "blocks.2", "head"):
        value = evaluate(graph.subgraph(path), value)

    np.testing.assert_allclose(value, model(X), rtol=1e-6)


def test_a_loop_can_be_cut_out():
    def loop(x):
        with jax.named_scope("loop"):
            return jax.lax.fori_loop(0, 3, lambda i, v: jnp.sin(v) * 2 + i, x)

    part = trace_graph(loop, X).subgraph("loop")

    np.testing.assert_allclose(evaluate(part, X), loop(X), rtol=1e-6)
