"""Dropout and its spatial forms: the only layers that draw random numbers when they are called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from jax import Array
from jaxtyping import Float

from nbmodule.base.kinds import KeyLike
from nbmodule.core.numbers import random
from nbmodule.core.numbers.random import RandomStream
from nbmodule.nn.checks import rate as probability
from nbmodule.nn.functional.dropout import alpha_dropout, dropout, dropout1d, dropout2d, dropout3d
from nbmodule.nn.layer import ArrayLike, Layer, array, data_format_of


class Dropout(Layer):
    """In training, sets each value to zero with probability `rate` and divides the others by `1 -
    rate`.

    Each call moves a random stream on: the default one (`nb.seed`), or one of the layer's own if
    `key` is given. The numbers are the same whether the call is compiled or not. Once exported
    (`nb.export_state`), a layer with a `key` of its own is called as `y, state = layer(x, state)`.

    Args:
        rate: Probability of zero, from 0 to 1. The attribute may also be set to a function of
            nothing, which is called in each call. Where it gives the value of a variable, that may
            change from step to step without a new compile.
        key: Seed or key of a stream of the layer's own, which is saved with it.

    Example:
        >>> import jax.numpy as jnp
        >>> import nbmodule as nb
        >>> layer = nb.Dropout(0.5, key=0)
        >>> (layer(jnp.ones(1000)) == 0).mean().round(1), layer.eval()(jnp.ones(2))
        (Array(0.5, dtype=float32), Array([1., 1.], dtype=float32))

    Source: Srivastava, Hinton, Krizhevsky, Sutskever and Salakhutdinov (2014), Dropout.
    """

    rate: Any
    rate_may_follow: ClassVar[bool] = True  # whether `rate` may be a function

    _shown, _brief = "rate=", "{rate}"

    def __init__(self, rate: float = 0.5, *, key: KeyLike | None = None) -> None:
        self.rate = probability("rate", rate)
        if key is not None:
            self.stream = RandomStream(key)
        super().__init__()

    def forward(self, x: Float[ArrayLike, "..."], state: object = None) -> Any:
        if state is not None and (not self.training or self.rate == 0):
            return array(x), state
        if state is not None:
            key, state = getattr(self, "stream", random.default)._draw_words(state)
            return self._drop(x, key), state
        key = self.next_key()
        return array(x) if key is None else self._drop(x, key)

    @property
    def current_rate(self) -> Any:
        """The rate of a call made now: a number, or an array where `rate` is a function."""
        return self.rate() if callable(self.rate) else self.rate

    @property
    def _moved_stream(self) -> RandomStream | None:
        """The stream that a call moves on."""
        return getattr(self, "stream", random.default) if self.training and self.rate != 0 else None

    def next_key(self) -> Any:
        """The key of one draw, which moves the stream on; None where nothing is dropped.

        For layers that drop inside a kernel.
        """
        stream = self._moved_stream
        return None if stream is None else stream._draw_words()

    def _drop(self, x: Array, key: KeyLike) -> Any:
        return dropout(x, self.current_rate, key)


class _SpatialDropout(Dropout):
    """In training, sets whole channels to zero with probability `rate`, over $axes.

    Args:
        rate: Probability of zero, from 0 to 1.
        data_format: $formats; channels are last by default.
        key: Seed or key of a stream of the layer's own.

    Example:
        >>> import jax.numpy as jnp
        >>> import nbmodule as nb
        >>> nb.$name(0.5, key=0)(jnp.ones((2, *2, 2))).shape
        (2, *2, 2)

    Source: Tompson, Goroshin, Jain, LeCun and Bregler (2015), arXiv:1411.4280.
    """

    _function: ClassVar[Callable[..., Any]]

    def __init__(
        self, rate: float = 0.5, *, data_format: str | None = None, key: KeyLike | None = None
    ) -> None:
        self.data_format = data_format_of(self._axes, data_format)
        super().__init__(rate, key=key)

    def _drop(self, x: Array, key: KeyLike) -> Any:
        return type(self)._function(x, self.current_rate, key, data_format=self.data_format)


class Dropout1d(_SpatialDropout):
    _axes, _function = 1, staticmethod(dropout1d)


class Dropout2d(_SpatialDropout):
    _axes, _function = 2, staticmethod(dropout2d)


class Dropout3d(_SpatialDropout):
    _axes, _function = 3, staticmethod(dropout3d)


class AlphaDropout(Dropout):
    """Dropout that keeps mean and variance of outputs of SELU.

    Args:
        rate: Probability of being dropped, from 0 to 1.
        key: Seed or key of a stream of the layer's own.

    Example:
        >>> import jax.numpy as jnp
        >>> import nbmodule as nb
        >>> nb.AlphaDropout(0.1, key=0)(jnp.zeros(3)).shape
        (3,)

    Source: Klambauer, Unterthiner, Mayr and Hochreiter (2017), arXiv:1706.02515.
    """

    rate_may_follow = False  # its scale is worked out from the number

    def _drop(self, x: Array, key: KeyLike) -> Any:
        return alpha_dropout(x, self.current_rate, key)
