"""Layers around a layer, which use its weight in a normalized form: by its largest singular value,
or by its length.

The layer inside keeps its weight as it is, as the variable that is trained; each call hands it the
normalized one, by `v=`.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
from jax import Array, lax

from nbmodule.base.kinds import KeyLike
from nbmodule.core.numbers.host_random import draw_normal
from nbmodule.core.numbers.random import as_key, next_key
from nbmodule.core.structure.functional import StateKey
from nbmodule.core.structure.walk import is_module, plan_of
from nbmodule.core.variables.variable import Buffer, Parameter, Variable
from nbmodule.errors import ArgumentError, ArgumentTypeError
from nbmodule.nn.checks import check_axis, check_number, size
from nbmodule.nn.containers import split_state, takes_state
from nbmodule.nn.kernel import kernel
from nbmodule.nn.layer import Layer, keys

if TYPE_CHECKING:
    from nbmodule.api.module import Module

_FIRST_TURNS = 15  # of power iteration when the vectors are drawn, as in PyTorch


class _Around(Layer):
    """A layer whose weight is replaced while it runs."""

    _shown = "name="

    def _take(self, layer: Module, name: str, axis: int) -> Parameter:
        """Hold the layer, and find the weight in it."""
        if not is_module(layer):
            raise ArgumentTypeError(f"expected a layer with a weight, got {type(layer).__name__}.")
        weight = getattr(layer, name, None)
        if not isinstance(weight, Parameter):
            names = ", ".join(name for name, _ in layer.named_parameters(recursive=False)) or "none"
            raise ArgumentError(
                f"{type(layer).__name__} has no parameter {name!r}; its own "
                f"parameters are: {names}."
            )
        if weight.ndim == 0 or not jnp.issubdtype(weight.dtype, jnp.floating):
            raise ArgumentError(f"expected a floating weight with axes, got {weight.describe()}.")
        self.layer, self.name = layer, name
        self.axis = check_axis(axis, weight.ndim)
        return weight

    def _weight(self) -> Variable:
        return getattr(self.layer, self.name)

    def _called(self, weight: Array, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the layer while its variable reads as `weight`."""
        chain = "/".join(plan_of(self.layer).places[self._weight()].chain)
        return self.layer(*args, v=self.layer.v.cont_set_at_key_chain(chain, weight), **kwargs)


