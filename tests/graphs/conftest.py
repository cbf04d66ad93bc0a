"""A transformer whose graph the tests look at, and tracked calls."""

import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb


@pytest.fixture(scope="session")
def make_gpt():
    """A function `(layers, width, heads)` that makes a transformer, and an input of it."""

    def make(layers: int = 12, width: int = 768, heads: int = 12):
        blocks = nb.TransformerEncoder(layers, width, heads, norm_first=True, dropout_rate=0.0)
        return nb.Sequential(blocks, nb.Linear(width, 1000)), jnp.zeros((1, 64, width))

    return make


@pytest.fixture
def returned():
    """A function that makes a tracked call of a path, given what it returned."""
    return lambda path, values: nb.Call(path, {"output": np.array(values, np.float32)})
