import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import nbmodule as nb
from nbmodule.nn.positions import (
    LearnedPositionalEncoding,
    RotaryPositionalEncoding,
    SinusoidalPositionalEncoding,
)
from tests.nn.conftest import close


def test_sinusoids_are_added_in_the_dtype_of_the_input_and_have_no_variables():
    layer = SinusoidalPositionalEncoding(4)
    assert not layer.state_dict()
    assert layer(jnp.ones((5, 4), jnp.bfloat16)).dtype == jnp.bfloat16
    close(layer(jnp.ones((5, 4))) - layer(jnp.zeros((5, 4))), 1)


def test_learned_vectors_are_added_and_trained(draws):
    layer = LearnedPositionalEncoding(7, 3, key=0)
    x = jnp.asarray(draws.normal(size=(2, 4, 3)), jnp.float32)
    close(layer(x), x + np.asarray(layer.weight())[:4])
    grads = nb.grad(lambda layer: layer(x).sum())(layer)
    np.testing.assert_array_equal(grads.w, [[2.0] * 3] * 4 + [[0.0] * 3] * 3)
    assert abs(np.asarray(LearnedPositionalEncoding(50, 60, key=0).weight()).std() - 0.02) < 0.002


@settings(max_examples=10)
@given(shift=st.integers(0, 40))
def test_rotary_products_depend_on_distances_only(shift):
    rng = np.random.default_rng(0)
    q, k = rng.normal(size=(2, 5, 8)).astype("f")
    turn, positions = RotaryPositionalEncoding(base=100), jnp.arange(5)
    close(
        turn(q, positions + shift) @ turn(k, positions + shift).T,
        turn(q) @ turn(k).T,
        rtol=1e-3,
        atol=1e-3,
    )
    close(np.linalg.norm(turn(q), axis=-1), np.linalg.norm(q, axis=-1))
