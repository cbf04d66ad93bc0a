"""Write values into variables as one act: whatever interrupts a program, all variables hold old
values or all hold new ones. A pending value is known by shape and dtype, and drawn when first read.

Python handles signals, and lets other threads run, between its own instructions, never within a
call into C that runs no Python. So a commit is one such call: `map` over the variables, driven
by `any`. It ends with the tick of the clock, so that a view of the old values is never taken for
one
of the new. The old values live until it is over: freeing an array lets other threads run.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from itertools import chain, repeat
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from nbmodule.base.kinds import DeviceLike
from nbmodule.core.variables.clock import clock, ticks

if TYPE_CHECKING:
    from nbmodule.core.variables.variable import Variable

draw_lock = threading.RLock()
"""Held while values are drawn, so that threads that read one box at once see one draw."""


class Pending:
    """A value that is still to be drawn, by a function without side effects."""

    __slots__ = ("device", "draw", "dtype", "follows", "shape")

    def __init__(
        self,
        draw: Callable[[], Any] | None,
        shape: tuple[int, ...],
        dtype: DTypeLike,
        device: DeviceLike | None = None,
        follows: bool = False,
    ) -> None:
        self.draw, self.shape, self.dtype, self.device = (
            draw,
            tuple(shape),
            jnp.dtype(dtype),
            device,
        )
        self.follows = follows  # whether it looks at another variable, which may change

    @property
    def sharding(self) -> Any:
        """Where the value will lie."""
        location = self.device
        if isinstance(location, jax.sharding.Sharding):
            return location
        if location is None:
            default: Any = jax.config.jax_default_device  # pyright: ignore
            location = default or jax.local_devices()[0]
            location = jax.devices(location)[0] if isinstance(location, str) else location
        return jax.sharding.SingleDeviceSharding(location)


_value = attrgetter("_value")


Also = tuple[Sequence[Any], Sequence[str], Sequence[Any]]
"""What else is set at the moment of a commit: objects, an attribute of each, and its new value."""
NOTHING: Also = ((), (), ())


def commit(
    boxes: Sequence[Variable],
    values: Sequence[Any],
    waiting: Sequence[Variable] = (),
    draws: Sequence[Any] = (),
    also: Also = NOTHING,
) -> None:
    """Put values into boxes, past all frames. They were checked before: as many, of the shapes and
    dtypes of the boxes.

    Args:
        boxes: Each once.
        values: One for each.
        waiting: Pending boxes, which get another draw at the same moment.
        draws: One for each of these.
        also: What else is set at the same moment, layouts say.

    Example:
        >>> import nbmodule as nb
        >>> a, b = nb.Buffer(1), nb.Buffer(2)
        >>> commit((a, b), (b(), a()))
        >>> int(a), int(b)
        (2, 1)
    """
    targets, names = targets_of(boxes)
    try:
        before = list(map(_value, boxes))
    except AttributeError:
        before = None
    if before is not None and not waiting and also is NOTHING:
        any(map(setattr, targets, names, chain(values, ticks)))
        return
    before = [getattr(box, "_value", None) for box in boxes]
    targets, names = (
        (*waiting, *also[0], *targets),
        (*repeat("_pending", len(waiting)), *also[1], *names),
    )
    with draw_lock:  # a draw that has begun comes first
        any(map(setattr, targets, names, chain(draws, also[2], values, ticks)))
    for box in boxes:
        if hasattr(box, "_pending"):
            del box._pending


def set_all(targets: Sequence[Any], names: Sequence[str], values: Sequence[Any]) -> None:
    """Set attributes of many things, flags or modes, as one act. The clocks that tell of it are
    among them.

    Args:
        targets: The things.
        names: An attribute of each; setting it runs no Python.
        values: One for each.

    Example:
        >>> import nbmodule as nb
        >>> a, b = nb.Parameter(1), nb.Parameter(2)
        >>> set_all((a, b), ("_frozen", "_frozen"), (True, True))
        >>> a.requires_grad or b.requires_grad
        False
    """
    any(
        map(setattr, targets, names, values)
    )  # none is left over: `any` stops at what is true, and `setattr` gives None


def freeze(boxes: Sequence[Variable], frozen: bool) -> None:
    """Take these variables out of training, or back, as one act."""
    if boxes:
        objects, names = (
            (*boxes, clock, clock),
            (*repeat("_frozen", len(boxes)), "flags", "structure"),
        )
        set_all(objects, names, (*repeat(frozen, len(boxes)), next(ticks), next(ticks)))


def targets_of(boxes: Sequence[Variable]) -> tuple[tuple[Any, ...], tuple[str, ...]]:
    """What a commit sets: the value of each box, and then the clock.

    Its values are `chain(values, ticks)`.
    """
    return (*boxes, clock), (*repeat("_value", len(boxes)), "values")
