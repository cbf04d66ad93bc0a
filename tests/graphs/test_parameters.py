"""Short texts for what a primitive was told."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

from nbmodule.graphs import trace_graph
from nbmodule.graphs.reading.jaxpr import LIMIT, describe_parameters

X = jnp.ones((4, 6))


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
    ],
)
def test_parameters_are_said_shortly(fn, operation, text):
    (node,) = [n for n in trace_graph(fn, X).nodes if n.operation == operation]

    assert node.parameters == text


def test_a_convolution_says_stride_and_padding():
    def conv(x, k):
        return jax.lax.conv_general_dilated(
            x, k, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )

    (node,) = [
        n
        for n in trace_graph(conv, jnp.ones((1, 8, 8, 2)), jnp.ones((3, 3, 2, 4))).nodes
        if n.kind == "operation"
    ]

    assert node.parameters == "stride 2 2, pad 0+1 0+1"


def test_a_long_text_is_cut():
    assert len(describe_parameters("reshape", {"new_sizes": tuple(range(100))})) == LIMIT


def test_parameters_of_another_release_say_nothing():
    assert describe_parameters("transpose", {"order": (1, 0)}) == ""
