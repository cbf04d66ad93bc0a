"""Learning rates that change with the step: thin over optax, for `lr=`.

Any function of the step will do as a schedule, those of optax among them. The ones here say how
long the run is, warm-up included, and check it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax

from nbmodule.base.whole_numbers import is_whole
from nbmodule.errors import ArgumentError, ArgumentTypeError
from nbmodule.optim.rate import as_number


class Schedule:
    """A function from the step to a learning rate, with readable text.

    Args:
        name: The call that made it.
        function: The function of the step.
    """

    def __init__(self, name: str, function: Callable[[Any], Any]) -> None:
        # Compiled: eager calls would copy the numbers of the schedule to the device at each step.
        self._name, self._function = name, jax.jit(function)

    def __call__(self, step: Any) -> Any:
        """Return the learning rate at a step, counted from 0."""
        return self._function(step)

    def __repr__(self) -> str:
        return self._name


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
    fall = optax.cosine_decay_schedule(lr, steps - warmup, end / lr if lr else 0.0)
    name = _call("cosine_schedule", lr, steps, warmup=warmup, end=end)
    return Schedule(name, _after_warmup(lr, warmup, fall))


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
    name = _call("linear_schedule", lr, steps, warmup=warmup, end=end)
    fall = optax.linear_schedule(lr, end, steps - warmup)
    return Schedule(name, _after_warmup(lr, warmup, fall))


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
                f"step_schedule: steps are whole numbers after the warm-up of {warmup}, "
                f"got {step!r}."
            )
        as_number(factor)
    falls = optax.piecewise_constant_schedule(
        lr, {int(step) - warmup: float(factor) for step, factor in factors.items()}
    )
    name = _call("step_schedule", lr, dict(factors), warmup=warmup)
    return Schedule(name, _after_warmup(lr, warmup, falls))


def _check(lr: float, steps: int, warmup: int, end: float) -> tuple[float, int, int, float]:
    for name, number in (("steps", steps), ("warmup", warmup)):
        if not is_whole(number):
            raise ArgumentTypeError(f"{name} is a whole number of steps, got {number!r}.")
    if not 0 <= warmup < steps:
        raise ArgumentError(f"a warm-up of {warmup} steps does not fit into a run of {steps}.")
    return as_number(lr), int(steps), int(warmup), as_number(end)


def _call(name: str, *args: object, **options: float) -> str:
    """Write a call, without options that are zero."""
    chosen = [f"{option}={value:g}" for option, value in options.items() if value]
    numbers = [f"{x:g}" if isinstance(x, float) else str(x) for x in args]
    return f"{name}({', '.join([*numbers, *chosen])})"


def _after_warmup(lr: float, warmup: int, schedule: Any) -> Any:
    import optax

    if not warmup:
        return schedule
    return optax.join_schedules([optax.linear_schedule(0.0, lr, warmup), schedule], [warmup])
