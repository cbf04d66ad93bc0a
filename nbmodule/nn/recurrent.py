"""Recurrent layers: RNN, LSTM and GRU over sequences, in layers and directions. Math, names and
layouts are PyTorch's.

For layer `l` the variables are `weight_ih_l0` of shape `(gates * hidden, in)`, `weight_hh_l0` of
shape `(gates * hidden, hidden)`, `bias_ih_l0` and `bias_hh_l0` of shape `(gates * hidden,)`; those
that run backwards end in `_reverse`. The gates lie one below the other: i, f, g, o in an LSTM; r,
z, n in a GRU.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import jax.numpy as jnp
from jax import lax
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Integer

from nbmodule.base.kinds import DeviceLike, KeyLike
from nbmodule.base.promotion import common_dtype
from nbmodule.core.numbers.random import folded
from nbmodule.errors import ArgumentError, ArgumentTypeError
from nbmodule.nn.dropout import Dropout
from nbmodule.nn.functional import recurrent
from nbmodule.nn.functional.checks import check_arrays, check_choice, check_rank, check_shape
from nbmodule.nn.functional.dropout import dropout
from nbmodule.nn.initializers import Initializer, InitializerLike, Uniform
from nbmodule.nn.kernel import kernel, plain
from nbmodule.nn.layer import ArrayLike, Layer, flag, initializer, keys, rate, size, unusual

_SPREAD = Uniform(
    1, "fan_in", 0.5, 1
)  # within one over the root of the fan, for which the state counts
_KINDS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


class _Recurrent(Layer):
    """What the three share: variables of all layers and directions, and one compiled run over them."""

    _kind: ClassVar[str]
    _gates: ClassVar[int]
    _states: ClassVar[tuple[str, ...]] = ("h",)
    nonlinearity = "tanh"

    def __init__(
        self,
        in_features: int,
        hidden_features: int,
        *,
        num_layers: int = 1,
        bidirectional: bool = False,
        dropout_rate: float = 0.0,
        with_bias: bool = True,
        return_sequence: bool = True,
        return_state: bool = True,
        weight_initializer: InitializerLike | None = None,
        bias_initializer: InitializerLike | None = None,
        key: KeyLike | None = None,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
        v: Mapping[str, Any] | None = None,
    ) -> None:
        name = type(self).__name__
        self.in_features = size(name, "in_features", in_features)
        self.hidden_features = size(name, "hidden_features", hidden_features)
        self.num_layers = size(name, "num_layers", num_layers)
        self.bidirectional, self.with_bias = (
            flag(name, "bidirectional", bidirectional),
            flag(name, "with_bias", with_bias),
        )
        self.return_sequence = flag(name, "return_sequence", return_sequence)
        self.return_state = flag(name, "return_state", return_state)
        if rate(name, "dropout_rate", dropout_rate) and num_layers == 1:
            raise ArgumentError(
                f"{name}: dropout_rate={dropout_rate} acts between layers, and there is one layer."
            )
        self.dropout = Dropout(dropout_rate) if num_layers > 1 else None
        given = (
            None
            if weight_initializer is None
            else initializer(name, "weight_initializer", weight_initializer, _SPREAD),
            None
            if bias_initializer is None
            else initializer(name, "bias_initializer", bias_initializer, _SPREAD),
        )
        self._make(given, key, device, dtype)
        super().__init__(device=device, dtype=dtype, v=v)

    def _make(
        self,
        given: tuple[Initializer | None, Initializer | None],
        key: KeyLike | None,
        device: DeviceLike | None,
        dtype: DTypeLike | None,
    ) -> None:
        hidden, rows = self.hidden_features, self._gates * self.hidden_features
        each = iter(keys(key, len(_KINDS) * self.num_layers * self._directions))
        for layer in range(self.num_layers):
            inputs = self.in_features if layer == 0 else hidden * self._directions
            for suffix in self._suffixes(layer):
                for kind, columns in zip(_KINDS, (inputs, hidden, None, None)):
                    own_key, made = next(each), given[columns is None]
                    if columns is None and not self.with_bias:
                        continue
                    shape = (rows,) if columns is None else (rows, columns)
                    fan_in = hidden if made is None or columns is None else columns
                    made = _SPREAD if made is None else made
                    setattr(
                        self,
                        kind + suffix,
                        made.create_variables(shape, device, hidden, fan_in, dtype, key=own_key),
                    )

    @property
    def _directions(self) -> int:
        return 2 if self.bidirectional else 1

    def _suffixes(self, layer: int) -> tuple[str, ...]:
        return tuple(f"_l{layer}{way}" for way in ("", "_reverse")[: self._directions])

    def forward(
        self,
        x: Float[ArrayLike, "*batch time in_features"],
        state: Any = None,
        *,
        lengths: Integer[ArrayLike, "*batch"] | None = None,
    ) -> Any:
        names = _KINDS if self.with_bias else _KINDS[:2]
        weights = tuple(
            tuple(
                tuple(getattr(self, kind + suffix).value for kind in names)
                for suffix in self._suffixes(layer)
            )
            for layer in range(self.num_layers)
        )
        dropped, key = (
            (0.0, None)
            if self.dropout is None
            else (self.dropout.current_rate, self.dropout.next_key())
        )
        ys, last = _run(
            x,
            self._given(state),
            weights,
            lengths,
            key,
            kind=self._kind,
            nonlinearity=self.nonlinearity,
            dropout_rate=dropped,
            return_sequence=self.return_sequence,
        )
        last = last if len(self._states) > 1 else last[0]
        return (ys, last) if self.return_state else ys

    def _given(self, state: Any) -> Any:
        if state is None:
            return None
        if len(self._states) == 1:
            return (plain(state),)
        if not isinstance(state, (tuple, list)) or len(state) != len(self._states):
            found = (
                f"{len(state)} of them"
                if isinstance(state, (tuple, list))
                else type(state).__name__
            )
            raise ArgumentTypeError(
                f"{type(self).__name__}: state must be a pair (h, c) of arrays, got {found}."
            )
        return tuple(map(plain, state))

    def extra_repr(self) -> str:
        usual = {
            "num_layers": 1,
            "bidirectional": False,
            "with_bias": True,
            "return_sequence": True,
            "return_state": True,
        }
        usual["nonlinearity"] = "tanh"
        return f"{self.in_features}, {self.hidden_features}{unusual(self, **usual)}"

    def brief(self) -> str:
        """For displays: `3 → 2 × 8, 2 layers`, twofold if it runs both ways."""
        ways = "2 × " if self.bidirectional else ""
        layers = f", {self.num_layers} layers" if self.num_layers > 1 else ""
        return f"{self.in_features} → {ways}{self.hidden_features}{layers}"


class RNN(_Recurrent):
    _kind, _gates = "RNN", 1

    def __init__(
        self, in_features: int, hidden_features: int, *, nonlinearity: str = "tanh", **options: Any
    ) -> None:
        check_choice("RNN", "nonlinearity", nonlinearity, ("tanh", "relu"))
        self.nonlinearity = nonlinearity
        super().__init__(in_features, hidden_features, **options)


class LSTM(_Recurrent):
    _kind, _gates, _states = "LSTM", 4, ("h", "c")


class GRU(_Recurrent):
    _kind, _gates = "GRU", 3


class _Cell(Layer):
    """What the cells share: one step of a layer, with its variables under the names that PyTorch
    gives them.
    """

    _gates: ClassVar[int]
    nonlinearity = "tanh"

    def __init__(
        self,
        in_features: int,
        hidden_features: int,
        *,
        with_bias: bool = True,
        weight_initializer: InitializerLike | None = None,
        bias_initializer: InitializerLike | None = None,
        key: KeyLike | None = None,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
        v: Mapping[str, Any] | None = None,
    ) -> None:
        name = type(self).__name__
        self.in_features = size(name, "in_features", in_features)
        self.hidden_features = hidden = size(name, "hidden_features", hidden_features)
        self.with_bias = flag(name, "with_bias", with_bias)
        weights = initializer(name, "weight_initializer", weight_initializer, _SPREAD)
        biases = initializer(name, "bias_initializer", bias_initializer, _SPREAD)
        rows = self._gates * hidden
        for kind, columns, own_key in zip(
            _KINDS, (in_features, hidden, None, None), keys(key, len(_KINDS))
        ):
            if columns is None and not with_bias:
                continue
            shape = (rows,) if columns is None else (rows, columns)
            made = biases if columns is None else weights
            fan_in = hidden if made is _SPREAD or columns is None else columns
            setattr(
                self, kind, made.create_variables(shape, device, hidden, fan_in, dtype, key=own_key)
            )
        super().__init__(device=device, dtype=dtype, v=v)

    def _variables(self) -> tuple[Any, ...]:
        return tuple(
            getattr(self, kind).value for kind in (_KINDS if self.with_bias else _KINDS[:2])
        )

    def _state(self, x: Array, state: Any) -> Any:
        """The state that was given, or zeros."""
        if state is not None:
            return plain(state)
        x = plain(x)
        check_arrays(type(self).__name__, x=x)
        return jnp.zeros(
            (*x.shape[:-1], self.hidden_features), common_dtype(x, self.weight_ih.dtype)
        )

    def extra_repr(self) -> str:
        return (
            f"{self.in_features}, "
            f"{self.hidden_features}{unusual(self, with_bias=True, nonlinearity='tanh')}"
        )

    def brief(self) -> str:
        """For displays: `3 → 8`."""
        return f"{self.in_features} → {self.hidden_features}"


class RNNCell(_Cell):
    _gates = 1

    def __init__(
        self, in_features: int, hidden_features: int, *, nonlinearity: str = "tanh", **options: Any
    ) -> None:
        check_choice("RNNCell", "nonlinearity", nonlinearity, ("tanh", "relu"))
        self.nonlinearity = nonlinearity
        super().__init__(in_features, hidden_features, **options)

    def forward(
        self,
        x: Float[ArrayLike, "*batch in_features"],
        state: Float[ArrayLike, "*batch hidden"] | None = None,
    ) -> Float[Array, "*batch hidden"]:
        return recurrent.rnn_cell(
            x, self._state(x, state), *self._variables(), nonlinearity=self.nonlinearity
        )


class LSTMCell(_Cell):
    _gates = 4

    def forward(self, x: Float[ArrayLike, "*batch in_features"], state: object = None) -> Any:
        if state is None:
            state = (None, None)
        elif not isinstance(state, (tuple, list)) or len(state) != 2:
            found = (
                f"{len(state)} of them"
                if isinstance(state, (tuple, list))
                else type(state).__name__
            )
            raise ArgumentTypeError(
                f"LSTMCell: state must be a pair (h, c) of arrays, got {found}."
            )
        h, c = (self._state(x, part) for part in state)
        return recurrent.lstm_cell(x, h, c, *self._variables())


class GRUCell(_Cell):
    _gates = 3

    def forward(
        self,
        x: Float[ArrayLike, "*batch in_features"],
        state: Float[ArrayLike, "*batch hidden"] | None = None,
    ) -> Float[Array, "*batch hidden"]:
        return recurrent.gru_cell(x, self._state(x, state), *self._variables())


@kernel(static=("kind", "nonlinearity", "return_sequence"), numbers=("dropout_rate",))
def _run(
    x: ArrayLike,
    state: Any,
    weights: Any,
    lengths: object,
    key: KeyLike | None,
    *,
    kind: str,
    nonlinearity: str,
    dropout_rate: Any,
    return_sequence: bool,
) -> Any:
    """Run all layers and directions; states go in and come out as one array each, layers and
    directions along its first axis.
    """
    check_arrays(kind, x=x)
    check_rank(kind, "x", x, "(*batch, time, features)", 2)
    hidden, directions = weights[0][0][1].shape[1], len(weights[0])
    check_shape(
        kind, "x", x, (*x.shape[:-1], weights[0][0][0].shape[1]), "as many features as in_features"
    )
    for name, part in zip("hc", state or ()):
        check_arrays(kind, **{name: part})
        wanted = (len(weights) * directions, *x.shape[:-2], hidden)
        check_shape(kind, name, part, wanted, "(layers * directions, *batch, hidden_features)")
    finals = []
    for layer, ways in enumerate(weights):
        if layer and key is not None:
            x = dropout(x, dropout_rate, folded(key, layer))
        outputs = []
        for way, own in enumerate(ways):
            first = (
                None if state is None else tuple(part[layer * directions + way] for part in state)
            )
            ys, last = _one(kind, x, first, own, lengths, nonlinearity, bool(way))
            outputs.append(ys)
            finals.append(last)
        x = outputs[0] if directions == 1 else lax.concatenate(outputs, x.ndim - 1)
    ends = [last[0] for last in finals[-directions:]]
    if not return_sequence:
        x = ends[0] if directions == 1 else lax.concatenate(ends, ends[0].ndim - 1)
    return x, tuple(jnp.stack(parts) for parts in zip(*finals))


def _one(
    kind: str,
    x: ArrayLike,
    first: Any,
    weights: Any,
    lengths: Any,
    nonlinearity: str,
    reverse: bool,
) -> tuple[Any, tuple[Any, ...]]:
    if kind == "LSTM":
        return recurrent.lstm(x, first, *weights, lengths=lengths, reverse=reverse)
    first = None if first is None else first[0]
    if kind == "GRU":
        ys, last = recurrent.gru(x, first, *weights, lengths=lengths, reverse=reverse)
    else:
        ys, last = recurrent.rnn(
            x, first, *weights, lengths=lengths, reverse=reverse, nonlinearity=nonlinearity
        )
    return ys, (last,)


_DOC = """{title}

    Called as `y, state = layer(x, state)` on `(*batch, time, in_features)`: `y` is `(*batch, time, hidden_features)`, twice as
    many features if it runs both ways. The state is {state}, each of shape
    `(num_layers * directions, *batch, hidden_features)`; zeros if none is given. With `lengths=`, `(*batch,)`, only that many
    times of each sequence count: later outputs are zero, and the state is that of the last time that counts.

    Variables are named and laid out as in PyTorch: `weight_ih_l0` `({gates}hidden, in)`, `weight_hh_l0`, `bias_ih_l0`,
    `bias_hh_l0`, further layers with their number, those that run backwards with `_reverse` at the end.{order}

    Args:
        in_features: Size of the inputs' last axis.
        hidden_features: Size of the state.
        num_layers: Number of layers, each over the outputs of the one before.
        bidirectional: Whether each layer also runs from the last time to the first, and both outputs are joined.
        dropout_rate: Probability with which outputs are dropped between layers, in training.
        with_bias: Whether biases are added.
        return_sequence: Whether all outputs are returned, or only the last (of each direction).
        return_state: Whether the state is returned too.
        weight_initializer: Of the weights; uniform within `1 / sqrt(hidden_features)` by default.
        bias_initializer: Of the biases; uniform within `1 / sqrt(hidden_features)` by default.
        key: Key for the initial values; by default the next of the default stream.
        device: Device of the variables.
        dtype: Dtype of the variables.
        v: Variables to use instead of fresh ones.{more}

    Example:
        >>> import jax
        >>> import jax.numpy as jnp
        >>> from nbmodule.nn.recurrent import {name}
        >>> y, state = {name}(3, 4, num_layers=2, bidirectional=True)(jnp.ones((5, 7, 3)))
        >>> y.shape, jax.tree.map(jnp.shape, state)
        {shapes}

    Source: {source}
    """
RNN.__doc__ = _DOC.format(
    title=(
        "A simple recurrent network: `h' = tanh(weight_ih @ x + bias_ih + weight_hh @ h + "
        "bias_hh)`."
    ),
    state="one array `h`",
    gates="",
    order="",
    more="\n        nonlinearity: `tanh` or `relu`.",
    name="RNN",
    shapes="((5, 7, 8), (4, 5, 4))",
    source="Elman (1990), Finding structure in time.",
)
LSTM.__doc__ = _DOC.format(
    title="Long short-term memory; `nb.lstm` gives the formula.",
    state="a pair `(h, c)` of arrays",
    gates="4 * ",
    order=" The gates lie\n    in the order i, f, g, o.",
    more="",
    name="LSTM",
    shapes="((5, 7, 8), ((4, 5, 4), (4, 5, 4)))",
    source="Hochreiter and Schmidhuber (1997), Long short-term memory.",
)
GRU.__doc__ = _DOC.format(
    title="Gated recurrent units; `nb.gru` gives the formula.",
    state="one array `h`",
    gates="3 * ",
    order=" The gates lie\n    in the order r, z, n.",
    more="",
    name="GRU",
    shapes="((5, 7, 8), (4, 5, 4))",
    source="Cho et al. (2014), arXiv:1406.1078.",
)

_CELL_DOC = """One step of `nb.{layer}`: called as `state = cell(x, state)`, it gives the state after.

    The state is {state} of shape `(*batch, hidden_features)`; zeros if none is given. Variables are named and laid out as in
    PyTorch: `weight_ih` `({gates}hidden, in)`, `weight_hh`, `bias_ih`, `bias_hh`.

    Args:
        in_features: Size of the inputs' last axis.
        hidden_features: Size of the state.
        with_bias: Whether biases are added.
        weight_initializer: Of the weights; uniform within `1 / sqrt(hidden_features)` by default.
        bias_initializer: Of the biases; uniform within `1 / sqrt(hidden_features)` by default.
        key: Key for the initial values; by default the next of the default stream.
        device: Device of the variables.
        dtype: Dtype of the variables.
        v: Variables to use instead of fresh ones.{more}

    Example:
        >>> import jax
        >>> import jax.numpy as jnp
        >>> from nbmodule.nn.recurrent import {layer}Cell
        >>> cell, state = {layer}Cell(3, 4), None
        >>> for x in jnp.ones((7, 5, 3)):
        ...     state = cell(x, state)
        >>> jax.tree.map(jnp.shape, state)
        {shapes}

    Source: {source}
    """
for _cell, _more in (
    (RNNCell, "\n        nonlinearity: `tanh` or `relu`."),
    (LSTMCell, ""),
    (GRUCell, ""),
):
    _is_pair, _layer = _cell is LSTMCell, _cell.__name__.removesuffix("Cell")
    _cell.__doc__ = _CELL_DOC.format(
        layer=_layer,
        state="a pair `(h, c)` of arrays" if _is_pair else "one array `h`",
        more=_more,
        gates=f"{_cell._gates} * " if _cell._gates > 1 else "",
        shapes="((5, 4), (5, 4))" if _is_pair else "(5, 4)",
        source=f"as `nb.{_layer}`.",
    )

__all__ = ["GRU", "LSTM", "RNN", "GRUCell", "LSTMCell", "RNNCell"]
