"""The learning rate: a number kept on the device, a function that is called before each step, or a
schedule.

A number is stored in a buffer, so that a new one is only a new input of a compiled step. A function
of nothing becomes a buffer too, which calls the function whenever its value is gathered, so a
compiled step sees each value. (It may be called more often than steps are taken, so it should only
look something up.) A schedule is a function of the step; it is traced into the compiled step and
computed there from the optimizer's own count. Any function of the step will do, the schedules of
optax among them.
"""

from __future__ import annotations

import inspect
import math
import numbers
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from nbmodule.base.format import describe_shape
from nbmodule.base.kinds import DeviceLike, RateLike, is_whole
from nbmodule.base.migration import REFUSED, accepts_aliases
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

    __slots__ = ("_replacement", "ask")
    is_pending = False  # pyright: ignore  # no array is read for these two
    shape = ()  # pyright: ignore

    def __init__(self, ask: Callable[[], Any]) -> None:
        self._frozen, self._home = False, birthplace()
        self.ask = ask
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
                number = np.asarray(check_number(float(result)), float_dtype())
                return jax.device_put(number)  # explicitly, for `jax.transfer_guard`
            except NbModuleError:
                raise
            except (AttributeError, TypeError, ValueError) as error:
                # An AttributeError would pass for "there is no value yet".
                raise ArgumentTypeError(
                    f"the function given as lr, {self.ask!r}, must return a number: {error}"
                ) from error

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


def as_rate(lr: object, device: DeviceLike | None = None) -> Any:
    """Return the variable that keeps a learning rate, or the schedule.

    Raises:
        ArgumentError: a negative number, NaN or infinity.
        ArgumentTypeError: neither a number nor a function of at most one argument.
    """
    if isinstance(lr, Variable):
        if lr.shape != ():
            raise ShapeError(f"a learning rate must be one number, got {lr.describe()}.")
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
        raise ShapeError(f"a learning rate must be one number, got {describe_shape(lr)}.")
    if is_array and not (
        jnp.issubdtype(lr.dtype, jnp.floating) or jnp.issubdtype(lr.dtype, jnp.integer)
    ):
        raise ArgumentTypeError(f"lr= takes {_WANTED}, got a scalar of {lr.dtype}.")
    return check_number(float(lr))


def check_number(number: float) -> float:
    """Return a number if it is zero or more, and finite."""
    if not (math.isfinite(number) and number >= 0):
        raise ArgumentError(f"a learning rate must be finite and at least 0, got {number!r}.")
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
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    needed = [p for p in parameters if p.default is p.empty and p.kind not in variadic]
    if len(needed) > 1 or any(p.kind is p.KEYWORD_ONLY for p in needed):
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
            f"a learning rate must be one number, the function returned {describe_shape(array)}."
        )
    return array.astype(float_dtype())


def float_dtype() -> Any:
    """Return JAX's default float, the dtype of learning rates."""
    return jnp.result_type(float)


# -- schedules: thin over optax, with the length of the whole run, warm-up included, and checked --
class Schedule:
    """A function from the step to a learning rate, with readable text.

    Args:
        name: Name of the function that made it.
        args: Its positional arguments.
        falls: The schedule after the warm-up.
        lr: Learning rate at the end of the warm-up.
        warmup: Number of steps in which it rises from 0.
        end: Learning rate at the end.
    """

    def __init__(
        self, name: str, args: tuple[Any, ...], falls: Any, lr: float, warmup: int, end: float = 0.0
    ) -> None:
        import optax

        if warmup:
            falls = optax.join_schedules([optax.linear_schedule(0.0, lr, warmup), falls], [warmup])
        # Compiled: eager calls would copy the numbers of the schedule to the device at each step.
        self._function = jax.jit(falls)
        options = [f"{key}={x:g}" for key, x in (("warmup", warmup), ("end", end)) if x]
        numbers = [f"{x:g}" if isinstance(x, float) else str(x) for x in args]
        self._name = f"{name}({', '.join([*numbers, *options])})"

    def __call__(self, step: Any) -> Any:
        """Return the learning rate at a step, counted from 0."""
        return self._function(step)

    def __repr__(self) -> str:
        return self._name


