"""Recurrent layers: RNN, LSTM and GRU over sequences, in layers and directions. Math, names and
layouts are PyTorch's.

For layer `l` the variables are `weight_ih_l0` of shape `(gates * hidden, in)`, `weight_hh_l0` of
shape `(gates * hidden, hidden)`, `bias_ih_l0` and `bias_hh_l0` of shape `(gates * hidden,)`; those
that run backwards end in `_reverse`. The gates are stacked: i, f, g, o in an LSTM; r,
z, n in a GRU.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Unpack

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Integer

from nbmodule.base.kinds import DeviceLike, KeyLike, as_flag
from nbmodule.core.numbers.random import folded
from nbmodule.errors import ArgumentError, ArgumentTypeError, naming
from nbmodule.nn.checks import (
    check_array,
    check_choice,
    check_floating,
    check_rank,
    check_shape,
    rate,
    size,
)
from nbmodule.nn.dropout import Dropout
from nbmodule.nn.functional import recurrent
from nbmodule.nn.functional.dropout import dropout
from nbmodule.nn.initializers import InitializerLike, Uniform
from nbmodule.nn.kernel import kernel, plain
from nbmodule.nn.layer import ArrayLike, Layer, VariableOptions, initializer, keys

# within one over the root of the fan, for which the state counts
_SPREAD = Uniform(1, "fan_in", 0.5, 1)
_NAMES = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


class CellOptions(VariableOptions, total=False):
    """Options of a recurrent cell."""

    with_bias: bool


class _Gated(Layer):
    """The variables of layers and cells."""

    _gates: ClassVar[int]
    _states: ClassVar[tuple[str, ...]] = ("h",)
    _type: ClassVar[str]
    hidden_features: int
    with_bias: bool
    nonlinearity = "tanh"
    _more: ClassVar[str] = ""  # arguments, for the docstring

    def __init_subclass__(cls, **kwargs: object) -> None:
        if "_gates" in vars(cls):
            gates, is_pair = cls._gates, len(cls._states) > 1
            cls._words = {
                "state": "a pair `(h, c)` of arrays" if is_pair else "one array `h`",
                "gates": f"{gates} * " if gates > 1 else "",
                "shape": "((4, 5, 4), (4, 5, 4))" if is_pair else "(4, 5, 4)",
                "cell_shape": "((5, 4), (5, 4))" if is_pair else "(5, 4)",
                "more": cls._more,
            }
        super().__init_subclass__(**kwargs)

    def __init__(
        self,
        groups: dict[str, int],
        *,
        with_bias: bool = True,
        weight_initializer: InitializerLike | None = None,
        bias_initializer: InitializerLike | None = None,
        key: KeyLike | None = None,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
        v: Mapping[str, Any] | None = None,
    ) -> None:
        """Create the variables of each group: its suffix, and the number of its inputs."""
        hidden = self.hidden_features
        self.with_bias = as_flag("with_bias", with_bias)
        weights = initializer("weight_initializer", weight_initializer, _SPREAD)
        biases = initializer("bias_initializer", bias_initializer, _SPREAD)
        subkeys = iter(keys(key, len(_NAMES) * len(groups)))
        for suffix, inputs in groups.items():
            for kind, columns, subkey in zip(_NAMES, (inputs, hidden, None, None), subkeys):
                if columns is None and not self.with_bias:
                    continue
                rows = (self._gates * hidden,)
                shape, draw = (rows, biases) if columns is None else ((*rows, columns), weights)
                fan_in = hidden if draw is _SPREAD or columns is None else columns
                variable = draw.create_variables(shape, device, hidden, fan_in, dtype, key=subkey)
                setattr(self, kind + suffix, variable)
        super().__init__(device=device, dtype=dtype, v=v)

    def _values(self, suffix: str = "") -> tuple[Any, ...]:
        names = _NAMES if self.with_bias else _NAMES[:2]
        return tuple(getattr(self, name + suffix).value for name in names)

    def _check_state(self, state: Any) -> Any:
        """Return the array or the pair of arrays of a state, or raise."""
        if len(self._states) == 1:
            return plain(state)
        if isinstance(state, (tuple, list)) and len(state) == 2:
            return tuple(map(plain, state))
        got = f"{len(state)} of them" if isinstance(state, (tuple, list)) else type(state).__name__
        raise ArgumentTypeError(
            f"{type(self).__name__}: state must be a pair (h, c) of arrays, got {got}."
        )


class _Recurrent(_Gated):
    """$title.

    Called as `y, state = layer(x, state)` on `(*batch, time, in_features)`: `y` is `(*batch, time,
    hidden_features)`, twice as many features if it runs both ways. The state is $state, each of
    shape `(num_layers * directions, *batch, hidden_features)`; zeros if none is given. With
    `lengths=`, `(*batch,)`, only that many times of each sequence count: later outputs are zero,
    and the state is that of the last time that counts.

    Variables are named and laid out as in PyTorch: `weight_ih_l0` `(${gates}hidden, in)`,
    `weight_hh_l0`, `bias_ih_l0`, `bias_hh_l0`, further layers with their number, those that run
    backwards with `_reverse` at the end. $body

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
        ((5, 7, 8), ${shape})

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
        **options: Unpack[VariableOptions],
    ) -> None:
        self.in_features = size("in_features", in_features)
        self.hidden_features = hidden = size("hidden_features", hidden_features)
        self.num_layers = size("num_layers", num_layers)
        self.bidirectional = as_flag("bidirectional", bidirectional)
        self.return_sequence = as_flag("return_sequence", return_sequence)
        self.return_state = as_flag("return_state", return_state)
        if rate("dropout_rate", dropout_rate) and num_layers == 1:
            raise ArgumentError(
                f"dropout_rate={dropout_rate} acts between layers, and there is one layer."
            )
        self.dropout = Dropout(dropout_rate) if num_layers > 1 else None
        groups = {
            suffix: hidden * len(self._suffixes(layer)) if layer else in_features
            for layer in range(num_layers)
            for suffix in self._suffixes(layer)
        }
        super().__init__(groups, with_bias=with_bias, **options)

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
        ys, last = _run(
            x,
            None if state is None else self._check_state(state),
            weights,
            lengths,
            key,
            layer_type=self._type,
            nonlinearity=self.nonlinearity,
            dropout_rate=dropped,
            return_sequence=self.return_sequence,
        )
        return (ys, last) if self.return_state else ys

    def brief(self) -> str:
        """For displays: `3 → 2 × 8, 2 layers`, twofold if it runs both ways."""
        directions = "2 × " if self.bidirectional else ""
        layers = f", {self.num_layers} layers" if self.num_layers > 1 else ""
        return f"{self.in_features} → {directions}{self.hidden_features}{layers}"


