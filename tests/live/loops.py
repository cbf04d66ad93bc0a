"""Loops over batches as people write them, to be repeated."""

from __future__ import annotations

import jax
import numpy as np

import nbmodule as nb
from nbmodule.live.live import Live

RNG = np.random.default_rng(0)
X, Y = RNG.random((64, 8), np.float32), RNG.integers(0, 4, 64)
STEPS, AHEAD, BACK = 24, 18, 15
CHANGES = 11
"""The step before which a loop changes something, in the middle of what is kept."""


class Net(nb.Module):
    def __init__(self):
        self.layers = [nb.Linear(8, 8), nb.BatchNorm1d(8), nb.Dropout(0.3), nb.Linear(8, 4)]

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


class Loop:
    """A loop that does all in one compiled step; `change` is called before one of the steps."""

    scale = 1.0

    def __init__(self, change=lambda loop: None, *, model=None, optimizer=None, donate=False):
        nb.seed(0)
        self.model, self.optimizer = model or Net(), optimizer or nb.SGD(0.1, momentum=0.9)
        self.change, self.number = change, 0
        self.step = nb.jit(self.train, donate=donate)
        self.gradients = nb.jit(self.differentiate)

    def differentiate(self, x, y):
        return nb.value_and_grad(lambda m: self.scale * nb.cross_entropy(m(x), y))(self.model)

    def train(self, x, y):
        loss, grads = self.differentiate(x, y)
        self.optimizer.update(self.model, grads)
        return loss

    def turn(self, x, y):
        return self.step(x, y)

    def state(self):
        parts = enumerate(jax.tree.leaves((self.model, self.optimizer), is_leaf=has_state))
        arrays = {f"{i}/{n}": np.array(x) for i, p in parts for n, x in p.state_dict().items()}
        return arrays | self.rates()

    def rates(self):
        dropout = self.model.layers[2].rate
        return {"rate": np.array(self.optimizer.current_lr), "dropout": np.array(dropout)}


def has_state(part):
    return hasattr(part, "state_dict")


def run(loop, each=lambda live, number: None, *, given=True, **options):
    """Return a run, its losses, and copies of all state before each step."""
    losses: list[float] = []
    before = {}
    objects = (loop.model, loop.optimizer) if given else ()
    options = {"keep_every": 8} | options
    with Live(*objects, display=False, returns=None, **options) as loop.live:
        for x, y in loop.live.steps(nb.batches((X, Y), 16), epochs=STEPS // 4):
            before.setdefault(loop.live.step, loop.state())
            loop.number += 1
            if loop.number == CHANGES:
                loop.change(loop)
            loss = loop.turn(x, y)
            loop.live.log(loss=loss)
            losses.append(float(loss))
            each(loop.live, loop.number)
    return loop.live, losses, before


def learner(models, optimizers, name, loss_of):
    """Return a compiled step of one of several models, which returns loss and gradients."""

    @nb.jit
    def learn(*batch):
        loss, grads = nb.value_and_grad(lambda m: loss_of(m, *batch))(models[name])
        optimizers[name].update(models[name], grads)
        return loss, grads

    return learn
