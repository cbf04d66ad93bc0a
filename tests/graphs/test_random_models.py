"""Graphs of random models are right: evaluated node by node they give what the model gives, and
each operation is where it belongs.

The models share layers, call them again, and hold loops, branches, custom derivatives, checkpoints
and random streams.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import nbmodule as nb

from graph_evaluator import evaluate, evaluate_written

WIDTH = 3
X = jnp.linspace(-1.0, 1.5, 6).reshape(2, WIDTH)
# the one operation that only this leaf makes
MARK = {"scale": "mul", "shift": "sub", "turn": "atan2"}


@jax.custom_jvp
def steep(x):
    return jnp.tanh(x)


steep.defjvp(lambda primals, tangents: (steep(*primals), tangents[0] * 0.5))


class Leaf(nb.Module):
    """One marked operation with a parameter of its own, and a count of its calls."""

    def __init__(self, kind: str):
        self.kind = kind
        self.w = nb.Parameter(jnp.linspace(0.5, 1.5, WIDTH))
        self.count = nb.Buffer(jnp.zeros(()))

    def forward(self, x):
        self.count.value = self.count + 1.0
        if self.kind == "scale":
            return x * self.w
        return x - self.w if self.kind == "shift" else jnp.arctan2(x, self.w)


class Node(nb.Module):
    """Calls its parts in one of the ways in which code can hold code."""

    def __init__(self, way: str, parts: list[Any]):
        self.way, self.parts = way, parts

    def forward(self, x):
        return WAYS[self.way](self, x)

    def chain(self, x):
        for part in self.parts:
            x = part(x)
        return x


def loop(self: Node, x: jax.Array) -> jax.Array:
    return nb.while_loop(lambda s: s[0] < 2, lambda s: (s[0] + 1, self.chain(s[1])), (0, x))[1]


WAYS: dict[str, Callable[[Node, jax.Array], jax.Array]] = {
    "chain": Node.chain,
    "twice": lambda self, x: self.chain(self.chain(x)),
    "jit": lambda self, x: nb.jit(self.chain)(x),
    "scan": lambda self, x: nb.scan(lambda c, _: (self.chain(c), c.sum()), x, None, length=2)[0],
    "while": loop,
    "cond": lambda self, x: nb.cond(x.sum() > 0, self.chain, lambda y: y + 1.0, x),
    "checkpoint": lambda self, x: nb.checkpoint(self.chain)(x),
    "custom_jvp": lambda self, x: steep(self.chain(x)),
    "grad": lambda self, x: nb.grad(lambda y: self.chain(y).sum())(x),
}


@st.composite
def models(draw: Callable[[Any], Any]) -> Node:
    """A model of two levels; layers may stand in several places."""

    def some(items: Any, most: int) -> list[Any]:
        return draw(st.lists(st.sampled_from(list(items)), min_size=1, max_size=most))

    leaves = [Leaf(kind) for kind in some(MARK, 3)]
    inner = [Node(way, some(leaves, 2)) for way in some(WAYS, 2)]
    has_loop = any(node.way == "while" for node in inner)  # which has no reverse mode
    (way,) = some(sorted(set(WAYS) - ({"grad"} if has_loop else set())), 1)
    return Node(way, some([*leaves, *inner], 3))


@settings(max_examples=8, deadline=None)
@given(models())
def test_nodes_in_order_give_output_and_writes_of_a_random_model(model):
    graph = nb.graph(model, X)
    boxes = dict(model.named_tensors())
    values = [boxes[node.name].value for node in graph.nodes if node.kind == "variable"]
    made, written = evaluate(graph, values, X), evaluate_written(graph, values, X)

    np.testing.assert_allclose(made, model(X), rtol=2e-5, atol=1e-6)
    for name, value in written.items():
        assert float(value) == float(boxes[name].value)
    assert not [node for node in graph.nodes if node.kind == "constant" and node.shape == (WIDTH,)]


def has_no_gradient(model):
    return all(getattr(node, "way", "") != "grad" for node in (model, *model.modules()))


@settings(max_examples=8, deadline=None)
@given(models().filter(has_no_gradient))
def test_every_marked_operation_belongs_to_a_leaf_of_its_kind_and_reads_its_parameter(model):
    graph = nb.graph(model, X)
    kinds = {name: leaf.kind for name, leaf in model.named_modules() if isinstance(leaf, Leaf)}
    marks = {operation: kind for kind, operation in MARK.items()}

    for node in graph.nodes:
        if node.kind == "operation" and node.operation in marks:
            assert kinds[node.path] == marks[node.operation]
    for name in kinds:
        assert graph.glob(name)
        for group in graph.glob(name):
            assert MARK[kinds[name]] in [node.operation for node in graph.nodes_in(group)]
