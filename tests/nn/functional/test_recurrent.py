import jax.numpy as jnp
import numpy as np

from nbmodule.core.variables.variable import Buffer
from nbmodule.nn.functional.recurrent import gru, lstm

GATES = {"RNN": 1, "LSTM": 4, "GRU": 3}


def weights(draws, kind, n_in=3, hidden=4):
    gates = GATES[kind] * hidden
    return [
        draws.normal(scale=0.5, size=shape).astype("f")
        for shape in ((gates, n_in), (gates, hidden), (gates,), (gates,))
    ]


def test_the_pair_of_states_may_be_boxes(draws):
    w, h, c = weights(draws, "LSTM"), np.ones(4, "f"), np.full(4, 2, "f")
    boxed, plain = (
        lstm(jnp.ones((2, 3)), state, *w)[0] for state in ((Buffer(h), Buffer(c)), (h, c))
    )
    np.testing.assert_array_equal(boxed, plain)


def test_an_empty_sequence_leaves_the_state(draws):
    h = draws.normal(size=4).astype("f")
    ys, last = gru(jnp.ones((0, 3)), h, *weights(draws, "GRU"))
    assert ys.shape == (0, 4)
    np.testing.assert_array_equal(last, h)
