"""Statistics of an array that lies in host memory: every element is read twice, in blocks that fit
the cache.

The first pass takes sums, extremes and counts; the second one counts the histogram. Counting is
what costs: three codes of five bits are packed into one number of 16 bits, so that one count stands
for three elements. Large arrays are shared out among threads, since NumPy lets go of the
interpreter while it computes.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from nbmodule.base.statistics import exponent_of, mean_and_deviation, place_between
from nbmodule.views.arrays.values import readable_numbers
from nbmodule.views.records.records import ShownStatistics

BLOCK = 3 << 16
SMALL = 1 << 13
ROW = 1024
"""Elements that are summed in one go, in float32."""
SHARED_FROM = 1 << 21
"""Elements from which an array is shared out among threads."""
CODE_BITS = 5
_SQUARED_SINGLE = 1e-15, 1e15
"""Between these, squares of float32 keep their digits, and distances of them times a number of bins are finite."""
_ONES = np.ones(ROW, np.float32)


class _Part(NamedTuple):
    """The sums of a stretch of an array, over its finite elements, of their distances to a number
    near the mean.
    """

    total: float
    square: float
    low: float
    high: float
    low_at: int
    high_at: int
    nan: int
    inf: int
    zero: int


def statistics_on_host(x: object, bins: int = 32) -> ShownStatistics:
    """Reduce one array of the host.

    Args:
        x: Any array that holds numbers.
        bins: How many equal intervals the histogram has.

    Example:
        >>> s = statistics_on_host(np.array([0.0, 1.0, 1.0, 3.0], "float32"), bins=3)
        >>> s.bins, s.mean, s.zero, s.high_at
        ((1, 2, 1), 1.25, 1, (3,))
    """
    values = readable_numbers(x)
    shape, flat = values.shape, values.reshape(-1)
    if flat.size == 0:
        return _without_values(0, 0, 0)
    with np.errstate(
        all="ignore"
    ):  # a range near the largest float overflows; its bins are still counted
        if flat.size <= SMALL:
            return _of_few(flat, shape, bins)
        about = _about(flat)
        parts = _shared(lambda start, stop: _sums(flat, start, stop, about), flat.size)
        nan, inf, zero = (sum(part[k] for part in parts) for k in (6, 7, 8))
        finite = flat.size - nan - inf
        if not finite:
            return _without_values(flat.size, nan, inf)
        lowest, highest = (
            min(parts, key=lambda part: part.low),
            max(parts, key=lambda part: part.high),
        )
        low, high = lowest.low, highest.high
        exponent = _exponent_of(flat.dtype, low, high)
        if exponent:
            part = statistics_on_host(np.ldexp(flat, -exponent), bins)
            mean, std, counts = (
                math.ldexp(part.mean, exponent),
                math.ldexp(part.std, exponent),
                part.bins,
            )
        else:
            moved = sum(part.total for part in parts) / finite
            mean, square = about + moved, sum(part.square for part in parts) / finite - moved**2
            if not moved**2 < 100 * square:  # the first block said too little of the others
                square = (
                    sum(_shared(lambda start, stop: _spread(flat, start, stop, mean), flat.size))
                    / finite
                )
            counts, std = (
                _histogram(flat, low, high, bins, nan + inf > 0),
                max(float(square), 0.0) ** 0.5,
            )
    mean, std = (
        (mean, std) if high > low else (low, 0.0)
    )  # the mean of equal numbers is off by a rounding
    where = _place(lowest.low_at, shape), _place(highest.high_at, shape)
    bins_of = tuple(map(int, counts))
    return ShownStatistics(flat.size, float(mean), std, low, high, nan, inf, zero, bins_of, *where)


def _exponent_of(dtype: np.dtype, low: float, high: float) -> int:
    """The power of two by which an array is divided before anything is multiplied; 0 where the
    numbers bear that.
    """
    if dtype != np.float32:
        return exponent_of(low, high)
    least, most = _SQUARED_SINGLE
    size = max(-low, high)
    return 0 if least < size < most or not size else math.frexp(size)[1]


def _without_values(size: int, nan: int, inf: int) -> ShownStatistics:
    none = float("nan")
    return ShownStatistics(size, none, none, none, none, nan, inf)


def _of_few(flat: np.ndarray, shape: tuple[int, ...], bins: int) -> ShownStatistics:
    """The same for a small array, where each call of NumPy costs more than its elements."""
    wide = flat.astype(np.float64)
    zero, nan, inf = flat.size - int(np.count_nonzero(flat)), 0, 0
    low_at, high_at = int(wide.argmin()), int(wide.argmax())
    kept = wide
    if not (math.isfinite(wide[low_at]) and math.isfinite(wide[high_at])):
        finite = np.isfinite(wide)
        kept, nan = wide[finite], int(np.isnan(wide).sum())
        inf = flat.size - kept.size - nan
        if not kept.size:
            return _without_values(flat.size, nan, inf)
        low_at, high_at = (
            int(np.where(finite, wide, np.inf).argmin()),
            int(np.where(finite, wide, -np.inf).argmax()),
        )
    low, high = float(wide[low_at]), float(wide[high_at])
    if exponent_of(low, high) or not high > low:
        mean, std = mean_and_deviation(kept, low, high)
        codes = (place_between(kept, low, high) * bins).astype(np.intp)
    else:
        mean = float(np.add.reduce(kept)) / kept.size
        apart = kept - mean
        std = math.sqrt(float(np.dot(apart, apart)) / kept.size)
        codes = ((kept - low) * (bins / (high - low))).astype(np.intp)
    counts = np.bincount(np.minimum(codes, bins - 1), minlength=bins).tolist()
    return ShownStatistics(
        flat.size,
        mean,
        std,
        low,
        high,
        nan,
        inf,
        zero,
        tuple(counts),
        _place(low_at, shape),
        _place(high_at, shape),
    )


def _place(at: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    out = []
    for n in reversed(shape):
        at, k = divmod(at, n)
        out.append(k)
    return tuple(reversed(out))


def _about(flat: np.ndarray) -> float:
    """A number near the mean, so that squares of the distance to it lose no digits; 0 where that is
    near enough.
    """
    first = _wide(flat[:ROW])
    first = first[np.isfinite(first)]
    if not first.size:
        return 0.0
    mean = float(first.dtype.type(first.mean(dtype=np.float64)))
    return mean if math.isfinite(mean) and abs(mean) > float(first.std(dtype=np.float64)) else 0.0


def in_threads(work: Callable[[int, int], Any], count: int, elements: int) -> list[Any]:
    """Do `work(first, last)` for stretches of `count` things, by several threads where they hold
    many elements.
    """
    workers = min(8, os.cpu_count() or 1, count) if elements >= SHARED_FROM else 1
    if workers == 1:
        return [work(0, count)]
    cuts = [count * k // workers for k in range(workers + 1)]

    def quietly(first: int, last: int) -> Any:
        with np.errstate(all="ignore"):  # a thread does not know what its starter has set
            return work(first, last)

    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(quietly, cuts[:-1], cuts[1:]))


def _shared(work: Callable[[int, int], Any], size: int) -> list[Any]:
    blocks = -(-size // BLOCK)
    return in_threads(
        lambda first, last: work(first * BLOCK, min(last * BLOCK, size)), blocks, size
    )


def _wide(block: np.ndarray) -> np.ndarray:
    return (
        block
        if block.dtype == np.float32 or block.dtype == np.float64
        else block.astype(np.float64)
    )


def _sums(flat: np.ndarray, start: int, stop: int, about: float) -> _Part:
    total = square = 0.0
    nan = inf = zero = low_at = high_at = 0
    low, high = float("inf"), float("-inf")
    marks = np.empty(
        min(BLOCK, stop - start), bool
    )  # made once: fresh memory costs more than what is done with it
    for at in range(start, stop, BLOCK):
        block = whole = flat[at : min(at + BLOCK, stop)]
        zero += int(np.count_nonzero(np.equal(whole, 0, out=marks[: whole.size])))
        least, most = whole.min(), whole.max()
        if not (np.isfinite(least) and np.isfinite(most)):
            finite = np.isfinite(whole)
            nan += int(np.isnan(whole).sum())
            inf += int(np.isinf(whole).sum())
            block = whole[finite]
            if not block.size:
                continue
            least, most = block.min(), block.max()
        if least < low:
            low, low_at = float(least), at + int((whole == least).argmax())
        if most > high:
            high, high_at = float(most), at + int((whole == most).argmax())
        wide = _wide(block)
        apart = wide - wide.dtype.type(about) if about else wide
        total += _sum(apart)
        square += _square(apart)
    return _Part(total, square, low, high, low_at, high_at, nan, inf, zero)


def _sum(block: np.ndarray) -> float:
    whole = block.size - block.size % ROW if block.dtype == np.float32 else 0
    found = float((block[:whole].reshape(-1, ROW) @ _ONES).sum(dtype=np.float64)) if whole else 0.0
    found += float(block[whole:].sum(dtype=np.float64))
    return found if np.isfinite(found) else float(block.sum(dtype=np.float64))


def _square(apart: np.ndarray) -> float:
    found = float(np.dot(apart, apart))
    if np.isfinite(found):
        return found
    apart = apart.astype(np.float64)
    return float(np.dot(apart, apart))


def _spread(flat: np.ndarray, start: int, stop: int, mean: float) -> float:
    square = 0.0
    for at in range(start, stop, BLOCK):
        block = _wide(flat[at : min(at + BLOCK, stop)])
        apart = block[np.isfinite(block)].astype(np.float64) - mean
        square += float(np.dot(apart, apart))
    return square


def _histogram(flat: np.ndarray, low: float, high: float, bins: int, holes: bool) -> np.ndarray:
    scale = bins / (high - low) if high > low else 0.0
    packed = bins <= 1 << CODE_BITS

    def count(start: int, stop: int) -> np.ndarray:
        found = np.zeros(bins, np.int64)
        triples = np.zeros(1 << 3 * CODE_BITS, np.int64)
        kept = np.empty(min(BLOCK, stop - start), np.uint16)
        room = np.empty(
            min(BLOCK // 3, stop - start), np.float64 if flat.dtype != np.float32 else np.float32
        )
        for at in range(start, stop, BLOCK):
            block = flat[at : min(at + BLOCK, stop)]
            block = block[np.isfinite(block)] if holes else block
            codes = _codes(_wide(block), low, scale, bins, kept[: block.size], room)
            if packed and codes.size == BLOCK:
                a, b, c = codes.reshape(3, -1)
                b <<= CODE_BITS
                c <<= 2 * CODE_BITS
                a |= b
                a |= c
                triples += np.bincount(a, minlength=triples.size)
            else:
                found += np.bincount(codes, minlength=bins)
        if packed:
            cube = triples.reshape([1 << CODE_BITS] * 3)
            found += (cube.sum((0, 1)) + cube.sum((0, 2)) + cube.sum((1, 2)))[:bins]
        return found

    return np.sum(_shared(count, flat.size), axis=0)


def _codes(
    block: np.ndarray, low: float, scale: float, bins: int, codes: np.ndarray, room: np.ndarray
) -> np.ndarray:
    """Write the number of each element's interval into `codes`."""
    kind = block.dtype.type
    for at in range(0, block.size, BLOCK // 3):
        part = block[at : at + BLOCK // 3]
        apart = np.subtract(part, kind(low), out=room[: part.size])
        apart *= kind(scale)
        np.copyto(codes[at : at + part.size], apart, casting="unsafe")
    return np.minimum(codes, bins - 1, out=codes)
