import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nbmodule.core.variables.variable import Buffer
from nbmodule.errors import ArgumentError, DtypeError, ShapeError
from nbmodule.nn.functional.recurrent import gru, gru_cell, lstm, lstm_cell, rnn, rnn_cell

from jax_settings import spelled

torch = pytest.importorskip("torch")

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


def in_torch(kind, reverse=False):
    """The same scan by torch: a functional call of its module."""
    module = getattr(torch.nn, kind)(3, 4, batch_first=True, bidirectional=reverse).double()

    def call(x, h, c, *values):
        end = "_l0_reverse" if reverse else "_l0"
        names = [f"{name}{end}" for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
        given = dict(zip(names, values, strict=True))
        if reverse:  # torch runs both directions: the forward half is not looked at
            given |= {
                name.removesuffix("_reverse"): value.detach() for name, value in given.items()
            }
            h, c = (torch.stack([torch.zeros_like(s), s]) for s in (h, c))
        else:
            h, c = h[None], c[None]
        ys, last = torch.func.functional_call(module, given, (x, (h, c) if kind == "LSTM" else h))
        last = last if isinstance(last, tuple) else (last,)
        return ys[..., 4:] if reverse else ys, *(s[-1] for s in last)

    return call


def ours(kind, **options):
    def call(x, h, c, *values):
        ys, last = SCANS[kind](x, (h, c) if kind == "LSTM" else h, *values, **options)
        return ys, *(last if kind == "LSTM" else (last,))

    return call


@kinds
def test_scans_in_both_directions_agree_with_torch(kind, draws, agrees_with_torch):
    x, h, c = (draws.normal(size=shape).astype("f") for shape in ((2, 6, 3), (2, 4), (2, 4)))
    both = (False, True)
    agrees_with_torch(
        lambda *args: [ours(kind, reverse=reverse)(*args) for reverse in both],
        lambda *args: [in_torch(kind, reverse)(*args) for reverse in both],
        x,
        h,
        c,
        *weights(draws, kind),
        atol=1e-4,
    )


@kinds
def test_cells_agree_with_torch(kind, draws, agrees_with_torch):
    x, h, c = (draws.normal(size=shape).astype("f") for shape in ((2, 3), (2, 4), (2, 4)))
    cell = {"RNN": torch.rnn_tanh_cell, "LSTM": torch.lstm_cell, "GRU": torch.gru_cell}[kind]
    if kind == "LSTM":
        agrees_with_torch(
            CELLS[kind],
            lambda x, h, c, *w: cell(x, (h, c), *w),
            x,
            h,
            c,
            *weights(draws, kind),
            atol=1e-4,
        )
    else:
        agrees_with_torch(CELLS[kind], cell, x, h, *weights(draws, kind), atol=1e-4)


def test_plain_cells_may_be_rectified(draws, agrees_with_torch):
    x, h = draws.normal(size=(2, 3)).astype("f"), draws.normal(size=(2, 4)).astype("f")
    agrees_with_torch(
        lambda *a: rnn_cell(*a, nonlinearity="relu"),
        torch.rnn_relu_cell,
        x,
        h,
        *weights(draws, "RNN"),
    )
    ys, _ = rnn(x, h[0], *weights(draws, "RNN"), nonlinearity="relu")
    assert ys.min() == 0


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
def test_padding_is_not_seen(kind, draws):
    x, w = draws.normal(size=(3, 6, 3)).astype("f"), weights(draws, kind)

    def both_directions(x, lengths=None):
        return [
            SCANS[kind](x, None, *w, lengths=lengths, reverse=reverse) for reverse in (False, True)
        ]

    padded = jax.jit(both_directions)(x, jnp.array([6, 4, 0]))
    alone = jax.jit(both_directions)(x[1, :4])
    for (ys, last), (wanted, end) in zip(padded, alone, strict=True):
        np.testing.assert_allclose(ys[1, :4], wanted, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(ys[1, 4:], 0)
        for mine, other in zip(jax.tree.leaves(last), jax.tree.leaves(end), strict=True):
            np.testing.assert_allclose(mine[1], other, rtol=1e-5, atol=1e-6)
            assert not mine[2].any()


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


def test_half_precision_stays_half(draws):
    w = [jnp.asarray(v, jnp.bfloat16) for v in weights(draws, "LSTM")]
    ys, (h, c) = lstm(jnp.ones((5, 3), jnp.bfloat16), None, *w)
    assert ys.dtype == h.dtype == c.dtype == jnp.bfloat16


X, H, W = jnp.ones((2, 5, 3)), jnp.ones((2, 4)), [jnp.ones((16, 3)), jnp.ones((16, 4))]
BAD = [
    (
        lambda: lstm(X, None, W[0][:12], W[1]),
        ShapeError,
        r"lstm: weight_ih must have shape \[16, 3\] \(rows as in weight_hh, .*, got float32\[12, 3\]",
    ),
    (
        lambda: lstm(X, None, W[0], W[1][:12]),
        ShapeError,
        r"weight_hh must have shape \[16, 4\] \(4 gates\), got float32\[12, 4\]",
    ),
    (
        lambda: lstm(X, (H, H[:1]), *W),
        ShapeError,
        r"c must have shape \[2, 4\] \(leading axes as in x float32\[2, 5, 3\], 4 hidden\), got",
    ),
    (lambda: lstm(X, H, *W), ShapeError, r"state must be a pair \(h, c\)"),
    (
        lambda: lstm(X[0, 0], None, *W),
        ShapeError,
        r"x must have axes \(\*batch, time, in_features\), got float32\[3\]",
    ),
    (
        lambda: lstm(X, None, *W, jnp.ones(4)),
        ShapeError,
        r"bias_ih must have shape \[16\] \(one for each row of weight_hh\)",
    ),
    (
        lambda: lstm(X, None, *W, lengths=jnp.array([1])),
        ShapeError,
        r"lengths must have shape \[2\] \(one for each sequence\), got int32\[1\]",
    ),
    (
        lambda: lstm(X, None, *W, lengths=jnp.ones(2)),
        DtypeError,
        r"lengths must hold integers, got float32\[2\]",
    ),
    (
        lambda: lstm(X.astype(int), None, *W),
        DtypeError,
        r"lstm: x must hold floating values, got int32\[2, 5, 3\]",
    ),
    (
        lambda: rnn(X, None, jnp.ones((4, 3)), jnp.ones((4, 4)), nonlinearity="sin"),
        ArgumentError,
        "nonlinearity must be one of 'tanh', 'relu'",
    ),
    (
        lambda: gru_cell(X[:, 0], H, W[0], W[1]),
        ShapeError,
        r"gru_cell: weight_hh must have shape \[12, 4\] \(3 gates\), got float32\[16, 4\]",
    ),
]


@pytest.mark.parametrize(("call", "error", "message"), BAD)
def test_what_does_not_fit_is_refused_in_one_line(call, error, message):
    with pytest.raises(error, match=spelled(message)):
        call()
