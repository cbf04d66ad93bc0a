"""Interleaved timing: every variant of a table runs in the same rounds, in a new random order each
round.

Drift of the machine and the load of its neighbors then hit all variants alike. A figure is the
median over rounds, a ratio the median of the ratios within each round. Wall time and the CPU time
of the calling thread are both taken; the second is blind to preemption and to the threads of XLA,
so on a busy machine it is the better one for whatever Python or dispatch bounds.
"""

from __future__ import annotations

import gc
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax


@dataclass
class Row:
    """One variant: medians in microseconds, and ratios to the floor."""

    name: str
    us: float
    cpu_us: float
    ratio: float | None = None
    cpu_ratio: float | None = None
    target: float | None = None
    more: dict[str, Any] = field(default_factory=dict)


@dataclass
class Table:
    """One comparison. `floor` names the row that the ratios are taken to; `by` tells which clock a
    target is judged by.
    """

    title: str
    rows: list[Row]
    floor: str | None = None
    by: str = "wall"
    note: str = ""


def _sample(
    fn: Callable[[], Any], repeats: int, clock: Callable[[], float] = time.thread_time
) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), clock()
    out = None
    for _ in range(repeats):
        out = fn()
    jax.block_until_ready(out)
    return (time.perf_counter() - wall) / repeats, (clock() - cpu) / repeats


def interleave(
    title: str,
    variants: dict[str, Callable[[], Any]],
    floor: str | None = None,
    *,
    targets: dict[str, float] | None = None,
    rounds: int = 15,
    seconds: float = 0.01,
    warm: int = 3,
    by: str = "wall",
    note: str = "",
    clock: Callable[[], float] = time.thread_time,
) -> Table:
    """Time all variants side by side.

    Args:
        title: what is compared.
        variants: functions of no arguments that return what must be ready.
        floor: the variant to which ratios are taken.
        targets: the largest ratio allowed, by variant.
        rounds: how many samples of each.
        seconds: how long one sample shall take.
        warm: calls before the first sample.
        by: `wall` or `cpu`: by which ratio targets are judged.
        note: a sentence for the report.
        clock: what is told as cpu: the time of this thread, or of the process with all its threads.
    """
    repeats = {}
    for name, fn in variants.items():
        for _ in range(warm):
            jax.block_until_ready(fn())
        repeats[name] = max(1, min(2000, int(seconds / max(_sample(fn, 2)[0], 1e-7))))
    gc.collect()
    gc.freeze()
    samples: dict[str, list[tuple[float, float]]] = {name: [] for name in variants}
    order = list(variants)
    for _ in range(rounds):
        random.shuffle(order)
        for name in order:
            samples[name].append(_sample(variants[name], repeats[name], clock))
    gc.unfreeze()
    base = samples.get(floor or "")
    rows = [_row(name, found, base, (targets or {}).get(name)) for name, found in samples.items()]
    return Table(title, rows, floor, by, note)


def _row(
    name: str,
    found: list[tuple[float, float]],
    base: list[tuple[float, float]] | None,
    target: float | None,
) -> Row:
    row = Row(
        name,
        1e6 * statistics.median(a for a, _ in found),
        1e6 * statistics.median(c for _, c in found),
        target=target,
    )
    if base is not None:
        row.ratio = statistics.median(a / max(b, 1e-9) for (a, _), (b, _) in zip(found, base))
        row.cpu_ratio = statistics.median(a / max(b, 1e-9) for (_, a), (_, b) in zip(found, base))
    return row


def once(fn: Callable[[], Any]) -> float:
    """Seconds for one call, until its arrays are ready."""
    start = time.perf_counter()
    jax.block_until_ready(fn())
    return time.perf_counter() - start
