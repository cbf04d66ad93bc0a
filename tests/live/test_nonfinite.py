"""NaN and Inf in a run: the cause, the step to open, and the weights of the end."""

from __future__ import annotations

import re

import numpy as np
import pytest

import nbmodule as nb

ROWS = np.random.default_rng(0).normal(size=(640, 10)).astype(np.float32)
LABELS = (ROWS[:, 0] > 0).astype(np.int32)
BROKEN = ROWS.copy()
BROKEN[300, 4] = np.nan


def batches(rows):
    return [(rows[i : i + 64], LABELS[i : i + 64]) for i in range(0, 640, 64)]


def training(optimizer, *layers):
    nb.seed(0)
    model = nb.Sequential(*(layers or (nb.Linear(10, 16), nb.ReLU(), nb.Linear(16, 2))))

    @nb.jit
    def step(x, y):
        loss, grads = nb.value_and_grad(lambda m: nb.cross_entropy(m(x), y))(model)
        optimizer.update(model, grads)
        return loss

    return model, optimizer, step


def train(live, items, step, rows=ROWS):
    """Make steps with batches or their numbers; what is logged is read at each boundary."""
    every = batches(rows)
    for item in live.steps(items, epochs=60):
        live.log(loss=step(*(every[item] if isinstance(item, int) else item)))
        live._loop.look_soon()


@pytest.mark.parametrize("items", [batches(BROKEN), range(10)], ids=["batches", "numbers"])
def test_nan_in_the_data_is_found_in_the_input_and_blamed_on_no_layer(items):
    model, optimizer, step = training(nb.Adam(0.01))
    with nb.Live(model, optimizer, display=False, budget=1.0) as live:
        train(live, items, step, BROKEN)
    where = "NaN in the input: x[44, 4] (row 44 of 64)"
    assert live.findings[0].text == f"{where} at step 5"
    assert not [f.text for f in live.findings if "first in" in f.text]
    assert f"{where} at step 5" in live.progress.reason
    assert live.at(5).first_nonfinite == where
    assert where in str(live.at(5))


def test_a_run_that_diverges_points_to_the_step_at_which_it_began():
    layers = nb.Linear(10, 16), nb.Linear(16, 16), nb.Linear(16, 2)
    model, optimizer, step = training(nb.SGD(1e12), *layers)
    with nb.Live(model, optimizer, display=False) as live:
        train(live, batches(ROWS), step)
    bad = int(np.flatnonzero(~np.isfinite(live.history.loss.values))[0]) + 1
    assert f"live.at({bad}) shows where it began" in live.progress.reason
    later = live.at(live.step).first_nonfinite
    assert later == f"0.bias before this step: see live.at({live.step - 1})"


@pytest.mark.parametrize("rate", [0.05, 1e18])
def test_the_last_weights_are_measured_and_shown_with_their_step(rate):
    model, optimizer, step = training(nb.SGD(rate))
    with nb.Live(model, optimizer, display=False, budget=1e-9, nonfinite="warn") as live:
        train(live, batches(ROWS), step)
    flat = np.concatenate([np.ravel(x) for n, x in model.state_dict().items() if n[0] == "0"])
    fine, strips = flat[np.isfinite(flat)], live.watched["weight"]
    assert strips.steps[-1] == 600
    if len(fine):
        np.testing.assert_allclose(strips.newest[0, :2], [fine.mean(), fine.std()], rtol=1e-4)
    table = str(live).split("\nmodule ")[1]
    assert table.split()[:2] == ["weight", "@600"]
    assert ("non-finite" in table) == (len(fine) < len(flat)) == (rate > 1)


def test_a_gradient_that_vanishes_names_the_layers_in_their_order(train_until):
    layers = [layer for _ in range(11) for layer in (nb.Linear(10, 10), nb.Sigmoid())]
    model, optimizer, step = training(nb.SGD(0.01), *layers)
    every = batches(ROWS)
    with nb.Live(model, optimizer, display=False, budget=1.0) as live:

        def found():
            is_measured = "gradient" in live.watched and live.step % 50 == 0
            return is_measured and [f.text for f in live.findings if "gradient" in f.text]

        train_until(live, lambda k: live.log(loss=step(*every[k % 10])), found)
        (text,) = found()
    assert live.watched["gradient"].paths == tuple(str(2 * k) for k in range(11))
    assert re.fullmatch(r"the gradient vanishes toward 0: it is 1/\S+ of that at 20", text), text


def test_control_characters_of_names_do_not_reach_the_terminal():
    model = nb.Module(d=nb.Linear(2, 2))
    setattr(model, "e\x1b[2J", nb.Linear(2, 2))
    with nb.Live(model, display=False) as live:
        live.controls.slider("rate\x1b[31m", 0.5, low=0, high=1)
        for i in live.steps(range(3)):
            live.log(**{"loss\x1b[2J": i})
            live.stop("a reason\x1b[2J")
    for text in (repr(live), str(live.progress), repr(live.controls)):
        assert "\x1b" not in text
