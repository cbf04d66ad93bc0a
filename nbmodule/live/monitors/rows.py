"""Statistics of arrays put together into rows, one for each submodule."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nbmodule.base.statistics import BINS, Statistics, joined
from nbmodule.live.run.watch import MOST_ROWS, Sample


def one_each(step: int, quantity: str, found: Mapping[str, Statistics]) -> Sample:
    """Make a row of the statistics of one array for each path."""
    return _sample(step, quantity, found)


def grouped(step: int, quantity: str, names: list[str], arrays: Sequence[Statistics]) -> Sample:
    """Join the arrays of each submodule, and those below each child of the root, into rows.

    Args:
        step: At which they were measured.
        quantity: What they are.
        names: Dotted names of the arrays, `features.0.weight`.
        arrays: Their statistics.
    """
    found = {
        path: joined([arrays[i] for i in members]) for path, members in groups_of(names).items()
    }
    return _sample(step, quantity, found)


def _sample(step: int, quantity: str, found: Mapping[str, Statistics]) -> Sample:
    values = np.array([(s.mean, s.std, s.min, s.max, s.nonfinite, s.zeros) for s in found.values()])
    return Sample(step, quantity, tuple(found), values, _histograms(found.values()))


def groups_of(names: list[str]) -> dict[str, list[int]]:
    """Give the places of the arrays of each submodule; a child of the root also has all that is
    below it.

    Example:
        >>> groups_of(['head.weight', 'blocks.0.weight', 'blocks.1.weight'])
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
    """Give the path of the submodule that has the array of this name."""
    return name.rpartition(".")[0]


def norm(parts: list[Statistics]) -> float:
    """The Euclidean norm of the finite elements of several arrays."""
    squares = [
        (p.size - p.nonfinite) * (p.mean**2 + p.std**2) for p in parts if p.size > p.nonfinite
    ]
    return float(np.sqrt(sum(squares)))


def _histograms(found: Iterable[Statistics]) -> NDArray[Any]:
    return np.array(
        [s.histogram if len(s.histogram) == BINS else (0,) * BINS for s in found], float
    )
