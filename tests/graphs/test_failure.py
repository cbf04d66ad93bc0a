"""A function that fails in tracing gives the graph up to there, with the line, the shapes and the
submodule.
"""

import inspect

import jax
import jax.numpy as jnp
from jax import lax

import nbmodule as nb
from nbmodule.graphs import to_svg, trace_graph

from jax_settings import FLOAT

X = jnp.ones((2, 4))


def failing(x, w):
    y = jnp.sin(x)
    with jax.named_scope("encoder"), jax.named_scope("layers.1"):
        z = y * 2
        return z @ w


W = jnp.ones((3, 5))


def line_of(fn, text: str) -> int:
    lines, first = inspect.getsourcelines(fn)
    return first + next(i for i, line in enumerate(lines) if text in line)


def operations(graph) -> list[str]:
    return [n.operation for n in graph.nodes if n.kind == "operation"]


def test_a_failure_names_line_shapes_and_message_and_stands_in_its_submodule():
    graph = trace_graph(failing, X, W)
    failure, node = graph.failure, graph.nodes[-1]

    assert failure.error == "TypeError"
    assert "contracting dimensions" in failure.message
    assert failure.source.line == line_of(failing, "z @ w")
    assert failure.source.code == "return z @ w"
    assert failure.shapes == (("z", f"{FLOAT}[2, 4]"), ("w", f"{FLOAT}[3, 5]"))
    assert failure.path == node.path == graph.groups[-1].path == "encoder.layers.1"
    given = {graph.nodes[edge.source].title for edge in graph.edges if edge.target == node.index}
    assert given == {"mul", "w"}


def test_a_failure_of_a_transform_names_the_line_that_wrote_the_operation():
    def loss(x):
        return lax.while_loop(lambda v: v.sum() < 9, lambda v: v * 2, x).sum()

    failure = trace_graph(jax.grad(loss), X).failure

    assert failure.error == "ValueError"
    assert failure.source.line == line_of(loss, "while_loop")


def test_an_error_before_any_operation_leaves_the_inputs():
    graph = trace_graph(lambda x, y: x @ W, X, X)

    assert operations(graph) == []
    assert [n.kind for n in graph.nodes][:2] == ["input", "input"]
    assert graph.failure.shapes == (("x", f"{FLOAT}[2, 4]"), ("W", f"{FLOAT}[3, 5]"))


def test_attributes_of_the_failing_line_have_their_shapes():
    class Layer:
        def __init__(self):
            self.weight = W
            self.parts = {"b": jnp.ones(7)}

        def __call__(self, x):
            return x @ self.weight + self.parts["b"]

    shapes = dict(trace_graph(Layer(), X).failure.shapes)

    assert shapes == {"x": f"{FLOAT}[2, 4]", "self.weight": f"{FLOAT}[3, 5]"}


def test_the_graph_of_a_model_keeps_no_traced_value_of_it():
    model = nb.Sequential(nb.Linear(4, 3), nb.BatchNorm1d(3), nb.Dropout(0.5))
    with jax.checking_leaks():
        graph = nb.graph(model, X)

    assert graph.failure is None
    assert [(node.kind, node.name) for node in graph.nodes] == [
        (n.kind, n.name) for n in nb.graph(model, X).nodes
    ]


def test_a_failure_shows_earlier_variables_and_names_its_submodule():
    """Two exceptions come in between while the error passes through the layers."""
    layers = nb.Sequential(nb.Linear(4, 8), nb.ReLU(), nb.Linear(7, 2))

    graph = nb.graph(layers, jnp.ones((3, 4)))

    assert [node.name for node in graph.nodes if node.kind == "variable" and not node.dead] == [
        "0.bias",
        "0.weight",
    ]
    assert graph.failure.path == "2"
    failed = next(node for node in graph.nodes if node.kind == "failure")
    assert [graph.nodes[x.node].path for x in failed.inputs] == ["1"]  # what the layer was given
    assert dict(graph.failure.shapes)["x"] == f"{FLOAT}[3, 8]"
    assert "<- failed" in str(graph)
    assert 'class="x"' in to_svg(graph, depth=0)  # never folded away
    assert "<- failed" in str(graph.drawn(depth=0))
