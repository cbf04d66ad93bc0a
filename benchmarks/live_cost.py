"""What watching costs by `live.cost`, against the CPU time of steps with and without `nb.Live`.

`python -m benchmarks.live_cost 10` trains with steps of about 10 ms (1, 10 or 100) in windows that
alternate: with the run and without it. The truth is the mean ratio of CPU times of neighboring
windows, without the highest and the lowest tenth, with a bootstrapped range of 68 %; what the run
counts is read from its meter.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

import nbmodule as nb
from nbmodule.core.compiled.call_record import recording, set_listener

SHAPES = {1: (256, 256), 10: (1024, 512), 100: (3072, 1280)}
"""For each duration in milliseconds rows of a batch and units of a layer."""
WINDOWS = {1: 1.0, 10: 1.0, 100: 4.0}
"""Seconds of a window."""
BATCHES, AHEAD = 50, 2


def training(batch: int, width: int) -> tuple[Any, Any, Any, list[Any]]:
    """Return model, optimizer, compiled step and batches of a network of three layers."""
    nb.seed(0)
    layers = nb.Linear(64, width), nb.ReLU(), nb.Linear(width, width), nb.ReLU()
    model, optimizer = nb.Sequential(*layers, nb.Linear(width, 10)), nb.Adam(1e-3)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(BATCHES, batch, 64)).astype("float32")
    y = rng.integers(0, 10, size=(BATCHES, batch)).astype("int32")

    @nb.jit
    def step(x: Any, y: Any) -> Any:
        loss, grads = nb.value_and_grad(lambda m: nb.cross_entropy(m(x), y))(model)
        optimizer.update(model, grads)
        return loss

    return model, optimizer, step, list(zip(x, y))


class Comparison:
    """Windows with and without a run, in one process.

    Args:
        ms: About how long a step lasts.
        display: Whether the run is shown, in a notebook.
    """

    def __init__(self, ms: int, *, display: bool = False) -> None:
        self.seconds, self.is_long = WINDOWS[ms], ms == 100
        model, optimizer, self.step, self.data = training(*SHAPES[ms])
        self.live = nb.Live(model, optimizer, display=display, journal=tempfile.mkdtemp())
        self.live.__enter__()
        self.items = iter(self.live.steps(self.endless()))
        self.plain = self.endless()
        self.listener: Any = None

    def endless(self) -> Iterator[Any]:
        while True:
            yield from self.data

    def window(self, *, watched: bool) -> tuple[float, float]:
        """Train for a window; return its CPU time per step, and what the run counts as its cost."""
        if watched and self.listener is not None:
            set_listener(self.listener)
        begun, cpu, count, losses = time.perf_counter(), time.process_time(), 0, []
        while time.perf_counter() - begun < self.seconds:
            x, y = next(self.items if watched else self.plain)
            losses.append(self.step(x, y))
            if watched:
                self.live.log(loss=losses[-1])
            elif self.is_long and len(losses) > AHEAD:  # so that a window ends in time
                losses[-AHEAD - 1].block_until_ready()
            count += 1
        losses[-1].block_until_ready()
        spent = time.process_time() - cpu
        if watched:
            self.listener = recording.listener
            set_listener(None)
            return spent / count, self.counted() / count
        # no part of a step that the run measures, nor of its time
        self.live._watching._mark += spent
        self.live._state.cost._each_step_noted += spent
        return spent / count, 0.0

    def counted(self) -> float:
        """Return the seconds that the run has counted since the last call."""
        meter = self.live._state.cost
        meter.note_each_step()
        seconds = sum(span[2] for span in meter._spans)
        meter._spans.clear()
        return seconds

    def compare(self, seconds: float) -> str:
        """Compare for some seconds, once everything is compiled."""
        end = time.perf_counter() + 15
        while time.perf_counter() < end or any(
            watcher.is_preparing for watcher in self.live._state.watchers or ()
        ):
            self.window(watched=True)
        self.window(watched=True)  # reads what compiling took
        self.counted()
        rows, end = [], time.perf_counter() + seconds
        while time.perf_counter() < end:
            (cpu, cost), (bare, _) = self.window(watched=True), self.window(watched=False)
            rows.append((cpu, bare, cost))
        cpu, bare, cost = np.array(rows).T
        ratios = np.log(cpu / bare)
        # other processes double the CPU time of a window now and then
        usual = np.argsort(ratios)[len(ratios) // 10 : len(ratios) - len(ratios) // 10]
        cpu, cost, ratios = cpu[usual], cost[usual], ratios[usual]
        rng = np.random.default_rng(0)
        means = [rng.choice(ratios, len(ratios)).mean() for _ in range(400)]
        low, high = np.exp(np.percentile(means, (16, 84)))
        true = 1 - np.exp(-ratios.mean())
        counted = cost.mean() / cpu.mean()
        return (
            f"{1e3 * np.median(bare):.2f} ms: ratio {np.exp(ratios.mean()):.3f} ({low:.3f} to "
            f"{high:.3f}), true cost {true:.1%}, counted {counted:.1%}, counted / true "
            f"{counted / true:.2f}, {len(rows)} pairs of windows"
        )


if __name__ == "__main__":
    jax.config.update("jax_platforms", "cpu")
    print(Comparison(int(sys.argv[1])).compare(float((*sys.argv, "60")[2])), flush=True)
    sys.stdout.flush()
