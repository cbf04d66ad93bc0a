"""Statistics of arrays put together into rows, one for each submodule."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nbmodule.calls.statistics import BINS, Statistics
from nbmodule.live.run.watch import MOST_ROWS, Sample


def one_each(step: int, quantity: str, found: Mapping[str, Statistics]) -> Sample:
    """Make a row of the statistics of one array for each path."""
    values = np.array([(s.mean, s.std, s.min, s.max, s.nonfinite, s.zeros) for s in found.values()])
    return Sample(step, quantity, tuple(found), values, _histograms(found.values()))


def grouped(step: int, quantity: str, names: list[str], arrays: Sequence[Statistics]) -> Sample:
    """Join the arrays of each submodule, and those below each child of the root, into rows.

    Args:
        step: At which they were measured.
        quantity: What they are.
        names: Dotted names of the arrays, `features.0.weight`.
        arrays: Their statistics.
    """
    groups = groups_of(names)
    rows = [_join([arrays[i] for i in members]) for members in groups.values()]
    return Sample(step, quantity, tuple(groups), np.array([v for v, _ in rows]), np.array([h for _, h in rows]))


def groups_of(names: list[str]) -> dict[str, list[int]]:
    """Give the places of the arrays of each submodule; a child of the root also has all that is below it.

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
    squares = [(p.size - p.nonfinite) * (p.mean**2 + p.std**2) for p in parts if p.size > p.nonfinite]
    return float(np.sqrt(sum(squares)))


def _join(parts: list[Statistics]) -> tuple[list[float], NDArray[Any]]:
    """Give mean, deviation, lowest, highest, count that is not finite and share of zeros of several arrays, and a histogram."""
    size, finite = sum(p.size for p in parts), np.array([p.size - p.nonfinite for p in parts], float)
    bad, zero = float(sum(p.nonfinite for p in parts)), sum(p.zeros * p.size for p in parts) / size
    known = finite > 0
    if not known.any():
        return [np.nan] * 4 + [bad, zero], np.zeros(BINS)
    mean, std, low, high = np.array([p[1:5] for p in parts])[known].T
    weight = finite[known] / finite.sum()
    middle = float(weight @ mean)
    spread = float(np.sqrt(weight @ (std**2 + (mean - middle) ** 2)))
    counts = np.array([p.histogram for p in parts], float)[known]
    return [middle, spread, low.min(), high.max(), bad, zero], _join_bins(counts, low, high)


def _join_bins(counts: NDArray[Any], low: NDArray[Any], high: NDArray[Any]) -> NDArray[Any]:
    """Add histograms over different intervals: each count goes where the middle of its interval lies."""
    if len(counts) == 1:
        return counts[0]
    middles = low[:, None] + (high - low)[:, None] * (np.arange(BINS) + 0.5) / BINS
    at = (middles - low.min()) / ((high.max() - low.min()) or 1) * BINS
    return np.bincount(at.astype(int).clip(0, BINS - 1).ravel(), counts.ravel(), BINS)


def _histograms(found: Iterable[Statistics]) -> NDArray[Any]:
    return np.array([s.histogram if len(s.histogram) == BINS else (0,) * BINS for s in found], float)
