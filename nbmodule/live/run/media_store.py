"""Texts, arrays and pictures that were logged, in bounded host memory.

When the memory is full, every other entry of the largest list is dropped, so that an even selection
over the whole run stays, always with the newest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from nbmodule.errors import ArgumentTypeError
from nbmodule.live.run.media import Media

T = TypeVar("T")
BUDGET = 64 * 2**20
"""Bytes kept in all."""
MOST_ENTRIES = 1000
"""Entries kept of one name."""


class Downsampled(Generic[T]):
    """A list of every k-th item and the newest, where k doubles when there are too many.

    Example:
        >>> items = Downsampled(4)
        >>> for i in range(10):
        ...     items.append(i)
        >>> items.items
        [0, 4, 8, 9]
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.items: list[T] = []
        self.dropped = 0
        """Number of items left out."""
        self._stride = 1
        self._count = 0
        self._last_is_extra = False

    def append(self, item: T) -> None:
        """Add the newest item; drop the one before it unless it is one of the selection."""
        if self._last_is_extra:
            self.items.pop()
            self.dropped += 1
        self.items.append(item)
        self._last_is_extra = self._count % self._stride != 0
        self._count += 1
        if len(self.items) > self.most:
            self.halve()

    def insert(self, index: int, item: T) -> None:
        """Add an item that came late."""
        self.items.insert(index, item)
        if len(self.items) > self.most:
            self.halve()

    def keep_if(self, condition: Callable[[T], bool]) -> None:
        """Drop other items, which do not count as left out."""
        self.items = [item for item in self.items if condition(item)]
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


class MediaItem(NamedTuple):
    """A logged value: `kind` is 'text', 'array', 'media' (a `Media`) or 'picture' (uint8
    `[height, width, 3]`).
    """

    step: int
    kind: str
    value: Any


class MediaStore:
    """Logged texts, arrays and pictures by name.

    Example:
        >>> media = MediaStore()
        >>> media.put("sample", 10, "the cat sat")
        >>> media["sample"][-1].value
        'the cat sat'
    """

    def __init__(self, budget: int = BUDGET) -> None:
        self.budget = budget
        self.version = 0
        """Grows with every entry."""
        self._entries: dict[str, Downsampled[MediaItem]] = {}
        self._bytes = 0

    def put(self, name: str, step: int, value: Any) -> None:
        """Add a text, an array, or a picture (a PIL image, a matplotlib figure, bytes as `uint8[H,
        W, 3]`).
        """
        kind, value = _normalize(name, value)
        entries = self._entries.setdefault(name, Downsampled(MOST_ENTRIES))
        entries.append(MediaItem(step, kind, value))
        self._bytes = self._count_bytes()
        self.version += 1
        while self._bytes > self.budget:
            largest = max(self._entries.values(), key=_bytes_of)
            if len(largest.items) < 2:
                break
            largest.halve()
            self._bytes = self._count_bytes()

    def cut(self, step: int) -> None:
        """Forget the entries of this step and later ones."""
        for entries in self._entries.values():
            entries.keep_if(lambda entry: entry.step < step)
        self._entries = {name: entries for name, entries in self._entries.items() if entries.items}
        self._bytes = self._count_bytes()
        self.version += 1

    def _count_bytes(self) -> int:
        return sum(map(_bytes_of, self._entries.values()))

    @property
    def dropped(self) -> int:
        """Number of entries left out."""
        return sum(entries.dropped for entries in self._entries.values())

    @property
    def nbytes(self) -> int:
        """Host memory held, in bytes."""
        return self._bytes

    def __getitem__(self, name: str) -> list[MediaItem]:
        return self._entries[name].items

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


def _bytes_of(entries: Downsampled[MediaItem]) -> int:
    values = [entry.value for entry in entries.items]
    return sum(len(v) if isinstance(v, str) else v.nbytes for v in values)


def _normalize(name: str, value: Any) -> tuple[str, Any]:
    if isinstance(value, str):
        return "text", value
    if isinstance(value, Media):
        return "media", value
    if hasattr(value, "savefig") and hasattr(value, "canvas"):
        return "picture", _pixels_of_figure(value)
    if hasattr(value, "convert") and hasattr(value, "getbands"):
        return "picture", np.asarray(value.convert("RGB"))
    array = np.asarray(value)
    if array.dtype.kind not in "biufcV":
        raise ArgumentTypeError(
            f"cannot log {name!r}: expected a number, an array, a text or a picture, got "
            f"{type(value).__name__}."
        )
    if array.dtype == np.uint8 and array.ndim == 3 and array.shape[-1] in (3, 4):
        return "picture", np.ascontiguousarray(array[..., :3])
    return "array", array


def _pixels_of_figure(figure: Any) -> NDArray[np.uint8]:
    """Draw a matplotlib figure with a canvas that belongs to no window."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    previous = figure.canvas
    canvas = FigureCanvasAgg(figure)
    try:
        canvas.draw()
        return np.asarray(canvas.buffer_rgba())[..., :3].copy()
    finally:
        figure.set_canvas(previous)
