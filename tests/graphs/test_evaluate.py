"""Evaluating a graph node by node gives what the function gives: the graph says nothing wrong and
leaves nothing out.
"""

import itertools
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from nbmodule.graphs import trace_graph

from graph_evaluator import evaluate

SIZE = 4
A, B = jnp.array([0.3, -1.2, 0.7, 2.0]), jnp.array([1.5, 0.2, -0.4, 0.9])


@jax.custom_jvp
def clipped(x):
    return jnp.clip(x, -1.0, 1.0) * 2.0


clipped.defjvp(lambda primals, tangents: (clipped(*primals), tangents[0]))


@jax.custom_vjp
def doubled(x):
    return jnp.tanh(x) * 2.0


doubled.defvjp(lambda x: (doubled(x), x), lambda x, g: (g * x,))


def every_operation(a: jax.Array, b: jax.Array) -> jax.Array:
    """Apply operations of many kinds; one of them is dead."""
    jnp.exp(a)
    c = jnp.where(a > 0, jnp.sin(a) * b, jnp.maximum(a, jnp.tanh(b)))
    d = jnp.outer(a, c) @ jnp.ones(SIZE) + np.arange(SIZE, dtype=np.float32)
    e = jnp.sort(jnp.roll(jnp.cumsum(d), 1)).at[jnp.array([0, 2])].add(b[:2])
    return jax.nn.relu(clipped(c) + doubled(e))


def nest(
    name: str, inner: Callable[[jax.Array, jax.Array], jax.Array], a: jax.Array, b: jax.Array
) -> jax.Array:
    """One of the ways in which a function can hold another."""
    if name == "jit":
        return jax.jit(inner)(a, b)
    if name == "checkpoint":
        return jax.checkpoint(inner)(a, b)
    if name == "scope":
        with jax.named_scope("inner"):
            return inner(a, b)
    if name == "vmap":
        return jax.vmap(inner, in_axes=(0, None))(jnp.stack([a, b]), b).sum(0)
    if name == "grad":
        return jax.grad(lambda x: inner(x, b).sum())(a)
    if name == "cond":
        return lax.cond(a.sum() > b.sum(), inner, lambda p, q: p - q, a, b)
    if name == "switch":
        return lax.switch(jnp.argmax(a), [inner, lambda p, q: q, lambda p, q: p * q], a, b)
    if name == "scan":
        carry, stacked = lax.scan(
            lambda c, x: (jnp.tanh(inner(c, b)) + x, c[0]), a, jnp.stack([a, b, a]), reverse=True
        )
        return carry + stacked.sum()
    if name == "while":
        return lax.while_loop(
            lambda s: s[0] < 3, lambda s: (s[0] + 1, jnp.tanh(inner(s[1], b))), (0, a)
        )[1]
    return lax.fori_loop(0, 2, lambda i, x: jnp.tanh(inner(x, b)) * i, a)


NESTS = ("jit", "checkpoint", "scope", "vmap", "grad", "cond", "switch", "scan", "while", "fori")


@pytest.mark.parametrize(("outer", "inner"), [*itertools.pairwise((*NESTS, "jit"))])
def test_nodes_in_order_give_the_output_of_functions_within_functions(outer, inner):
    function = partial(nest, outer, partial(nest, inner, every_operation))

    found = evaluate(trace_graph(function, A, B), A, B)
    np.testing.assert_allclose(found, function(A, B), rtol=2e-5, atol=2e-5)


def test_results_keep_their_structure():
    graph = trace_graph(lambda x: {"twice": x * 2, "both": (x, 3.0)}, A)

    found = evaluate(graph, A)

    assert list(found) == ["both", "twice"]
    np.testing.assert_array_equal(found["twice"], A * 2)
    assert found["both"][1] == 3.0


def test_a_linear_solve_goes_through_its_own_solver():
    matrix = np.eye(4, dtype=np.float32) * 2 + 1
    graph = trace_graph(jnp.linalg.solve, matrix, A)

    np.testing.assert_allclose(evaluate(graph, matrix, A), np.linalg.solve(matrix, A), atol=1e-6)


def test_an_opaque_call_is_evaluated_as_a_whole():
    mesh = jax.make_mesh((1,), ("rows",), axis_types=(jax.sharding.AxisType.Auto,))
    spec = jax.sharding.PartitionSpec("rows")
    function = jax.shard_map(lambda x: jnp.sin(x) * 2 + x, mesh=mesh, in_specs=spec, out_specs=spec)
    graph = trace_graph(function, A)

    assert [g.kind for g in graph.groups] == ["opaque"]
    np.testing.assert_allclose(evaluate(graph, A), np.sin(A) * 2 + A, rtol=1e-6)
