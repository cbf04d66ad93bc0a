"""What a step writes into variables stands among the outputs of its graph, with the values that the
step gives.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb
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


def inputs_of(graph, things):
    """The variables in the order in which the graph names them."""
    known = {name: box.value for prefix, thing in things for name, box in named(thing, prefix)}
    return [known[node.name] for node in graph.nodes if node.kind == "variable"]


def named(thing, prefix):
    return [(".".join(filter(None, (prefix, name))), box) for name, box in thing.named_tensors()]


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
    values = [np.asarray(box.value) for _, box in model.named_tensors()]
    assert all(
        np.array_equal(a, box.value)
        for a, (_, box) in zip(values, model.named_tensors(), strict=True)
    )


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
