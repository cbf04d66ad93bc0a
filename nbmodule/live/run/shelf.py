"""Keeps what was logged beside numbers: texts, arrays, pictures.

Host memory is bounded: when it is full every other entry of the largest list is dropped, so that an
even selection over the whole run stays, always with the newest.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbmodule.errors import ArgumentTypeError
from nbmodule.live.run.media import Media
from nbmodule.live.run.thinned import Thinned

BUDGET = 64 * 2**20
"""Bytes kept in all."""
MOST_ENTRIES = 1000
"""Entries kept of one name."""


class ShelfItem(NamedTuple):
    """One logged value: `kind` is 'text', 'array', 'media' (a `Media`) or 'picture' (uint8
    `[height, width, 3]`).
    """

    step: int
    kind: str
    value: Any


class Shelf:
    """Logged texts, arrays and pictures by name.

    Example:
        >>> shelf = Shelf()
        >>> shelf.put('sample', 10, 'the cat sat')
        >>> shelf['sample'][-1].value
        'the cat sat'
    """

    def __init__(self, budget: int = BUDGET) -> None:
        self.budget = budget
        self.version = 0
        """Counts what was ever put."""
        self._entries: dict[str, Thinned[ShelfItem]] = {}
        self._bytes = 0

    def put(self, name: str, step: int, value: Any) -> None:
        """Add a text, an array, or a picture (a PIL image, a matplotlib figure, bytes as `uint8[H,
        W, 3]`).
        """
        kind, kept = _normalize(name, value)
        self._entries.setdefault(name, Thinned(MOST_ENTRIES)).append(ShelfItem(step, kind, kept))
        self._bytes = self._count_bytes()
        self.version += 1
        while self._bytes > self.budget:
            largest = max(self._entries.values(), key=_bytes_of)
            if len(largest.items) < 2:
                break
            largest.halve()
            self._bytes = self._count_bytes()

    def cut(self, step: int) -> None:
        """Forget what was put at this step and later."""
        for entries in self._entries.values():
            entries.keep_if(lambda entry: entry.step < step)
        self._entries = {name: entries for name, entries in self._entries.items() if entries.items}
        self._bytes = self._count_bytes()
        self.version += 1

    def _count_bytes(self) -> int:
        return sum(map(_bytes_of, self._entries.values()))

    @property
    def dropped(self) -> int:
        """How many entries were left out."""
        return sum(entries.dropped for entries in self._entries.values())

    @property
    def nbytes(self) -> int:
        """Host memory held, in bytes."""
        return self._bytes

    def __getitem__(self, name: str) -> list[ShelfItem]:
        return self._entries[name].items

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Any:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


def _bytes_of(entries: Thinned[ShelfItem]) -> int:
    return sum(len(e.value) if isinstance(e.value, str) else e.value.nbytes for e in entries.items)


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
            f"cannot log {name!r}: expected a number, an array, a text or a picture, found {type(value).__name__}"
        )
    if array.dtype == np.uint8 and array.ndim == 3 and array.shape[-1] in (3, 4):
        return "picture", np.ascontiguousarray(array[..., :3])
    return "array", array


def _pixels_of_figure(figure: Any) -> NDArray[np.uint8]:
    """Draw a matplotlib figure with the canvas that is not bound to any window."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    shown = figure.canvas
    canvas = FigureCanvasAgg(figure)
    try:
        canvas.draw()
        return np.asarray(canvas.buffer_rgba())[..., :3].copy()
    finally:
        figure.set_canvas(shown)
