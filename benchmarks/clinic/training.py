"""One training run with knobs: what a fault changes is one knob, everything else is its twin."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import nbmodule as nb
from nbmodule.live.diagnosis.evidence import LoggedCurve
from nbmodule.live.diagnosis.examine import Examiner
from nbmodule.live.diagnosis.rule import Diagnosis, judge

Array = Any


@dataclass(frozen=True)
class Training:
    """A training run.

    Attributes:
        data: Gives `(x, y, x_val, y_val)` for a random generator.
        model: Builds the model.
        loss: `loss(prediction, target)`.
        optimizer: Builds the optimizer.
        batch: Rows of a batch.
        steps: Number of steps.
        every: Steps between two validations.
        forward: How the step calls the model.
        order: Gives batches of indices.
        score: Whether accuracy is logged.
        gradient: Changes gradients before the update.
        update: Updates the model, by default with the optimizer.
        before: Called once with model and optimizer before the first step.
        around: Called with the model and the number before each step.
        names: Names of the logged series: training loss, validation loss, validation accuracy.
    """

    data: Callable[[np.random.Generator], tuple[Array, ...]]
    model: Callable[[], Any]
    loss: Callable[[Array, Array], Array] = nb.cross_entropy
    optimizer: Callable[[], Any] = lambda: nb.Adam(lr=3e-3)
    batch: int = 64
    steps: int = 240
    every: int = 20
    forward: Callable[[Any, Array], Array] = lambda model, x: model(x)
    order: Callable[[np.random.Generator, int, int, Array], Iterator[Array]] | None = None
    score: bool = False
    gradient: Callable[[Any], Any] = lambda gradient: gradient
    update: Callable[[Any, Any, Any], None] | None = None
    before: Callable[[Any, Any], None] = lambda model, optimizer: None
    around: Callable[[Any, Any, int], None] = lambda model, optimizer, number: None
    train_mode: bool = True
    names: tuple[str, str, str] = ("loss", "val_loss", "val_accuracy")
    logs: Callable[[int, float], dict[str, float]] | None = None
    same_item: bool = False
    seed: int = 0
    extra: dict[str, Any] = field(default_factory=dict)

    def but(self, **changes: Any) -> Training:
        """The same run with other knobs."""
        return replace(self, **changes)


def shuffled(rng: np.random.Generator, rows: int, size: int, y: Array) -> Iterator[Array]:
    """Batches of indices in a new random order each epoch."""
    while True:
        order = rng.permutation(rows)
        for start in range(0, rows - size + 1, size):
            yield order[start : start + size]


def run(training: Training) -> tuple[Diagnosis, dict[str, int]]:
    """Train, observe and judge; returns the verdicts and the step at which each first came."""
    t = training
    rng = np.random.default_rng(t.seed)
    nb.seed(t.seed)
    x, y, x_val, y_val = t.data(rng)
    model, optimizer = t.model(), t.optimizer()
    model(jnp.asarray(x[:2]))  # builds what is built on the first call
    t.before(model, optimizer)
    examiner = Examiner(model)
    curves: dict[str, list[tuple[int, float]]] = {}

    @nb.jit
    def step(x: Array, y: Array) -> Array:
        loss, gradients = nb.value_and_grad(lambda m: t.loss(t.forward(m, x), y))(model)
        gradients = t.gradient(gradients)
        if t.update is None:
            optimizer.update(model, gradients)
        else:
            t.update(model, optimizer, gradients)
        return loss

    @nb.jit
    def evaluate(x: Array, y: Array) -> tuple[Array, Array]:
        prediction = t.forward(model, x)
        return t.loss(prediction, y), prediction

    came: dict[str, int] = {}
    first_batch = None
    for number, rows in zip(range(1, t.steps + 1), (t.order or shuffled)(rng, len(x), t.batch, y)):
        t.around(model, optimizer, number)
        batch = (x[rows], y[rows])
        item = batch
        if t.same_item:
            first_batch = first_batch or batch
            batch = first_batch
        model.train(t.train_mode)
        if examiner.is_due(number) or number == t.steps:
            examiner.see_step(partial(step, *batch), number)
        examiner.item = lambda item=item: item
        examiner.see_batch(partial(step, *batch))
        loss = float(step(*batch))
        logged = {t.names[0]: loss} if t.logs is None else t.logs(number, loss)
        if x_val is not None and number % t.every == 0:
            model.eval()
            value, prediction = evaluate(x_val, y_val)
            logged[t.names[1]] = float(value)
            if t.score:
                logged[t.names[2]] = float((np.asarray(prediction).argmax(-1) == y_val).mean())
        for name, value in logged.items():
            curves.setdefault(name, []).append((number, value))
        if number % 20 == 0 or number == t.steps:
            for name in _verdicts(examiner, curves).names:
                came.setdefault(name, number)
        if not np.isfinite(loss) and number > 30:
            break
    return _verdicts(examiner, curves), came


def _verdicts(examiner: Examiner, curves: dict[str, list[tuple[int, float]]]) -> Diagnosis:
    made = {
        name: LoggedCurve(name, np.array([s for s, _ in points]), np.array([v for _, v in points]))
        for name, points in curves.items()
    }
    return judge(examiner.evidence(made))


jax.config.update("jax_platforms", "cpu")
