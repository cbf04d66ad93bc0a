"""A list that stays short: an even selection of all that was ever added, always with the newest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Thinned(Generic[T]):
    """Keeps every k-th item, where k doubles whenever there are too many.

    Example:
        >>> thinned = Thinned(4)
        >>> for i in range(10):
        ...     thinned.append(i)
        >>> thinned.items
        [0, 4, 8, 9]
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.items: list[T] = []
        self.dropped = 0
        """How many items were left out."""
        self._stride = 1
        self._count = 0
        self._last_is_extra = False

    def append(self, item: T) -> None:
        """Add the newest item; the newest before it goes if it is not one of the selection."""
        if self._last_is_extra:
            self.items.pop()
            self.dropped += 1
        self.items.append(item)
        self._last_is_extra = self._count % self._stride != 0
        self._count += 1
        if len(self.items) > self.most:
            self.halve()

    def insert(self, place: int, item: T) -> None:
        """Add an item that has come late, before the one at this place."""
        self.items.insert(place, item)
        if len(self.items) > self.most:
            self.halve()

    def keep_if(self, wanted: Callable[[T], bool]) -> None:
        """Drop what is not wanted any more; it does not count as left out."""
        self.items = [item for item in self.items if wanted(item)]
        self._last_is_extra = False

    def halve(self) -> None:
        """Leave out every other item, but not the newest."""
        if len(self.items) < 2:
            return
        newest, before = self.items[-1], len(self.items)
        if self._last_is_extra:
            self.items.pop()
        self.items = self.items[::2]
        self._stride *= 2
        self._last_is_extra = (self._count - 1) % self._stride != 0
        if self._last_is_extra:
            self.items.append(newest)
        self.dropped += before - len(self.items)
