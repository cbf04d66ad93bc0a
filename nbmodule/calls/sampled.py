"""Statistics of a traced array at the cost of its norm: norm and non-finite elements of all
elements, the other figures of a sample.

One pass sums the squares of each row. Squares are clipped to 2**80; a NaN adds 2**100 and an
infinity 2**112. The sum of a row of at most 2,047 elements then encodes three numbers, which the
host decodes exactly. All summands are squares, because XLA computes a sum of squares in one kernel
on a CPU and writes other summands to memory first. The sample is 16 evenly spaced runs of 32
elements, which read whole cache lines. All figures of `statistics` would take about 16 kernels for
each array, these take at most three. The function is traced once for each shape and has few
instructions, since a model has a hundred arrays.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from nbmodule.base.kinds import Shaped
from nbmodule.base.statistics import Statistics, join_statistics, statistics_of_elements

_RUNS, _RUN = 16, 32
# Elements in the sample.
SAMPLE = _RUNS * _RUN
# Elements of a row: counts of infinities and NaN up to this are exact in the 24 bits of a float32.
_LONGEST = 2047


class _Code(NamedTuple):
    """The codes that one element can add to the sum of its row: squares of powers of two."""

    most: float
    nan: float
    inf: float


_SINGLE = _Code(2.0**80, 2.0**100, 2.0**112)
_DOUBLE = _Code(2.0**800, 2.0**840, 2.0**852)
# Mean square below which squares have lost digits, or everything.
_FAINT = {np.float32: 1e-30, np.float64: 1e-290}
# Least mean square, in squares of the sample's mean, at which their difference says how far the
# elements lie apart.
_STEEP = 1.01


@jax.jit
def reduce_lightly(x: Shaped) -> tuple[Any, Any]:
    """Return the encoded sums of rows and the sample of a real floating array that is larger than
    the sample.
    """
    code = _DOUBLE if x.dtype == jnp.float64 else _SINGLE
    rows, number = _rows_of(x), x.dtype.type
    most, nan, inf = map(math.sqrt, code)
    bad = lax.select(lax.ne(rows, rows), lax.full_like(rows, nan), lax.full_like(rows, inf))
    roots = lax.select(lax.is_finite(rows), lax.clamp(number(-most), rows, number(most)), bad)
    return lax.mul(roots, roots).sum(axis=-1), _sample_of(x)


def _rows_of(x: Any) -> Any:
    """Return the elements in rows, of trailing axes where possible, so that XLA can fuse the sum
    with the computation of the array.
    """
    length = 1
    for size in reversed(x.shape):
        if length * size > _LONGEST:
            break
        length *= size
    if length >= 64 or length == x.size:
        return x.reshape(-1, length)
    length = next((n for n in range(_LONGEST, 63, -1) if x.size % n == 0), 1024)
    flat = x.reshape(-1)
    return jnp.pad(flat, (0, -x.size % length)).reshape(-1, length)


def _sample_of(x: Any) -> Any:
    """Return 16 runs of elements, which begin in different columns where possible."""
    step, columns = x.size // _RUNS, x.shape[-1]
    if step >= 2 * columns and columns >= 2 * _RUN:
        shift = round(0.382 * columns)
        step += shift - step % columns - columns * (step % columns < shift)
    whole = lax.slice(x.reshape(-1), (0,), (step * _RUNS,))
    return whole.reshape(_RUNS, step)[:, :_RUN].reshape(-1)


def read_lightly(sums: np.ndarray, sample: np.ndarray, size: int) -> Statistics:
    """Return the statistics of a result of `reduce_lightly`; rows of `vmap` and `scan` are
    combined.
    """
    samples = sample.reshape(-1, SAMPLE)
    rows = zip(sums.reshape(len(samples), -1), samples)
    return join_statistics([_read_one(owned, drawn, size) for owned, drawn in rows])


def _read_one(sums: np.ndarray, sample: np.ndarray, size: int) -> Statistics:
    code = _DOUBLE if sums.dtype == np.float64 else _SINGLE
    infinite = np.floor(sums / sums.dtype.type(code.inf))
    remaining = sums - infinite * sums.dtype.type(code.inf)
    missing = np.floor(remaining / sums.dtype.type(code.nan))
    nan, inf = int(missing.sum()), int(infinite.sum())
    drawn = statistics_of_elements(sample)
    energy = float(sums.sum(dtype=np.float64)) / size
    is_exact = not nan + inf and energy > _FAINT[sums.dtype.type] and sums.max() < code.most
    std = drawn.std
    if is_exact and energy > _STEEP * drawn.mean**2:
        std = math.sqrt(energy - drawn.mean**2)
    return drawn._replace(size=size, std=std, nan=nan, inf=inf, sampled=SAMPLE)
