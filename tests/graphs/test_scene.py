"""Coordinates: nothing overlaps, lines keep clear of boxes, and folding changes only what it must."""

from __future__ import annotations

from itertools import combinations

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_programs import programs

import nbmodule as nb
from nbmodule.graphs import trace_graph
from nbmodule.graphs.layout.forms import fold
from nbmodule.graphs.layout.frames import Spacing
from nbmodule.graphs.layout.scene import PlacedGraph, Scene

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
