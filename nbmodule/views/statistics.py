"""Mean, spread, extremes, non-finite counts and a histogram that counts every element.

Arrays that already lie in host memory (also those of the CPU backend) are read in place, in blocks that fit the cache.
An array on another device is reduced there by one compiled function and only the results come over; small ones are
fetched together instead, which is faster than compiling for their shapes.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from nbmodule.views.arrays import facts_of, to_host
from nbmodule.views.records import Statistics

BINS = 32
BLOCK = 1 << 16
FETCH_WHOLE = 1 << 16
"""Bytes below which an array of another device is fetched rather than reduced there."""


def statistics_of(arrays: Sequence[Any], bins: int = BINS) -> list[Statistics | None]:
    """Reduce each array to its statistics; None where there are no values to read.

    Example:
        >>> s, = statistics_of([np.array([1.0, 3.0, np.nan], 'float32')])
        >>> s.mean, s.std, s.low, s.high, s.nan
        (2.0, 1.0, 1.0, 3.0, 1)
    """
    pending: dict[int, Any] = {}
    fetched: dict[int, Any] = {}
    for i, x in enumerate(arrays):
        facts = facts_of(x)
        if facts.unreadable or facts.shape is None:
            continue
        (pending if lies_elsewhere(x) and facts.bytes > FETCH_WHOLE else fetched)[i] = x
    reduced = {i: _reduce_on_device(x, bins) for i, x in pending.items()}
    host, reduced = jax.device_get((fetched, reduced))
    out: list[Statistics | None] = [None] * len(arrays)
    for i, x in host.items():
        out[i] = _or_none(statistics_on_host, x, bins)
    for i, parts in reduced.items():
        out[i] = _from_parts(arrays[i], parts)
    return out


def lies_elsewhere(x: Any) -> bool:
    """Tell whether reading an array means a copy from another device."""
    return isinstance(x, jax.Array) and any(d.platform != "cpu" for d in x.sharding.device_set)


def _or_none(fn: Any, *args: Any) -> Any:
    try:
        return fn(*args)
    except TypeError:  # dtypes that hold no numbers
        return None


def statistics_on_host(x: Any, bins: int = BINS) -> Statistics:
    """Reduce one array of the host, in blocks."""
    values = to_host(x)
    shape, flat = values.shape, values.reshape(-1)
    if flat.size == 0:
        return Statistics(0, float("nan"), float("nan"), float("nan"), float("nan"))
    is_float = flat.dtype.kind == "f"
    nan = inf = zero = 0
    total, low, high, low_at, high_at = 0.0, float("inf"), float("-inf"), 0, 0
    for start in range(0, flat.size, BLOCK):
        block = flat[start : start + BLOCK]
        zero += block.size - int(np.count_nonzero(block))
        if is_float and not np.isfinite(total_here := float(block.sum(dtype=np.float64))):
            bad = np.isnan(block)
            nan += int(bad.sum())
            inf += int(np.isinf(block).sum())
            block = np.where(np.isfinite(block), block, np.nan)
            if bad.all() or not np.isfinite(block).any():
                continue
            total_here = float(np.nansum(block, dtype=np.float64))
            here_low, here_high = int(np.nanargmin(block)), int(np.nanargmax(block))
        else:
            total_here = total_here if is_float else float(block.sum(dtype=np.float64))
            here_low, here_high = int(block.argmin()), int(block.argmax())
        total += total_here
        if block[here_low] < low:
            low, low_at = float(block[here_low]), start + here_low
        if block[here_high] > high:
            high, high_at = float(block[here_high]), start + here_high
    finite = flat.size - nan - inf
    if not finite:
        return Statistics(flat.size, *[float("nan")] * 4, nan, inf, zero)
    mean = total / finite
    with np.errstate(all="ignore"):  # a range near the largest float overflows; its bins are still counted
        square, counts = _second_pass(flat, mean, low, high, bins, nan + inf > 0)
    where = [tuple(int(k) for k in np.unravel_index(i, shape)) for i in (low_at, high_at)]
    return Statistics(
        flat.size, mean, (square / finite) ** 0.5, low, high, nan, inf, zero, tuple(map(int, counts)), *where
    )


def _second_pass(flat: np.ndarray, mean: float, low: float, high: float, bins: int, holes: bool) -> tuple[float, Any]:
    square, counts = 0.0, np.zeros(bins, np.int64)
    scale = bins / (high - low) if high > low else 0.0
    wide_type = np.float64 if flat.dtype.itemsize == 8 or flat.dtype.kind != "f" else np.float32
    for start in range(0, flat.size, BLOCK):
        block = flat[start : start + BLOCK]
        if holes:
            block = block[np.isfinite(block)]
        wide = block.astype(wide_type)
        apart = wide - wide.dtype.type(mean)
        square += float(np.dot(apart, apart))
        wide -= wide.dtype.type(low)
        wide *= wide.dtype.type(scale)
        counts += np.bincount(np.minimum(wide, bins - 1).astype(np.int8), minlength=bins)
    return square, counts


@functools.partial(jax.jit, static_argnames="bins")
def _reduce_on_device(x: jax.Array, bins: int) -> tuple[jax.Array, ...]:
    """Everything in one compiled function: the edges follow from the extremes, the counts from comparisons with them."""
    x = jnp.abs(x) if jnp.iscomplexobj(x) else x
    x = x.astype(jnp.float32).reshape(-1)
    finite = jnp.isfinite(x)
    n = jnp.maximum(finite.sum(), 1)
    mean = jnp.where(finite, x, 0).sum() / n
    low_at, high_at = jnp.where(finite, x, jnp.inf).argmin(), jnp.where(finite, x, -jnp.inf).argmax()
    low, high = x[low_at], x[high_at]
    square = jnp.where(finite, jnp.square(x - mean), 0).sum() / n
    edges = low + (high - low) * jnp.arange(1, bins) / bins
    above = jnp.stack([(finite & (x >= edge)).sum() for edge in edges])
    counts = -jnp.diff(jnp.concatenate([finite.sum()[None], above, jnp.zeros(1, above.dtype)]))
    return mean, square**0.5, low, high, jnp.isnan(x).sum(), jnp.isinf(x).sum(), (x == 0).sum(), counts, low_at, high_at


def _from_parts(x: Any, parts: tuple[Any, ...]) -> Statistics:
    mean, std, low, high, nan, inf, zero, counts, low_at, high_at = parts
    if int(nan) + int(inf) == x.size:
        return Statistics(x.size, *[float("nan")] * 4, int(nan), int(inf), int(zero))
    where = [tuple(int(k) for k in np.unravel_index(int(i), x.shape)) for i in (low_at, high_at)]
    floats = [float(v) for v in (mean, std, low, high)]
    return Statistics(x.size, *floats, int(nan), int(inf), int(zero), tuple(map(int, counts)), *where)
