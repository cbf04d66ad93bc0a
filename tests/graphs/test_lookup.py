"""Finding groups by path, pattern and number."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

from nbmodule.errors import ArgumentTypeError, PathError
from nbmodule.graphs import trace_graph

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


@pytest.mark.parametrize(
    ("look", "error", "message"),
    [
        (lambda g: g.find("blocks.1.mlq"), PathError, 'closest name is "blocks.1.mlp"'),
        (lambda g: g.find("head", call=2), PathError, r'no call 2 of "head"; it has the calls'),
        (lambda g: g.resolve(-1), PathError, "no group -1; it has indices 0 to 6"),
        (lambda g: g.resolve(99), PathError, "no group 99; it has indices 0 to 6"),
        (lambda g: g.resolve(1.5), ArgumentTypeError, "path or its index, not by float"),
        (lambda g: trace_graph(jnp.sin, X).find("head"), PathError, "no submodule"),
    ],
)
def test_a_place_that_does_not_exist_is_refused(graph, look, error, message):
    with pytest.raises(error, match=message):
        look(graph)


def test_a_pattern_finds_all_that_match(graph):
    assert [g.path for g in graph.glob("blocks.*.mlp")] == [f"blocks.{i}.mlp" for i in range(3)]
