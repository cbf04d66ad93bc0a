"""What a traced graph says: nodes, edges, groups, names, sources, and what is dead."""

import inspect
import pickle
from collections import namedtuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

from nbmodule.errors import ArgumentTypeError, PathError
from nbmodule.graphs import data, outline, to_dot, to_svg, trace_graph

from graph_evaluator import evaluate
from jax_settings import FLOAT

X = jnp.ones((2, 3))


def operations(graph) -> list[str]:
    return [n.operation for n in graph.nodes if n.kind == "operation"]


def groups(graph) -> list[tuple[str, str, int | None]]:
    return [(g.kind, g.name, g.count) for g in graph.groups]


def test_tracing_never_runs_the_computation():
    huge = jax.ShapeDtypeStruct((1_000_000, 1_000_000), jnp.float32)

    assert trace_graph(lambda x: x @ x, huge).flops == 2 * 10**18


def test_inputs_are_named_by_their_parameters():
    graph = trace_graph(lambda params, x, *more, scale: 0 * x, {"w": X, "deep": [X]}, X, X, scale=X)

    assert [graph.nodes[i].name for i in graph.inputs] == [
        "params.deep.0",
        "params.w",
        "x",
        "more.0",
        "scale",
    ]


leaves = st.sampled_from([np.ones(2), jnp.zeros(3), 3, 2.5, True, "mode", None])
trees = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner),
    max_leaves=6,
)


@settings(max_examples=40, deadline=None)
@given(st.lists(trees, max_size=3), st.dictionaries(st.sampled_from("xyz"), trees))
def test_every_array_of_the_arguments_is_an_input_at_its_place(args, kwargs):
    def arrays(*given):
        return [leaf for leaf in jax.tree.leaves(given) if hasattr(leaf, "shape")]

    graph = trace_graph(lambda *args, **kwargs: arrays(args, kwargs), *args, **kwargs)
    names = [graph.nodes[i].name for i in graph.inputs]
    assert len(names) == len(set(names)) == len(arrays(args, kwargs))
    for found, x in zip(evaluate(graph, *args, **kwargs), arrays(args, kwargs), strict=True):
        np.testing.assert_array_equal(found, x)


def test_outputs_and_fixed_arguments_are_named():
    pair = namedtuple("Pair", "mean deviation")
    graph = trace_graph(lambda x, mode, times: pair(x, [x * times]), X, "mul", 3)

    assert [graph.nodes[i].name for i in graph.inputs] == ["x"]
    assert graph.nodes[1].inputs[1].text == "3"
    names = [graph.nodes[i].name for i in graph.outputs]
    assert names == ["output.mean", "output.deviation.0"]


def test_source_points_at_the_line_that_wrote_the_operation():
    def wrote(x):
        y = jnp.sin(x)
        return y * 2

    graph = trace_graph(wrote, X)
    first = inspect.getsourcelines(wrote)[1]

    assert [
        (n.source.line - first, n.source.function.split(".")[-1]) for n in graph.nodes[1:3]
    ] == [(1, "wrote"), (2, "wrote")]
    assert graph.nodes[1].source.file == __file__
    assert graph.nodes[1].source.code == "y = jnp.sin(x)"
    assert graph.nodes[1].source.place == f"test_trace.py:{first + 1}"


def test_source_of_a_notebook_cell_is_the_cell():
    from nbmodule.graphs import Source

    class Shell:
        class compile:
            _filename_map = {"ipykernel_1/2.py": 7}

    class IPython:
        get_ipython = staticmethod(lambda: Shell)

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(__import__("sys").modules, "IPython", IPython)
        assert Source("ipykernel_1/2.py", 3).place == "cell [7] line 3"


@pytest.mark.not_under("eager", reason="a loop is plain Python there")
def test_loops_and_branches_are_groups_with_their_count():
    def model(x):
        x, _ = lax.scan(lambda c, _: (c * 2 + 1, None), x, None, length=7)
        x = lax.while_loop(lambda v: v.sum() < 9, lambda v: v * 2 + 1, x)
        x = lax.cond(x.sum() > 0, lambda v: v * 2 + 1, lambda v: v, x)
        return jax.checkpoint(lambda v: jnp.sin(v) * 2)(x)

    found = groups(trace_graph(model, X))

    assert ("scan", "scan", 7) in found
    assert ("while", "while", None) in found
    assert [k for k, _, _ in found if k in ("condition", "body")] == ["condition", "body"]
    assert [n for k, n, _ in found if k == "branch"] == ["if false", "if true"]
    assert found[-1][0] == "checkpoint"


@pytest.mark.not_under("eager", reason="a loop is plain Python there")
def test_values_read_only_by_the_next_step_of_a_loop_are_alive():
    def body(state, _):
        count, value = state
        return (count + 1, jnp.sin(value) * count), jnp.exp(value)

    graph = trace_graph(lambda x: lax.scan(body, (jnp.float32(0), x), None, length=3)[0][1], X)

    assert [n.operation for n in graph.nodes if n.dead] == ["exp", "stack"]


def test_a_print_is_alive():
    def model(x):
        jax.debug.print("{}", x)
        return x + 1

    assert not any(n.dead for n in trace_graph(model, X).nodes)


def test_costs_of_a_loop_are_multiplied_and_of_branches_the_dearest_counts():
    scanned = trace_graph(
        lambda x: lax.scan(lambda c, _: (jnp.sin(c), None), x, None, length=5)[0], X
    )
    chosen = trace_graph(
        lambda x: lax.cond(x[0, 0] > 0, lambda v: jnp.sin(v) * 2, lambda v: v + 1, x), X
    )

    assert scanned.flops == 5 * 6
    assert next(group for group in chosen.groups if group.kind == "cond").flops == 2 * 6


def test_gradients_and_vectorized_functions_have_graphs():
    grad = trace_graph(jax.grad(lambda x: jnp.sin(x).sum()), X)
    mapped = trace_graph(jax.vmap(lambda r: r @ r), X)

    assert "cos" in operations(grad)
    assert [n.shape for n in mapped.nodes if n.operation == "dot_general"] == [(2,)]


def test_a_graph_survives_pickling_without_its_operations():
    graph = trace_graph(jax.named_scope("head")(lambda x: jnp.sin(x) * 2), X)
    copy = pickle.loads(pickle.dumps(graph))

    assert [n.operation for n in copy.nodes] == [n.operation for n in graph.nodes]
    assert copy.nodes[1].source == graph.nodes[1].source
    assert copy.find("head").operations == 2


@pytest.mark.parametrize(
    "fn", [lambda: jnp.arange(3) * 2, lambda: None], ids=["nothing in", "nothing out"]
)
def test_functions_without_inputs_or_outputs_have_graphs_too(fn):
    graph = trace_graph(fn)

    assert to_svg(graph).startswith("<svg")
    assert outline(graph)
    assert data(graph)["view"] == "graph"
    assert to_dot(graph).startswith("digraph")


def test_edges_run_from_the_maker_to_the_reader():
    graph = trace_graph(lambda x: (x + x) * x, X)

    assert [(e.source, e.target, e.position) for e in graph.edges] == [
        (0, 1, 0),
        (0, 1, 1),
        (1, 2, 0),
        (0, 2, 1),
        (2, 3, 0),
    ]
    assert graph.edges[0].shape == (2, 3)
    assert graph.edges[0].dtype == FLOAT


# -- groups by path, pattern and number --
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
