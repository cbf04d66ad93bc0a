"""Coordinates and rows: nothing overlaps, lines keep clear of boxes, edges run downward."""

from itertools import combinations

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_programs import programs

import nbmodule as nb
from nbmodule.graphs import read_graph, trace_graph
from nbmodule.graphs.layout.forms import fold
from nbmodule.graphs.layout.frames import Spacing
from nbmodule.graphs.layout.ranks import EXIT, WIDEST, FormRows, plans_below
from nbmodule.graphs.layout.scene import PlacedGraph, Scene
from nbmodule.graphs.model import Computation

X = jnp.ones((2, 3))


def everything(picture: PlacedGraph) -> set:
    return {place for place, _, _ in picture.walk()}


def assert_apart(boxes) -> None:
    """Check that boxes of one group do not overlap."""
    for a, b in combinations(boxes, 2):
        if a.place[:-1] == b.place[:-1]:
            beside = a.x + a.width <= b.x or b.x + b.width <= a.x
            assert beside or a.y + a.height <= b.y or b.y + b.height <= a.y, (a, b)


def check(scene: Scene) -> None:
    boxes = {box.place: box for box in scene.boxes}
    for box in scene.boxes:
        around = boxes.get(box.place[:-1])
        if around is not None:
            assert around.x <= box.x
            assert around.y <= box.y
            assert box.x + box.width <= around.x + around.width
            assert box.y + box.height <= around.y + around.height
    assert_apart(scene.boxes)
    for line in scene.lines:
        source, target = line.source, line.target
        if not line.posts:
            assert source.x + source.width <= target.x
            continue
        assert line.posts[0][1] == source.y + source.height
        assert line.posts[-1][2] == target.y
        for (_, _, bottom), (_, top, _) in zip(line.posts, line.posts[1:], strict=False):
            assert bottom <= top
        for x, top, bottom in line.posts:
            others = [b for b in scene.boxes if not b.is_open and b not in (source, target)]
            for box in others:
                is_beside = not box.x < x < box.x + box.width
                assert is_beside or bottom <= box.y or box.y + box.height <= top


@settings(max_examples=25, deadline=None)
@given(programs, st.booleans())
def test_boxes_never_overlap_and_lines_never_cross_a_box(program, labels):
    picture = PlacedGraph(fold(trace_graph(program, X)), Spacing(labels))

    check(picture.scene(()))
    check(picture.scene(everything(picture)))


@pytest.mark.parametrize("jitter", [0.0, 0.1, 1.0])
def test_jitter_keeps_boxes_apart(jitter, make_gpt):
    graph = nb.graph(*make_gpt(layers=1, width=16, heads=2))
    picture = PlacedGraph(fold(graph), Spacing(True, jitter))

    assert_apart(picture.scene(everything(picture)).boxes)


def test_a_chain_is_straight():
    scene = PlacedGraph(fold(trace_graph(lambda x: jnp.sin(jnp.cos(jnp.tanh(x))), X))).scene(())

    assert len({post[0] for line in scene.lines for post in line.posts}) == 1


def test_a_picture_opens_with_five_to_twenty_five_boxes(make_gpt):
    picture = PlacedGraph(fold(nb.graph(*make_gpt(layers=12, width=16, heads=2))))
    boxes = picture.scene(picture.open_at_first()).boxes

    assert 5 <= sum(not box.is_open for box in boxes) <= 25


def test_lines_lead_out_of_a_group_that_fills_the_picture():
    def model(x):
        y = jnp.exp(x)
        with jax.named_scope("head"):
            z = jnp.sin(y) * y
        return jnp.tanh(z)

    picture = PlacedGraph(fold(trace_graph(model, X)))
    (place,) = [place for place, child, _ in picture.walk() if child.name == "head"]
    scene = picture.scene((), place)

    assert len(scene.ends) == 3
    assert scene.boxes[0].child.name == "head"


def test_edges_of_a_folded_group_are_counted():
    def model(x):
        with jax.named_scope("split"):
            a, b, c = jnp.sin(x) * 2, jnp.cos(x) * 2, jnp.tanh(x) * 2
        return a * b + c

    scene = PlacedGraph(fold(trace_graph(model, X))).scene(())
    counts = {
        (line.source.child.name, line.target.child.name): len(line.slots) for line in scene.lines
    }

    assert counts["split", "mul"] == 2
    assert counts["split", "add"] == 1
    assert [text for _, _, text in scene.labels if text == "3 values"] == ["3 values"]


def test_lines_of_an_open_group_end_at_its_operations():
    def model(x):
        with jax.named_scope("head"):
            return jnp.sin(x) * 2

    picture = PlacedGraph(fold(trace_graph(model, X)))
    opened = picture.scene(everything(picture))

    assert {(line.source.child.name, line.target.child.name) for line in opened.lines} == {
        ("x", "sin"),
        ("sin", "mul"),
        ("mul", "output"),
    }


# -- rows --
def plans_of(graph: Computation) -> list[FormRows]:
    return plans_below(fold(graph, connected_only=False).root)


def check_rows(plan: FormRows) -> None:
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
        check_rows(plan)


def test_constants_are_placed_just_above_their_reader():
    def model(x):
        mask = jnp.arange(3.0) * 2.0
        return jnp.sin(jnp.sin(jnp.sin(x))) + mask

    plan = plans_of(trace_graph(model, X[0]))[0]
    names = {child.name: plan.row_of[i] for i, child in enumerate(plan.form.children)}

    assert names["mul"] == names["add"] - 1
    assert names["iota"] == names["add"] - 2


def test_inputs_are_above_and_outputs_below():
    plan = plans_of(trace_graph(lambda x, y: (x + 1, (x + y) * 2), X, X))[0]
    rows = {child.content.kind: plan.row_of[i] for i, child in enumerate(plan.form.children)}

    assert rows["input"] == 0
    assert rows["output"] == len(plan.rows) - 1


def test_a_variable_with_one_reader_is_placed_next_to_it():
    plan = plans_of(read_graph(lambda w, x: jnp.sin(x) * w, [X, X], variables=1))[0]
    names = [child.name for child in plan.form.children]

    assert plan.sides[names.index("mul")] == [names.index("w")]


def test_a_gradient_of_nested_layers_obeys_the_same_laws(make_gpt):
    model, x = make_gpt(layers=2, width=16, heads=2)
    graph = nb.graph(nb.grad(lambda model: model(x).mean()), model)

    for plan in plans_of(graph):
        check_rows(plan)
