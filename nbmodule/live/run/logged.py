"""What people log, in the form that a history keeps: flat names, and how many steps of the training
one turn of the loop made.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from nbmodule.errors import ArgumentTypeError

MOST_LEVELS = 16
MOST_ITEMS = 1000
"""Of one list; each is a curve."""


class Scanned(NamedTuple):
    """Values of steps that were made in one call, as `nb.scan` gives them."""

    first: int
    values: Any


def leaves_of(name: object, value: object, level: int = 0) -> Iterator[tuple[str, Any]]:
    """Give the values below a name: `{'loss': 1}` under `train` is `train/loss`, a list under `lr`
    is `lr/0`, `lr/1`; None is nothing.

    Example:
        >>> dict(leaves_of('train', {'loss': 1.0, 'lr': [0.1, 0.2], 'norm': None}))
        {'train/loss': 1.0, 'train/lr/0': 0.1, 'train/lr/1': 0.2}
    """
    name = str(name)
    if isinstance(value, Mapping):
        parts: Any = value.items()
    elif isinstance(value, (list, tuple)):
        if len(value) > MOST_ITEMS:
            raise ArgumentTypeError(
                f"cannot log {name!r}: a list of {len(value):,} items; log an array in its place"
            )
        parts = zip(getattr(value, "_fields", range(len(value))), value, strict=True)
    else:
        if value is not None:
            yield name, value
        return
    if level == MOST_LEVELS:
        raise ArgumentTypeError(f"cannot log {name!r}: nested more than {MOST_LEVELS} levels deep")
    for key, part in parts:
        yield from leaves_of(f"{name}/{key}", part, level + 1)


class ScannedSteps:
    """Which steps of the training a turn of the loop made, where each turn is several, compiled
    into one call.

    It begins with the first values that a run logs: where those are a vector of n numbers, a turn
    is n steps. A vector that comes later, beside numbers of earlier turns, is something else:
    `first` gives None.

    Example:
        >>> steps = ScannedSteps()
        >>> steps.first('loss', 1, 20, may_begin=True), steps.first('loss', 2, 20), steps.at(2)
        (1, 21, 40)
        >>> steps.first('loss', 3, 7), steps.at(3)
        (41, 47)
    """

    def __init__(self) -> None:
        self.turns: list[int] = []
        """The turns of the loop at which the number of steps to a turn changed; none while each is one step."""
        self._parts: list[tuple[int, int]] = []
        """From each of those turns on: the step with which it ended, and how many steps a turn makes."""
        self._names: set[str] = set()
        self._newest = -1

    def __bool__(self) -> bool:
        return bool(self.turns)

    @property
    def each(self) -> int:
        """How many steps the newest turns make."""
        return self._parts[-1][1] if self._parts else 1

    def at(self, turn: int) -> int:
        """The last step of a turn."""
        k = bisect_right(self.turns, turn) - 1
        if k < 0:
            return turn
        end, each = self._parts[k]
        return end + (turn - self.turns[k]) * each

    def first(self, name: str, turn: int, count: int, *, may_begin: bool = False) -> int | None:
        """The first of the steps that `count` values of a turn belong to; None if they are no
        values of steps.
        """
        if not self.turns:
            if not may_begin:
                return None
            self._begin(turn, turn * count if turn else count - 1, count)
        elif turn < self.turns[-1] or (
            count != self.each and (turn == self._newest or name not in self._names)
        ):
            return None
        elif count != self.each:
            self._begin(turn, self.at(turn - 1) + count, count)
        self._names.add(name)
        self._newest = max(self._newest, turn)
        return self.at(turn) - count + 1

    def _begin(self, turn: int, end: int, count: int) -> None:
        self.turns.append(turn)
        self._parts.append((end, count))
