"""Recurrent cells, and their scans over time: plain (Elman), LSTM and GRU.

Weights are laid out as in PyTorch: the gates are stacked, in the order i, f, g, o (LSTM) and r, z,
n (GRU). Time is the axis before the features. In a scan the inputs of all times are projected at
once, so that only the state's product stays in the loop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Integer

from nbmodule.base.format import describe_shape
from nbmodule.errors import ShapeError
from nbmodule.nn.checks import check_choice, check_floating, check_rank, check_shape
from nbmodule.nn.functional.activations import relu
from nbmodule.nn.functional.linear import linear
from nbmodule.nn.kernel import ArrayLike, kernel, plain, promoted, where


@kernel(static=("nonlinearity",))
def rnn_cell(
    x: Float[ArrayLike, "*batch in_features"],
    h: Float[ArrayLike, "*batch hidden"] | None,
    weight_ih: Float[ArrayLike, "hidden in_features"],
    weight_hh: Float[ArrayLike, "hidden hidden"],
    bias_ih: Float[ArrayLike, " hidden"] | None = None,
    bias_hh: Float[ArrayLike, " hidden"] | None = None,
    *,
    nonlinearity: str = "tanh",
) -> Float[Array, "*batch hidden"]:
    """Take one step of a plain recurrent network: `tanh(weight_ih @ x + bias_ih + weight_hh @ h +
    bias_hh)`.

    Args:
        x: Inputs of this time.
        h: State before, zeros if None.
        weight_ih: Weights of the inputs.
        weight_hh: Weights of the state.
        bias_ih: Bias of the inputs' part.
        bias_hh: Bias of the state's part.
        nonlinearity: `tanh` or `relu`.

    Returns:
        The state after.

    Example:
        >>> rnn_cell(jnp.ones(1), jnp.zeros(1), jnp.ones((1, 1)), jnp.ones((1, 1)))
        Array([0.7615942], dtype=float32)

    Source: Elman (1990), Finding structure in time.
    """
    return _cell(1, _rnn_step(nonlinearity), x, (h,), weight_ih, weight_hh, bias_ih, bias_hh)[0]


@kernel
def lstm_cell(
    x: Float[ArrayLike, "*batch in_features"],
    h: Float[ArrayLike, "*batch hidden"] | None,
    c: Float[ArrayLike, "*batch hidden"] | None,
    weight_ih: Float[ArrayLike, "gates in_features"],
    weight_hh: Float[ArrayLike, "gates hidden"],
    bias_ih: Float[ArrayLike, " gates"] | None = None,
    bias_hh: Float[ArrayLike, " gates"] | None = None,
) -> tuple[Float[Array, "*batch hidden"], Float[Array, "*batch hidden"]]:
    """Take one step of a long short-term memory.

    `i, f, o = sigmoid(...)`, `g = tanh(...)`, `c' = f * c + i * g`, `h' = o * tanh(c')`, where each
    `...` is its part of `weight_ih @ x + bias_ih + weight_hh @ h + bias_hh`.

    Args:
        x: Inputs of this time.
        h: Hidden state before, zeros if None.
        c: Cell state before, zeros if None.
        weight_ih: Weights of the inputs, the gates i, f, g, o one below the other.
        weight_hh: Weights of the hidden state.
        bias_ih: Bias of the inputs' part.
        bias_hh: Bias of the state's part.

    Returns:
        Hidden state and cell state after.

    Example:
        >>> h, c = lstm_cell(
        ...     jnp.ones(3), jnp.zeros(2), jnp.zeros(2), jnp.zeros((8, 3)), jnp.zeros((8, 2))
        ... )
        >>> h, c
        (Array([0., 0.], dtype=float32), Array([0., 0.], dtype=float32))

    Source: Hochreiter and Schmidhuber (1997), Long short-term memory; Gers, Schmidhuber and Cummins
    (2000).
    """
    h, c = _cell(4, _lstm_step, x, (h, c), weight_ih, weight_hh, bias_ih, bias_hh)
    return h, c


@kernel
def gru_cell(
    x: Float[ArrayLike, "*batch in_features"],
    h: Float[ArrayLike, "*batch hidden"] | None,
    weight_ih: Float[ArrayLike, "gates in_features"],
    weight_hh: Float[ArrayLike, "gates hidden"],
    bias_ih: Float[ArrayLike, " gates"] | None = None,
    bias_hh: Float[ArrayLike, " gates"] | None = None,
) -> Float[Array, "*batch hidden"]:
    """Take one step of a gated recurrent unit.

    `r, z = sigmoid(x_r + h_r), sigmoid(x_z + h_z)`, `n = tanh(x_n + r * h_n)`, `h' = (1 - z) * n +
    z * h`, with `x_r` and so on the parts of `weight_ih @ x + bias_ih`, and `h_r` those of
    `weight_hh @ h + bias_hh`.

    Args:
        x: Inputs of this time.
        h: State before, zeros if None.
        weight_ih: Weights of the inputs, the gates r, z, n one below the other.
        weight_hh: Weights of the state.
        bias_ih: Bias of the inputs' part.
        bias_hh: Bias of the state's part.

    Returns:
        The state after.

    Example:
        >>> gru_cell(jnp.ones(3), jnp.ones(2), jnp.zeros((6, 3)), jnp.zeros((6, 2)))
        Array([0.5, 0.5], dtype=float32)

    Source: Cho et al. (2014), arXiv:1406.1078, in the form that multiplies by r after the product,
    as PyTorch and cuDNN have it.
    """
    return _cell(3, _gru_step, x, (h,), weight_ih, weight_hh, bias_ih, bias_hh)[0]


@kernel(static=("nonlinearity", "reverse"))
def rnn(
    x: Float[ArrayLike, "*batch time in_features"],
    h: Float[ArrayLike, "*batch hidden"] | None,
    weight_ih: Float[ArrayLike, "hidden in_features"],
    weight_hh: Float[ArrayLike, "hidden hidden"],
    bias_ih: Float[ArrayLike, " hidden"] | None = None,
    bias_hh: Float[ArrayLike, " hidden"] | None = None,
    *,
    lengths: Integer[ArrayLike, "*batch"] | None = None,
    nonlinearity: str = "tanh",
    reverse: bool = False,
) -> tuple[Float[Array, "*batch time hidden"], Float[Array, "*batch hidden"]]:
    """Run `rnn_cell` over a sequence.

    Args:
        x: Sequences, time before features.
        h: First state, zeros if None.
        weight_ih: Weights of the inputs.
        weight_hh: Weights of the state.
        bias_ih: Bias of the inputs' part.
        bias_hh: Bias of the state's part.
        lengths: How many times of each sequence count; later ones give zeros and leave the state as
            it is.
        nonlinearity: `tanh` or `relu`.
        reverse: Run from the last time to the first.

    Returns:
        The state after each time, in the order of `x`, and the last state.

    Example:
        >>> ys, h = rnn(jnp.ones((3, 1)), None, jnp.ones((1, 1)), jnp.zeros((1, 1)))
        >>> ys.shape, h
        ((3, 1), Array([0.7615942], dtype=float32))
    """
    step = _rnn_step(nonlinearity)
    weights = weight_ih, weight_hh, bias_ih, bias_hh
    ys, (h,) = _scan(1, step, x, (h,), lengths, reverse, *weights)
    return ys, h


@kernel(static=("reverse",))
def lstm(
    x: Float[ArrayLike, "*batch time in_features"],
    state: object,
    weight_ih: Float[ArrayLike, "gates in_features"],
    weight_hh: Float[ArrayLike, "gates hidden"],
    bias_ih: Float[ArrayLike, " gates"] | None = None,
    bias_hh: Float[ArrayLike, " gates"] | None = None,
    *,
    lengths: Integer[ArrayLike, "*batch"] | None = None,
    reverse: bool = False,
) -> tuple[
    Float[Array, "*batch time hidden"],
    tuple[Float[Array, "*batch hidden"], Float[Array, "*batch hidden"]],
]:
    """Run `lstm_cell` over a sequence.

    Args:
        x: Sequences, time before features.
        state: First hidden state and cell state, zeros if None.
        weight_ih: Weights of the inputs, the gates i, f, g, o one below the other.
        weight_hh: Weights of the hidden state.
        bias_ih: Bias of the inputs' part.
        bias_hh: Bias of the state's part.
        lengths: How many times of each sequence count; later ones give zeros and leave the state as
            it is.
        reverse: Run from the last time to the first.

    Returns:
        The hidden state after each time, in the order of `x`, and the last pair of states.

    Example:
        >>> ys, (h, c) = lstm(jnp.ones((5, 3)), None, jnp.ones((8, 3)), jnp.ones((8, 2)))
        >>> ys.shape, h.shape, c.shape
        ((5, 2), (2,), (2,))
    """
    if state is None:
        state = (None, None)  # type: ignore[assignment]
    if not isinstance(state, (tuple, list)) or len(state) != 2:
        raise ShapeError("state must be a pair (h, c) of hidden state and cell state, or None.")
    weights, pair = (weight_ih, weight_hh, bias_ih, bias_hh), tuple(map(plain, state))
    ys, (h, c) = _scan(4, _lstm_step, x, pair, lengths, reverse, *weights)
    return ys, (h, c)


@kernel(static=("reverse",))
def gru(
    x: Float[ArrayLike, "*batch time in_features"],
    h: Float[ArrayLike, "*batch hidden"] | None,
    weight_ih: Float[ArrayLike, "gates in_features"],
    weight_hh: Float[ArrayLike, "gates hidden"],
    bias_ih: Float[ArrayLike, " gates"] | None = None,
    bias_hh: Float[ArrayLike, " gates"] | None = None,
    *,
    lengths: Integer[ArrayLike, "*batch"] | None = None,
    reverse: bool = False,
) -> tuple[Float[Array, "*batch time hidden"], Float[Array, "*batch hidden"]]:
    """Run `gru_cell` over a sequence.

    Args:
        x: Sequences, time before features.
        h: First state, zeros if None.
        weight_ih: Weights of the inputs, the gates r, z, n one below the other.
        weight_hh: Weights of the state.
        bias_ih: Bias of the inputs' part.
        bias_hh: Bias of the state's part.
        lengths: How many times of each sequence count; later ones give zeros and leave the state as
            it is.
        reverse: Run from the last time to the first.

    Returns:
        The state after each time, in the order of `x`, and the last state.

    Example:
        >>> ys, h = gru(jnp.ones((5, 3)), None, jnp.ones((6, 3)), jnp.ones((6, 2)))
        >>> ys.shape, h.shape
        ((5, 2), (2,))
    """
    weights = weight_ih, weight_hh, bias_ih, bias_hh
    ys, (h,) = _scan(3, _gru_step, x, (h,), lengths, reverse, *weights)
    return ys, h


State = tuple[Array, ...]
Step = Callable[[Array, State, Array, "Array | None"], State]


def _rnn_step(nonlinearity: str) -> Step:
    check_choice("nonlinearity", nonlinearity, ("tanh", "relu"))

    def step(projected: Array, state: State, weight: Array, bias: Array | None) -> State:
        total = projected + linear(state[0], weight, bias)
        return (lax.tanh(total) if nonlinearity == "tanh" else relu(total),)

    return step


def _lstm_step(projected: Array, state: State, weight: Array, bias: Array | None) -> State:
    h, c = state
    i, f, g, o = _parts(projected + linear(h, weight, bias), 4)
    c = lax.logistic(f) * c + lax.logistic(i) * lax.tanh(g)
    return lax.logistic(o) * lax.tanh(c), c


def _gru_step(projected: Array, state: State, weight: Array, bias: Array | None) -> State:
    (h,) = state
    (xr, xz, xn), (hr, hz, hn) = _parts(projected, 3), _parts(linear(h, weight, bias), 3)
    z = lax.logistic(xz + hz)
    n = lax.tanh(xn + lax.logistic(xr + hr) * hn)
    return ((1 - z) * n + z * h,)


def _parts(x: Array, count: int) -> list[Array]:
    size = x.shape[-1] // count
    return [lax.slice_in_dim(x, i * size, (i + 1) * size, axis=x.ndim - 1) for i in range(count)]


def _projected(
    gates: int,
    x: Array,
    states: tuple[Array | None, ...],
    batch: tuple[int, ...],
    weight_ih: Array,
    weight_hh: Array,
    *biases: Array | None,
) -> tuple[Array, State, Array, Array | None]:
    """Check the arguments of a cell, and return those of its step: the projected inputs, the
    states (zeros for None), and the weight and bias of the state's part.
    """
    axes = "(gates * hidden, hidden)" if gates > 1 else "(hidden, hidden)"
    check_rank("weight_hh", weight_hh, axes, 2, 2)
    hidden = weight_hh.shape[1]
    rows = gates * hidden
    check_shape("weight_hh", weight_hh, (rows, hidden), f"{gates} gates")
    check_rank("x", x, "(*batch, in_features)", 1)
    reason = f"rows as in weight_hh, columns as features of x {describe_shape(x)}"
    check_shape("weight_ih", weight_ih, (rows, x.shape[-1]), reason)
    for which, bias in zip(("bias_ih", "bias_hh"), biases):
        check_shape(which, bias, (rows,), "one for each row of weight_hh")
    reason = f"leading axes as in x {describe_shape(x)}, {hidden} hidden"
    for which, state in zip("hc", states, strict=False):
        if state is not None:
            check_floating(which, state)
            check_shape(which, state, (*batch, hidden), reason)
    x, weight_ih, weight_hh, bias_ih, bias_hh, *states_ = promoted(
        x, weight_ih, weight_hh, *biases, *states
    )
    shape = *batch, hidden
    state = tuple(jnp.zeros(shape, x.dtype) if each is None else each for each in states_)
    return linear(x, weight_ih, bias_ih), state, weight_hh, bias_hh


def _cell(gates: int, step: Step, x: Array, states: tuple[Any, ...], *weights: Any) -> State:
    return step(*_projected(gates, x, states, x.shape[:-1], *weights))


def _scan(
    gates: int,
    step: Step,
    x: Array,
    states: tuple[Any, ...],
    lengths: Array | None,
    reverse: bool,
    *weights: Any,
) -> tuple[Array, State]:
    check_rank("x", x, "(*batch, time, in_features)", 2)
    batch, time = x.shape[:-2], x.shape[-2]
    projected, state, weight_hh, bias_hh = _projected(gates, x, states, batch, *weights)
    if not time:  # which `lax.scan` refuses under `jax_disable_jit`
        return jnp.zeros((*batch, 0, weight_hh.shape[1]), projected.dtype), state
    times = lax.transpose(projected, (x.ndim - 2, *range(x.ndim - 2), x.ndim - 1))
    counts: Array | None = None
    if lengths is not None:
        check_shape("lengths", lengths, batch, "one for each sequence")
        counts = (lax.broadcasted_iota(lengths.dtype, (time, *batch), 0) < lengths)[..., None]

    def advance(state: State, inputs: tuple[Array, Array | None]) -> tuple[State, Array]:
        projected, counted = inputs
        new = step(projected, state, weight_hh, bias_hh)
        if counted is None:
            return new, new[0]
        merged = tuple(where(counted, a, b) for a, b in zip(new, state, strict=True))
        return merged, where(counted, new[0], 0)

    state, ys = lax.scan(advance, state, (times, counts), reverse=reverse)
    return lax.transpose(ys, (*range(1, ys.ndim - 1), 0, ys.ndim - 1)), state
