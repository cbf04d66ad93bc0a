"""What a run that is watched costs: whole loops of training with `nb.Live` around them, over the
same loops without it.

A loop is long enough for several looks at the model, and runs as one sample; the watched form of
the step is compiled before the first one is timed, as it is aside in a real run. Logging is timed
alone, at a million points.
"""

from __future__ import annotations

import contextlib
import functools
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
from nbmodule.live.reporting.view import NotebookView
from nbmodule.live.runs.cell_comparison import CellComparison

READY = {"weight", "update", "return", "gradient"}
PATIENCE = 240.0
"""Seconds to wait for the watched form."""


STEPS = (0.5, 5.0, 50.0)
"""Milliseconds of a step."""


def run(quick: bool = False) -> list[Table]:
    lasting = [table for ms in STEPS for table in _lasting(ms, quick)]
    return [_digits(quick), _transformer(quick), *lasting, _points(quick)]


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


def watched(trainer: Trainer, page: bool = False, **options: Any) -> Callable[[int], Any]:
    """A loop inside one long `with` block, as a run has it, with everything compiled that is
    watched.
    """
    live = nb.Live(trainer.model, trainer.optimizer, nonfinite="ignore", **options)
    live.__enter__()
    if page:
        Page(live)

    def loop(count: int) -> Any:
        loss = None
        for _ in live.steps(range(count)):
            loss = trainer.step()
            live.log(loss=loss)
        return jax.block_until_ready(loss)

    deadline = time.monotonic() + PATIENCE
    while (
        options.get("returns", "stats")
        and not set(live.watched) >= READY
        and time.monotonic() < deadline
    ):
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
            if (
                name in variants
            ):  # they draw once a loop: as often as their own examples do in an epoch
                loops[name] = lambda loop=variants[name]: loop(count)
        table = interleave(
            f"{title}: {count} steps",
            loops,
            "no view",
            targets={"nb.Live": 1.02, "nb.Live, returns=None": 1.005},
            rounds=5 if quick else 15,
            seconds=0.0,
            warm=1,
            by="wall",
        )
    for row in table.rows:
        row.more["µs a step"] = row.us / count
    return table


def _digits(quick: bool) -> Table:
    images = jax.random.normal(jax.random.key(0), (64, 8, 8, 1))
    labels = jnp.arange(64) % 10

    def make() -> Trainer:
        nb.seed(0)
        return Trainer(Digits(), lambda model: nb.cross_entropy(model(images), labels))

    return _compare(
        "Training step of the digits network, with nb.Live on over off",
        make,
        quick,
        0.5 if quick else 2.0,
    )


def _transformer(quick: bool) -> Table:
    tokens = jnp.arange(64) % 60
    layers, width = (2, 64) if quick else (6, 256)

    def make() -> Trainer:
        nb.seed(0)
        model = Transformer(layers, width, 4, 64, 64)
        return Trainer(model, lambda model: nb.cross_entropy(model(tokens), tokens))

    return _compare(
        f"Training step of a {layers}-layer transformer, with nb.Live on over off",
        make,
        quick,
        0.5 if quick else 2.0,
    )


class Page:
    """Stands for a page that takes every message at once, and for the output of the cell."""

    def __init__(self, live: Any) -> None:
        self._live = live
        view = NotebookView(live._state, at=live.at, cell=CellComparison(""))
        view._link, view._handle = self, self
        view.hear({"kind": "hello", "page": "bench"}, time.monotonic())
        live._loop._view = view

    def send(self, content: dict[str, Any]) -> None:
        if "n" in content:
            self._live._state.commands.put({"kind": "ack", "n": content["n"], "page": "bench"})

    def update(self, bundle: Any, raw: bool) -> None:
        """The output is replaced, as it is now and then while a page answers."""

    def close(self) -> None:
        """The line ends with the run."""


