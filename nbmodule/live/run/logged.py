"""Normalize logged values: flat names, and how many training steps one iteration makes."""

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


def logged_values(name: object, value: object, level: int = 0) -> Iterator[tuple[str, Any]]:
    """Yield the values below a name: `{'loss': 1}` under `train` is `train/loss`, a list under `lr`
    is `lr/0`, `lr/1`; None is nothing.

    Example:
        >>> dict(logged_values("train", {"loss": 1.0, "lr": [0.1, 0.2], "norm": None}))
        {'train/loss': 1.0, 'train/lr/0': 0.1, 'train/lr/1': 0.2}
    """
    name = str(name)
    if isinstance(value, Mapping):
        parts: Any = value.items()
    elif isinstance(value, (list, tuple)):
        if len(value) > MOST_ITEMS:
            raise ArgumentTypeError(
                f"cannot log {name!r}: the list has {len(value):,} items, at most {MOST_ITEMS:,} "
                "are curves. Log an array."
            )
        parts = zip(getattr(value, "_fields", range(len(value))), value, strict=True)
    else:
        if value is not None:
            yield name, value
        return
    if level == MOST_LEVELS:
        raise ArgumentTypeError(f"cannot log {name!r}: nested more than {MOST_LEVELS} levels deep.")
    for key, part in parts:
        yield from logged_values(f"{name}/{key}", part, level + 1)


class ScannedSteps:
    """Which training steps an iteration makes, where it makes several in one compiled call.

    The first values that a run logs decide: if they are a vector of n numbers, an iteration makes
    n steps. A vector that comes later, after single numbers, is an array: `first` returns None.

    Example:
        >>> steps = ScannedSteps()
        >>> steps.first("loss", 1, 20, may_begin=True), steps.first("loss", 2, 20), steps.at(2)
        (1, 21, 40)
        >>> steps.first("loss", 3, 7), steps.at(3)
        (41, 47)
    """

    def __init__(self) -> None:
        self.changes: list[int] = []
        """Iterations at which their number of steps changed; empty while each makes one."""
        self._parts: list[tuple[int, int]] = []
        """From each of those on: the last step of that iteration, and steps per iteration."""
        self._names: set[str] = set()
        self._newest = -1

    def __bool__(self) -> bool:
        return bool(self.changes)

    @property
    def each(self) -> int:
        """Number of steps that the newest iterations make."""
        return self._parts[-1][1] if self._parts else 1

    def at(self, iteration: int) -> int:
        """Return the last step of an iteration."""
        k = bisect_right(self.changes, iteration) - 1
        if k < 0:
            return iteration
        end, each = self._parts[k]
        return end + (iteration - self.changes[k]) * each

    def first(
        self, name: str, iteration: int, count: int, *, may_begin: bool = False
    ) -> int | None:
        """Return the first of the steps that `count` values of an iteration belong to; None if
        they are no values of steps.
        """
        if not self.changes:
            if not may_begin:
                return None
            self._begin(iteration, iteration * count if iteration else count - 1, count)
        elif iteration < self.changes[-1] or (
            count != self.each and (iteration == self._newest or name not in self._names)
        ):
            return None
        elif count != self.each:
            self._begin(iteration, self.at(iteration - 1) + count, count)
        self._names.add(name)
        self._newest = max(self._newest, iteration)
        return self.at(iteration) - count + 1

    def _begin(self, iteration: int, end: int, count: int) -> None:
        self.changes.append(iteration)
        self._parts.append((end, count))
