import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nbmodule.nn.functional.attention import rotary_embedding, sinusoidal_positions, time_embedding
from tests.nn.conftest import close


@pytest.mark.parametrize("features", [6, 7])
def test_sines_and_cosines_are_those_of_the_formula(features):
    table = sinusoidal_positions(9, features)
    assert table.dtype == np.float32
    for p in (0, 3, 8):
        for i in range(features):
            angle = p / 10000 ** (2 * (i // 2) / features)
            close(table[p, i], np.cos(angle) if i % 2 else np.sin(angle))


def test_turning_is_a_complex_product(draws):
    x = draws.normal(size=(2, 5, 6)).astype("f")
    z = (x[..., :3] + 1j * x[..., 3:]) * np.exp(
        1j * np.arange(5)[:, None] * 100.0 ** (-np.arange(3) / 3)
    )
    close(rotary_embedding(x, base=100.0), np.concatenate([z.real, z.imag], -1))


def test_positions_of_each_sequence_are_broadcast_over_heads(draws):
    x = draws.normal(size=(2, 3, 4, 6)).astype("f")
    positions = np.array([[0, 1, 2, 3], [7, 8, 9, 10]])
    y = rotary_embedding(x, positions[:, None])
    close(y[1, 2], rotary_embedding(x[1, 2], positions[1]))


def test_times_become_the_sines_and_cosines_of_the_formula():
    t = np.array([[0.0, 0.25], [7.0, 31.0]], np.float32)
    angle = t[..., None].astype(float) / 100.0 ** (np.arange(3) / 3)
    close(
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


def test_a_position_that_is_traced_chooses_a_row():
    table = sinusoidal_positions(9, 4)
    row = jax.jit(lambda t: sinusoidal_positions(9, 4)[t])(jnp.array(5))
    np.testing.assert_array_equal(row, table[5])
    assert isinstance(table, jax.Array)
