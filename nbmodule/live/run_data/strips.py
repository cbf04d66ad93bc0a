"""Statistics per submodule: one sample of them, and all samples of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbmodule.base.statistics import BINS, Statistics, join_statistics
from nbmodule.live.run_data.history import Downsampled

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
    groups = groups_of(names).items()
    joined = {path: join_statistics([arrays[i] for i in members]) for path, members in groups}
    return one_each(step, quantity, joined)


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
        """The rows: all paths that samples had, at most `MOST_ROWS`."""
        self.left_out = 0
        """Number of paths beyond those."""
        self._samples: Downsampled[Sample] = Downsampled(MOST_SAMPLES)

    def add(self, sample: Sample) -> None:
        """Keep a sample; rows are matched by path, new ones are added at the end."""
        paths = tuple(dict.fromkeys((*self.paths, *sample.paths)))
        self.paths, self.left_out = paths[:MOST_ROWS], len(paths[MOST_ROWS:])
        values = np.asarray(sample.values, np.float32)
        bins = None if sample.bins is None else np.asarray(sample.bins, np.float32)
        self._samples.append(sample._replace(values=values, bins=bins))

    def cut(self, step: int) -> None:
        """Forget the samples of this step and later ones."""
        self._samples.keep([sample.step < step for sample in self._samples])

    @property
    def steps(self) -> NDArray[np.int64]:
        """The steps of the samples."""
        return np.array([sample.step for sample in self._samples], np.int64)

    @property
    def last_step(self) -> int | None:
        """The step of the last sample, None before there is one."""
        return self._samples[-1].step if len(self) else None

    @property
    def values(self) -> NDArray[np.float32]:
        """`[samples, rows, fields]`, NaN where a row had no value."""
        return self.recent(len(self))

    def recent(self, count: int) -> NDArray[np.float32]:
        """Return `[samples, rows, fields]` of the last samples, at most so many."""
        samples = self._samples[len(self) - min(count, len(self)) :]
        return _table([(s.paths, s.values) for s in samples], self.paths)

    @property
    def newest(self) -> NDArray[np.float32] | None:
        """`[rows, fields]` of the last sample, None before there is one."""
        return self.recent(1)[0] if len(self) else None

    def bins(self, path: str) -> NDArray[np.float32]:
        """Return `[samples, BINS]` of one row, NaN where there is none."""
        blank = np.empty((0, BINS), np.float32)
        samples = [((), blank) if s.bins is None else (s.paths, s.bins) for s in self._samples]
        return _table(samples, (path,)).reshape(-1, BINS)

    @property
    def newest_bins(self) -> NDArray[np.float32] | None:
        """`[rows, BINS]` of the last sample that has some."""
        last = next((s for s in reversed(self._samples) if s.bins is not None), None)
        return None if last is None else _table([(last.paths, last.bins)], self.paths)[0]

    def __len__(self) -> int:
        return len(self._samples)


def _table(samples: Sequence[tuple[Any, Any]], paths: tuple[str, ...]) -> NDArray[np.float32]:
    """Return the rows of these paths of each sample, NaN where it has none."""
    if not samples:
        return np.empty((0, 0, 0), np.float32)
    shape = (len(samples), len(paths), *samples[0][1].shape[1:])
    table = np.full(shape, np.nan, np.float32)
    for place, (own, values) in zip(table, samples, strict=True):
        if own == paths:
            place[:] = values
            continue
        rows = {path: row for row, path in enumerate(own)}
        known = [k for k, path in enumerate(paths) if path in rows]
        place[known] = values[[rows[paths[k]] for k in known]]
    return table
