"""Estimated costs against counts by hand and against the compiler's own analysis."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from nbmodule.graphs import trace_graph

A = jax.ShapeDtypeStruct((6, 8), jnp.float32)


def flops(fn, *shapes) -> int:
    return trace_graph(fn, *(jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes)).flops


def convolution(x, k, groups=1):
    return lax.conv_general_dilated(
        x,
        k,
        (1, 1),
        "VALID",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=groups,
    )


@pytest.mark.parametrize(
    ("fn", "shapes", "count"),
    [
        (lambda a, b: a @ b, [(6, 8), (8, 5)], 2 * 6 * 8 * 5),
        (convolution, [(2, 10, 10, 3), (3, 3, 3, 16)], 2 * (2 * 8 * 8 * 16) * (3 * 3 * 3)),
        (lambda x, k: convolution(x, k, 4), [(1, 6, 6, 4), (3, 3, 1, 8)], 2 * (4 * 4 * 8) * 9),
        (jnp.tanh, [(6, 8)], 48),
        (lambda x: x.sum(0), [(6, 8)], 48),
    ],
    ids=["product", "convolution", "grouped", "elementwise", "reduction"],
)
def test_an_operation_counts_its_terms_by_hand(fn, shapes, count):
    assert flops(fn, *shapes) == count


def test_decompositions_have_the_leading_term_of_the_textbook():
    assert flops(jnp.linalg.cholesky, (9, 9)) >= 9**3 // 3


def test_bytes_are_operands_and_results():
    graph = trace_graph(jnp.tanh, A)

    assert graph.bytes == 2 * 6 * 8 * 4


@pytest.mark.parametrize(
    ("fn", "shapes"),
    [
        (lambda a, b: a @ b, [(32, 64), (64, 16)]),
        (lambda a, b: a * b + a, [(128, 128), (128, 128)]),
    ],
    ids=["product", "elementwise"],
)
def test_the_estimate_agrees_with_the_compiler_where_nothing_is_fused_away(fn, shapes):
    arguments = [jnp.ones(shape) for shape in shapes]

    cost = jax.jit(fn).lower(*arguments).compile().cost_analysis()

    assert trace_graph(fn, *arguments).flops == pytest.approx(cost["flops"], rel=0.01)
