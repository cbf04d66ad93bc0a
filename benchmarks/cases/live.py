"""What a run that is watched costs: whole loops of training with `nb.Live` around them, over the same loops without it.

A loop is long enough for several looks at the model, and runs as one sample; the watched form of the step is compiled before
the first one is timed, as it is aside in a real run. Logging is timed alone, at a million points.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp

import nbmodule as nb
from benchmarks.models import Transformer
from benchmarks.timing import Row, Table, interleave

READY = {"weight", "update", "return", "gradient"}
PATIENCE = 240.0
"""Seconds to wait for the watched form."""


def run(quick: bool = False) -> list[Table]:
    keeping = [_keeping(width, batch, quick) for width, batch in ((64, 64), (512, 256), (1024, 1024))]
    return [_digits(quick), _transformer(quick), *keeping, _points(quick)]


class Digits(nb.Module):
    def __init__(self) -> None:
        self.strokes = nb.Sequential(
            nb.Conv2d(1, 16, 3, padding="SAME"), nb.BatchNorm2d(16), nb.ReLU(), nb.MaxPool2d(2)
        )
        self.shapes = nb.Sequential(
            nb.Conv2d(16, 32, 3, padding="SAME"), nb.BatchNorm2d(32), nb.ReLU(), nb.MaxPool2d(2)
        )
        self.flatten, self.dropout, self.scores = nb.Flatten(), nb.Dropout(0.25), nb.Linear(128, 10)

    def forward(self, x: Any) -> Any:
        return self.scores(self.dropout(self.flatten(self.shapes(self.strokes(x)))))


class Trainer:
    """A model, its optimizer and a compiled step."""

    def __init__(self, model: Any, loss_of: Callable[[Any], Any]) -> None:
        self.model, self.optimizer = model, nb.Adam(1e-3)

        def step() -> Any:
            loss, grads = nb.value_and_grad(loss_of)(model)
            self.optimizer.update(model, grads)
            return loss

        self.step = nb.jit(step)
        jax.block_until_ready(self.step())


@contextlib.contextmanager
def notebook_of_nobody() -> Iterator[None]:
    """Standard error that is no terminal: progress goes into a job log."""
    with contextlib.redirect_stderr(io.StringIO()):
        yield


def plain(trainer: Trainer, count: int) -> Any:
    losses, loss = [], None
    for _ in range(count):
        loss = trainer.step()
        losses.append(loss)
    return jax.block_until_ready(loss)


def watched(trainer: Trainer, **options: Any) -> Callable[[int], Any]:
    """A loop inside one long `with` block, as a run has it, with everything compiled that is watched."""
    live = nb.Live(trainer.model, trainer.optimizer, nonfinite="ignore", **options)
    live.__enter__()

    def loop(count: int) -> Any:
        loss = None
        for _ in live.steps(range(count)):
            loss = trainer.step()
            live.log(loss=loss)
        return jax.block_until_ready(loss)

    deadline = time.monotonic() + PATIENCE
    while options.get("returns", "stats") and not set(live.watched) >= READY and time.monotonic() < deadline:
        loop(10)
    missing = READY - set(live.watched) if options.get("returns", "stats") else None
    if missing:
        raise RuntimeError(f"{missing} were not watched: {live.notes()}")
    for _ in range(20):  # the pace is found
        loop(10)
    return loop


def _compare(title: str, make: Callable[[], Trainer], quick: bool, seconds: float) -> Table:
    variants: dict[str, Callable[[int], Any]] = {}
    trainer = make()
    variants["no view"] = lambda count: plain(trainer, count)
    with notebook_of_nobody():
        variants["nb.Live, returns=None"] = watched(make(), returns=None)
        variants["nb.Live"] = watched(make())
        for name, peer in _peers().items():
            variants[name] = peer(make())
        trainer.step()
        begun = time.perf_counter()
        plain(trainer, 5)
        count = max(20, int(seconds / ((time.perf_counter() - begun) / 5)))
        loops = {name: (lambda loop=loop: loop(count)) for name, loop in variants.items()}
        for name in ("livelossplot", "clear_output and matplotlib"):
            if name in variants:  # they draw once a loop: as often as their own examples do in an epoch
                loops[name] = lambda loop=variants[name]: loop(count)
        table = interleave(
            f"{title}: {count} steps", loops, "no view", targets={"nb.Live": 1.02, "nb.Live, returns=None": 1.005},
            rounds=5 if quick else 15, seconds=0.0, warm=1, by="wall",
        )  # fmt: skip
    for row in table.rows:
        row.more["µs a step"] = row.us / count
    return table


def _digits(quick: bool) -> Table:
    images = jax.random.normal(jax.random.key(0), (64, 8, 8, 1))
    labels = jnp.arange(64) % 10

    def make() -> Trainer:
        nb.seed(0)
        return Trainer(Digits(), lambda model: nb.cross_entropy(model(images), labels))

    return _compare("Training step of the digits network, with nb.Live on over off", make, quick, 0.5 if quick else 2.0)


def _transformer(quick: bool) -> Table:
    tokens = jnp.arange(64) % 60
    layers, width = (2, 64) if quick else (6, 256)

    def make() -> Trainer:
        nb.seed(0)
        model = Transformer(layers, width, 4, 64, 64)
        return Trainer(model, lambda model: nb.cross_entropy(model(tokens), tokens))

    return _compare(
        f"Training step of a {layers}-layer transformer, with nb.Live on over off", make, quick, 0.5 if quick else 2.0
    )


def _keeping(width: int, batch: int, quick: bool) -> Table:
    """What it costs to keep the steps so that each can be made again: the same run with and without, one after the other."""
    images, labels = jax.random.normal(jax.random.key(0), (batch, 64)), jnp.arange(batch) % 10

    def make() -> Trainer:
        nb.seed(0)
        model = nb.Sequential(nb.Linear(64, width), nb.ReLU(), nb.Linear(width, width), nb.ReLU(), nb.Linear(width, 10))
        return Trainer(model, lambda model: nb.cross_entropy(model(images), labels))

    with notebook_of_nobody():
        trainers = {True: make(), False: make()}
        lives = {keep: nb.Live(t.model, t.optimizer, None, keep=keep, display=False) for keep, t in trainers.items()}
        begun = time.perf_counter()
        plain(trainers[False], 5)
        each = (time.perf_counter() - begun) / 5
        count = max(5, int((0.2 if quick else 1.0) / each))

        def loop(keep: bool) -> Any:
            live, step, loss = lives[keep], trainers[keep].step, None
            for _ in live.steps(range(count)):
                loss = step()
                live.log(loss=loss)
            return jax.block_until_ready(loss)

        with lives[True], lives[False]:
            variants = {"keep=False": lambda: loop(False), "keep=True": lambda: loop(True)}
            table = interleave(
                f"Keeping steps of {1e3 * each:.2g} ms: {count} steps", variants, "keep=False", targets={"keep=True": 1.02},
                rounds=5 if quick else 15, seconds=0.0, warm=1, by="wall",
            )  # fmt: skip
            table.rows[-1].more["MB kept"] = lives[True].kept.nbytes / 1e6
    for row in table.rows:
        row.more["µs a step"] = row.us / count
    return table


def _peers() -> dict[str, Callable[[Trainer], Callable[[int], Any]]]:
    found: dict[str, Callable[[Trainer], Callable[[int], Any]]] = {"clear_output and matplotlib": _bare_plot}
    with contextlib.suppress(ImportError):
        importlib.import_module("livelossplot")
        found["livelossplot"] = _livelossplot
    return found


def _bare_plot(trainer: Trainer) -> Callable[[int], Any]:
    """What people write by hand: the figure is drawn anew for each epoch, here of every loss so far."""
    os.environ.setdefault("MPLBACKEND", "agg")
    import matplotlib.pyplot as plt
    from IPython.display import clear_output, display

    history: list[float] = []

    def loop(count: int) -> Any:
        loss = None
        for _ in range(count):
            loss = trainer.step()
            history.append(float(loss))
        with contextlib.redirect_stdout(io.StringIO()):
            clear_output(wait=True)
            figure = plt.figure()
            figure.gca().plot(history)
            figure.canvas.draw()
            display(figure)
            plt.close(figure)
        return loss

    return loop


def _livelossplot(trainer: Trainer) -> Callable[[int], Any]:
    from livelossplot import PlotLosses  # pyright: ignore[reportMissingImports]

    plot = PlotLosses()

    def loop(count: int) -> Any:
        loss = None
        for _ in range(count):
            loss = trainer.step()
            plot.update({"loss": float(loss)})
        with contextlib.redirect_stdout(io.StringIO()):
            plot.send()
        return loss

    return loop


def _points(quick: bool) -> Table:
    """A million points of one number: what one call of `log` takes, and what all of them hold and give."""
    count = 100_000 if quick else 1_000_000
    with notebook_of_nobody(), nb.Live(returns=None) as live:
        begun, cpu = time.perf_counter(), time.thread_time()
        for i in live.steps(range(count)):
            live.log(loss=1.0 / (i + 1))
        used, cpu_used = time.perf_counter() - begun, time.thread_time() - cpu
        history = live.history
        begun = time.perf_counter()
        html = live._repr_mimebundle_()["text/html"]
        drawn = time.perf_counter() - begun
    more = {
        "points": len(history.loss),
        "MB held": history.nbytes / 1e6,
        "KB in the output": len(html) / 1e3,
        "ms to draw": 1e3 * drawn,
    }
    row = Row("step and log of a Python number", 1e6 * used / count, 1e6 * cpu_used / count, more=more)
    return Table(f"{count:,} logged points", [row], by="cpu")
