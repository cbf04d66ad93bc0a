"""The learning rate: a number kept on the device, a function that is called before each step, or a
schedule.

A number lies in a buffer, so that a new one is only a new input of a compiled step. A function of
nothing becomes a buffer too, which calls the function whenever its value is gathered, so a compiled
step sees each value. (It may be called more often than steps are taken, so it should only look
something up.) A schedule is a function of the step; it is traced into the compiled step and
computed there from the optimizer's own count.
"""

from __future__ import annotations

import inspect
import math
import numbers
from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from nbmodule.base.format import describe_shape
from nbmodule.base.kinds import DeviceLike, RateLike
from nbmodule.base.migration import REFUSED
from nbmodule.base.promotion import mixed_dtypes
from nbmodule.core.structure.walk import is_module
from nbmodule.core.variables.frame import birthplace
from nbmodule.core.variables.variable import Buffer, Variable
from nbmodule.errors import ArgumentError, ArgumentTypeError, NbModuleError, ShapeError, TraceError

_WANTED = "a number, a function of nothing, or a function of the step"
_UNTRACEABLE = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
)


class FunctionRate(Buffer):
    """A number that a function of nothing returns, called each time the value is gathered.

    A value that is written to it replaces the function until `ask_again`: so Live repeats a step
    with the rate it had.
    """

    __slots__ = ("_cache", "_replacement", "ask")
    is_pending = False  # pyright: ignore  # no array is read for these two
    shape = ()  # pyright: ignore

    def __init__(self, ask: Callable[[], Any]) -> None:
        self._frozen, self._home = False, birthplace()
        self.ask = ask
        self._cache: tuple[float, Any] = (math.nan, None)
        self._replacement: Any = None

    def ask_again(self) -> None:
        """Forget the value that was written."""
        self._replacement = None

    @property
    def _value(self) -> Any:  # replaces the slot of other variables
        if self._replacement is not None:
            return self._replacement
        with jax.ensure_compile_time_eval():
            try:
                result = self.ask()
                result = result.value if isinstance(result, Variable) else result
                if isinstance(result, Tracer):
                    return as_scalar(result)
                number = float(result)
            except NbModuleError:
                raise
            except (AttributeError, TypeError, ValueError) as error:
                # An AttributeError would pass for "there is no value yet".
                raise ArgumentTypeError(
                    f"the function given as lr, {self.ask!r}, must return a number: {error}"
                ) from error
            check_number(number)
            if number != self._cache[0]:
                self._cache = (number, jax.device_put(np.asarray(number, float_dtype())))
            return self._cache[1]

    @_value.setter
    def _value(self, value: Any) -> None:
        self._replacement = value

    @property
    def dtype(self) -> Any:
        """JAX's default float."""
        return float_dtype()

    def __deepcopy__(self, memo: dict[int, Any]) -> FunctionRate:
        memo[id(self)] = result = FunctionRate(self.ask)
        return result

    def __reduce__(self) -> tuple[Any, ...]:
        return FunctionRate, (self.ask,)

    def __repr__(self) -> str:
        return f"FunctionRate({self.ask!r})"


def as_rate(lr: object, device: DeviceLike | None = None) -> Any:
    """Return the variable that keeps a learning rate, or the schedule.

    Raises:
        ArgumentError: a negative number, NaN or infinity.
        ArgumentTypeError: neither a number nor a function of at most one argument.
    """
    if isinstance(lr, Variable):
        if lr.shape != ():
            raise ShapeError(f"a learning rate is one number, got {lr.describe()}.")
        return lr
    if callable(lr) and not is_module(lr):
        return lr if is_of_step(lr) else FunctionRate(lr)
    if isinstance(lr, Tracer):
        return Buffer(as_scalar(lr))
    return Buffer(np.asarray(as_number(lr), float_dtype()), device=device)


def is_number_variable(rate: RateLike) -> bool:
    """Return whether a learning rate is a number in a variable."""
    return isinstance(rate, Variable) and not isinstance(rate, FunctionRate)


