"""Statistics per submodule: one sample of them, all samples of a run, and who measures them.

`Live` asks a `Watcher` at a boundary to measure the step that follows, and takes the result at
later ones. A watcher never waits for the device. Each entry of `WATCHES` is called once for a run
and returns a watcher if it can watch the model.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from nbmodule.base.statistics import BINS, Statistics, join_statistics
from nbmodule.live.run.media_store import Downsampled

FIELDS = ("mean", "std", "low", "high", "nonfinite", "zero")
"""`nonfinite` is a count of elements, `zero` the share of elements that are exactly 0."""
MOST_SAMPLES = 256
"""Samples kept, evenly over the steps."""
MOST_ROWS = 400


class Sample(NamedTuple):
    """Statistics of many submodules at one step."""

    step: int
    quantity: str
    """'weight', 'gradient', 'return', or 'update' (norm of an update over that of the weights)."""
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
    """What is not watched and why; '' if there is nothing to say."""

    @property
    def is_preparing(self) -> bool:
        """Whether something is still being compiled: measurements made now are not typical."""
        ...

    def request(self, step: int) -> None:
        """Request a measurement of the step that begins now."""

    def around(self, step: int) -> AbstractContextManager[Any] | None:
        """Return a context in which the requested step is to run, None if there is none."""

    def take(self, step: int) -> Sequence[Sample]:
        """Return new measurements; called at boundaries, with the steps that are done."""
        ...

    def picture(self, path: str, quantity: str = "weight") -> Any:
        """Return an array to draw of a submodule, of its weights or its return; None if there is
        none.
        """

    def close(self) -> None:
        """Release the model."""


WATCHES: list[Callable[[Any, str | None], Watcher | None]] = []
"""Functions of the model and of what to watch ('all' or 'weights'), which return a watcher."""


def find_watches(model: object, level: str | None) -> list[Watcher]:
    """Return a watcher of each entry of `WATCHES` that can watch this model."""
    return [watch for make in WATCHES if (watch := make(model, level)) is not None]


# -- rows of a sample --


def one_each(step: int, quantity: str, statistics: Mapping[str, Statistics]) -> Sample:
    """Return a sample with one row for each path."""
    rows = statistics.values()
    values = np.array([(s.mean, s.std, s.min, s.max, s.nonfinite, s.zeros) for s in rows])
    bins = [s.histogram if len(s.histogram) == BINS else (0,) * BINS for s in rows]
    return Sample(step, quantity, tuple(statistics), values, np.array(bins, float))


def grouped(step: int, quantity: str, names: list[str], arrays: Sequence[Statistics]) -> Sample:
    """Return a sample with a row for each submodule and for each child of the root with all below.

    Args:
        step: The step of the measurement.
        quantity: The quantity.
        names: Dotted names of the arrays, such as `features.0.weight`.
        arrays: Their statistics.
    """
    groups = {path: [arrays[i] for i in members] for path, members in groups_of(names).items()}
    return one_each(
        step, quantity, {path: join_statistics(parts) for path, parts in groups.items()}
    )


def groups_of(names: list[str]) -> dict[str, list[int]]:
    """Return the indices of the arrays of each submodule; a child of the root has all below it.

    Example:
        >>> groups_of(["head.weight", "blocks.0.weight", "blocks.1.weight"])
        {'head': [0], 'blocks': [1, 2], 'blocks.0': [1], 'blocks.1': [2]}
    """
    groups: dict[str, list[int]] = {}
    for i, name in enumerate(names):
        owner = owner_of(name)
        for path in dict.fromkeys((owner.split(".")[0], owner)):
            if path in groups or len(groups) < MOST_ROWS:
                groups.setdefault(path, []).append(i)
    return groups


def owner_of(name: str) -> str:
    """Return the path of the submodule that has the array of this name."""
    return name.rpartition(".")[0]


def norm(parts: Sequence[Statistics]) -> float:
    """Return the Euclidean norm of the finite elements of several arrays."""
    squares = [
        (p.size - p.nonfinite) * (p.mean**2 + p.std**2) for p in parts if p.size > p.nonfinite
    ]
    return float(np.sqrt(sum(squares)))


# -- samples over the steps --


class Strips:
    """Statistics per submodule over the steps, for one quantity.

    Example:
        >>> strips = Strips("update")
        >>> strips.add(Sample(10, "update", ("head",), np.array([[1e-3]])))
        >>> strips.paths, strips.steps.tolist()
        (('head',), [10])
    """

    def __init__(self, quantity: str) -> None:
        self.quantity = quantity
        self.paths: tuple[str, ...] = ()
        self.left_out = 0
        self._samples: Downsampled[tuple[int, NDArray[np.float32], NDArray[np.float32] | None]]
        self._samples = Downsampled(MOST_SAMPLES)

    def add(self, sample: Sample) -> None:
        """Keep a sample; rows are matched by path, new ones are added at the end."""
        values = np.asarray(sample.values, np.float32)
        bins = None if sample.bins is None else np.asarray(sample.bins, np.float32)
        if sample.paths != self.paths:
            rows = self._rows_for(sample.paths)
            present = [i for i, row in enumerate(rows) if row is not None]
            rows = [rows[i] for i in present]
            values = _spread(values[present], rows, len(self.paths))
            bins = None if bins is None else _spread(bins[present], rows, len(self.paths))
        steps = [step for step, _, _ in self._samples.items]
        entry = (sample.step, values, bins)
        if steps and sample.step < steps[-1]:  # a recorder is read later than what is watched
            self._samples.insert(bisect.bisect(steps, sample.step), entry)
        else:
            self._samples.append(entry)

    def cut(self, step: int) -> None:
        """Forget the samples of this step and later ones."""
        self._samples.keep_if(lambda sample: sample[0] < step)

    def _rows_for(self, paths: Sequence[str]) -> list[int | None]:
        rows = {path: i for i, path in enumerate(self.paths)}
        for path in paths:
            if path not in rows and len(rows) < MOST_ROWS:
                rows[path] = len(rows)
        self.left_out = sum(path not in rows for path in paths)
        self.paths = tuple(rows)
        return [rows.get(path) for path in paths]

    @property
    def steps(self) -> NDArray[np.int64]:
        """The steps of the samples."""
        return np.array([step for step, _, _ in self._samples.items], np.int64)

    @property
    def values(self) -> NDArray[np.float32]:
        """`[samples, rows, fields]`, NaN where a row had no value."""
        return self.recent(len(self))

    def recent(self, count: int) -> NDArray[np.float32]:
        """Return `[samples, rows, fields]` of the last samples, at most so many."""
        samples = self._samples.items[-count:] if count else []
        if not samples:
            return np.empty((0, 0, 0), np.float32)
        rows = len(self.paths)
        return np.stack([_spread(v, range(len(v)), rows) for _, v, _ in samples])

    @property
    def newest(self) -> NDArray[np.float32] | None:
        """`[rows, fields]` of the last sample, None before there is one."""
        return self._samples.items[-1][1] if self._samples.items else None

    def bins(self, path: str) -> NDArray[np.float32]:
        """Return `[samples, BINS]` of one row, NaN where there is none."""
        row = self.paths.index(path)
        blank = np.full(BINS, np.nan, np.float32)
        bins = [blank if b is None or row >= len(b) else b[row] for _, _, b in self._samples.items]
        return np.array(bins, np.float32).reshape(-1, BINS)

    @property
    def newest_bins(self) -> NDArray[np.float32] | None:
        """`[rows, BINS]` of the last sample that has some."""
        bins = next((b for _, _, b in reversed(self._samples.items) if b is not None), None)
        return None if bins is None else _spread(bins, range(len(bins)), len(self.paths))

    @property
    def nbytes(self) -> int:
        """Host memory held, in bytes."""
        return sum(v.nbytes + (0 if b is None else b.nbytes) for _, v, b in self._samples.items)

    def __len__(self) -> int:
        return len(self._samples.items)


def _spread(values: NDArray[np.float32], rows: Any, count: int) -> NDArray[np.float32]:
    """Put rows into an array of `count` rows, NaN elsewhere."""
    out = np.full((count, *values.shape[1:]), np.nan, np.float32)
    out[list(rows)] = values
    return out
