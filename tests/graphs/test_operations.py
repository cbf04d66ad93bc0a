"""Costs of operations against counts by hand and by the compiler, and the words of their parameters."""

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from nbmodule.graphs import trace_graph
from nbmodule.graphs.reading.jaxpr import LIMIT, describe_parameters

A = jax.ShapeDtypeStruct((6, 8), jnp.float32)
X, KERNEL = jnp.ones((4, 6)), jnp.ones((3, 3, 1, 4))


def flops(fn, *shapes) -> int:
    return trace_graph(fn, *(jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes)).flops


def convolution(x, k, groups=1, padding="VALID", strides=(1, 1)):
    layout = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(
        x, k, strides, padding, dimension_numbers=layout, feature_group_count=groups
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


# -- words --
def compiled(*values):
    return pytest.param(
        *values,
        marks=pytest.mark.not_under("eager", reason="functions of JAX are not compiled there"),
    )


@pytest.mark.parametrize(
    ("fn", "operation", "text"),
    [
        (lambda x: x.T, "transpose", "1 0"),
        (lambda x: x.reshape(3, 8), "reshape", "[3, 8]"),
        (lambda x: jax.lax.slice(x, (1, 0), (3, 6), (1, 2)), "slice", "1:3, 0:6:2"),
        (lambda x: x.sum(1), "reduce_sum", "axes 1"),
        (lambda x: x.astype(jnp.int8), "convert_element_type", "to int8"),
        (lambda x: jnp.concatenate([x, x]), "concatenate", "dimension 0"),
        (lambda x: jnp.einsum("ij,kj->ik", x, x), "dot_general", "axes 1·1"),
        compiled(lambda x: jnp.cumsum(x + 1, 1), "cumsum", "axis 1, in cumsum"),
        (lambda x: jnp.broadcast_to(x, (2, 4, 6)), "broadcast_in_dim", "[2, 4, 6]"),
        (lambda x: x**3, "integer_pow", "^3"),
        (lambda x: jnp.argmax(x + 1, 1), "argmax", "axes 1"),
        compiled(lambda x: jnp.pad(x, 1), "pad", "1+1 1+1"),
        (
            lambda x: convolution(x[None, :, :, None], KERNEL, padding="SAME", strides=(2, 2)),
            "conv_general_dilated",
            "stride 2 2, pad 0+1 0+1",
        ),
    ],
)
def test_parameters_of_a_primitive_have_a_short_text(fn, operation, text):
    (node,) = [n for n in trace_graph(fn, X).nodes if n.operation == operation]

    assert node.parameters == text


def test_a_long_text_is_cut():
    assert len(describe_parameters("reshape", {"new_sizes": tuple(range(100))})) == LIMIT


def test_unknown_parameters_of_another_release_have_no_text():
    assert describe_parameters("transpose", {"order": (1, 0)}) == ""