class _Elman(Layer):
    """The choice of the nonlinearity."""

    _more = "\n        nonlinearity: `tanh` or `relu`."

    def __init__(
        self, in_features: int, hidden_features: int, *, nonlinearity: str = "tanh", **options: Any
    ) -> None:
        check_choice("nonlinearity", nonlinearity, ("tanh", "relu"))
        self.nonlinearity = nonlinearity
        # of the layer or the cell
        super().__init__(in_features, hidden_features, **options)  # type: ignore[call-arg]


class RNN(_Elman, _Recurrent):
    """A simple recurrent network: `h' = tanh(weight_ih @ x + bias_ih + weight_hh @ h + bias_hh)`.

    Source: Elman (1990), Finding structure in time.
    """

    _type, _gates = "RNN", 1


class LSTM(_Recurrent):
    """Long short-term memory; `nb.lstm` gives the formula.

    The gates lie in the order i, f, g, o.

    Source: Hochreiter and Schmidhuber (1997), Long short-term memory.
    """

    _type, _gates, _states = "LSTM", 4, ("h", "c")


class GRU(_Recurrent):
    """Gated recurrent units; `nb.gru` gives the formula.

    The gates lie in the order r, z, n.

    Source: Cho et al. (2014), arXiv:1406.1078.
    """

    _type, _gates = "GRU", 3


