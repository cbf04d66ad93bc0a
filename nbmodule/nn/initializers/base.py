"""Shared by all initializers: variables that are drawn when they are first read, and fans.

An initializer is a value: it can be compared, shared between layers and printed. `create_variables`
fixes key, shape and dtype at once, so that a variable that is loaded or given is never drawn, and
the order of reading changes nothing. Values are drawn on the host: the numbers of `jax.random`, to
rounding, without a compile.

A fan is the number of values that one output reads (in) or one input feeds (out); in a convolution
the kernel's area counts.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from functools import partial
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from nbmodule.base.kinds import DeviceLike, KeyLike
from nbmodule.core.numbers import threefry
from nbmodule.core.numbers.random import is_one_for_many, next_key, traced_key
from nbmodule.core.variables.placement import find_device, find_dtype
from nbmodule.core.variables.traceback import level_of_user_code
from nbmodule.core.variables.variable import Parameter
from nbmodule.errors import ArgumentError, MissingMethodError, ShapeError, naming
from nbmodule.nn.checks import check_number

Drawn: TypeAlias = np.ndarray | jax.Array
Shape: TypeAlias = tuple[int, ...]


def compute_fans(shape: Sequence[int]) -> tuple[int, int]:
    """Tell fan in and fan out of a weight from its shape.

    Args:
        shape: Two or more sizes, in the order outputs, kernel, inputs; those of the kernel count in
            both fans.

    Returns:
        Fan in and fan out.

    Raises:
        ArgumentError: if there are fewer than two axes.

    Example:
        >>> compute_fans((64, 3))
        (3, 64)
        >>> compute_fans((16, 5, 5, 3))
        (75, 400)
    """
    if len(shape) < 2:
        raise ArgumentError(
            f"fans can be told from a shape of two or more axes, got {list(shape)}."
        )
    area = math.prod(shape[1:-1])
    return shape[-1] * area, shape[0] * area


_warned = False  # of a draw that is used for many


class Initializer:
    """The base of all initializers; a user's own defines `draw`.

    Example:
        >>> class Checkered(Initializer):
        ...     def draw(self, key, shape, dtype, fan_out, fan_in):
        ...         return np.indices(shape).sum(0).astype(dtype) % 2
        >>> Checkered().create_variables((2, 2)).value
        Array([[0., 1.],
               [1., 0.]], dtype=float32)
    """

    is_random = True  # whether the key matters

    def create_variables(
        self,
        var_shape: Sequence[int],
        device: DeviceLike | None = None,
        fan_out: float | None = None,
        fan_in: float | None = None,
        dtype: DTypeLike | None = None,
        *,
        key: KeyLike | None = None,
    ) -> Parameter:
        """Make a parameter whose value is drawn when it is first read.

        Args:
            var_shape: Shape of the variable; axes in the order outputs, kernel, inputs.
            device: Device or sharding to place it on, such as `cpu:0`.
            fan_out: Number of values that one input feeds; told from the shape if not given.
            fan_in: Number of values that one output reads; told from the shape if not given.
            dtype: Dtype of the variable, float32 by default.
            key: Random key (typed, or `uint32[2]`) or seed; the next one of the default stream if
                not given.

        Raises:
            ArgumentError: if a fan is wanted that is neither given nor to be told from the shape.
            DtypeError: if the dtype cannot be drawn.

        Example:
            >>> from nbmodule.nn.initializers import GlorotUniform
            >>> weight = GlorotUniform().create_variables((64, 3), key=0)
            >>> weight.shape, bool(abs(weight.value).max() < (6 / 67) ** 0.5)
            ((64, 3), True)
        """
        shape = threefry.checked_shape(var_shape)
        device = find_device(device)
        dtype = jax.dtypes.canonicalize_dtype(find_dtype(dtype) or float)
        with naming(type(self).__name__):
            for name, fan in (("fan_out", fan_out), ("fan_in", fan_in)):
                if fan is not None:
                    check_number(name, fan, least=0)
        if len(shape) >= 2:
            inputs, outputs = compute_fans(shape)
            fan_in = inputs if fan_in is None else fan_in
            fan_out = outputs if fan_out is None else fan_out
        self.check(shape, dtype, fan_out, fan_in)
        if key is None and (traced := traced_key()) is not None:
            # A draw has no name
            later = lambda: self._drawn(next_key(), shape, dtype, fan_out, fan_in)  # noqa: E731
            parameter = Parameter.pending(later, shape, dtype, device)
            parameter.hold(jnp.asarray(self._drawn(traced, shape, dtype, fan_out, fan_in)))
            return parameter
        draw = self._drawn
        if key is None:
            draw = self._drawn_for_many if self.is_random and is_one_for_many() else draw
            key = next_key()
        elif threefry.is_threefry(key):
            key = threefry.key_data(key)
        value = partial(draw, key, shape, dtype, fan_out, fan_in)
        return Parameter.pending(value, shape, dtype, device)

    def _drawn(self, key: KeyLike, shape: Shape, dtype: DTypeLike, *fans: float | None) -> Drawn:
        """Return what `draw` gives, in the shape and dtype of the variable: that of a user may give
        another dtype, or an array of JAX.
        """
        value: Any = self.draw(key, shape, dtype, *fans)
        value = value if hasattr(value, "dtype") and hasattr(value, "shape") else np.asarray(value)
        if tuple(value.shape) != shape:
            raise ShapeError(
                f"cannot draw a variable of shape {list(shape)}: {self!r} gave an array of "
                f"shape {list(value.shape)}. The variable has no value yet."
            )
        return value if value.dtype == dtype else jnp.asarray(value, dtype)

    def _drawn_for_many(self, *args: Any) -> Drawn:
        """As `_drawn`, inside a raw transform of JAX that will use the value again."""
        global _warned
        if not _warned:
            _warned = True
            warnings.warn(
                (
                    "initial values are drawn inside a raw JAX transform (jax.vmap, jit, scan, "
                    "...), out of which a random stream cannot move on: all its rows, steps and "
                    "later calls get the same ones. Use nb.vmap, nb.jit or nb.scan, or give the "
                    "layer a key of its own, as nb.Linear(3, 2, key=key). (Said once.)"
                ),
                stacklevel=level_of_user_code(),
            )
        return self._drawn(*args)

    def check(self, shape: Shape, dtype: DTypeLike, *fans: float | None) -> None:
        """Refuse what cannot be drawn, before a variable is made; the base refuses nothing."""

    def draw(
        self,
        key: KeyLike,
        shape: tuple[int, ...],
        dtype: DTypeLike,
        fan_out: float | None,
        fan_in: float | None,
        /,
    ) -> Drawn:
        """Draw a value: a pure function of its arguments.

        Args:
            key: Key data `uint32[2]`; a JAX key where the host cannot draw from it (traced, or of
                another generator).
            shape: Shape of the value.
            dtype: Dtype of the value.
            fan_out: None if it is neither given nor to be told from the shape.
            fan_in: None if it is neither given nor to be told from the shape.
        """
        raise MissingMethodError(
            f"{type(self).__name__} defines no draw(self, key, shape, dtype, fan_out, fan_in)."
        )
