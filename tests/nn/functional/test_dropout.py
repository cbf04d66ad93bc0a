import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbmodule.core.numbers.threefry import key_data
from nbmodule.core.variables.variable import Buffer
from nbmodule.nn.functional.dropout import alpha_dropout, dropout
from tests.nn.conftest import close

KEY = jax.random.key(4)


@settings(max_examples=12)
@given(rate=st.sampled_from([0.01, 0.3333, 0.5, 0.99]), seed=st.integers(0, 100))
def test_the_kept_values_are_those_of_bernoulli(rate, seed):
    key, kept = jax.random.key(seed), np.float32(1 - rate)
    wanted = np.where(jax.random.bernoulli(key, kept, (50,)), 3 / (1 - rate), 0)
    close(dropout(jnp.full(50, 3.0), rate, key), wanted)


@pytest.mark.parametrize("key", [key_data(4), jnp.asarray(key_data(4)), Buffer(key_data(4))])
def test_a_key_may_be_given_as_its_words(key):
    np.testing.assert_array_equal(dropout(jnp.ones(20), 0.5, key), dropout(jnp.ones(20), 0.5, KEY))


@pytest.mark.parametrize(
    "second",
    [2.0, pytest.param(np.nan, marks=pytest.mark.not_under("nans", reason="makes NaN on purpose"))],
)
def test_rates_at_the_ends(second):
    x = jnp.array([1.0, second, 3.0])
    np.testing.assert_array_equal(dropout(x, 0.0, KEY), x)
    np.testing.assert_array_equal(dropout(x, 1.0, KEY), 0)
    np.testing.assert_array_equal(alpha_dropout(x, 0.0, KEY), x)
    np.testing.assert_array_equal(alpha_dropout(x, 1.0, KEY), 0)
    gradient = jax.grad(lambda x: dropout(x, jnp.float32(1), KEY).sum())(jnp.ones(3))
    np.testing.assert_array_equal(gradient, 0)


@pytest.mark.not_under("eager", reason="counts what is compiled")
def test_a_rate_that_is_an_array_changes_without_a_new_compile():
    traces = []

    @jax.jit
    def step(x, rate):
        traces.append(1)
        return dropout(x, rate, KEY)

    for rate in (0.0, 0.25, 0.5, 1.0):
        close(step(jnp.ones(40), jnp.float32(rate)), dropout(jnp.ones(40), rate, KEY))
    assert len(traces) == 1


def test_values_along_a_shared_axis_have_one_fate():
    y = np.asarray(dropout(jnp.ones((4, 5, 6)), 0.5, KEY, shared_axes=(1,)))
    assert (y == y[:, :1]).all()
    assert len(np.unique(y[:, 0])) == 2
