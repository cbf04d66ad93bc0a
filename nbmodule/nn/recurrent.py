"""Recurrent layers: RNN, LSTM and GRU over sequences, in layers and directions. Math, names and
layouts are PyTorch's.

For layer `l` the variables are `weight_ih_l0` of shape `(gates * hidden, in)`, `weight_hh_l0` of
shape `(gates * hidden, hidden)`, `bias_ih_l0` and `bias_hh_l0` of shape `(gates * hidden,)`; those
that run backwards end in `_reverse`. The gates lie one below the other: i, f, g, o in an LSTM; r,
z, n in a GRU.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import jax.numpy as jnp
from jax import lax
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Integer

from nbmodule.base.kinds import DeviceLike, KeyLike
from nbmodule.base.promotion import common_dtype
from nbmodule.core.numbers.random import folded
from nbmodule.errors import ArgumentError, ArgumentTypeError
from nbmodule.nn.checks import (
    check_arrays,
    check_choice,
    check_floating,
    check_rank,
    check_shape,
    flag,
    rate,
    size,
)
from nbmodule.nn.dropout import Dropout
from nbmodule.nn.functional import recurrent
from nbmodule.nn.functional.dropout import dropout
from nbmodule.nn.initializers import InitializerLike, Uniform
from nbmodule.nn.kernel import kernel, plain
from nbmodule.nn.layer import ArrayLike, Layer, initializer, keys

# within one over the root of the fan, for which the state counts
_SPREAD = Uniform(1, "fan_in", 0.5, 1)
_NAMES = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


class _Gated(Layer):
    """The variables of layers and cells."""

    _gates: ClassVar[int]
    _states: ClassVar[tuple[str, ...]] = ("h",)
    _type: ClassVar[str]
    hidden_features: int
    with_bias: bool
    nonlinearity = "tanh"

    def _create_gates(
        self,
        groups: dict[str, int],
        initializers: tuple[object, object],
        key: KeyLike | None,
        device: DeviceLike | None,
        dtype: DTypeLike | None,
    ) -> None:
        """Create the variables of each group: its suffix, and the number of its inputs."""
        hidden, rows, where = (
            self.hidden_features,
            self._gates * self.hidden_features,
            type(self).__name__,
        )
        weights, biases = (
            initializer(where, f"{name}_initializer", passed, _SPREAD)
            for name, passed in zip(("weight", "bias"), initializers)
        )
        subkeys = iter(keys(key, len(_NAMES) * len(groups)))
        for suffix, inputs in groups.items():
            for name, columns, subkey in zip(_NAMES, (inputs, hidden, None, None), subkeys):
                if columns is None and not self.with_bias:
                    continue
                shape = (rows,) if columns is None else (rows, columns)
                draw = biases if columns is None else weights
                fan_in = hidden if draw is _SPREAD or columns is None else columns
                variable = draw.create_variables(shape, device, hidden, fan_in, dtype, key=subkey)
                setattr(self, name + suffix, variable)

    def _values(self, suffix: str = "") -> tuple[Any, ...]:
        names = _NAMES if self.with_bias else _NAMES[:2]
        return tuple(getattr(self, name + suffix).value for name in names)

    def _check_pair(self, state: object) -> Any:
        """Return a state of several arrays, or raise."""
        if not isinstance(state, (tuple, list)):
            got = type(state).__name__
        elif len(state) != len(self._states):
            got = f"{len(state)} of them"
        else:
            return state
        raise ArgumentTypeError(
            f"{type(self).__name__}: state must be a pair (h, c) of arrays, got {got}."
        )


class _Recurrent(_Gated):
    """$title.

    Called as `y, state = layer(x, state)` on `(*batch, time, in_features)`: `y` is `(*batch, time,
    hidden_features)`, twice as
    many features if it runs both ways. The state is ${state}, each of shape
    `(num_layers * directions, *batch, hidden_features)`; zeros if none is given. With `lengths=`,
    `(*batch,)`, only that many
    times of each sequence count: later outputs are zero, and the state is that of the last time
    that counts.

    Variables are named and laid out as in PyTorch: `weight_ih_l0` `(${gates}hidden, in)`,
    `weight_hh_l0`, `bias_ih_l0`,
    `bias_hh_l0`, further layers with their number, those that run backwards with `_reverse` at the
    end.${order}

    Args:
        in_features: Size of the inputs' last axis.
        hidden_features: Size of the state.
        num_layers: Number of layers, each over the outputs of the one before.
        bidirectional: Whether each layer also runs from the last time to the first, and both
            outputs are joined.
        dropout_rate: Probability with which outputs are dropped between layers, in training.
        with_bias: Whether biases are added.
        return_sequence: Whether all outputs are returned, or only the last (of each direction).
        return_state: Whether the state is returned too.
        weight_initializer: Of the weights; uniform within `1 / sqrt(hidden_features)` by default.
        bias_initializer: Of the biases; uniform within `1 / sqrt(hidden_features)` by default.
        key: Key for the initial values; by default the next of the default stream.
        device: Device of the variables.
        dtype: Dtype of the variables.
        v: Variables to use instead of fresh ones.${more}

    Example:
        >>> import jax
        >>> import jax.numpy as jnp
        >>> from nbmodule.nn.recurrent import $name
        >>> y, state = $name(3, 4, num_layers=2, bidirectional=True)(jnp.ones((5, 7, 3)))
        >>> y.shape, jax.tree.map(jnp.shape, state)
        ${shapes}

    Source: ${source}
    """

    _shown = "in_features hidden_features"

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
        self.hidden_features = hidden = size(name, "hidden_features", hidden_features)
        self.num_layers = size(name, "num_layers", num_layers)
        self.bidirectional = flag(name, "bidirectional", bidirectional)
        self.with_bias = flag(name, "with_bias", with_bias)
        self.return_sequence = flag(name, "return_sequence", return_sequence)
        self.return_state = flag(name, "return_state", return_state)
        if rate(name, "dropout_rate", dropout_rate) and num_layers == 1:
            raise ArgumentError(
                f"{name}: dropout_rate={dropout_rate} acts between layers, and there is one layer."
            )
        self.dropout = Dropout(dropout_rate) if num_layers > 1 else None
        groups = {
            suffix: hidden * len(self._suffixes(layer)) if layer else in_features
            for layer in range(num_layers)
            for suffix in self._suffixes(layer)
        }
        initializers = weight_initializer, bias_initializer
        self._create_gates(groups, initializers, key, device, dtype)
        super().__init__(device=device, dtype=dtype, v=v)

    def _suffixes(self, layer: int) -> tuple[str, ...]:
        """Return the ends of names, one for each direction."""
        return (f"_l{layer}", f"_l{layer}_reverse")[: 1 + self.bidirectional]

    def forward(
        self,
        x: Float[ArrayLike, "*batch time in_features"],
        state: object = None,
        *,
        lengths: Integer[ArrayLike, "*batch"] | None = None,
    ) -> Any:
        weights = tuple(
            tuple(self._values(suffix) for suffix in self._suffixes(layer))
            for layer in range(self.num_layers)
        )
        dropped, key = 0.0, None
        if self.dropout is not None:
            dropped, key = self.dropout.current_rate, self.dropout.next_key()
        if state is not None:
            states = (state,) if len(self._states) == 1 else self._check_pair(state)
            state = tuple(map(plain, states))
        ys, last = _run(
            x,
            state,
            weights,
            lengths,
            key,
            layer_type=self._type,
            nonlinearity=self.nonlinearity,
            dropout_rate=dropped,
            return_sequence=self.return_sequence,
        )
        last = last if len(self._states) > 1 else last[0]
        return (ys, last) if self.return_state else ys

    def brief(self) -> str:
        """For displays: `3 → 2 × 8, 2 layers`, twofold if it runs both ways."""
        directions = "2 × " if self.bidirectional else ""
        layers = f", {self.num_layers} layers" if self.num_layers > 1 else ""
        return f"{self.in_features} → {directions}{self.hidden_features}{layers}"


class RNN(_Recurrent):
    _type, _gates = "RNN", 1
    _words: ClassVar[dict[str, str]] = {
        "title": (
            "A simple recurrent network: "
            "`h' = tanh(weight_ih @ x + bias_ih + weight_hh @ h + bias_hh)`"
        ),
        "state": "one array `h`",
        "gates": "",
        "order": "",
        "more": "\n        nonlinearity: `tanh` or `relu`.",
        "shapes": "((5, 7, 8), (4, 5, 4))",
        "source": "Elman (1990), Finding structure in time.",
    }

    def __init__(
        self, in_features: int, hidden_features: int, *, nonlinearity: str = "tanh", **options: Any
    ) -> None:
        check_choice("RNN", "nonlinearity", nonlinearity, ("tanh", "relu"))
        self.nonlinearity = nonlinearity
        super().__init__(in_features, hidden_features, **options)


class LSTM(_Recurrent):
    _type, _gates, _states = "LSTM", 4, ("h", "c")
    _words: ClassVar[dict[str, str]] = {
        "title": "Long short-term memory; `nb.lstm` gives the formula",
        "state": "a pair `(h, c)` of arrays",
        "gates": "4 * ",
        "order": " The gates lie\n    in the order i, f, g, o.",
        "more": "",
        "shapes": "((5, 7, 8), ((4, 5, 4), (4, 5, 4)))",
        "source": "Hochreiter and Schmidhuber (1997), Long short-term memory.",
    }


class GRU(_Recurrent):
    _type, _gates = "GRU", 3
    _words: ClassVar[dict[str, str]] = {
        "title": "Gated recurrent units; `nb.gru` gives the formula",
        "state": "one array `h`",
        "gates": "3 * ",
        "order": " The gates lie\n    in the order r, z, n.",
        "more": "",
        "shapes": "((5, 7, 8), (4, 5, 4))",
        "source": "Cho et al. (2014), arXiv:1406.1078.",
    }


class _Cell(_Gated):
    """One step of `nb.${layer}`: called as `state = cell(x, state)`, it gives the state after.

    The state is ${state} of shape `(*batch, hidden_features)`; zeros if none is given. Variables
    are named and laid out as in
    PyTorch: `weight_ih` `(${gates}hidden, in)`, `weight_hh`, `bias_ih`, `bias_hh`.

    Args:
        in_features: Size of the inputs' last axis.
        hidden_features: Size of the state.
        with_bias: Whether biases are added.
        weight_initializer: Of the weights; uniform within `1 / sqrt(hidden_features)` by default.
        bias_initializer: Of the biases; uniform within `1 / sqrt(hidden_features)` by default.
        key: Key for the initial values; by default the next of the default stream.
        device: Device of the variables.
        dtype: Dtype of the variables.
        v: Variables to use instead of fresh ones.${more}

    Example:
        >>> import jax
        >>> import jax.numpy as jnp
        >>> from nbmodule.nn.recurrent import $name
        >>> cell, state = $name(3, 4), None
        >>> for x in jnp.ones((7, 5, 3)):
        ...     state = cell(x, state)
        >>> jax.tree.map(jnp.shape, state)
        ${shapes}

    Source: ${source}
    """

    if TYPE_CHECKING:
        weight_ih: Any

    _shown, _brief = "in_features hidden_features", "{in_features} → {hidden_features}"

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
        self.hidden_features = size(name, "hidden_features", hidden_features)
        self.with_bias = flag(name, "with_bias", with_bias)
        initializers = weight_initializer, bias_initializer
        self._create_gates({"": in_features}, initializers, key, device, dtype)
        super().__init__(device=device, dtype=dtype, v=v)

    def _state(self, x: Array, state: object) -> Any:
        """Return the state as an array, or zeros."""
        if state is not None:
            return plain(state)
        x = plain(x)
        check_arrays(type(self).__name__, x=x)
        shape, dtype = (*x.shape[:-1], self.hidden_features), common_dtype(x, self.weight_ih.dtype)
        return jnp.zeros(shape, dtype)


class RNNCell(_Cell):
    _gates = 1
    _words: ClassVar[dict[str, str]] = {
        "layer": "RNN",
        "state": "one array `h`",
        "more": "\n        nonlinearity: `tanh` or `relu`.",
        "gates": "",
        "shapes": "(5, 4)",
        "source": "as `nb.RNN`.",
    }

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
            x, self._state(x, state), *self._values(), nonlinearity=self.nonlinearity
        )


class LSTMCell(_Cell):
    _gates, _states = 4, ("h", "c")
    _words: ClassVar[dict[str, str]] = {
        "layer": "LSTM",
        "state": "a pair `(h, c)` of arrays",
        "more": "",
        "gates": "4 * ",
        "shapes": "((5, 4), (5, 4))",
        "source": "as `nb.LSTM`.",
    }

    def forward(self, x: Float[ArrayLike, "*batch in_features"], state: object = None) -> Any:
        pair = (None, None) if state is None else self._check_pair(state)
        h, c = (self._state(x, part) for part in pair)
        return recurrent.lstm_cell(x, h, c, *self._values())


class GRUCell(_Cell):
    _gates = 3
    _words: ClassVar[dict[str, str]] = {
        "layer": "GRU",
        "state": "one array `h`",
        "more": "",
        "gates": "3 * ",
        "shapes": "(5, 4)",
        "source": "as `nb.GRU`.",
    }

    def forward(
        self,
        x: Float[ArrayLike, "*batch in_features"],
        state: Float[ArrayLike, "*batch hidden"] | None = None,
    ) -> Float[Array, "*batch hidden"]:
        return recurrent.gru_cell(x, self._state(x, state), *self._values())


@kernel(static=("layer_type", "nonlinearity", "return_sequence"), numbers=("dropout_rate",))
def _run(
    x: Array,
    state: tuple[Array, ...] | None,
    weights: tuple[Any, ...],
    lengths: Array | None,
    key: KeyLike | None,
    *,
    layer_type: str,
    nonlinearity: str,
    dropout_rate: float | Array,
    return_sequence: bool,
) -> Any:
    """Run all layers and directions; states go in and come out as one array each, layers and
    directions along its first axis.
    """
    check_floating(layer_type, x=x)
    check_rank(layer_type, "x", x, "(*batch, time, features)", 2)
    hidden, directions = weights[0][0][1].shape[1], len(weights[0])
    check_shape(
        layer_type,
        "x",
        x,
        (*x.shape[:-1], weights[0][0][0].shape[1]),
        "as many features as in_features",
    )
    for name, part in zip("hc", state or ()):
        check_arrays(layer_type, **{name: part})
        shape = (len(weights) * directions, *x.shape[:-2], hidden)
        check_shape(layer_type, name, part, shape, "(layers * directions, *batch, hidden_features)")
    finals = []
    for layer, directed in enumerate(weights):
        if layer and key is not None:
            x = dropout(x, dropout_rate, folded(key, layer))
        outputs = []
        for direction, parameters in enumerate(directed):
            first = (
                None
                if state is None
                else tuple(part[layer * directions + direction] for part in state)
            )
            ys, last = recurrent.scan_layer(
                layer_type, x, first, parameters, lengths, bool(direction), nonlinearity
            )
            outputs.append(ys)
            finals.append(last)
        x = outputs[0] if directions == 1 else lax.concatenate(outputs, x.ndim - 1)
    ends = [last[0] for last in finals[-directions:]]
    if not return_sequence:
        x = ends[0] if directions == 1 else lax.concatenate(ends, ends[0].ndim - 1)
    return x, tuple(jnp.stack(parts) for parts in zip(*finals))


__all__ = ["GRU", "LSTM", "RNN", "GRUCell", "LSTMCell", "RNNCell"]
