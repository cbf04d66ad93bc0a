"""Values that a step writes into variables are outputs of its graph; in a picture they and the state
of random numbers run beside the main road.
"""

import jax.numpy as jnp
import pytest

import nbmodule as nb
from nbmodule.graphs import to_dot, to_svg
from nbmodule.graphs.layout.forms import fold
from nbmodule.graphs.layout.labels import exit_text
from nbmodule.graphs.layout.scene import PlacedGraph
from nbmodule.graphs.writing.outline import headline

from graph_evaluator import evaluate_written
from jax_settings import FLOAT

X = jnp.linspace(-1.0, 2.0, 12).reshape(4, 3)


@pytest.fixture
def model():
    nb.seed(0)
    return nb.Sequential(nb.Linear(3, 4), nb.BatchNorm1d(4), nb.ReLU())


def names(graph):
    return [node.name for node in graph.nodes if node.operation == "written"]


def test_a_training_step_writes_parameters_statistics_and_the_state_of_its_optimizer(model):
    optimizer = nb.SGD(0.1)

    def step(model, x):
        loss, grads = nb.value_and_grad(lambda m: (m(x) ** 2).mean())(model)
        optimizer.update(model, grads)
        return loss

    graph = nb.graph(step, model, X)

    assert {f"written: Sequential.{name}" for name, _ in model.named_tensors()} <= set(names(graph))
    assert any(name.startswith("written: sgd.") for name in names(graph))
    assert graph.find("sgd").operations > 0


def test_writes_come_out_of_loops_branches_and_compiled_functions(model):
    count = nb.Buffer(jnp.zeros(()))

    @nb.jit
    def ticks(x):
        def once(carry, _):
            count.value = count + 1.0
            return carry * 2, None

        y, _ = nb.scan(once, x, None, length=3)

        def more():
            count.value = count * 10.0

        nb.cond(x.sum() > 0, more, lambda: None)
        return y

    graph = nb.graph(ticks, X)

    assert names(graph) == ["written: buffer"]
    assert float(evaluate_written(graph, [jnp.ones(())], X)["buffer"]) == 40.0
    assert float(evaluate_written(graph, [jnp.ones(())], -X)["buffer"]) == 4.0


def test_running_statistics_are_outputs_with_their_names(model):
    graph = nb.graph(model, X)

    assert names(graph) == ["written: 1.running_mean", "written: 1.running_var"]
    assert not any(node.dead for node in graph.nodes)
    assert headline(graph).endswith(f"{FLOAT}[4, 3] → {FLOAT}[4, 4] · writes 2 variables")


def test_a_model_in_eval_mode_writes_nothing(model):
    assert names(nb.graph(model.eval(), X)) == []


# -- beside the main road --
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
