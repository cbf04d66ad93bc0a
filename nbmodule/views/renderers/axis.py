"""One axis for the mean and deviation of many arrays, so that a depth along which they grow or die
is a slanted line.

It is linear as long as all of them are seen on it, else linear around zero and logarithmic beyond.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from nbmodule.base.statistics import Statistics

# How many times larger than the smallest the largest may be, so that both are seen on a linear
# axis.
SEEN = 50.0
# Of the largest: what is smaller is near zero.
FINEST = 1e-12


class Axis(NamedTuple):
    """From where to where it goes; zero is always on it.

    Attributes:
        linear: Up to which size it is linear, and logarithmic beyond; 0: it is linear throughout.
    """

    low: float
    high: float
    linear: float = 0.0

    def at(self, x: float) -> float:
        """The place of a number, from 0 to 1.

        Example:
            >>> Axis(-1.0, 3.0).at(0.0), round(Axis(0.0, 1e6, 1.0).at(1e3), 2)
            (0.25, 0.52)
        """
        if not self.linear:
            return (x - self.low) / (self.high - self.low)
        low, high, value = (math.asinh(v / self.linear) for v in (self.low, self.high, x))
        return (value - low) / (high - low)


def axis_of(statistics: Iterable[Statistics | None]) -> Axis | None:
    """Choose the axis on which all of these are seen; None where there is nothing to see.

    Example:
        >>> axis_of([Statistics(4, 0.5, 1.0, -1, 2, histogram=(4,)), None])
        Axis(low=-0.5, high=1.5, linear=0.0)
    """
    measured = [s for s in statistics if s is not None and s.histogram]
    present = [s for s in measured if math.isfinite(s.mean) and math.isfinite(s.std)]
    low = min((s.mean - s.std for s in present), default=0.0)
    high = max((s.mean + s.std for s in present), default=0.0)
    low, high = min(low, 0.0), max(high, 0.0)
    if not (high > low and math.isfinite(high - low)):
        return None
    sizes = [size for s in present if (size := abs(s.mean) + s.std) > FINEST * (high - low)]
    smallest = min(sizes, default=0.0)
    return Axis(low, high, smallest if max(sizes, default=0.0) > SEEN * smallest else 0.0)