def as_given(rate: Any) -> Any:
    """Return a learning rate as the user knows it: the number as an array, or the function."""
    if is_number_variable(rate):
        return rate.value
    return rate.ask if isinstance(rate, FunctionRate) else rate


def describe_rate(rate: Any) -> str:
    """Write a learning rate as text; a traced one by its shape."""
    rate = as_given(rate)
    if callable(rate):
        return getattr(rate, "__name__", None) or repr(rate)
    return repr(rate) if isinstance(rate, Tracer) else f"{float(rate):.6g}"


def as_number(lr: object) -> float:
    """Return a learning rate as a Python number."""
    is_array = isinstance(lr, (jax.Array, np.ndarray, np.generic))
    if isinstance(lr, bool) or not (is_array or isinstance(lr, numbers.Real)):
        is_model = is_module(lr) or (isinstance(lr, Iterable) and not is_array)
        advice = f" {REFUSED['params']}." if is_model else ""
        raise ArgumentTypeError(f"lr= takes {_WANTED}, got {type(lr).__name__}.{advice}")
    if is_array and lr.shape != ():
        raise ShapeError(f"a learning rate is one number, got {describe_shape(lr)}.")
    if is_array and not (
        jnp.issubdtype(lr.dtype, jnp.floating) or jnp.issubdtype(lr.dtype, jnp.integer)
    ):
        raise ArgumentTypeError(f"lr= takes {_WANTED}, got a scalar of {lr.dtype}.")
    return check_number(float(lr))


def check_number(number: float) -> float:
    """Return a number if it is zero or more, and finite."""
    if not (math.isfinite(number) and number >= 0):
        raise ArgumentError(f"a learning rate must be zero or more, and finite, got {number!r}.")
    return number


def is_of_step(fn: Callable[..., Any]) -> bool:
    """Return whether a function takes the step: it cannot be called without an argument.

    Example:
        >>> (
        ...     is_of_step(lambda step: 0.1 / step),
        ...     is_of_step(lambda: 0.1),
        ...     is_of_step(lambda lr=0.1: lr),
        ... )
        (True, False, False)
    """
    try:
        parameters = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):  # a builtin without a signature
        return True
    kinds = inspect.Parameter
    needed = [
        p
        for p in parameters
        if p.default is kinds.empty and p.kind not in (kinds.VAR_POSITIONAL, kinds.VAR_KEYWORD)
    ]
    if len(needed) > 1 or any(p.kind is kinds.KEYWORD_ONLY for p in needed):
        names = ", ".join(p.name for p in needed)
        raise ArgumentTypeError(f"lr= takes {_WANTED}; {fn!r} wants {names}.")
    return bool(needed)


def rate_now(rate: Any, count: Any) -> Any:
    """Return the learning rate for the step after `count` ones.

    Args:
        rate: From `as_rate`.
        count: Number of steps before this one, the argument of a schedule.
    """
    if isinstance(rate, Variable):
        return rate.value
    try:
        with mixed_dtypes():
            value = rate(count)
    except _UNTRACEABLE as error:
        raise TraceError(
            f"the schedule {rate!r} cannot be compiled: it wants the step as a Python number. "
            "Write it with jax.numpy (jnp.where in place of if), or give lr= a function of "
            "nothing, which is called before each call."
        ) from error
    if not isinstance(value, (jax.Array, Variable)) and not np.shape(value):
        value = as_number(value)
    return as_scalar(value)


def as_scalar(value: object) -> Any:
    """Return an array without axes in the dtype of learning rates."""
    value = value.value if isinstance(value, Variable) else value
    array = jnp.asarray(value)
    if array.shape != ():
        raise ShapeError(
            f"a learning rate is one number; the function gave {describe_shape(array)}."
        )
    return array.astype(float_dtype())


def float_dtype() -> Any:
    """Return JAX's default float, the dtype of learning rates."""
    return jnp.result_type(float)
