"""Initializers that do not look at fans: constants, plain normal numbers, orthogonal matrices."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from nbmodule.base.kinds import KeyLike
from nbmodule.base.promotion import widened
from nbmodule.core.numbers.host_random import draw_normal, draw_truncated_normal
from nbmodule.errors import ArgumentError, ArgumentTypeError, DtypeError
from nbmodule.nn.initializers.base import (
    Drawn,
    Initializer,
    refuse_bad_number,
    refuse_other_than_floating,
)


@dataclass(frozen=True, init=False)
class Constant(Initializer):
    """Fill with one number.

    Args:
        constant: The number.
        value: The same under another name.

    Example:
        >>> Constant(0.5).create_variables((2,)).value
        Array([0.5, 0.5], dtype=float32)
    """

    is_random = False

    constant: float

    def __init__(self, constant: float | None = None, *, value: float | None = None) -> None:
        if (constant is None) == (value is None):
            raise ArgumentTypeError(
                "Constant takes one number, as Constant(0.5) or Constant(constant=0.5)."
            )
        number = value if constant is None else constant
        if not isinstance(number, (bool, int, float, complex, np.generic)):
            raise ArgumentTypeError(f"Constant takes a number, got {type(number).__name__}.")
        object.__setattr__(self, "constant", number)

    @property
    def value(self) -> float:
        """The number."""
        return self.constant

    def check(
        self, shape: tuple[int, ...], dtype: DTypeLike, fan_out: float | None, fan_in: float | None
    ) -> None:
        """Refuse a dtype of a narrower kind than the number."""
        del shape, fan_out, fan_in
        kinds = (jnp.bool_, jnp.integer, jnp.floating, jnp.complexfloating)
        wanted, found = (
            [jnp.issubdtype(d, kind) for kind in kinds].index(True)
            for d in (np.asarray(self.constant).dtype, dtype)
        )
        if wanted > found:
            raise DtypeError(f"Constant({self.constant!r}) cannot be held in dtype {dtype}.")

    def draw(
        self,
        key: KeyLike,
        shape: tuple[int, ...],
        dtype: DTypeLike,
        fan_out: float | None,
        fan_in: float | None,
    ) -> Drawn:
        """Fill an array."""
        del key, fan_out, fan_in
        return np.full(shape, self.constant, dtype)


@dataclass(frozen=True)
class Zeros(Initializer):
    """Fill with zeros.

    Example:
        >>> Zeros().create_variables((2,)).value
        Array([0., 0.], dtype=float32)
    """

    is_random = False

    def draw(
        self,
        key: KeyLike,
        shape: tuple[int, ...],
        dtype: DTypeLike,
        fan_out: float | None,
        fan_in: float | None,
    ) -> Drawn:
        """Fill an array."""
        del key, fan_out, fan_in
        return np.zeros(shape, dtype)


@dataclass(frozen=True)
class Ones(Initializer):
    """Fill with ones.

    Example:
        >>> Ones().create_variables((2,), dtype="int32").value
        Array([1, 1], dtype=int32)
    """

    is_random = False

    def draw(
        self,
        key: KeyLike,
        shape: tuple[int, ...],
        dtype: DTypeLike,
        fan_out: float | None,
        fan_in: float | None,
    ) -> Drawn:
        """Fill an array."""
        del key, fan_out, fan_in
        return np.ones(shape, dtype)


@dataclass(frozen=True)
class RandomNormal(Initializer):
    """Draw from the normal distribution.

    Args:
        mean: Its mean.
        std: Its standard deviation, zero or more.

    Example:
        >>> RandomNormal(std=0.02).create_variables((3,), key=0).value
        Array([ 0.03245284,  0.04050529, -0.00867189], dtype=float32)
    """

    mean: float = 0.0
    std: float = 0.05

    def __post_init__(self) -> None:
        refuse_bad_number(self, "mean", self.mean)
        refuse_bad_number(self, "std", self.std, least=0)

    def check(
        self, shape: tuple[int, ...], dtype: DTypeLike, fan_out: float | None, fan_in: float | None
    ) -> None:
        """Refuse what is not floating."""
        del shape, fan_out, fan_in
        refuse_other_than_floating(self, dtype)

    def draw(
        self,
        key: KeyLike,
        shape: tuple[int, ...],
        dtype: DTypeLike,
        fan_out: float | None,
        fan_in: float | None,
    ) -> Drawn:
        """Draw, scale and shift."""
        del fan_out, fan_in
        return scaled(draw_normal(key, shape, dtype), self.std, self.mean)


@dataclass(frozen=True)
class TruncatedNormal(Initializer):
    """Draw from the normal distribution, cut to an interval.

    Args:
        mean: Mean before the cut.
        std: Standard deviation before the cut, zero or more.
        lower: Lower bound, in standard deviations from the mean.
        upper: Upper bound, in standard deviations from the mean.

    Example:
        >>> x = TruncatedNormal(mean=1.0, std=0.1).create_variables((1000,), key=0).value
        >>> bool((x > 0.8).all() and (x < 1.2).all())
        True
    """

    mean: float = 0.0
    std: float = 0.05
    lower: float = -2.0
    upper: float = 2.0

    def __post_init__(self) -> None:
        for name in ("mean", "lower", "upper"):
            refuse_bad_number(self, name, getattr(self, name))
        refuse_bad_number(self, "std", self.std, least=0)
        if not self.lower < self.upper:
            raise ArgumentError(
                f"TruncatedNormal: lower must be below upper, got {self.lower} and {self.upper}."
            )

    def check(
        self, shape: tuple[int, ...], dtype: DTypeLike, fan_out: float | None, fan_in: float | None
    ) -> None:
        """Refuse what is not floating."""
        del shape, fan_out, fan_in
        refuse_other_than_floating(self, dtype)

    def draw(
        self,
        key: KeyLike,
        shape: tuple[int, ...],
        dtype: DTypeLike,
        fan_out: float | None,
        fan_in: float | None,
    ) -> Drawn:
        """Draw, scale and shift."""
        del fan_out, fan_in
        return scaled(
            draw_truncated_normal(key, self.lower, self.upper, shape, dtype), self.std, self.mean
        )


@dataclass(frozen=True)
class Orthogonal(Initializer):
    """Draw a matrix with orthonormal rows (or columns, if there are more rows), uniformly among all
    of them.

    The first axis counts the rows; all others together the columns.

    Args:
        gain: Factor by which it is scaled.

    Example:
        >>> w = Orthogonal().create_variables((2, 3), key=0).value
        >>> bool(jnp.allclose(w @ w.T, jnp.eye(2), atol=1e-6))
        True

    Source: Saxe, McClelland and Ganguli (2014), arXiv:1312.6120; Mezzadri (2007),
    arXiv:math-ph/0609050.
    """

    gain: float = 1.0

    def __post_init__(self) -> None:
        refuse_bad_number(self, "gain", self.gain)

    def check(
        self, shape: tuple[int, ...], dtype: DTypeLike, fan_out: float | None, fan_in: float | None
    ) -> None:
        """Refuse what is no matrix, or not floating."""
        del fan_out, fan_in
        refuse_other_than_floating(self, dtype)
        if len(shape) < 2:
            raise ArgumentError(
                f"Orthogonal needs a shape of two or more axes, got {list(shape)}. Nothing "
                "was made."
            )

    def draw(
        self,
        key: KeyLike,
        shape: tuple[int, ...],
        dtype: DTypeLike,
        fan_out: float | None,
        fan_in: float | None,
    ) -> Drawn:
        """Factor a normal matrix, and fix the signs that the factoring leaves open."""
        del fan_out, fan_in
        rows, columns = shape[0], math.prod(shape[1:])
        if 0 in shape:
            return np.zeros(shape, dtype)
        work = widened(dtype)  # half precision cannot be factored
        normal = draw_normal(key, (max(rows, columns), min(rows, columns)), work)
        library: Any = jnp if isinstance(normal, jax.Array) else np
        q, r = library.linalg.qr(normal)
        q = q * library.sign(library.diagonal(r))[None]
        return scaled((q.T if rows < columns else q).reshape(shape), self.gain).astype(dtype)


def scaled(x: Drawn, factor: float, offset: float = 0.0) -> Drawn:
    """`x * factor + offset` in the dtype of `x`; a NumPy array is changed in place."""
    if isinstance(x, np.ndarray):
        np.multiply(x, x.dtype.type(factor), out=x)
        return np.add(x, x.dtype.type(offset), out=x) if offset else x
    return x * factor + offset
