"""The outline in text."""

import jax
import jax.numpy as jnp

from nbmodule.graphs import outline, trace_graph

X = jnp.ones((2, 3), "float32")


def model(x):
    for i in range(3):
        with jax.named_scope(f"blocks.{i}"):
            x = jnp.sin(x) * 2
    return x.sum()


def test_the_outline_shows_groups_operations_and_runs():
    assert str(trace_graph(model, X)) == (
        "model · 7 operations · 42 FLOP · float32[2, 3] → float32[]\n"
        "├─ x  input  float32[2, 3]\n"
        "├─ blocks 0…2  3 ×  6 ops · 36 FLOP\n"
        "│  └─ blocks.0  2 ops · 12 FLOP\n"
        "│     ├─ sin  → float32[2, 3]\n"
        "│     └─ mul  2  → float32[2, 3]\n"
        "├─ reduce_sum  axes 0 1  → float32[]\n"
        "└─ output  float32[]"
    )


def test_cut_lines_are_counted():
    text = outline(trace_graph(model, X), lines=4)

    assert text.splitlines()[-1] == "… 5 more rows: print(graph)"
    assert len(text.splitlines()) == 4


def test_the_repr_is_the_outline_and_of_a_huge_graph_its_beginning(monkeypatch):
    graph = trace_graph(model, X)
    assert repr(graph) == str(graph)

    monkeypatch.setattr("nbmodule.graphs.graph._LINES", 4)
    assert repr(graph).splitlines() == [*str(graph).splitlines()[:3], "… 5 more rows: print(graph)"]


def test_a_failure_is_in_the_title():
    failed = outline(trace_graph(lambda x: x @ x, X))
    assert "failed: TypeError at test_outline.py:" in failed.splitlines()[0]


def test_phases_and_calls_are_named():
    def loss(x):
        for name in ("norm", "norm#2"):
            with jax.named_scope(name):
                x = jnp.sin(x) * 2
        return x.sum()

    text = str(trace_graph(jax.grad(loss), X))

    assert "norm (2nd)" in text
    assert "norm (2nd, backward)" in text
