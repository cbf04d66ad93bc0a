"""Write values into variables as one act: whatever interrupts a program, all variables hold old
values or all hold new ones. A pending value is known by shape and dtype, and drawn when first read.

Python handles signals, and lets other threads run, between its own instructions, never within a
call into C that runs no Python. So a commit is one such call: `map` over the variables, driven by
`any`. It ends with the tick of the clock, so that a view of the old values is never taken for one
of the new. The old values live until it is over: freeing an array lets other threads run.

The clock counts changes of values, of structures of modules, and of flags of variables. A walk, a
container `v` or a compiled program remembers the tick at which it was made. Ticks are never
repeated, so a thread that loses a race sees a difference, never a stale agreement.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain, count, repeat, starmap
from operator import attrgetter, call
from typing import TYPE_CHECKING, Any

import jax

if TYPE_CHECKING:
    from nbmodule.core.variables.variable import Variable

ticks = count(1)


class _Clock:
    __slots__ = ("flags", "structure", "values")

    def __init__(self) -> None:
        self.values = self.structure = self.flags = 0

    def __reduce__(self) -> str:
        """Pickle by name: there is one clock, also where cloudpickle copies a function."""
        return "clock"

    def structure_changed(self) -> None:
        """Say that a module has another attribute, mode or hook."""
        self.structure = next(ticks)


clock = _Clock()

draw_lock = threading.RLock()
"""Held while values are drawn, so that threads that read one variable at once see one draw."""


@dataclass(slots=True, eq=False)
class Pending:
    """A value that is still to be drawn, by a function without side effects."""

    draw: Callable[[], Any] | None
    shape: tuple[int, ...]
    dtype: Any
    device: Any = None

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


Call = tuple[Any, ...]
"""A function in C that returns None, such as `setattr`, and its arguments."""


def commit(
    variables: Sequence[Variable], values: Sequence[Any], calls: Sequence[Call] = ()
) -> None:
    """Set the values of variables outside of all frames.

    The values were checked before: as many, of the shapes and dtypes of the variables.

    Args:
        variables: Each once.
        values: One for each.
        calls: Further calls to make with the commit: they set another draw of a pending variable,
            or its layout, say.

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
    if before is not None and not calls:
        any(map(setattr, targets, names, chain(values, ticks)))
        return
    before = [getattr(variable, "_value", None) for variable in variables]
    with draw_lock:  # a draw that has begun comes first
        any(chain(starmap(call, calls), map(setattr, targets, names, chain(values, ticks))))
    for variable in variables:
        if hasattr(variable, "_pending"):
            del variable._pending


def make_calls(calls: Sequence[Call]) -> None:
    """Make calls that set flags, modes or layouts, and the clocks that count them, as one act.

    Example:
        >>> import nbmodule as nb
        >>> a, b = nb.Parameter(1), nb.Parameter(2)
        >>> make_calls([(setattr, variable, "_frozen", True) for variable in (a, b)])
        >>> a.requires_grad or b.requires_grad
        False
    """
    any(starmap(call, calls))  # they give None, so `any` goes to the end


def freeze(variables: Sequence[Variable], frozen: bool) -> None:
    """Take these variables out of training, or back, as one act."""
    if variables:
        flags = (setattr, clock, "flags", next(ticks)), structure_tick()
        make_calls([*((setattr, variable, "_frozen", frozen) for variable in variables), *flags])


def structure_tick() -> Call:
    """Return the call that counts a change of structure."""
    return setattr, clock, "structure", next(ticks)


def targets_of(variables: Sequence[Variable]) -> tuple[tuple[Any, ...], tuple[str, ...]]:
    """Return the attributes that a commit sets: the value of each variable, and then the clock.

    Their new values are `chain(values, ticks)`.
    """
    return (*variables, clock), (*repeat("_value", len(variables)), "values")
