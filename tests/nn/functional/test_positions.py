import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nbmodule.errors import ArgumentError, DtypeError, ShapeError
from nbmodule.nn.functional.positions import rotary_embedding, sinusoidal_positions, time_embedding

from jax_settings import spelled


@pytest.mark.parametrize("features", [6, 7])
def test_sines_and_cosines_are_those_of_the_formula(features):
    table = sinusoidal_positions(9, features)
    assert table.dtype == np.float32
    for p in (0, 3, 8):
        for i in range(features):
            angle = p / 10000 ** (2 * (i // 2) / features)
            np.testing.assert_allclose(
                table[p, i], np.cos(angle) if i % 2 else np.sin(angle), rtol=1e-6
            )


def test_turning_is_a_complex_product(draws):
    x = draws.normal(size=(2, 5, 6)).astype("f")
    z = (x[..., :3] + 1j * x[..., 3:]) * np.exp(
        1j * np.arange(5)[:, None] * 100.0 ** (-np.arange(3) / 3)
    )
    np.testing.assert_allclose(
        rotary_embedding(x, base=100.0), np.concatenate([z.real, z.imag], -1), rtol=1e-5, atol=1e-6
    )


def test_products_see_distances_only(draws):
    q, k = (draws.normal(size=(1, 8)).astype("f") for _ in range(2))

    def product(i, j):
        return float(
            (rotary_embedding(q, jnp.array([i])) * rotary_embedding(k, jnp.array([j]))).sum()
        )

    assert abs(product(3, 1) - product(12, 10)) < 1e-4
    assert abs(product(3, 1) - product(3, 2)) > 1e-3


def test_positions_of_each_sequence_are_broadcast_over_heads(draws):
    x = draws.normal(size=(2, 3, 4, 6)).astype("f")
    positions = np.array([[0, 1, 2, 3], [7, 8, 9, 10]])
    y = rotary_embedding(x, positions[:, None])
    np.testing.assert_allclose(
        y[1, 2], rotary_embedding(x[1, 2], positions[1]), rtol=1e-5, atol=1e-6
    )


def test_times_become_the_sines_and_cosines_of_the_formula():
    t = np.array([[0.0, 0.25], [7.0, 31.0]], np.float32)
    angle = t[..., None].astype(float) / 100.0 ** (np.arange(3) / 3)
    np.testing.assert_allclose(
        time_embedding(t, 6, base=100.0),
        np.concatenate([np.sin(angle), np.cos(angle)], -1),
        rtol=1e-4,
        atol=1e-5,
    )
    np.testing.assert_array_equal(
        time_embedding(jnp.array([1, 2]), 4), time_embedding(np.array([1, 2], "f"), 4)
    )
    assert time_embedding(jnp.float16(3), 4).dtype == jnp.float16


def test_half_precision_stays_half_and_keeps_far_positions_apart():
    y = rotary_embedding(jnp.ones((3, 2), jnp.bfloat16), jnp.array([1000, 1001, 1002]))
    assert y.dtype == jnp.bfloat16
    assert len({tuple(row) for row in np.asarray(y, "f")}) == 3


BAD = [
    (
        lambda: time_embedding(jnp.ones(2), 5),
        ShapeError,
        "features must be even, a sine and a cosine for each wave, got 5",
    ),
    (
        lambda: rotary_embedding(jnp.ones((4, 5))),
        ShapeError,
        r"x must have an even number of features, got float32\[4, 5\]",
    ),
    (
        lambda: rotary_embedding(jnp.ones((4, 6)), jnp.arange(3)),
        ShapeError,
        r"positions must broadcast to \[4\], got int32\[3\]",
    ),
    (
        lambda: rotary_embedding(jnp.ones(4)),
        ShapeError,
        r"x must have axes \(\*batch, length, features\), got float32\[4\]",
    ),
    (
        lambda: rotary_embedding(jnp.ones((4, 6), int)),
        DtypeError,
        "x must hold floating values, got int32",
    ),
    (lambda: sinusoidal_positions(4, 0), ArgumentError, "features must be at least 1, got 0"),
    (
        lambda: sinusoidal_positions(4, 6, base=0.0),
        ArgumentError,
        r"base must be above 0, got 0\.0",
    ),
]


@pytest.mark.parametrize(("call", "error", "message"), BAD)
def test_what_makes_no_sense_is_refused_in_one_line(call, error, message):
    with pytest.raises(error, match=spelled(message)):
        call()


def test_a_position_that_is_traced_chooses_a_row():
    table = sinusoidal_positions(9, 4)
    row = jax.jit(lambda t: sinusoidal_positions(9, 4)[t])(jnp.array(5))
    np.testing.assert_array_equal(row, table[5])
    assert isinstance(table, jax.Array)
