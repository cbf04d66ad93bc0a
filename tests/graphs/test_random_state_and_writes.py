"""What is written into variables, and the state of random numbers, run beside the main road of a
graph.
"""

from __future__ import annotations

import jax.numpy as jnp
import pytest

import nbmodule as nb
from nbmodule.graphs import to_dot, to_svg
from nbmodule.graphs.layout.forms import fold
from nbmodule.graphs.layout.labels import exit_text
from nbmodule.graphs.layout.scene import PlacedGraph

from jax_settings import FLOAT

X = jnp.ones((4, 3))
SHOWN = "" if FLOAT == "float32" else FLOAT  # labels leave float32 out


def block():
    return nb.Sequential(nb.BatchNorm1d(3), nb.Dropout(0.1), nb.Linear(3, 3))


@pytest.fixture(scope="module")
def graph():
    return nb.graph(nb.Sequential(block(), block()), X)


@pytest.fixture(scope="module")
def scene(graph):
    return PlacedGraph(fold(graph)).scene(())


def named(line):
    return line.source.child.name, line.target.child.name


def test_the_edge_between_layers_carries_the_activation_alone(graph, scene):
    assert [exit_text(box.child) for box in scene.boxes if box.child.name in ("0", "1")] == [
        f"{SHOWN}[4, 3]"
    ] * 2
    assert [
        (named(line), [*map(str, line.slots.values())]) for line in scene.lines if line.posts
    ] == [
        (("x", "0"), [f"{FLOAT}[4, 3]"]),
        (("0", "1"), [f"{FLOAT}[4, 3]"]),
        (("1", "output"), [f"{FLOAT}[4, 3]"]),
    ]


def test_statistics_and_the_state_of_random_numbers_are_side_roads(scene):
    sides = {named(line): len(line.slots) for line in scene.sides}

    assert sides["0", "1"] == 1
    assert sum(count for (_, target), count in sides.items() if target.startswith("written")) == 5


def test_values_saved_for_the_backward_pass_are_counted_apart_from_the_activation():
    model = nb.Sequential(nb.Linear(3, 5), nb.Tanh(), nb.Linear(5, 2))
    graph = nb.graph(
        lambda x, y: nb.value_and_grad(lambda m, x, y: nb.cross_entropy(m(x), y))(model, x, y),
        X,
        jnp.zeros(4, int),
    )
    children = {
        child.name: child for child in fold(graph).root.children if child.phase == "forward"
    }

    assert exit_text(children["Sequential"]).startswith(f"{SHOWN}[4, 2] + ")
    assert exit_text(children["Sequential"]).endswith(" saved")


def test_with_writes_draws_side_roads(graph):
    assert to_svg(graph).count('class="s"') == 0
    assert to_svg(graph, depth=0, with_writes=True).count('class="s"') == len(
        PlacedGraph(fold(graph)).scene(()).sides
    )
    assert "dashed" not in to_dot(graph)
    assert "dashed" in to_dot(graph, with_writes=True)
