"""What a watcher of a model is, and the statistics per submodule that watchers bring, kept over the
steps.

`Live` asks a `Watcher` at a boundary to measure the step that follows, and takes what has been
measured at later ones. A watcher never waits for the device. `WATCHES` is the socket: each entry is
asked once a run whether it can watch this model; the rooms that know modules plug theirs in, and
`weights` plugs in the one that needs none.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from nbmodule.base.statistics import BINS
from nbmodule.live.run.thinned import Thinned

FIELDS = ("mean", "std", "low", "high", "nonfinite", "zero")
"""`nonfinite` is a count of elements, `zero` the share of elements that are exactly 0."""
MOST_SAMPLES = 256
"""Samples kept, evenly over the steps."""
MOST_ROWS = 400


class Sample(NamedTuple):
    """Statistics of many submodules at one step."""

    step: int
    quantity: str
    """'weight', 'gradient', 'return', or 'update' (the norm of one update over the norm of the weights after it)."""
    paths: tuple[str, ...]
    """Dotted path of the submodule of each row."""
    values: Any
    """`float[rows, fields]`; the columns are `FIELDS`, for 'update' only the ratio."""
    bins: Any = None
    """`float[rows, BINS]`, counts of equal intervals from `low` to `high` of each row."""


@runtime_checkable
class Watcher(Protocol):
    """Measures a model while it trains."""

    about: str
    """What is watched, and what is not and why; '' if there is nothing to say."""

    @property
    def is_preparing(self) -> bool:
        """Whether what it needs is still being compiled: a measurement made now is not worth much."""
        ...

    def request(self, step: int) -> None:
        """Ask for a measurement of the step that begins now."""

    def around(self, step: int) -> AbstractContextManager[Any] | None:
        """Give a context in which the requested step is to run, None if there is none."""

    def take(self, step: int) -> Sequence[Sample]:
        """Give what has been measured since; never wait.

        Called at boundaries, with the steps that are done.
        """
        ...

    def picture(self, path: str, quantity: str = "weight") -> Any:
        """Give an array to draw of one submodule now, of its weights or its return; None if there
        is none.
        """

    def close(self) -> None:
        """Let go of the model."""


WATCHES: list[Callable[[Any, str | None], Watcher | None]] = []
"""Each is called with the model and what is to be watched ('all' or 'weights'); it gives a watcher, or None where it has nothing to watch."""


class Strips:
    """Statistics per submodule over the steps, for one quantity.

    Example:
        >>> strips = Strips('update')
        >>> strips.add(Sample(10, 'update', ('head',), np.array([[1e-3]])))
        >>> strips.paths, strips.steps.tolist()
        (('head',), [10])
    """

    def __init__(self, quantity: str) -> None:
        self.quantity = quantity
        self.paths: tuple[str, ...] = ()
        self.left_out = 0
        self._kept: Thinned[tuple[int, NDArray[np.float32], NDArray[np.float32] | None]] = Thinned(
            MOST_SAMPLES
        )

    def add(self, sample: Sample) -> None:
        """Keep a sample; rows are found by path, new ones are added at the end."""
        values = np.asarray(sample.values, np.float32)
        bins = None if sample.bins is None else np.asarray(sample.bins, np.float32)
        if sample.paths != self.paths:
            rows = self._rows_for(sample.paths)
            kept = [i for i, row in enumerate(rows) if row is not None]
            places = [rows[i] for i in kept]
            values = _spread(values[kept], places, len(self.paths))
            bins = None if bins is None else _spread(bins[kept], places, len(self.paths))
        kept = self._kept.items
        if (
            kept and sample.step < kept[-1][0]
        ):  # what a recorder keeps is read later than what is watched
            self._kept.insert(
                bisect.bisect([step for step, _, _ in kept], sample.step),
                (sample.step, values, bins),
            )
        else:
            self._kept.append((sample.step, values, bins))

    def cut(self, step: int) -> None:
        """Forget the samples of this step and of later ones."""
        self._kept.keep_if(lambda sample: sample[0] < step)

    def _rows_for(self, paths: Sequence[str]) -> list[int | None]:
        place = {path: i for i, path in enumerate(self.paths)}
        for path in paths:
            if path not in place and len(place) < MOST_ROWS:
                place[path] = len(place)
        self.left_out = sum(path not in place for path in paths)
        self.paths = tuple(place)
        return [place.get(path) for path in paths]

    @property
    def steps(self) -> NDArray[np.int64]:
        """The steps of the samples."""
        return np.array([step for step, _, _ in self._kept.items], np.int64)

    @property
    def values(self) -> NDArray[np.float32]:
        """`[samples, rows, fields]`, NaN where a row had no value."""
        if not self._kept.items:
            return np.empty((0, 0, 0), np.float32)
        rows = len(self.paths)
        return np.stack(
            [
                _spread(v, range(len(v)), rows) if len(v) < rows else v
                for _, v, _ in self._kept.items
            ]
        )

    def recent(self, count: int) -> NDArray[np.float32]:
        """`[samples, rows, fields]` of the last samples, at most so many; NaN where a row had no
        value.
        """
        rows = len(self.paths)
        kept = self._kept.items[-count:]
        return np.stack(
            [_spread(v, range(len(v)), rows) if len(v) < rows else v for _, v, _ in kept]
        )

    @property
    def newest(self) -> NDArray[np.float32] | None:
        """`[rows, fields]` of the last sample, None before there is one."""
        return self._kept.items[-1][1] if self._kept.items else None

    def bins(self, path: str) -> NDArray[np.float32]:
        """`[samples, BINS]` of one row, NaN where there is none."""
        row = self.paths.index(path)
        blank = np.full(BINS, np.nan, np.float32)
        found = [blank if b is None or row >= len(b) else b[row] for _, _, b in self._kept.items]
        return np.array(found, np.float32).reshape(-1, BINS)

    @property
    def newest_bins(self) -> NDArray[np.float32] | None:
        """`[rows, BINS]` of the last sample that has some."""
        found = next((b for _, _, b in reversed(self._kept.items) if b is not None), None)
        return None if found is None else _spread(found, range(len(found)), len(self.paths))

    @property
    def nbytes(self) -> int:
        """Host memory held, in bytes."""
        return sum(v.nbytes + (0 if b is None else b.nbytes) for _, v, b in self._kept.items)

    def __len__(self) -> int:
        return len(self._kept.items)


def _spread(rows: NDArray[np.float32], places: Any, count: int) -> NDArray[np.float32]:
    out = np.full((count, *rows.shape[1:]), np.nan, np.float32)
    out[list(places)] = rows
    return out


def find_watches(model: object, level: str | None) -> list[Watcher]:
    """Ask each entry of `WATCHES` for a watcher of this model."""
    return [watch for make in WATCHES if (watch := make(model, level)) is not None]
