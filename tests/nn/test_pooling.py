import jax.numpy as jnp

import nbmodule as nb


def test_whole_numbers_have_a_largest_one_too():
    assert nb.MaxPool1d(2)(jnp.arange(4)[:, None])[:, 0].tolist() == [1, 3]
