"""Mean, spread, extremes, non-finite counts and a histogram that counts every element.

Arrays that already lie in host memory (also those of the CPU backend) are read in place; see
`host_statistics`. An array on another device is reduced there by one compiled function and only the
results come over; small ones are fetched together instead, which is faster than compiling for their
shapes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeGuard

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from nbmodule.base.promotion import widened
from nbmodule.views.arrays.host_statistics import statistics_on_host
from nbmodule.views.arrays.values import facts_of
from nbmodule.views.records.records import ShownStatistics

BINS = 32
FETCH_WHOLE = 1 << 16
"""Bytes below which an array of another device is fetched rather than reduced there."""


def statistics_of(arrays: Sequence[Any], bins: int = BINS) -> list[ShownStatistics | None]:
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
    out: list[ShownStatistics | None] = [None] * len(arrays)
    for i, x in host.items():
        out[i] = _or_none(statistics_on_host, x, bins)
    for i, parts in reduced.items():
        out[i] = _from_parts(arrays[i], parts)
    return out


def lies_elsewhere(x: object) -> TypeGuard[jax.Array]:
    """Tell whether reading an array means a copy from another device."""
    return isinstance(x, jax.Array) and any(d.platform != "cpu" for d in x.sharding.device_set)


def _or_none(fn: Callable[..., Any], *args: object) -> Any:
    try:
        return fn(*args)
    except TypeError:  # dtypes that hold no numbers
        return None


@functools.partial(jax.jit, static_argnames="bins")
def _reduce_on_device(x: jax.Array, bins: int) -> tuple[jax.Array, ...]:
    """Everything in one compiled function: the edges follow from the extremes, the counts from
    comparisons with them.
    """
    x = jnp.abs(x) if jnp.iscomplexobj(x) else x
    dtype = widened(x.dtype) if jnp.issubdtype(x.dtype, jnp.floating) else jnp.result_type(float)
    x = x.astype(dtype).reshape(-1)
    finite = jnp.isfinite(x)
    n = jnp.maximum(finite.sum(), 1).astype(dtype)
    low_at, high_at = (
        jnp.where(finite, x, jnp.inf).argmin(),
        jnp.where(finite, x, -jnp.inf).argmax(),
    )
    low, high = x[low_at], x[high_at]
    most = jnp.finfo(dtype).maxexp - 2
    exponent = jnp.clip(
        jnp.frexp(jnp.maximum(-low, high))[1], -most, most
    )  # so that no square is lost or infinite
    bottom, top, y = (jnp.ldexp(part, -exponent) for part in (low, high, jnp.where(finite, x, low)))
    mean = jnp.where(finite, y, 0).sum() / n
    square = jnp.where(finite, jnp.square(y - mean), 0).sum() / n
    edges = bottom + (top - bottom) * (np.arange(1, bins) / bins).astype(dtype)
    above = jnp.stack([(finite & (y >= edge)).sum() for edge in edges])
    counts = -jnp.diff(jnp.concatenate([finite.sum()[None], above, jnp.zeros(1, above.dtype)]))
    mean, std = (
        jnp.where(high > low, jnp.ldexp(part, exponent), equal)
        for part, equal in ((mean, low), (square**0.5, 0))
    )
    return (
        mean,
        std,
        low,
        high,
        jnp.isnan(x).sum(),
        jnp.isinf(x).sum(),
        (x == 0).sum(),
        counts,
        low_at,
        high_at,
    )


def _from_parts(x: Array, parts: tuple[Any, ...]) -> ShownStatistics:
    mean, std, low, high, nan, inf, zero, counts, low_at, high_at = parts
    if int(nan) + int(inf) == x.size:
        none = float("nan")
        return ShownStatistics(x.size, none, none, none, none, int(nan), int(inf), int(zero))
    where: Any = [
        tuple(int(k) for k in np.unravel_index(int(i), x.shape)) for i in (low_at, high_at)
    ]
    mean, std, low, high = (float(v) for v in (mean, std, low, high))
    return ShownStatistics(
        x.size, mean, std, low, high, int(nan), int(inf), int(zero), tuple(map(int, counts)), *where
    )
