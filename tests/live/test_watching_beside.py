"""A run under Live equals the run without it, bit for bit."""

from __future__ import annotations

import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb

STEPS = 150
RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(STEPS, 8, 4)).astype(np.float32)
LABELS = RNG.integers(0, 3, size=(STEPS, 4))
IMAGES = RNG.normal(size=(STEPS, 4, 6, 6, 1)).astype(np.float32)


def classifier(compiled=nb.jit):
    layers = nb.Conv2d(1, 4, 3), nb.BatchNorm2d(4), nb.ReLU(), nb.Flatten(), nb.Linear(64, 3)
    model = nb.Sequential(*layers, nb.Dropout(0.3))
    optimizer = nb.Adam(0.01)

    @compiled
    def step(x, y):
        loss, grads = nb.value_and_grad(lambda m: nb.cross_entropy(m(x), y))(model)
        optimizer.update(model, grads)
        return loss

    return model, optimizer, lambda i: step(IMAGES[i], LABELS[i])


def two_models():
    models = {"G": nb.Linear(4, 4), "D": nb.Sequential(nb.Linear(4, 5), nb.ReLU(), nb.Linear(5, 1))}
    optimizers = {"G": nb.Adam(0.01), "D": nb.Adam(0.02)}

    @nb.jit
    def step(x):
        def d_loss(d):
            return nb.softplus(-d(x)).mean() + nb.softplus(d(models["G"](-x))).mean()

        loss, grads = nb.value_and_grad(d_loss)(models["D"])
        optimizers["D"].update(models["D"], grads)
        _, grads = nb.value_and_grad(lambda g: nb.softplus(-models["D"](g(-x))).mean())(models["G"])
        optimizers["G"].update(models["G"], grads)
        return loss

    return models, optimizers, lambda i: step(jnp.asarray(ROWS[i]))


def state_of(models):
    models = models if isinstance(models, dict) else {"": models}
    return {(k, n): np.asarray(x) for k, m in models.items() for n, x in m.state_dict().items()}


MAKES = {
    "compiled": classifier,
    "donated": lambda: classifier(nb.jit(donate=True)),
    "two models": two_models,
    "eager": lambda: classifier(lambda step: step),
}


@pytest.mark.parametrize("kind", MAKES)
def test_a_watched_run_equals_the_run_without_live_bit_for_bit(kind):
    make = MAKES[kind]
    nb.seed(0)
    model, _, turn = make()
    plain = [np.asarray(turn(i)) for i in range(STEPS)]
    expected = state_of(model)

    nb.seed(0)
    model, optimizer, turn = make()
    watched, deadline = [], time.monotonic() + 60
    with nb.Live(model, optimizer, budget=1.0, display=False) as live:
        for i in live.steps(range(STEPS)):
            loss = turn(i)
            watched.append(np.asarray(loss))
            live.log(loss=loss)
            while i == 20 and any(watcher.is_preparing for watcher in live._state.watchers):
                assert time.monotonic() < deadline
                time.sleep(0.01)
            if i > 20:
                time.sleep(0.003)
    assert {"return", "gradient"} <= set(live.watched), live.notes()
    assert not [m for m in live._state.messages if m.kind in ("warning", "error")]
    np.testing.assert_array_equal(plain, watched)
    found = state_of(model)
    assert expected.keys() == found.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=str(name))
    for step in () if kind == "eager" else (2, 75, STEPS - 1):
        assert live.at(step).is_exact, step


def test_all_models_of_a_dict_are_watched_under_their_names(train_until):
    models, optimizers, turn = two_models()
    with nb.Live(models, optimizers, budget=1.0, display=False) as live:
        measured = lambda: {"return", "gradient"} <= set(live.watched)
        train_until(live, lambda k: turn(k % STEPS), measured)
    assert live.watched["gradient"].paths == ("D", "D.0", "D.2", "G")
    assert {"G", "D", "D.0", "D.1", "D.2"} <= set(live.watched["return"].paths)


@pytest.mark.parametrize("leaf", [object(), jax.random.key(0), "text", None, 1 + 2j, b"x"])
def test_watching_never_raises_for_any_argument_of_a_step(leaf):
    model = nb.Linear(4, 3)

    @nb.jit(static_argnums=1 if not isinstance(leaf, jax.Array) else None)
    def step(x, leaf):
        return nb.value_and_grad(lambda m: m(x).sum())(model)[0]

    with nb.Live(model, budget=1.0, display=False) as live:
        for i in live.steps(range(40)):
            live.log(loss=step(ROWS[i], leaf))
            time.sleep(0.002)
    assert len(live.history.loss) == 40
    assert not [m for m in live._state.messages if m.kind == "error"]


def test_a_fault_of_the_watcher_is_one_line_at_the_foot_and_the_training_goes_on(monkeypatch):
    from nbmodule.live.monitors import step_watch

    monkeypatch.setattr(step_watch, "_kind_of", lambda leaf: 1 / 0)
    model, optimizer, turn = classifier()
    with nb.Live(model, optimizer, budget=1.0, display=False) as live:
        for i in live.steps(range(60)):
            live.log(loss=turn(i))
            time.sleep(0.002)
        notes = live.notes()
    assert len(live.history.loss) == 60
    assert "returns and gradients are not watched: ZeroDivisionError" in notes[0]
