"""Name stacks: submodule calls are read out of what JAX records, and what transforms add is left
out.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nbmodule.base.scopes import Mark, Scope, read_scopes
from nbmodule.graphs import trace_graph

from graph_evaluator import evaluate

X = jnp.ones((2, 4))


def marks(stack: str) -> tuple[Mark, ...]:
    """Return the marks of a stack; names of transforms begin with `~`."""
    return tuple(Mark(text.removeprefix("~"), text.startswith("~")) for text in stack.split())


def linear(w: jax.Array, x: jax.Array) -> jax.Array:
    with jax.named_scope("linear"):
        return jnp.tanh(x @ w)


@pytest.mark.parametrize(
    ("stack", "scopes", "phase"),
    [
        ("norm#2", [("norm", 1, "forward")], "forward"),
        ("norm#1", [("norm#1", None, "forward")], "forward"),
        ("a%2Fb%28c%29", [("a/b(c)", None, "forward")], "forward"),
        ("~jvp a ~vmap b.0", [("a", None, "forward"), ("b.0", None, "forward")], "forward"),
        ("a ~transpose ~jvp b", [("a", None, "forward"), ("b", None, "backward")], "backward"),
        ("rematted_computation inner", [("inner", None, "recomputed")], "recomputed"),
    ],
)
def test_scopes_are_read_with_their_call_and_pass(stack, scopes, phase):
    assert read_scopes(marks(stack)) == (tuple(Scope(*scope) for scope in scopes), phase)


@pytest.mark.parametrize(
    ("stack", "names"),
    [
        ("~transpose ~jvp layers.1 ~jvp layers.1", ["layers.1"]),
        ("step ~transpose ~jvp model a step ~jvp model a", ["step", "model", "a"]),
        ("~transpose ~jvp a a", ["a", "a"]),  # a module inside one of its own name
    ],
)
def test_the_second_copy_of_a_rematerialized_stack_is_dropped(stack, names):
    scopes, _ = read_scopes(marks(stack))
    assert [scope.name for scope in scopes] == names


def test_scopes_inside_compiled_functions_loops_and_branches_continue_those_around_them():
    def model(w, x):
        with jax.named_scope("head"):
            x = jax.jit(linear)(w, x) + 1
        with jax.named_scope("loop"):
            x, _ = jax.lax.scan(lambda c, _: (linear(w, c), None), x, None, length=3)
        with jax.named_scope("choice"):
            return jax.lax.cond(x.sum() > 0, lambda v: linear(w, v), lambda v: v, x)

    groups = trace_graph(model, jnp.ones((4, 4)), X).groups

    first = [(group.kind, group.path) for group in groups[:3]]
    assert first == [("scope", "head"), ("jit", "head"), ("scope", "head.linear")]
    paths = {g.path for g in groups if g.name == "linear" and g.kind == "scope"}
    assert paths == {"head.linear", "loop.linear", "choice.linear"}


@pytest.mark.parametrize(
    "wrap", [lambda f: f, jax.checkpoint, jax.jit], ids=["plain", "checkpoint", "jit"]
)
def test_the_backward_pass_of_a_layer_is_a_group_of_its_own(wrap):
    def loss(w, x):
        with jax.named_scope("layers.0"):
            x = wrap(linear)(w, x)
        with jax.named_scope("layers.1"):
            x = wrap(linear)(w, x)
        return (x**2).sum()

    w = jnp.linspace(-1, 1, 16).reshape(4, 4)
    graph = trace_graph(jax.grad(loss), w, X)
    scopes = [g for g in graph.groups if g.path == "layers.0" and g.kind == "scope"]
    assert [group.phase for group in scopes] == ["forward", "backward"]
    np.testing.assert_allclose(evaluate(graph, w, X), jax.grad(loss)(w, X), rtol=1e-5)


def test_no_edge_runs_backward_among_the_children_of_any_group():
    """Also where differentiation interleaves what belongs to different layers."""

    def loss(w, x):
        for i in range(3):
            with jax.named_scope(f"layers.{i}"):
                x = jax.checkpoint(linear)(w, x) + linear(w, x)
        return x.sum()

    hessian_product = jax.grad(lambda w, x: (jax.grad(loss)(w, x) * w).sum())
    graph = trace_graph(hessian_product, jnp.ones((4, 4)), X)

    for group in (graph.root, *graph.groups):
        position = {}
        for i, child in enumerate(graph.children(group)):
            inside = [child] if not hasattr(child, "items") else list(graph.nodes_in(child))
            position.update({node.index: i for node in inside})
        for edge in graph.edges:
            if edge.source in position and edge.target in position:
                assert position[edge.source] <= position[edge.target]
