"""Rows, order and trunks: laws that hold for any graph, and the cases that were hard."""

from __future__ import annotations

import time

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbmodule.graphs import Ref, Value, trace_graph
from nbmodule.graphs.layout.fold import fold
from nbmodule.graphs.layout.ranks import EXIT, WIDEST, Plans, above
from nbmodule.graphs.model import Computation, Group, Node
from nbmodule.graphs.reading.trace import add_totals

X = jnp.ones(3)
VALUE = Value((2, 3), "float32")


def flat_graph(reads: list[list[int]]) -> Computation:
    """A graph of one input and one operation for each list of what it reads."""
    nodes = [Node(0, "input", "input", "", "", 0, "forward", -1, (), (VALUE,), "x")]
    for i, sources in enumerate(reads, 1):
        inputs = tuple(Ref(s % i) for s in sources)
        nodes.append(Node(i, "op", "operation", str(i), "", 0, "forward", -1, inputs, (VALUE,)))
    last = len(nodes)
    nodes.append(
        Node(
            last, "output", "output", "", "", 0, "forward", -1, (Ref(last - 1),), (VALUE,), "output"
        )
    )
    graph = Computation(
        nodes,
        [],
        Group(-1, "g", "graph", "", 0, "forward", -1, items=list(range(len(nodes)))),
        (0,),
        (last,),
    )
    add_totals(graph)
    return graph


def plans_of(graph: Computation) -> Plans:
    return Plans(fold(graph, connected_only=False).root)


graphs = st.lists(
    st.lists(st.integers(0, 10_000), min_size=1, max_size=3), min_size=1, max_size=60
).map(flat_graph)


def check(plan) -> None:
    form = plan.form
    beside = {pill for pills in plan.sides for pill in pills}
    placed = [item for row in plan.rows for item in row if item >= 0]
    assert sorted(placed) == sorted(set(range(len(form.children))) - beside)
    for child, wires in enumerate(form.wires):
        for wire in wires:
            if wire.child >= 0 and wire.child not in beside:
                assert plan.row_of[wire.child] < plan.row_of[child]
    for row in plan.rows:
        assert row
        assert sum(item >= 0 for item in row) <= max(
            WIDEST, sum(form.children[i].content.kind == "output" for i in row if i >= 0)
        )
    for trunk in plan.trunks:
        for i, place in enumerate(trunk.places):
            assert ~place in plan.rows[trunk.first + i]
        if trunk.lane >= 0:
            continue
        for target in trunk.targets:
            item = above(plan, trunk, target)
            row = len(plan.rows) if target == EXIT else plan.row_of[target]
            assert item is None or item in plan.rows[row - 1]


@settings(max_examples=60, deadline=None)
@given(graphs)
def test_every_edge_runs_downward_through_places_of_its_own(graph):
    for plan in plans_of(graph).all:
        check(plan)


def test_a_gradient_of_nested_layers_obeys_the_same_laws(make_gpt):
    forward, (parameters, tokens) = make_gpt(layers=2, width=16, heads=2)
    graph = trace_graph(jax.grad(lambda p, t: forward(p, t).mean()), parameters, tokens)

    for plan in plans_of(graph).all:
        check(plan)


def test_what_has_no_input_stands_just_above_its_reader():
    def model(x):
        mask = jnp.arange(3.0) * 2.0
        return jnp.sin(jnp.sin(jnp.sin(x))) + mask

    plan = plans_of(trace_graph(model, X)).root
    names = {child.name: plan.row_of[i] for i, child in enumerate(plan.form.children)}

    assert names["mul"] == names["add"] - 1
    assert names["iota"] == names["add"] - 2


def test_inputs_are_above_and_outputs_below():
    plan = plans_of(trace_graph(lambda x, y: (x + 1, (x + y) * 2), X, X)).root
    rows = {child.content.kind: plan.row_of[i] for i, child in enumerate(plan.form.children)}

    assert rows["input"] == 0
    assert rows["output"] == len(plan.rows) - 1


def test_a_variable_of_one_reader_stands_beside_it():
    from nbmodule.graphs.graph import read_graph

    plan = plans_of(read_graph(lambda w, x: jnp.sin(x) * w, [X, X], variables=1)).root
    names = [child.name for child in plan.form.children]

    assert plan.sides[names.index("mul")] == [names.index("w")]


def test_very_long_edges_run_in_lanes_beside_the_rows():
    reads = [[i] for i in range(78)]
    for i in range(40, 78):
        reads[i].append(i - 40)
    plan = plans_of(flat_graph(reads)).root

    assert plan.lanes > 0
    assert plan.places < 10 * len(plan.form.children)


def test_equal_forms_are_laid_out_once():
    def model(x):
        for i in range(12):
            with jax.named_scope(f"blocks.{i}"):
                x = jnp.sin(x) * 2 + 1
        return x

    assert len(plans_of(trace_graph(model, X)).all) == 3


@pytest.mark.parametrize("nested", [True, False], ids=["nested", "flat"])
def test_layout_is_linear_in_the_number_of_operations(nested):
    """Four times the operations take about four times as long; a quadratic step would take sixteen."""

    def seconds(count: int) -> float:
        graph = flat_graph([[max(0, i - 1), max(0, i - 5)] for i in range(count)])
        if nested:
            for node in graph.nodes[1:-1]:
                number = node.index // 12
                if number >= len(graph.groups):
                    graph.groups.append(
                        Group(number, f"g{number}x", "scope", f"g{number}x", 0, "forward", -1)
                    )
                    graph.root.items.insert(-1, ~number)
                graph.root.items.remove(node.index)
                graph.groups[number].items.append(node.index)
                node.group = number
        best = float("inf")
        for _ in range(3):
            start = time.process_time()
            plans_of(graph)
            best = min(best, time.process_time() - start)
        return best

    assert seconds(4000) < 9 * seconds(1000) + 0.02
