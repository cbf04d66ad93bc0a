"""Rows, order and trunks: laws that hold for any graph, and the cases that were hard."""

from __future__ import annotations

import jax.numpy as jnp
from hypothesis import given, settings
from random_programs import programs

import nbmodule as nb
from nbmodule.graphs import trace_graph
from nbmodule.graphs.layout.forms import fold
from nbmodule.graphs.layout.ranks import EXIT, WIDEST, FormRows, plans_below
from nbmodule.graphs.model import Computation

X = jnp.ones(3)


def plans_of(graph: Computation) -> list[FormRows]:
    return plans_below(fold(graph, connected_only=False).root)


def check(plan) -> None:
    form = plan.form
    beside = {pill for pills in plan.sides for pill in pills}
    placed = [item for row in plan.rows for item in row]
    assert sorted(placed) == sorted(set(range(len(form.children))) - beside)
    assert all(0 < len(row) <= WIDEST for row in plan.rows)
    for child, wires in enumerate(form.wires):
        for wire in wires:
            if wire.child >= 0 and wire.child not in beside:
                assert plan.row_of[wire.child] < plan.row_of[child]
    taken: dict[int, int] = {}
    for trunk in sorted(plan.trunks.values(), key=lambda trunk: trunk.first):
        last = max(len(plan.rows) if t == EXIT else plan.row_of[t] for t in trunk.targets)
        assert (trunk.lane >= 0) == (last > trunk.first)
        if trunk.lane >= 0:
            assert taken.get(trunk.lane, -1) < trunk.first
            taken[trunk.lane] = last


@settings(max_examples=60, deadline=None)
@given(programs)
def test_every_edge_runs_downward_and_past_rows_in_a_lane_of_its_own(program):
    for plan in plans_of(trace_graph(program, X)):
        check(plan)


def test_constants_are_placed_just_above_their_reader():
    def model(x):
        mask = jnp.arange(3.0) * 2.0
        return jnp.sin(jnp.sin(jnp.sin(x))) + mask

    plan = plans_of(trace_graph(model, X))[0]
    names = {child.name: plan.row_of[i] for i, child in enumerate(plan.form.children)}

    assert names["mul"] == names["add"] - 1
    assert names["iota"] == names["add"] - 2


def test_inputs_are_above_and_outputs_below():
    plan = plans_of(trace_graph(lambda x, y: (x + 1, (x + y) * 2), X, X))[0]
    rows = {child.content.kind: plan.row_of[i] for i, child in enumerate(plan.form.children)}

    assert rows["input"] == 0
    assert rows["output"] == len(plan.rows) - 1


def test_a_variable_with_one_reader_is_placed_next_to_it():
    from nbmodule.graphs import read_graph

    plan = plans_of(read_graph(lambda w, x: jnp.sin(x) * w, [X, X], variables=1))[0]
    names = [child.name for child in plan.form.children]

    assert plan.sides[names.index("mul")] == [names.index("w")]


def test_a_gradient_of_nested_layers_obeys_the_same_laws(make_gpt):
    model, x = make_gpt(layers=2, width=16, heads=2)
    graph = nb.graph(nb.grad(lambda model: model(x).mean()), model)

    for plan in plans_of(graph):
        check(plan)