@accepts_aliases
def cosine_schedule(lr: float, steps: int, *, warmup: int = 0, end: float = 0.0) -> Schedule:
    """Give a schedule that rises to `lr` in a straight line and then falls to `end` along half a
    cosine.

    Args:
        lr: The highest learning rate.
        steps: Length of the whole run, warm-up included; the learning rate stays at `end` after it.
        warmup: Number of steps in which it rises from 0.
        end: The learning rate at the end.

    Raises:
        ArgumentError: a negative rate, or a warm-up that is no shorter than the run.

    Example:
        >>> schedule = nb.cosine_schedule(1.0, 10, warmup=2)
        >>> [round(float(schedule(step)), 2) for step in (0, 1, 2, 6, 10)]
        [0.0, 0.5, 1.0, 0.5, 0.0]

    Source: Loshchilov and Hutter (2017), arXiv:1608.03983; `optax.cosine_decay_schedule`.
    """
    import optax

    lr, steps, warmup, end = _check(lr, steps, warmup, end)
    falls = optax.cosine_decay_schedule(lr, steps - warmup, end / lr if lr else 0.0)
    return Schedule("cosine_schedule", (lr, steps), falls, lr, warmup, end)


@accepts_aliases
def linear_schedule(lr: float, steps: int, *, warmup: int = 0, end: float = 0.0) -> Schedule:
    """Give a schedule that rises to `lr` in a straight line and then falls to `end` in a straight
    line.

    Args:
        lr: The highest learning rate.
        steps: Length of the whole run, warm-up included; the learning rate stays at `end` after it.
        warmup: Number of steps in which it rises from 0.
        end: The learning rate at the end.

    Raises:
        ArgumentError: a negative rate, or a warm-up that is no shorter than the run.

    Example:
        >>> schedule = nb.linear_schedule(1.0, 10, warmup=2)
        >>> [round(float(schedule(step)), 2) for step in (0, 1, 2, 6, 10)]
        [0.0, 0.5, 1.0, 0.5, 0.0]
    """
    import optax

    lr, steps, warmup, end = _check(lr, steps, warmup, end)
    falls = optax.linear_schedule(lr, end, steps - warmup)
    return Schedule("linear_schedule", (lr, steps), falls, lr, warmup, end)


@accepts_aliases
def step_schedule(lr: float, factors: Mapping[int, float], *, warmup: int = 0) -> Schedule:
    """Give a schedule that multiplies the learning rate by a factor at certain steps.

    Args:
        lr: The first learning rate.
        factors: From a step, counted from 0, to what the learning rate is multiplied with from that
            step on.
        warmup: Number of steps in which it rises from 0 in a straight line.

    Raises:
        ArgumentError: a negative rate or factor, or a step that is not after the warm-up.

    Example:
        >>> schedule = nb.step_schedule(1.0, {30: 0.1, 60: 0.1})
        >>> [round(float(schedule(step)), 2) for step in (29, 30, 60)]
        [1.0, 0.1, 0.01]
    """
    import optax

    if not isinstance(factors, Mapping):
        raise ArgumentTypeError(
            f"step_schedule takes a dict from steps to factors, got {type(factors).__name__}."
        )
    lr, _, warmup, _ = _check(lr, max((*factors, 1 + warmup)), warmup, 0.0)
    for step, factor in factors.items():
        if not is_whole(step) or step <= warmup:
            raise ArgumentError(
                f"step_schedule: steps must be integers after the warm-up of {warmup}, "
                f"got {step!r}."
            )
        as_number(factor)
    falls = optax.piecewise_constant_schedule(
        lr, {int(step) - warmup: float(factor) for step, factor in factors.items()}
    )
    return Schedule("step_schedule", (lr, dict(factors)), falls, lr, warmup)


def _check(lr: float, steps: int, warmup: int, end: float) -> tuple[float, int, int, float]:
    for name, number in (("steps", steps), ("warmup", warmup)):
        if not is_whole(number):
            raise ArgumentTypeError(f"{name} must be an integer number of steps, got {number!r}.")
    if not 0 <= warmup < steps:
        raise ArgumentError(f"a warm-up of {warmup} steps does not fit into a run of {steps}.")
    return as_number(lr), int(steps), int(warmup), as_number(end)
