import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nbmodule as nb
from nbmodule.errors import ArgumentError, ArgumentTypeError, DtypeError, ShapeError
from nbmodule.nn.positions import (
    LearnedPositionalEncoding,
    RotaryPositionalEncoding,
    SinusoidalPositionalEncoding,
)

from jax_settings import spelled


def test_sinusoids_follow_the_formula():
    found = SinusoidalPositionalEncoding(6)(jnp.zeros((3, 9, 6)))
    wanted = np.zeros((9, 6))
    for p in range(9):
        for i in range(3):
            wanted[p, 2 * i : 2 * i + 2] = (
                np.sin(p / 10000 ** (2 * i / 6)),
                np.cos(p / 10000 ** (2 * i / 6)),
            )
    np.testing.assert_allclose(found, np.broadcast_to(wanted, (3, 9, 6)), rtol=1e-5, atol=1e-6)


def test_sinusoids_are_added_in_the_dtype_of_the_input_and_have_no_variables():
    layer = SinusoidalPositionalEncoding(4)
    assert not layer.state_dict()
    assert layer(jnp.ones((5, 4), jnp.bfloat16)).dtype == jnp.bfloat16
    np.testing.assert_allclose(layer(jnp.ones((5, 4))) - layer(jnp.zeros((5, 4))), 1, rtol=1e-6)


def test_learned_vectors_are_added_and_trained(draws):
    layer, x = (
        LearnedPositionalEncoding(7, 3, key=0),
        jnp.asarray(draws.normal(size=(2, 4, 3)), jnp.float32),
    )
    np.testing.assert_allclose(layer(x), x + np.asarray(layer.weight())[:4], rtol=1e-6)
    grads = nb.grad(lambda layer: layer(x).sum())(layer)
    np.testing.assert_array_equal(grads.w, [[2.0] * 3] * 4 + [[0.0] * 3] * 3)
    assert abs(np.asarray(LearnedPositionalEncoding(50, 60, key=0).weight()).std() - 0.02) < 0.002


@settings(max_examples=10)
@given(shift=st.integers(0, 40))
def test_rotary_products_depend_on_distances_only(shift):
    rng = np.random.default_rng(0)
    q, k = rng.normal(size=(2, 5, 8)).astype("f")
    turn, positions = RotaryPositionalEncoding(base=100), jnp.arange(5)
    np.testing.assert_allclose(
        turn(q, positions + shift) @ turn(k, positions + shift).T,
        turn(q) @ turn(k).T,
        rtol=1e-3,
        atol=1e-3,
    )
    np.testing.assert_allclose(
        np.linalg.norm(turn(q), axis=-1), np.linalg.norm(q, axis=-1), rtol=1e-5
    )


@pytest.mark.parametrize(
    "layer",
    [SinusoidalPositionalEncoding(4), LearnedPositionalEncoding(9, 4), RotaryPositionalEncoding()],
)
def test_leading_axes_are_only_a_batch(layer, draws):
    x = draws.normal(size=(2, 3, 5, 4)).astype("f")
    np.testing.assert_allclose(layer(x)[1, 2], layer(x[1, 2]), rtol=1e-5, atol=1e-6)
    assert layer(np.zeros((0, 5, 4), "f")).shape == (0, 5, 4)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: SinusoidalPositionalEncoding(4)(jnp.ones((5, 3))),
            ShapeError,
            r"x must have shape \[5, 4\] .*got float32\[5, 3\]",
        ),
        (lambda: SinusoidalPositionalEncoding(4)(jnp.ones((5, 4), int)), DtypeError, "got int32"),
        (
            lambda: LearnedPositionalEncoding(4, 3)(jnp.ones((5, 3))),
            ShapeError,
            r"length of at most 4, 3\), got float32\[5, 3\]",
        ),
        (
            lambda: LearnedPositionalEncoding(4, 3)(jnp.ones((4, 2))),
            ShapeError,
            r"got float32\[4, 2\]",
        ),
        (
            lambda: RotaryPositionalEncoding()(jnp.ones((4, 3))),
            ShapeError,
            r"even number of features, got float32\[4, 3\]",
        ),
        (lambda: RotaryPositionalEncoding(base=0), ArgumentError, "base must be above 0, got 0"),
        (
            lambda: SinusoidalPositionalEncoding(4, base="a"),
            ArgumentTypeError,
            "base must be a number",
        ),
        (lambda: SinusoidalPositionalEncoding(0), ArgumentError, "features must be at least 1"),
        (
            lambda: LearnedPositionalEncoding(-1, 2),
            ArgumentError,
            "max_length must be at least 1, got -1",
        ),
    ],
)
def test_bad_input_is_refused_in_one_line(call, error, message):
    with pytest.raises(error, match=spelled(message)) as caught:
        call()
    assert "\n" not in str(caught.value)
