"""Functions are groups of a graph, found by the call stacks of their operations."""

import jax
import jax.numpy as jnp

import nbmodule as nb
from nbmodule.graphs import trace_graph
from nbmodule.graphs.layout.forms import fold
from nbmodule.graphs.layout.scene import PlacedGraph

X = jnp.ones((4, 3))
LABELS = jnp.zeros(4, int)


def scaled(x):
    return jnp.sin(x) * 2


def thrice(x):
    for _ in range(3):
        x = jnp.cos(x) + 1
    return x


def functions(graph, parent=-1):
    return [
        (g.name, g.operations) for g in graph.groups if g.kind == "function" and g.parent == parent
    ]


def test_functions_of_this_package_of_jax_and_of_the_user_are_groups():
    graph = trace_graph(lambda x: nb.relu(scaled(x)) + jax.nn.softmax(x) + x.mean(0), X)

    assert [name for name, _ in functions(graph)] == ["scaled", "relu", "softmax", "mean"]


def test_each_call_of_a_function_in_a_loop_is_a_group():
    def model(x):
        for _ in range(2):
            x = scaled(x)
        x = x - 1
        return [scaled(y) for y in (x, x + 1)]

    assert functions(trace_graph(model, X)) == [("scaled", 2)] * 4


def test_a_loop_inside_a_function_stays_one_group():
    assert functions(trace_graph(lambda x: thrice(x) - 1, X)) == [("thrice", 6)]


def test_a_function_of_one_operation_and_one_that_is_all_there_is_have_no_group():
    def double(x):
        return x * 2

    assert functions(trace_graph(lambda x: double(x) + 1, X)) == []
    assert functions(trace_graph(lambda x: scaled(x), X)) == []


class Net(nb.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nb.Linear(3, 5), nb.Linear(5, 2)

    def forward(self, x):
        return self.encode(self.last(nb.relu(self.first(x))))

    def encode(self, x):
        return jnp.tanh(x) * 2


def test_the_loss_of_a_training_step_is_one_box_and_so_is_its_backward_pass():
    net = Net()

    def loss(net, x, labels):
        return nb.cross_entropy(net(x), labels)

    graph = nb.graph(lambda x, labels: nb.value_and_grad(loss)(net, x, labels), X, LABELS)

    assert [(g.name, g.phase) for g in graph.groups if g.parent == -1] == [
        ("Net", "forward"),
        ("cross_entropy", "forward"),
        ("cross_entropy", "backward"),
        ("Net", "backward"),
    ]


def test_a_function_that_calls_submodules_is_seen_through():
    class Outer(nb.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = nb.Linear(3, 3), nb.Linear(3, 3)

        def both(self, x):
            return self.two(jnp.sin(self.one(x)) + 1)

        def forward(self, x):
            return self.both(x) * 2

    graph = nb.graph(Outer(), X)

    assert [(g.kind, g.name) for g in graph.groups if g.parent == -1] == [
        ("scope", "one"),
        ("scope", "two"),
    ]


def test_functions_are_folded_at_first_and_opened_where_nothing_else_is_there():
    net = Net()
    graph = nb.graph(lambda x, y: nb.cross_entropy(net(x), y), X, LABELS)
    picture = PlacedGraph(fold(graph))
    opened = {picture.at(place).child.name for place in picture.open_at_first()}
    alone = PlacedGraph(fold(trace_graph(lambda x: jax.nn.softmax(x) + 1, X)))

    assert opened == {"Net"}
    assert [alone.at(place).child.name for place in alone.open_at_first()] == ["softmax"]