class SpectralNorm(_Around):
    """Uses a layer's weight divided by its largest singular value, which power iteration estimates.

    The weight is read as a matrix, one row for each entry along `axis`. Two buffers, `left` and
    `right`, hold the singular vectors; in training each call improves them by `num_iterations`
    turns, and after `eval()` they stay. Once exported (`nb.export_state`) it is called as `y, state
    = layer(x, state)`.

    Args:
        layer: The layer, such as a Linear or a convolution.
        name: Name of its weight.
        axis: Axis of the outputs in the weight.
        num_iterations: Turns of power iteration in each call.
        eps: Smallest length by which is divided.
        key: Seed or key for the first vectors; by default the next of the default stream.
        v: Parameters to use instead of those of the layer, `{'layer': {'w': ...}}`.

    Example:
        >>> import jax.numpy as jnp
        >>> import nbmodule as nb
        >>> from nbmodule.nn.weight_normalization import SpectralNorm
        >>> layer = SpectralNorm(
        ...     nb.Linear(3, 3, with_bias=False, weight_initializer=nb.Constant(5.0))
        ... )
        >>> layer(jnp.ones(3)).round(3)
        Array([1., 1., 1.], dtype=float32)

    Source: Miyato, Kataoka, Koyama and Yoshida (2018), arXiv:1802.05957.
    """

    _state_names = ("left", "right")
    left: Any  # a Buffer, or its StateKey once exported
    right: Any

    def __init__(
        self,
        layer: Module,
        *,
        name: str = "weight",
        axis: int = 0,
        num_iterations: int = 1,
        eps: float = 1e-12,
        key: KeyLike | None = None,
        v: Mapping[str, Any] | None = None,
    ) -> None:
        self.num_iterations = size("num_iterations", num_iterations)
        self.eps = check_number("eps", eps, above=0)
        weight = self._take(layer, name, axis)
        subkeys = keys(next_key() if key is None else as_key(key), 2)
        draw = functools.cache(functools.partial(_first_vectors, weight, self.axis, subkeys))
        rows = weight.shape[self.axis]
        shapes = (rows,), (weight.size // max(rows, 1),)
        self.left, self.right = (
            Buffer.pending(lambda i=i: draw()[i], shape, weight.dtype)
            for i, shape in enumerate(shapes)
        )
        super().__init__(v=v)

    def forward(self, *args: object, **kwargs: object) -> Any:
        state: Any = None
        if isinstance(self.left, StateKey):
            args, kwargs, state = split_state(args, kwargs)
        weight, *vectors = _divided_by_singular_value(
            self._weight().value,
            *self._read_state(state),
            axis=self.axis,
            turns=self.num_iterations if self.training else 0,
            eps=self.eps,
        )
        if self.training:
            state = self._write_state(state, vectors)
        if state is not None and takes_state(self.layer):
            return self._called(weight, (*args, state), kwargs)
        y = self._called(weight, args, kwargs)
        return y if state is None else (y, state)


@kernel(static=("axis", "turns", "eps"))
def _divided_by_singular_value(
    weight: Array, left: Array, right: Array, *, axis: int, turns: int, eps: float
) -> tuple[Array, Array, Array]:
    matrix = jnp.moveaxis(weight, axis, 0).reshape(weight.shape[axis], -1)
    fixed = lax.stop_gradient(matrix)
    for _ in range(turns):
        left = _unit(fixed @ right, eps)
        right = _unit(left @ fixed, eps)
    left, right = lax.stop_gradient(left), lax.stop_gradient(right)
    return weight / (left @ (matrix @ right)), left, right


def _unit(x: Any, eps: float) -> Array:
    return x / jnp.maximum(jnp.sqrt(jnp.sum(x * x)), eps).astype(x.dtype)


def _first_vectors(weight: Variable, axis: int, subkeys: list[Any]) -> tuple[Any, Any]:
    """Return singular vectors that power iteration makes of random ones."""
    rows, value = weight.shape[axis], jnp.asarray(weight.settled(), jnp.float32)
    counts = rows, weight.size // max(rows, 1)
    vectors = (_unit(jnp.asarray(draw_normal(k, (n,))), 1e-12) for k, n in zip(subkeys, counts))
    _, left, right = _divided_by_singular_value(
        value, *vectors, axis=axis, turns=_FIRST_TURNS, eps=1e-12
    )
    return left.astype(weight.dtype), right.astype(weight.dtype)


class WeightNorm(_Around):
    """Uses a layer's weight as a direction, with a trained length for each output: `scale * weight
    / |weight|`.

    Args:
        layer: The layer, such as a Linear or a convolution.
        name: Name of its weight.
        axis: Axis of the outputs in the weight; the length is over all others.
        v: Variables to use instead of fresh ones, `{'layer': {'w': ...}, 'scale': ...}`.

    `scale` has the shape of the weight with all axes but `axis` of size one, and is the length of
    the weight at first, so that the layer computes what it computed before.

    Example:
        >>> import jax.numpy as jnp
        >>> import nbmodule as nb
        >>> from nbmodule.nn.weight_normalization import WeightNorm
        >>> layer = WeightNorm(
        ...     nb.Linear(2, 1, with_bias=False, weight_initializer=nb.Constant(3.0))
        ... )
        >>> layer.scale = jnp.ones((1, 1))
        >>> layer(jnp.ones(2)).round(3)
        Array([1.414], dtype=float32)

    Source: Salimans and Kingma (2016), arXiv:1602.07868.
    """

    def __init__(
        self,
        layer: Module,
        *,
        name: str = "weight",
        axis: int = 0,
        v: Mapping[str, Any] | None = None,
    ) -> None:
        weight = self._take(layer, name, axis)
        shape = tuple(n if i == self.axis else 1 for i, n in enumerate(weight.shape))
        self.scale = Parameter.pending(
            lambda: _lengths(weight.settled(), self.axis), shape, weight.dtype
        )
        super().__init__(v=v)

    def forward(self, *args: object, **kwargs: object) -> Any:
        return self._called(
            _of_length(self._weight().value, self.scale.value, axis=self.axis), args, kwargs
        )


@kernel(static=("axis",))
def _of_length(weight: Array, scale: Array, *, axis: int) -> Array:
    return weight * (scale / _lengths(weight, axis))


def _lengths(weight: Array, axis: int) -> Array:
    others = tuple(i for i in range(weight.ndim) if i != axis)
    return jnp.sqrt(jnp.sum(weight * weight, others, keepdims=True))
