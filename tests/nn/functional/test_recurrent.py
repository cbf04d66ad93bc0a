import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nbmodule.core.variables.variable import Buffer
from nbmodule.nn.functional.recurrent import gru, gru_cell, lstm, lstm_cell, rnn, rnn_cell

GATES = {"RNN": 1, "LSTM": 4, "GRU": 3}
SCANS = {"RNN": rnn, "LSTM": lstm, "GRU": gru}
CELLS = {"RNN": rnn_cell, "LSTM": lstm_cell, "GRU": gru_cell}
kinds = pytest.mark.parametrize("kind", GATES)


def weights(draws, kind, n_in=3, hidden=4):
    gates = GATES[kind] * hidden
    return [
        draws.normal(scale=0.5, size=shape).astype("f")
        for shape in ((gates, n_in), (gates, hidden), (gates,), (gates,))
    ]


@kinds
def test_a_scan_is_its_cell_step_by_step_over_any_leading_axes(kind, draws):
    x, w = draws.normal(size=(2, 3, 5, 3)).astype("f"), weights(draws, kind)
    ys, last = SCANS[kind](x, None, *w)
    state = (jnp.zeros((2, 3, 4)),) * (2 if kind == "LSTM" else 1)
    for t in range(5):
        new = CELLS[kind](x[:, :, t], *state, *w)
        state = new if kind == "LSTM" else (new,)
        np.testing.assert_allclose(ys[:, :, t], state[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(jax.tree.leaves(last)[-1], state[-1], rtol=1e-5, atol=1e-6)


@kinds
def test_biases_may_be_left_out(kind, draws):
    x, w = draws.normal(size=(5, 3)).astype("f"), weights(draws, kind)
    zeros = jnp.zeros(len(w[0]), "f")
    for mine, other in zip(
        jax.tree.leaves(SCANS[kind](x, None, *w[:2])),
        jax.tree.leaves(SCANS[kind](x, None, *w[:2], zeros, zeros)),
        strict=True,
    ):
        np.testing.assert_allclose(mine, other, rtol=1e-6)


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
