"""What loops do beside their compiled step is a part of it: each step comes again, the run goes
back, and what would follow is what follows.
"""

from __future__ import annotations

import gc

import jax
import numpy as np
import pytest

import nbmodule as nb
from nbmodule.errors import ArgumentError
from nbmodule.live.live import Live

RNG = np.random.default_rng(0)
X, Y = RNG.random((64, 8), np.float32), RNG.integers(0, 4, 64)
STEPS, BACK = 24, 15
CHANGES = 11
"""The step before which a loop changes something, in the middle of what is kept."""


class Net(nb.Module):
    def __init__(self):
        self.layers = [nb.Linear(8, 8), nb.BatchNorm1d(8), nb.Dropout(0.3), nb.Linear(8, 4)]

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


def compiled(model, optimizer):
    @nb.jit
    def step(x, y):
        loss, grads = nb.value_and_grad(lambda m: nb.cross_entropy(m(x), y))(model)
        optimizer.update(model, grads)
        return loss

    return step


def gradients_of(model):
    @nb.jit
    def step(x, y):
        return nb.value_and_grad(lambda m: nb.cross_entropy(m(x), y))(model)

    return step


def with_change(change):
    """A loop that changes its model or optimizer once, before a step."""

    def make():
        model, optimizer = Net(), nb.SGD(0.1, momentum=0.9)
        step = compiled(model, optimizer)

        def turn(x, y, number):
            if number == CHANGES:
                change(model, optimizer)
            return step(x, y)

        return model, optimizer, turn

    return make


def update_outside(scaled=lambda grads: grads):
    model, optimizer = Net(), nb.Adam(1e-2)
    step = gradients_of(model)

    def turn(x, y, number):
        loss, grads = step(x, y)
        optimizer.update(model, scaled(grads))
        return loss

    return model, optimizer, turn


def scaled_outside():
    return update_outside(lambda grads: grads * 0.5)


def written_by_hand():
    model, optimizer = Net(), nb.SGD(0.1)  # which is shown, and not used
    step = gradients_of(model)

    def turn(x, y, number):
        loss, grads = step(x, y)
        model.v = model.v - grads * 0.1
        return loss

    return model, optimizer, turn


def returned_and_written():
    model, optimizer = Net(), nb.SGD(0.1)

    @nb.jit
    def step(v, x, y):
        loss, grads = nb.value_and_grad(lambda v: nb.cross_entropy(model(x, v=v), y))(v)
        return loss, v - grads * 0.1

    def turn(x, y, number):
        loss, model.v = step(model.v, x, y)
        return loss

    return model, optimizer, turn


def one_buffer():
    model, optimizer = Net(), nb.Adam(1e-2)
    step, buffer = compiled(model, optimizer), np.zeros((16, 8), np.float32)

    def turn(x, y, number):
        buffer[...] = x
        loss = step(buffer, y)
        jax.block_until_ready(loss)
        buffer[...] = 0
        return loss

    return model, optimizer, turn


def an_evaluation():
    model, optimizer = Net(), nb.Adam(1e-2)
    step, seen = compiled(model, optimizer), nb.jit(lambda x: model(x).mean())

    def turn(x, y, number):
        loss = step(x, y)
        model.eval()
        seen(X)
        model.train()
        return loss

    return model, optimizer, turn


def an_average():
    """A buffer that the loop writes after its last call, and that the next step reads."""
    model, optimizer = Net(), nb.Adam(1e-2)
    model.average = nb.Buffer(np.zeros(4, np.float32))

    @nb.jit
    def step(x, y):
        loss, grads = nb.value_and_grad(lambda m: nb.cross_entropy(m(x) + m.average, y))(model)
        optimizer.update(model, grads)
        return loss

    def turn(x, y, number):
        loss = step(x, y)
        model.average.value = 0.9 * model.average.value + 0.1 * model.layers[3].bias.value
        return loss

    return model, optimizer, turn


def _replace(model, optimizer):
    model.layers[3] = nb.Linear(8, 4)


def _append(model, optimizer):
    model.layers.append(nb.Linear(4, 4))


def _less_dropout(model, optimizer):
    model.layers[2].rate = 0.1


def _hook(model, optimizer):
    model.layers[3].register_forward_hook(lambda module, args, out: out * 2)


def _reset(model, optimizer):
    optimizer.reset()


def _freeze(model, optimizer):
    model.layers[0].requires_grad_(False)


