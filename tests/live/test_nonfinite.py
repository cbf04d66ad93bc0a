"""NaN and Inf in a run: what is to blame, where to look, and what the numbers of the end are."""

from __future__ import annotations

import re
import time

import numpy as np
import pytest

import nbmodule as nb

ROWS = np.random.default_rng(0).normal(size=(640, 10)).astype(np.float32)
LABELS = (ROWS[:, 0] > 0).astype(np.int32)
BROKEN = ROWS.copy()
BROKEN[300, 4] = np.nan


def training(optimizer, *layers):
    nb.seed(0)
    model = nb.Sequential(*(layers or (nb.Linear(10, 16), nb.ReLU(), nb.Linear(16, 2))))

    @nb.jit
    def step(x, y):
        loss, grads = nb.value_and_grad(lambda m: nb.cross_entropy(m(x), y))(model)
        optimizer.update(model, grads)
        return loss

    return model, step


def batches(rows):
    return [(rows[i : i + 64], LABELS[i : i + 64]) for i in range(0, 640, 64)]


@pytest.mark.parametrize("items", ["batches", "numbers"])
def test_nan_in_the_data_is_found_in_the_input_and_blamed_on_no_layer(items):
    optimizer = nb.Adam(0.01)
    model, step = training(optimizer)
    every = batches(BROKEN)
    with nb.Live(model, optimizer, display=False, budget=1.0) as live:
        for item in live.steps(every if items == "batches" else range(10), epochs=9):
            x, y = item if items == "batches" else every[item]
            live.log(loss=step(x, y))
            time.sleep(0.05)
    where = "NaN in the input: x[44, 4] (row 44 of 64)"
    assert live.findings[0].text == f"{where} at step 5"
    assert not [f.text for f in live.findings if "first in" in f.text]
    assert f"{where} at step 5" in live.progress.reason
    assert live.at(5).first_nonfinite == where
    assert where in str(live.at(5))


def test_a_run_that_diverges_points_to_the_step_at_which_it_began():
    optimizer = nb.SGD(1e12)
    model, step = training(optimizer, nb.Linear(10, 16), nb.Linear(16, 16), nb.Linear(16, 2))
    with nb.Live(model, optimizer, display=False) as live:
        for x, y in live.steps(batches(ROWS), epochs=60):
            live.log(loss=step(x, y))
            time.sleep(0.05)
    bad = int(np.flatnonzero(~np.isfinite(live.history.loss.values))[0]) + 1
    assert f"live.at({bad}) shows where it began" in live.progress.reason
    later = live.at(live.step).first_nonfinite
    assert later == f"0.bias before this step: see live.at({live.step - 1})"


def test_the_weights_of_the_end_are_those_of_the_end_and_say_their_step():
    optimizer = nb.Adam(0.05)
    model, step = training(optimizer)
    with nb.Live(model, optimizer, display=False, budget=1e-9) as live:
        for _ in range(30):
            for x, y in live.steps(batches(ROWS)):
                live.log(loss=step(x, y))
    flat = np.concatenate([np.ravel(x) for n, x in model.state_dict().items() if n[0] == "0"])
    strips = live.watched["weight"]
    assert strips.steps[-1] == 300
    np.testing.assert_allclose(strips.newest[0, :2], [flat.mean(), flat.std()], rtol=1e-4)
    lines = str(live).splitlines()
    assert any(line.split() == ["module", "weight", "@300"] for line in lines)


def test_a_diverged_run_shows_its_weights_that_are_not_finite():
    optimizer = nb.SGD(1e18)
    model, step = training(optimizer)
    with nb.Live(model, optimizer, display=False, budget=1e-9, nonfinite="warn") as live:
        for x, y in live.steps(batches(ROWS)):
            live.log(loss=step(x, y))
    assert not all(np.isfinite(x).all() for x in model.state_dict().values())
    assert "non-finite" in str(live).split("\nmodule ")[1]


def test_a_gradient_that_vanishes_names_the_layers_in_their_order():
    optimizer = nb.SGD(0.01)
    layers = [layer for _ in range(11) for layer in (nb.Linear(10, 10), nb.Sigmoid())]
    model, step = training(optimizer, *layers)
    with nb.Live(model, optimizer, display=False, budget=1.0) as live:
        deadline, found = time.monotonic() + 90, []
        while not found or "gradient" not in live.watched:
            assert time.monotonic() < deadline
            for x, y in live.steps(batches(ROWS)):
                live.log(loss=step(x, y))
                time.sleep(0.005)
            found = [each.text for each in live.findings if "gradient" in each.text]
    assert live.watched["gradient"].paths == tuple(str(2 * k) for k in range(11))
    (text,) = found
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
