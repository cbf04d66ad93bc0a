"""The words of signatures: what a function takes for a key, a device, a value with a shape or the
arguments of a call, said once.

For dtypes and arrays there are `DTypeLike` and `ArrayLike` of `jax.typing`. Anything that is only
compared, kept or handed on is an `object`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeGuard

import jax
import numpy as np
from jax.typing import ArrayLike

from nbmodule.errors import ArgumentTypeError

Args: TypeAlias = tuple[Any, ...]
"""The positional arguments of a call."""

Kwargs: TypeAlias = dict[str, Any]
"""The keyword arguments of a call."""

KeyLike: TypeAlias = jax.Array | np.ndarray | int | np.integer[Any]
"""A typed JAX key, key data `uint32[2]` (NumPy or JAX), or an integer seed."""


class OneDevice(Protocol):
    """A device as JAX describes it; `jax.Device` is one, which checkers cannot read."""

    @property
    def platform(self) -> str:
        """The kind: `cpu`, `gpu` or `tpu`."""
        ...

    @property
    def id(self) -> int:
        """Its number among those of all processes."""
        ...


if TYPE_CHECKING:
    DeviceLike: TypeAlias = str | OneDevice | jax.sharding.Sharding
else:
    DeviceLike: TypeAlias = str | jax.Device | jax.sharding.Sharding
"""The place of values: text such as `cpu:0`, a device, or a sharding over several."""


class Shaped(Protocol):
    """An object with a shape and a dtype: an array of any library, a variable, or a description."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The length of each axis."""
        ...

    @property
    def dtype(self) -> Any:
        """The kind of its elements."""
        ...


RateLike: TypeAlias = ArrayLike | Callable[..., Any]
"""A learning rate: a number, a variable, a function of nothing, or a schedule, which is a
function of the step.
"""


def is_whole(value: object) -> TypeGuard[int]:
    """Return True for a whole number; True and False are none.

    Example:
        >>> is_whole(3), is_whole(np.int64(3)), is_whole(True), is_whole(3.0)
        (True, True, False, False)
    """
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def is_real(value: object) -> TypeGuard[float]:
    """Return True for a real number of Python or NumPy; True and False are none.

    Example:
        >>> is_real(0.5), is_real(np.float32(0.5)), is_real(True), is_real("0.5")
        (True, True, False, False)
    """
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)


def as_flag(name: str, value: object) -> bool:
    """Return a flag as a bool; 0 and 1 are flags, text such as "false" is not."""
    is_number = isinstance(value, (int, np.integer)) and value in (0, 1)
    if not is_number and not isinstance(value, np.bool_):
        raise ArgumentTypeError(f"{name} must be True or False, got {value!r}.")
    return bool(value)
