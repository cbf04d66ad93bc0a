"""A signature that names shapes is held to them in tests, after the function's own checks."""

from __future__ import annotations

import jax.numpy as jnp
import pytest
from jax import Array
from jaxtyping import Float, TypeCheckError, jaxtyped

from call_checks import check_shapes


def checked(function):
    return jaxtyped(function, typechecker=check_shapes)


def test_a_result_of_another_shape_than_promised_fails():
    @checked
    def shorten(x: Float[Array, " n"]) -> Float[Array, " n"]:
        return x[1:]

    with pytest.raises(TypeCheckError, match="return value"):
        shorten(jnp.ones(3))


def test_an_argument_that_breaks_the_signature_fails_where_the_function_lets_it_pass():
    @checked
    def same(x: Float[Array, " n"]) -> Float[Array, "..."]:
        return x

    with pytest.raises(TypeCheckError):
        same(jnp.ones((2, 2)))


def test_the_error_of_the_function_itself_comes_first():
    @checked
    def picky(x: Float[Array, " n"]) -> Float[Array, " n"]:
        raise ValueError("one axis is wanted")

    with pytest.raises(ValueError, match="one axis is wanted"):
        picky(jnp.ones((2, 2)))


def test_a_function_without_shapes_is_left_as_it_is():
    def plain(x: int) -> str:
        return "text"

    assert check_shapes(plain) is plain
