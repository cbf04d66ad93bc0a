import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from nbmodule.nn.functional.primitives import along, broadcast_to, nan_where, promoted, where

from jax_settings import FLOAT

SHAPES = st.sampled_from([(), (3,), (1, 3), (2, 1), (2, 3)])


@settings(max_examples=12)
@given(SHAPES, SHAPES, SHAPES)
def test_selection_is_that_of_numpy(a, b, c):
    rng = np.random.default_rng(0)
    condition, x, y = rng.random(a) > 0.5, rng.normal(size=b).astype("f"), rng.integers(0, 9, c)
    np.testing.assert_array_equal(
        where(jnp.asarray(condition), jnp.asarray(x), jnp.asarray(y)),
        np.where(condition, x, y).astype("f"),
    )


def test_numbers_take_the_dtype_of_the_array():
    half = jnp.ones(2, jnp.bfloat16)
    assert where(half > 0, half, 0).dtype == where(half > 0, 1.0, half).dtype == jnp.bfloat16
    assert promoted(half, 1.0)[0].dtype == jnp.bfloat16


def test_nan_comes_where_it_is_asked_for_and_only_there():
    x, half = jnp.array([1.0, jnp.inf, -2.0]), jnp.ones((2, 2), jnp.bfloat16)
    for how in (nan_where, jax.jit(nan_where)):
        with jax.debug_nans(False):
            np.testing.assert_array_equal(
                how(jnp.array([False, False, True]), x), [1, np.inf, np.nan]
            )
        with jax.debug_nans(True):
            np.testing.assert_array_equal(how(x > jnp.inf, x), x)
            assert how(jnp.array(False), half).dtype == jnp.bfloat16


def test_none_stays_none_when_promoting():
    x, nothing, y = promoted(jnp.ones(2, jnp.bfloat16), None, jnp.ones(2))
    assert nothing is None
    assert x.dtype == y.dtype == FLOAT


def test_selection_leaves_no_nested_call():
    jaxpr = jax.make_jaxpr(lambda x: where(x > 0, x, 0))(jnp.ones(2))
    assert "select_n" in [e.primitive.name for e in jaxpr.eqns]
    assert "jit" not in [e.primitive.name for e in jaxpr.eqns]


def test_vectors_are_spread_along_an_axis():
    np.testing.assert_array_equal(
        broadcast_to(jnp.arange(2), (3, 2), float), np.tile([0.0, 1.0], (3, 1))
    )
    np.testing.assert_array_equal(
        jnp.zeros((2, 3, 4), int) + along(jnp.arange(3), 1, 3),
        np.arange(3)[None, :, None] + np.zeros((2, 3, 4)),
    )
