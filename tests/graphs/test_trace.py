"""What a traced graph says: nodes, edges, groups, names, sources, and what is dead."""

from __future__ import annotations

import functools
import inspect
import os
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import nbmodule as nb
from nbmodule.errors import ArgumentError
from nbmodule.graphs import Ref, Value, data, outline, to_dot, to_svg, trace_graph
from nbmodule.graphs.graph import read_graph

from jax_settings import FLOAT

X = jnp.ones((2, 3))


def operations(graph) -> list[str]:
    return [n.operation for n in graph.nodes if n.kind == "operation"]


def groups(graph) -> list[tuple[str, str, int | None]]:
    return [(g.kind, g.name, g.count) for g in graph.groups]


@pytest.mark.not_under("strict", reason="mixes two precisions on purpose")
def test_nodes_carry_operation_shape_and_dtype():
    graph = trace_graph(lambda a, b: jnp.tanh(a @ b), X, jnp.ones((3, 4), jnp.bfloat16))
    dot = graph.nodes[2]

    assert (dot.operation, dot.shape, dot.dtype) == ("dot_general", (2, 4), FLOAT)
    assert dot.parameters == "axes 1·0"


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


def test_a_caller_names_variables():
    graph = read_graph(
        lambda v, x: v[0] @ x + v[1], [[X, X], X.T[:, :1]], variables=1, names=["head.w"]
    )

    assert [(n.kind, n.name) for n in graph.nodes[:3]] == [
        ("variable", "head.w"),
        ("variable", "v.1"),
        ("input", "x"),
    ]


def test_names_for_more_arrays_than_there_are_is_an_error():
    with pytest.raises(ArgumentError, match="names are given for 3 arrays, the arguments hold 1"):
        read_graph(jnp.sin, [X], names=["a", "b", "c"])


def test_outputs_are_named_by_their_place_in_the_result():
    graph = trace_graph(lambda x: {"loss": x.sum(), "more": (x, x)}, X)

    assert [graph.nodes[i].name for i in graph.outputs] == [
        "output.loss",
        "output.more.0",
        "output.more.1",
    ]


def test_what_is_no_array_is_fixed():
    graph = trace_graph(lambda x, mode, times: x * times if mode == "mul" else x, X, "mul", 3)

    assert [graph.nodes[i].name for i in graph.inputs] == ["x"]
    assert graph.nodes[1].literals[0].text == "3"


def test_arrays_of_the_surroundings_are_constants():
    table = np.arange(3, dtype=np.float32)
    graph = trace_graph(lambda x: x + table + table, X)

    assert [n.kind for n in graph.nodes].count("constant") == 1
    assert Value((3,), "float32") in [n.outputs[0] for n in graph.nodes if n.kind == "constant"]


def test_literals_stand_at_the_operation_that_reads_them():
    node = trace_graph(lambda x: x * 0.5, X).nodes[1]

    assert node.parameters == "0.5"
    assert [x.text for x in node.literals] == ["0.5"]
    assert node.inputs[0] == Ref(0)


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


def test_source_is_the_callers_line_where_jax_itself_wrote_the_operation():
    graph = trace_graph(lambda x: jax.nn.softmax(jnp.sort(x)), X)

    assert {n.source.file for n in graph.nodes if n.kind == "operation"} == {__file__}


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


def test_a_single_operation_gets_no_group_of_its_own():
    graph = trace_graph(lambda x: jax.nn.relu(x) + jnp.sort(x), X)

    assert graph.groups == []
    assert graph.nodes[1].parameters == "0, in relu"


def test_a_wrapper_of_one_compiled_function_shares_its_group():
    graph = trace_graph(lambda x: jax.nn.silu(x) * 2, X)

    assert [g.name for g in graph.groups] == ["silu"]


def test_a_function_compiled_as_a_whole_is_no_group():
    assert trace_graph(jax.jit(lambda x: jnp.sin(x) + 1), X).groups == []


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