def _rate(model, optimizer):
    optimizer.lr = 0.001


def _load(model, optimizer):
    model.load_state_dict(
        {name: np.asarray(value) * 0.5 for name, value in model.state_dict().items()}
    )


CHANGED = (_replace, _append, _less_dropout, _hook, _reset, _freeze, _rate, _load)
WRITTEN = (update_outside, scaled_outside, written_by_hand, returned_and_written)
HABITS = {change.__name__[1:]: with_change(change) for change in CHANGED}
HABITS |= {make.__name__: make for make in (*WRITTEN, one_buffer, an_evaluation, an_average)}


def run(make, each=lambda live, number: None, *, given=True, **options):
    nb.seed(0)
    model, optimizer, turn = make()
    losses: list[float] = []
    things = (model, optimizer) if given else ()
    options = {"keep_every": 8} | options
    with Live(*things, display=False, returns=None, **options) as live:
        for x, y in live.steps(nb.batches((X, Y), 16), epochs=STEPS // 4):
            loss = turn(x, y, len(losses) + 1)
            live.log(loss=loss)
            losses.append(float(loss))
            each(live, len(losses))
    return live, losses, model


@pytest.mark.parametrize(
    ("habit", "given"),
    [*((habit, True) for habit in HABITS), ("update_outside", False), ("reset", False)],
)
def test_each_step_comes_again_bit_for_bit_with_the_model_of_then(habit, given):
    live, losses, model = run(HABITS[habit], given=given)
    after = {name: np.asarray(value) for name, value in model.state_dict().items()}
    for number in (1, 5, CHANGES - 1, CHANGES, CHANGES + 1, STEPS):
        moment = live.at(number)
        assert moment.is_exact, (number, moment.comparison)
        assert moment.logged["loss"] == losses[number - 1]
    now = model.state_dict()
    assert list(now) == list(after)
    for name, value in now.items():
        np.testing.assert_array_equal(np.asarray(value), after[name], err_msg=name)


@pytest.mark.parametrize("habit", HABITS)
def test_a_run_that_goes_back_makes_the_same_steps_again(habit):
    went = []

    def back(live, number):
        if number == STEPS - 4 and not went:
            went.append(number)
            live.rewind(BACK)

    _, losses, _ = run(HABITS[habit], back)
    first, again = losses[BACK - 1 : STEPS - 4], losses[STEPS - 4 :]
    assert again[: len(first)] == first


@pytest.mark.parametrize(
    "habit", ["replace", "append", "reset", "less_dropout", "hook", "update_outside"]
)
def test_a_run_that_goes_back_to_before_a_change_has_the_model_of_then(habit):
    """The loop counts on, so the change is not made again.

    Batches come as they came: those of an epoch that began after it are others.
    """
    went = []

    def back(live, number):
        if number == CHANGES + 4 and not went:
            went.append(number)
            live.rewind(4)

    _, plain, _ = run(HABITS[habit] if habit == "update_outside" else with_change(lambda *_: None))
    _, losses, _ = run(HABITS[habit], back)
    assert losses[CHANGES + 4 : CHANGES + 13] == plain[3:12]


@pytest.mark.parametrize(
    "habit", [name for name in HABITS if name not in ("one_buffer", "an_average")]
)
def test_what_would_follow_is_what_follows_or_is_refused(habit):
    found = []

    def ahead(live, number):
        if number == STEPS - 3:
            try:
                found.append(live.what_if(2, changes={"nothing": lambda: None}))
            except ArgumentError as error:
                found.append(str(error))

    _, losses, _ = run(HABITS[habit], ahead)
    if habit in ("scaled_outside", "written_by_hand", "returned_and_written"):
        assert "the loop itself does a part of each step" in found[0]
        assert "The run is unchanged" in found[0]
    else:
        expected = losses[STEPS - 3 : STEPS - 1]
        np.testing.assert_allclose(found[0][0].curves["loss"].values, expected, rtol=1e-6)


@pytest.mark.parametrize("make", [written_by_hand, scaled_outside])
def test_what_a_loop_writes_is_counted_and_kept_within_the_room(make):
    def each(live, number):
        assert live.kept.nbytes < 3 * 60_000

    live, _, _ = run(make, each, keep=60_000, keep_every=1000)
    assert live.kept.spans[-1][1] == STEPS
    gc.collect()
    held = sum(x.nbytes for x in jax.live_arrays() if x.shape == (8, 8))
    assert held < 60_000
