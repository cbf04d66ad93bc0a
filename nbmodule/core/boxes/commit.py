"""Placing values in boxes as one act: whatever ends a program midway, all boxes hold old values or all hold new ones.

Python handles signals, and lets other threads run, between its own instructions, never within a call into C that runs no
Python. So a commit is one such call: `map` over the boxes, driven by `any`. It ends with the tick of the clock, so that no
view that was made of the old values passes for one of the new. The old values are kept until it is over: the end of an array
lets other threads run.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, repeat
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from nbmodule.core.boxes.clock import clock, ticks
from nbmodule.core.boxes.pending import draw_lock

if TYPE_CHECKING:
    from nbmodule.core.boxes.variable import Variable

_value = attrgetter("_value")


def commit(
    boxes: Sequence[Variable], values: Sequence[Any], waiting: Sequence[Variable] = (), draws: Sequence[Any] = ()
) -> None:
    """Put values into boxes, past all frames. They were checked before: as many, of the shapes and dtypes of the boxes.

    Args:
        boxes: Each once.
        values: One for each.
        waiting: Pending boxes, which get another draw at the same moment.
        draws: One for each of these.

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
    if before is not None and not waiting:
        any(map(setattr, targets, names, chain(values, ticks)))
        return
    before = [getattr(box, "_value", None) for box in boxes]
    targets, names = (*waiting, *targets), (*repeat("_pending", len(waiting)), *names)
    with draw_lock:  # a draw that has begun comes first
        any(map(setattr, targets, names, chain(draws, values, ticks)))
    for box in boxes:
        if hasattr(box, "_pending"):
            del box._pending


def targets_of(boxes: Sequence[Variable]) -> tuple[tuple[Any, ...], tuple[str, ...]]:
    """What a commit sets: the value of each box, and then the clock. Its values are `chain(values, ticks)`."""
    return (*boxes, clock), (*repeat("_value", len(boxes)), "values")