class _Cell(_Gated):
    """$title. This is one step: called as `state = cell(x, state)`, it gives the state after.

    The state is $state of shape `(*batch, hidden_features)`; zeros if none is given. Variables are
    named and laid out as in PyTorch: `weight_ih` `(${gates}hidden, in)`, `weight_hh`, `bias_ih`,
    `bias_hh`.

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
        ${cell_shape}

    Source: ${source}
    """

    if TYPE_CHECKING:
        weight_ih: Any

    _shown, _brief = "in_features hidden_features", "{in_features} → {hidden_features}"

    def __init__(
        self, in_features: int, hidden_features: int, **options: Unpack[CellOptions]
    ) -> None:
        self.in_features = size("in_features", in_features)
        self.hidden_features = size("hidden_features", hidden_features)
        super().__init__({"": in_features}, **options)

    def forward(self, x: Float[ArrayLike, "*batch in_features"], state: object = None) -> Any:
        none = (None,) * len(self._states)
        states = none if state is None else jax.tree.leaves(self._check_state(state))
        return self._call_function(x, *states, *self._values())


class RNNCell(_Elman, _Cell):
    """A simple recurrent network: `h' = tanh(weight_ih @ x + bias_ih + weight_hh @ h + bias_hh)`.

    Source: Elman (1990), Finding structure in time.
    """

    _gates = 1
    _function = staticmethod(recurrent.rnn_cell)


class LSTMCell(_Cell):
    """Long short-term memory; `nb.lstm` gives the formula.

    Source: Hochreiter and Schmidhuber (1997), Long short-term memory.
    """

    _gates, _states = 4, ("h", "c")
    _function = staticmethod(recurrent.lstm_cell)


class GRUCell(_Cell):
    """Gated recurrent units; `nb.gru` gives the formula.

    Source: Cho et al. (2014), arXiv:1406.1078.
    """

    _gates = 3
    _function = staticmethod(recurrent.gru_cell)


@kernel(static=("layer_type", "nonlinearity", "return_sequence"), numbers=("dropout_rate",))
def _run(
    x: Array,
    state: Any,
    weights: tuple[Any, ...],
    lengths: Array | None,
    key: KeyLike | None,
    *,
    layer_type: str,
    nonlinearity: str,
    dropout_rate: float | Array,
    return_sequence: bool,
) -> Any:
    """Run all layers and directions; states have both along their first axis."""
    columns, hidden = weights[0][0][0].shape[1], weights[0][0][1].shape[1]
    directions = len(weights[0])
    with naming(layer_type):
        check_floating("x", x)
        check_rank("x", x, "(*batch, time, features)", 2)
        check_shape("x", x, (*x.shape[:-1], columns), "as many features as in_features")
        shape = (len(weights) * directions, *x.shape[:-2], hidden)
        for name, part in zip("hc", jax.tree.leaves(state)):
            check_array(name, part)
            check_shape(name, part, shape, "(layers * directions, *batch, hidden_features)")
    run: Any = getattr(recurrent, layer_type.lower())
    options = {"nonlinearity": nonlinearity} if layer_type == "RNN" else {}
    finals = []
    for layer, directed in enumerate(weights):
        if layer and key is not None:
            x = dropout(x, dropout_rate, folded(key, layer))
        outputs = []
        for reverse, parameters in zip((False, True), directed):
            first = jax.tree.map(operator.itemgetter(len(finals)), state)
            ys, last = run(x, first, *parameters, lengths=lengths, reverse=reverse, **options)
            outputs.append(ys)
            finals.append(last)
        x = outputs[0] if directions == 1 else lax.concatenate(outputs, x.ndim - 1)
    if not return_sequence:
        ends = [jax.tree.leaves(last)[0] for last in finals[-directions:]]
        x = ends[0] if directions == 1 else lax.concatenate(ends, ends[0].ndim - 1)
    return x, jax.tree.map(lambda *parts: jnp.stack(parts), *finals)