def _lasting(ms: float, quick: bool) -> list[Table]:
    """A training whose step lasts so long: with all that is watched, kept and sent to a page, and
    with keeping alone.
    """
    images, labels = jax.random.normal(jax.random.key(0), (4096, 64)), jnp.arange(4096) % 10

    def make(batch: int) -> Trainer:
        nb.seed(0)
        model = nb.Sequential(
            nb.Linear(64, 256), nb.ReLU(), nb.Linear(256, 256), nb.ReLU(), nb.Linear(256, 10)
        )
        return Trainer(model, lambda model: nb.cross_entropy(model(images[:batch]), labels[:batch]))

    batch, each = _batch_lasting(ms, make)
    count = max(8, int((200 if quick else 600) / each))
    about = f"batch {batch}, {count} steps"
    plain_one, numbers, kept, whole = (make(batch) for _ in range(4))
    with notebook_of_nobody():
        loops = {
            "no view": lambda: plain(plain_one, count),
            "nb.Live": functools.partial(watched(whole, page=True), count),
        }
        over = _timed(
            f"A step of {each:.2g} ms, with nb.Live and a page over none: {about}",
            loops,
            "no view",
            quick,
        )
        lives = [
            nb.Live(t.model, t.optimizer, None, keep=keep, display=False)
            for t, keep in ((numbers, False), (kept, True))
        ]
        with lives[0], lives[1]:
            loops = {
                name: functools.partial(_logged, live, trainer, count)
                for name, live, trainer in zip(
                    ("keep=False", "keep=True"), lives, (numbers, kept), strict=True
                )
            }
            keeping = _timed(f"Keeping steps of {each:.2g} ms: {about}", loops, "keep=False", quick)
            keeping.rows[-1].more["MB kept"] = lives[1].kept.nbytes / 1e6
    for row in (*over.rows, *keeping.rows):
        row.more["µs a step"] = row.us / count
    return [over, keeping]


def _batch_lasting(ms: float, make: Callable[[int], Trainer]) -> tuple[int, float]:
    """The size of a batch with which a step lasts about so long, and how long it lasts: the
    shortest of several.
    """
    batch, each = 8, 0.0
    while batch < 4096 and each < 0.75 * ms:
        batch *= 2
        trainer, took = make(batch), []
        for _ in range(7):
            begun = time.perf_counter()
            plain(trainer, 10)
            took.append((time.perf_counter() - begun) / 10)
        each = 1e3 * min(took)
    return batch, each


def _logged(live: Any, trainer: Trainer, count: int) -> Any:
    loss = None
    for _ in live.steps(range(count)):
        loss = trainer.step()
        live.log(loss=loss)
    return jax.block_until_ready(loss)


def _timed(title: str, loops: dict[str, Callable[[], Any]], floor: str, quick: bool) -> Table:
    return interleave(
        title,
        loops,
        floor,
        targets={"nb.Live": 1.02, "keep=True": 1.02},
        rounds=5 if quick else 15,
        seconds=0.0,
        warm=1,
        by="wall",
        note="cpu is the time of the whole process, with the threads of XLA.",
        clock=time.process_time,
    )


def _peers() -> dict[str, Callable[[Trainer], Callable[[int], Any]]]:
    found: dict[str, Callable[[Trainer], Callable[[int], Any]]] = {
        "clear_output and matplotlib": _bare_plot
    }
    with contextlib.suppress(ImportError):
        importlib.import_module("livelossplot")
        found["livelossplot"] = _livelossplot
    return found


def _bare_plot(trainer: Trainer) -> Callable[[int], Any]:
    """What people write by hand: the figure is drawn anew for each epoch, here of every loss so
    far.
    """
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
    """A million points of one number: what one call of `log` takes, and what all of them hold and
    give.
    """
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
    row = Row(
        "step and log of a Python number", 1e6 * used / count, 1e6 * cpu_used / count, more=more
    )
    return Table(f"{count:,} logged points", [row], by="cpu")
