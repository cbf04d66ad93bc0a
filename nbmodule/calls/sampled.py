"""Statistics of a traced array at the price of its norm: what counts is of all elements, what
describes is of a sample.

One pass sums the squares of each row. A square is at most 2**80, so that a NaN can be added as
2**100 and an infinity as 2**112: the sum of a row of at most 2,047 elements then holds three
numbers that the host takes apart again, and no single value that is not finite is missed or counted
twice. What is summed are squares to the last: these XLA multiplies where it sums them, on a CPU in
a library's kernel, for which it writes down whatever else it is given. Beside it leave 16 runs of
32 neighbors, evenly apart: whole lines of the cache, where single elements would each cost one. A
program for all the figures of `statistics` takes some 16 kernels for each array, this one three at
most. It is a function of the program around it, traced once for each shape, and of few
instructions, since a model has a hundred arrays and each instruction is compiled in each of them.
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
# Elements that leave as they are.
SAMPLE = _RUNS * _RUN
# Elements of a row: so many infinities, and as many NaN, are exact in the 24 bits of a float32.
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
    """Coded sums of rows, and the sample, of a real floating array of more elements than the
    sample.
    """
    code = _DOUBLE if x.dtype == jnp.float64 else _SINGLE
    rows, number = _rows_of(x), x.dtype.type
    most, nan, inf = map(math.sqrt, code)
    bad = lax.select(lax.ne(rows, rows), lax.full_like(rows, nan), lax.full_like(rows, inf))
    roots = lax.select(lax.is_finite(rows), lax.clamp(number(-most), rows, number(most)), bad)
    return lax.mul(roots, roots).sum(axis=-1), _sample_of(x)


def _rows_of(x: Any) -> Any:
    """The same elements in rows, of trailing axes where that can be: an array that is computed
    elsewhere is then summed as it comes.
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
    """16 runs; where that can be they begin in other columns, since the first features of a row say
    little of the others.
    """
    step, columns = x.size // _RUNS, x.shape[-1]
    if step >= 2 * columns and columns >= 2 * _RUN:
        shift = round(0.382 * columns)
        step += shift - step % columns - columns * (step % columns < shift)
    whole = lax.slice(x.reshape(-1), (0,), (step * _RUNS,))
    return whole.reshape(_RUNS, step)[:, :_RUN].reshape(-1)


def read_lightly(sums: np.ndarray, sample: np.ndarray, size: int) -> Statistics:
    """Statistics of what `reduce_lightly` gave, put together where `vmap` or `scan` have stacked
    it.
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
