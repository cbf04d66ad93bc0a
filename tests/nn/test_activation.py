import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb


def test_the_slope_of_prelu_begins_at_a_quarter_and_is_trained():
    layer = nb.PReLU(3)
    assert layer.v.w.tolist() == [0.25] * 3
    np.testing.assert_array_equal(
        nb.grad(lambda layer: layer(jnp.array([-1.0, -2.0, 3.0])).sum())(layer).w, [-1, -2, 0]
    )


def test_an_option_can_be_changed_afterwards():
    layer = nb.LeakyReLU()
    compiled = nb.jit(layer)
    assert compiled(jnp.array([-1.0])).tolist() == pytest.approx([-0.01])
    layer.negative_slope = 0.5
    assert compiled(jnp.array([-1.0])).tolist() == layer(jnp.array([-1.0])).tolist() == [-0.5]
