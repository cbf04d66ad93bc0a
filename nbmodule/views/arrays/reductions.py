"""Mean, deviation, extremes, non-finite counts and a histogram that counts every element.

Arrays in host memory (also those of the CPU backend) are read in place; those of other devices are
fetched together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeGuard

import jax

from nbmodule.base.statistics import Statistics, join_statistics, statistics_of_elements
from nbmodule.views.arrays.values import metadata_of, readable_numbers

BINS = 32


def statistics_of(arrays: Sequence[Any]) -> list[Statistics | None]:
    """Reduce each array to its statistics; None where there are no numbers to read.

    Example:
        >>> (s,) = statistics_of([np.array([1.0, 3.0, np.nan], "float32")])
        >>> s.mean, s.std, s.min, s.max, s.nan
        (2.0, 1.0, 1.0, 3.0, 1)
    """
    readable = [x for x in arrays if metadata_of(x).is_readable]
    fetched = iter(jax.device_get(readable))
    return [
        statistics_of_elements(readable_numbers(next(fetched)), BINS, places=True)
        if metadata_of(x).is_readable
        else None
        for x in arrays
    ]


def is_remote(x: object) -> TypeGuard[jax.Array]:
    """Return True if reading an array copies it from another device."""
    return isinstance(x, jax.Array) and any(d.platform != "cpu" for d in x.sharding.device_set)


# -- several arrays --
def union_of(parts: Sequence[Statistics]) -> Statistics | None:
    """Join the statistics of several arrays, as of one; None if none has an element."""
    parts = [part for part in parts if part.size]
    return join_statistics(parts) if parts else None
