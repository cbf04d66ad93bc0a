"""The learning rate: a number kept on the device, a function that is asked before each step, or a schedule.

A number lies in a buffer, so that a new one is only a new input of a compiled step. A function of nothing becomes a buffer
too, one that asks the function whenever its value is gathered, so a compiled step sees each answer. (It may be asked more often
than steps are taken, so it should only look something up.) A schedule is a function
of the step; it is traced into the compiled step and computed there from the optimizer's own count.
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

from nbmodule.base.dialects import ARGUMENTS
from nbmodule.base.format import describe_shape
from nbmodule.base.kinds import DeviceLike, RateLike
from nbmodule.base.promotion import mixed_dtypes
from nbmodule.core.boxes.frame import birthplace, now
from nbmodule.core.boxes.variable import Buffer, Variable
from nbmodule.core.shape.walk import is_module
from nbmodule.core.transforms.jit import Jit, jit
from nbmodule.errors import ArgumentError, ArgumentTypeError, NbModuleError, ShapeError, TraceError

_WANTED = "a number, a function of nothing, or a function of the step"
_UNTRACEABLE = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
)


class Asked(Buffer):
    """A number that a function of nothing gives, asked each time the value is gathered: before each step, compiled or not.

    What is put into it stands for the answer until the function is asked again, see `ask_again`: so a step is repeated with the rate it had.
    """

    __slots__ = ("_answer", "_told", "ask")

    def __init__(self, ask: Callable[[], Any]) -> None:
        self._frozen, self._home = False, birthplace()
        self.ask = ask
        self._answer: tuple[float, Any] = (math.nan, None)
        self._told: Any = None

    def ask_again(self) -> None:
        """Forget what was put into it."""
        self._told = None

    @property
    def _value(self) -> Any:  # in place of the slot that other boxes have
        if self._told is not None:
            return self._told
        with jax.ensure_compile_time_eval():
            try:
                given = self.ask()
                given = given.value if isinstance(given, Variable) else given
                if isinstance(given, Tracer):
                    return as_scalar(given)
                number = float(given)
            except NbModuleError:
                raise
            except (AttributeError, TypeError, ValueError) as error:
                # An AttributeError would pass for "there is no value yet".
                raise ArgumentTypeError(
                    f"the function given as lr, {self.ask!r}, must return a number: {error}"
                ) from error
            check_number(number)
            if number != self._answer[0]:
                self._answer = (number, jax.device_put(np.asarray(number, float_dtype())))
            return self._answer[1]

    @_value.setter
    def _value(self, value: Any) -> None:
        self._told = value

    @property
    def is_pending(self) -> bool:
        return False

    @property
    def shape(self) -> tuple[int, ...]:
        return ()

    @property
    def dtype(self) -> Any:
        return float_dtype()

    def __deepcopy__(self, memo: dict[int, Any]) -> Asked:
        memo[id(self)] = box = Asked(self.ask)
        return box

    def __reduce__(self) -> tuple[Any, ...]:
        return Asked, (self.ask,)

    def __repr__(self) -> str:
        return f"Asked({self.ask!r})"


def as_rate(lr: object, device: DeviceLike | None = None) -> Any:
    """What is kept for a learning rate as the user gives it: a box, or a schedule.

    Raises:
        ArgumentError: a negative number, NaN or infinity.
        ArgumentTypeError: neither a number nor a function of at most one argument.
    """
    if isinstance(lr, Variable):
        if lr.shape != ():
            raise ShapeError(f"a learning rate is one number; found {lr.describe()}. Nothing was changed.")
        return lr
    if callable(lr) and not is_module(lr):
        return lr if is_of_step(lr) else Asked(lr)
    if isinstance(lr, Tracer):
        return Buffer(as_scalar(lr))
    return Buffer(np.asarray(as_number(lr), float_dtype()), device=device)


def is_number_box(rate: RateLike) -> bool:
    """Whether a learning rate is a number that lies in a box."""
    return isinstance(rate, Variable) and not isinstance(rate, Asked)


def as_given(rate: Any) -> Any:
    """A learning rate as the user knows it: the number as an array, or the function."""
    if is_number_box(rate):
        return rate.value
    return rate.ask if isinstance(rate, Asked) else rate


def describe_rate(rate: Any) -> str:
    """A learning rate as text; a traced one by its shape."""
    rate = as_given(rate)
    if callable(rate):
        return getattr(rate, "__name__", repr(rate))
    return repr(rate) if isinstance(rate, Tracer) else f"{float(rate):.6g}"


def as_number(lr: object) -> float:
    """A learning rate as a Python number."""
    is_array = isinstance(lr, (jax.Array, np.ndarray, np.generic))
    if isinstance(lr, bool) or not (is_array or isinstance(lr, numbers.Real)):
        cure = f" {ARGUMENTS['params']}." if is_module(lr) or (isinstance(lr, Iterable) and not is_array) else ""
        raise ArgumentTypeError(f"lr= takes {_WANTED}; found {type(lr).__name__}. Nothing was changed.{cure}")
    if is_array and lr.shape != ():
        raise ShapeError(f"a learning rate is one number; found {describe_shape(lr)}. Nothing was changed.")
    if is_array and not jnp.issubdtype(lr.dtype, jnp.floating) and not jnp.issubdtype(lr.dtype, jnp.integer):
        raise ArgumentTypeError(f"lr= takes {_WANTED}; found a scalar of {lr.dtype}. Nothing was changed.")
    return check_number(float(lr))


def check_number(number: float) -> float:
    if not (math.isfinite(number) and number >= 0):
        raise ArgumentError(f"a learning rate must be zero or more, and finite; found {number!r}. Nothing was changed.")
    return number


def is_of_step(fn: Callable[..., Any]) -> bool:
    """Whether a function wants the step: it does when it cannot be called without an argument.

    Example:
        >>> is_of_step(lambda step: 0.1 / step), is_of_step(lambda: 0.1), is_of_step(lambda lr=0.1: lr)
        (True, False, False)
    """
    try:
        parameters = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):  # a builtin that does not tell
        return True
    kinds = inspect.Parameter
    needed = [
        p for p in parameters if p.default is kinds.empty and p.kind not in (kinds.VAR_POSITIONAL, kinds.VAR_KEYWORD)
    ]
    if len(needed) > 1 or any(p.kind is kinds.KEYWORD_ONLY for p in needed):
        names = ", ".join(p.name for p in needed)
        raise ArgumentTypeError(f"lr= takes {_WANTED}; {fn!r} wants {names}. Nothing was changed.")
    return bool(needed)


def rate_now(rate: RateLike, count: object, compiled: dict[int, Any]) -> Any:
    """The learning rate for the step that is the `count`-th one: a schedule is asked with `count - 1`, as in optax.

    Args:
        rate: From `as_rate`.
        count: Number of steps, this one included.
        compiled: Where compiled forms of schedules are kept, for steps outside of `nb.jit`.
    """
    if isinstance(rate, Variable):
        return rate.value
    if now.frame is not None or isinstance(count, Tracer):
        try:
            return _scheduled(rate, count)
        except _UNTRACEABLE as error:
            raise TraceError(
                f"the schedule {rate!r} cannot be compiled: it wants the step as a Python number. Nothing was changed. Write it "
                "with jax.numpy (jnp.where in place of if), or give lr= a function of nothing, which is asked before each call."
            ) from error
    return _outside(rate, count, compiled)


def _outside(rate: Any, count: Any, compiled: dict[int, Any]) -> Any:
    _, known = compiled.get(id(rate), (rate, None))
    if known is None:
        known = jit(lambda count: _scheduled(rate, count))
        compiled[id(rate)] = (rate, known)
    if isinstance(known, Jit):
        try:
            return known(count)
        except _UNTRACEABLE:
            compiled[id(rate)] = (rate, rate)  # plain Python: asked with a plain number from now on
    return as_scalar(as_number(rate(int(count) - 1)))


def _scheduled(schedule: Any, count: Any) -> Any:
    with mixed_dtypes():
        return as_scalar(schedule(count - 1))


def as_scalar(value: object) -> Any:
    """An array without axes in the dtype of learning rates."""
    value = value.value if isinstance(value, Variable) else value
    array = jnp.asarray(value)
    if array.shape != ():
        raise ShapeError(
            f"a learning rate is one number; the function gave {describe_shape(array)}. Nothing was changed."
        )
    return array.astype(float_dtype())


def float_dtype() -> Any:
    """JAX's default float: learning rates are kept in it."""
    return jnp.result_type(float)