def test_custom_derivatives_are_groups():
    @jax.custom_jvp
    def f(x):
        return jnp.sin(x) * 2

    @jax.custom_vjp
    def g(x):
        return jnp.cos(x) * 2

    f.defjvp(lambda p, t: (f(*p), t[0]))
    g.defvjp(lambda x: (g(x), x), lambda x, c: (c,))

    assert groups(trace_graph(lambda x: f(x) + g(x), X)) == [
        ("custom_jvp", "f", None),
        ("custom_vjp", "g", None),
    ]


@pytest.mark.not_under("eager", reason="a loop is plain Python there")
def test_a_loop_has_ends_of_its_own():
    graph = trace_graph(lambda x: lax.scan(lambda c, v: (c + v, c * v), x[0], x), X)
    (scan,) = [group for group in graph.groups if group.kind == "scan"]

    assert {role: len(nodes) for role, nodes in scan.ports.items()} == {
        "carry": 1,
        "slice": 1,
        "carried": 1,
        "stack": 1,
    }
    assert graph.nodes[scan.ports["slice"][0]].shape == (3,)
    assert graph.nodes[scan.ports["stack"][0]].shape == (2, 3)


def test_what_no_output_needs_is_dead():
    graph = trace_graph(lambda x, y: (jnp.exp(x), jnp.sin(x) * 2)[1], X, X)
    dead = [n.title for n in graph.nodes if n.dead]

    assert dead == ["y", "exp"]
    assert graph.operations == 2


@pytest.mark.not_under("eager", reason="a loop is plain Python there")
def test_what_only_feeds_the_next_step_of_a_loop_is_alive():
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


def test_class_names_are_shown_beside_paths():
    graph = read_graph(
        jax.named_scope("head")(lambda x: jnp.sin(x) * 2), [X], titles={"head": "Linear"}
    )

    assert graph.find("head").title == "Linear"


def test_a_graph_survives_pickling_without_its_operations():
    graph = trace_graph(jax.named_scope("head")(lambda x: jnp.sin(x) * 2), X)
    copy = pickle.loads(pickle.dumps(graph))

    assert [n.operation for n in copy.nodes] == [n.operation for n in graph.nodes]
    assert copy.nodes[1].source == graph.nodes[1].source
    assert copy.find("head").operations == 2


def test_random_keys_have_a_dtype():
    graph = trace_graph(lambda k: jax.random.normal(k, (3,)), jax.random.key(0))

    assert graph.nodes[0].dtype == "key<fry>"


def test_a_foreign_model_is_traced_as_it_stands():
    nnx = pytest.importorskip("flax.linen")

    class Net(nnx.Module):
        @nnx.compact
        def __call__(self, x):
            return nnx.Dense(4, name="head")(nnx.relu(nnx.Dense(5, name="body")(x)))

    net = Net()
    parameters = jax.eval_shape(net.init, jax.random.key(0), X)
    graph = read_graph(net.apply, [parameters, X], variables=1)

    assert {"body", "head"} <= {g.name for g in graph.groups}
    assert [n.shape for n in graph.nodes if n.operation == "dot_general"] == [(2, 5), (2, 4)]


@pytest.mark.parametrize(
    "fn", [lambda: jnp.arange(3) * 2, lambda: None], ids=["nothing in", "nothing out"]
)
def test_functions_without_inputs_or_outputs_have_graphs_too(fn):
    graph = trace_graph(fn)

    assert to_svg(graph).startswith("<svg")
    assert outline(graph)
    assert data(graph)["view"] == "graph"
    assert to_dot(graph).startswith("digraph")


def test_a_partial_function_has_the_name_of_what_it_wraps():
    def loss(scale, x):
        return x * scale

    assert trace_graph(functools.partial(loss, 2.0), X).root.name == "loss"


def test_source_of_a_model_of_ready_layers_is_the_layer_itself():
    graph = nb.graph(nb.Sequential(nb.Linear(4, 3)), jnp.ones((2, 4)))

    sources = [node.source for node in graph.nodes if node.kind == "operation"]
    assert {os.path.basename(source.file) for source in sources} == {"linear.py"}
    assert {source.code.startswith("return linear(x, self.weight") for source in sources} == {True}
