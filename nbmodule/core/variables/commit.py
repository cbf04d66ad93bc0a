"""Write values into variables as one act: whatever interrupts a program, all variables hold old
values or all hold new ones. A pending value is known by shape and dtype, and drawn when first read.

Python handles signals, and lets other threads run, between its own instructions, never within a
call into C that runs no Python. So a commit is one such call: `map` over the variables, driven by
`any`. It ends with the tick of the clock, so that a view of the old values is never taken for one
of the new. The old values live until it is over: freeing an array lets other threads run.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain, repeat, starmap
from operator import attrgetter, call
from typing import TYPE_CHECKING, Any

import jax

from nbmodule.core.variables.clock import clock, ticks

if TYPE_CHECKING:
    from nbmodule.core.variables.variable import Variable

draw_lock = threading.RLock()
"""Held while values are drawn, so that threads that read one variable at once see one draw."""


@dataclass(slots=True, eq=False)
class Pending:
    """A value that is still to be drawn, by a function without side effects."""

    draw: Callable[[], Any] | None
    shape: tuple[int, ...]
    dtype: Any
    device: Any = None
    follows: bool = False  # whether `draw` reads another variable, which may change

    @property
    def sharding(self) -> Any:
        """The sharding that the value will have."""
        location = self.device
        if isinstance(location, jax.sharding.Sharding):
            return location
        return jax.sharding.SingleDeviceSharding(default_device() if location is None else location)


def default_device() -> Any:
    """Return the device on which JAX puts new arrays now."""
    device: Any = jax.config.jax_default_device  # pyright: ignore
    if isinstance(device, str):
        return jax.devices(device)[0]
    return device or jax.local_devices()[0]


_value = attrgetter("_value")


Also = tuple[Sequence[Any], Sequence[str], Sequence[Any]]
"""Other changes of a commit: objects, an attribute of each, and its new value."""
NOTHING: Also = ((), (), ())
Call = tuple[Any, ...]
"""A function in C that returns None, such as `operator.setitem`, and its arguments."""


def commit(
    variables: Sequence[Variable],
    values: Sequence[Any],
    waiting: Sequence[Variable] = (),
    draws: Sequence[Any] = (),
    also: Also = NOTHING,
    calls: Sequence[Call] = (),
) -> None:
    """Set the values of variables outside of all frames.

    The values were checked before: as many, of the shapes and dtypes of the variables.

    Args:
        variables: Each once.
        values: One for each.
        waiting: Pending variables, which get another draw at the same moment.
        draws: One for each of these.
        also: What else is set at the same moment, layouts say.
        calls: Further calls to make with the commit.

    Example:
        >>> import nbmodule as nb
        >>> a, b = nb.Buffer(1), nb.Buffer(2)
        >>> commit((a, b), (b(), a()))
        >>> int(a), int(b)
        (2, 1)
    """
    targets, names = targets_of(variables)
    try:
        before = list(map(_value, variables))
    except AttributeError:
        before = None
    if before is not None and not waiting and also is NOTHING and not calls:
        any(map(setattr, targets, names, chain(values, ticks)))
        return
    before = [getattr(variable, "_value", None) for variable in variables]
    targets = (*waiting, *also[0], *targets)
    names = (*repeat("_pending", len(waiting)), *also[1], *names)
    new = chain(draws, also[2], values, ticks)
    with draw_lock:  # a draw that has begun comes first
        any(chain(starmap(call, calls), map(setattr, targets, names, new)))
    for variable in variables:
        if hasattr(variable, "_pending"):
            del variable._pending


def set_all(targets: Sequence[Any], names: Sequence[str], values: Sequence[Any]) -> None:
    """Set attributes of many objects, flags or modes, as one act, with the clocks that count it.

    Args:
        targets: The objects.
        names: An attribute of each; setting it runs no Python.
        values: One for each.

    Example:
        >>> import nbmodule as nb
        >>> a, b = nb.Parameter(1), nb.Parameter(2)
        >>> set_all((a, b), ("_frozen", "_frozen"), (True, True))
        >>> a.requires_grad or b.requires_grad
        False
    """
    any(map(setattr, targets, names, values))  # `setattr` gives None, so `any` goes to the end


def freeze(variables: Sequence[Variable], frozen: bool) -> None:
    """Take these variables out of training, or back, as one act."""
    if variables:
        names = (*repeat("_frozen", len(variables)), "flags", "structure")
        values = (*repeat(frozen, len(variables)), next(ticks), next(ticks))
        set_all((*variables, clock, clock), names, values)


def targets_of(variables: Sequence[Variable]) -> tuple[tuple[Any, ...], tuple[str, ...]]:
    """Return the attributes that a commit sets: the value of each variable, and then the clock.

    Their new values are `chain(values, ticks)`.
    """
    return (*variables, clock), (*repeat("_value", len(variables)), "values")
