"""Returns and gradients that are watched inside the user's steps, against NumPy and raw JAX."""

from __future__ import annotations

import gc
import os
import threading
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb
from nbmodule.live.diagnosis.examine import Examiner
from nbmodule.live.monitors import step_watch, weights
from nbmodule.live.monitors.compile_queue import compile_in_background


def network():
    nb.seed(0)
    return nb.Sequential(nb.Linear(4, 5), nb.ReLU(), nb.Linear(5, 3))


def loss_of(model, x, y):
    return nb.mse_loss(model(x), y)


def training(model, donate=False):
    """A step that leaves the weights as they are, so that every step has the same gradients."""

    @nb.jit(donate=donate)
    def step(x, y):
        loss, grads = nb.value_and_grad(loss_of)(model, x, y)
        model.v = model.v - grads * 0.0
        return loss

    return step


DATA = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
TARGET = np.ones((6, 3), np.float32)


@pytest.fixture
def watched(train_until):
    """Train until a condition holds; return the run."""

    def train(model, step, condition, **options):
        with nb.Live(model, budget=1.0, display=False, **options) as live:
            train_until(live, lambda _: step(), lambda: condition(live))
        return live

    return train


def has(*quantities):
    """Return a condition: these quantities were measured."""
    return lambda live: {*quantities} <= set(live.watched)


@pytest.mark.parametrize("kind", ["compiled", "donated", "eager"])
def test_returns_and_gradients_of_a_step_are_those_of_numpy_and_jax(watched, kind):
    model = network()
    step = training(model, donate=kind == "donated")
    if kind == "eager":
        step = lambda x, y: nb.value_and_grad(loss_of)(model, x, y)
    x, y = jnp.asarray(DATA), jnp.asarray(TARGET)
    live = watched(model, lambda: step(x, y), has("return", "gradient"))
    found = live.watched["return"]
    assert found.paths == ("0", "1", "2")
    weight, bias = np.asarray(model[0].weight()), np.asarray(model[0].bias())
    first = DATA @ weight.T + bias
    for row, expected in ((0, first), (1, first.clip(0))):
        wanted = [expected.mean(), expected.std(), expected.min(), expected.max()]
        wanted += [0, (expected == 0).mean()]
        np.testing.assert_allclose(found.newest[row], wanted, rtol=1e-4, atol=1e-5)
    gradient = live.watched["gradient"]
    assert gradient.paths == ("0", "2")
    parameters = [jnp.asarray(array) for array in (model[2].weight(), model[2].bias())]
    loss = lambda w, b: jnp.mean((first.clip(0) @ w.T + b - TARGET) ** 2)
    both = np.concatenate([np.ravel(g) for g in jax.grad(loss, (0, 1))(*parameters)])
    wanted = [both.mean(), both.std(), both.min(), both.max()]
    np.testing.assert_allclose(gradient.newest[1, :4], wanted, rtol=1e-4)


def test_the_plain_step_goes_on_while_the_watched_one_is_compiled(watched, monkeypatch):
    """The compiling is held up until a hundred steps were made."""
    free, notes = threading.Event(), []

    def slow(begin, finish):
        return compile_in_background(begin, lambda lowered: (free.wait(60), finish(lowered))[1])

    def is_measured(live):
        if live.step == 100:
            assert "return" not in live.watched
            notes.extend(live.notes())
            free.set()
        return "return" in live.watched

    monkeypatch.setattr(step_watch, "compile_in_background", slow)
    model, x, y = network(), jnp.asarray(DATA), jnp.asarray(TARGET)
    step = training(model)
    live = watched(model, lambda: step(x, y), is_measured)
    assert live.step > 100
    assert any("training goes on" in note for note in notes)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_child_that_was_forked_while_something_is_compiled_ends(run_python):
    code = """
        import os, threading, time
        from nbmodule.live.monitors.compile_queue import compile_in_background
        begun, free = threading.Event(), threading.Event()
        compile_in_background(lambda: (begun.set(), free.wait(60)), lambda _: None)
        compile_in_background(lambda: None, lambda _: None)
        begun.wait(60)
        child = os.fork()
        if not child:
            print(compile_in_background(lambda: "the child", lambda x: x + " works").result(), flush=True)
            raise SystemExit(3)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
        free.set()
    """
    assert run_python(code) == "the child works\n3"


def test_a_watched_step_is_traced_once_for_itself_and_once_for_the_watched_form(
    watched, monkeypatch
):
    monkeypatch.setattr(Examiner, "observe", lambda *_: None)  # traces once more
    model, x, y, traces = network(), jnp.asarray(DATA), jnp.asarray(TARGET), []

    @nb.jit
    def step(x, y):
        traces.append(1)
        return nb.value_and_grad(loss_of)(model, x, y)[0]

    watched(model, lambda: step(x, y), has("gradient"))
    assert len(traces) == 2


def test_a_run_that_closes_cancels_compiles_that_have_not_begun(monkeypatch):
    free, begun, tasks = threading.Event(), threading.Event(), []
    holding = compile_in_background(lambda: (begun.set(), free.wait(60)), lambda _: None)
    begun.wait(60)
    for module in (step_watch, weights):
        monkeypatch.setattr(
            module,
            "compile_in_background",
            lambda *parts: tasks.append(compile_in_background(*parts)) or tasks[-1],
        )
    model = network()
    step = training(model)
    with nb.Live(model, budget=1.0, display=False) as live:
        for _ in live.steps(range(4)):
            live.log(loss=step(DATA, TARGET))
    assert tasks and all(task.cancelled() for task in tasks)
    free.set()
    holding.result()


def test_under_raw_jit_only_weights_are_watched_and_a_note_names_the_fix(watched):
    model = network()
    forward = jax.jit(lambda m, x: m(x).sum())
    x = jnp.asarray(DATA)
    live = watched(
        model,
        lambda: forward(model, x),
        lambda live: (
            "weight" in live.watched
            and any("nb.jit in place of jax.jit" in note for note in live.notes())
        ),
    )
    assert set(live.watched) <= {"weight", "update"}


def test_returns_that_are_not_finite_name_the_submodule_that_made_them(watched):
    class Log(nb.Module):
        def forward(self, x):
            return jnp.log(x)

    model = nb.Sequential(nb.Linear(4, 5), Log(), nb.ReLU(), nb.Linear(5, 3))
    step = nb.jit(lambda x: model(x).sum())
    live = watched(model, lambda: step(-jnp.ones((2, 4))), lambda live: False)
    assert "returns of 1 are not finite" in live.progress.reason


def test_a_recorder_and_a_tracker_inside_go_first(watched):
    model = network()
    step = training(model)
    x, y = jnp.asarray(DATA), jnp.asarray(TARGET)
    recorder = nb.Recorder(model, every=2)
    kept = []

    def tracked():
        with nb.track(model) as calls:
            step(x, y)
        kept.append(len(calls))

    watched(model, tracked, lambda live: live.step > 400, recorder=recorder)
    assert set(kept) == {4}
    assert len(recorder.steps) == len(kept) // 2


def test_the_picture_of_a_return_is_its_first_example_in_small(watched):
    class Image(nb.Module):
        def forward(self, x):
            return x * 2

    model = nb.Sequential(Image(), nb.Flatten(), nb.Linear(40 * 40 * 2, 2))
    step = nb.jit(lambda x: model(x).sum())
    x = jax.random.normal(jax.random.key(0), (3, 40, 40, 2))
    pictures = []

    def is_there(live):
        pictures.append(live._state.picture("0", "return"))
        return pictures[-1] is not None

    watched(model, lambda: step(x), is_there)
    np.testing.assert_allclose(pictures[-1], 2 * np.asarray(x)[0, ::2, ::2, 0])


@pytest.mark.parametrize("keep", [True, False])
def test_a_run_that_is_over_releases_model_and_optimizer(watched, keep):
    model, optimizer = network(), nb.SGD(0.1)
    step = training(model)
    x, y = jnp.asarray(DATA), jnp.asarray(TARGET)
    measured = has("weight", "gradient", "return", "update")
    live = watched(model, lambda: step(x, y), measured, optimizer=optimizer, keep=keep)
    gone = weakref.ref(model), weakref.ref(optimizer)
    del model, optimizer, step
    if keep:  # to repeat its steps a run needs the model; it goes with the run
        del live
    gc.collect()
    assert [reference() for reference in gone] == [None, None]


def test_evaluations_that_follow_the_training_in_a_step_do_not_take_its_place(watched):
    model = network()
    step, predict = training(model), nb.jit(lambda x: model(x))
    x, y = jnp.asarray(DATA), jnp.asarray(TARGET)

    def turn():
        step(x, y)
        for _ in range(3):
            predict(x)

    watched(
        model, turn, lambda live: len(live.watched.get("gradient", ())) >= 10 and not live.notes()
    )


def test_the_end_of_python_waits_for_the_compiler(run_python):
    code = """
        import jax, jax.numpy as jnp, time
        from nbmodule.calls.reduction import reduce_tree
        from nbmodule.live.monitors.compile_queue import compile_in_background
        xs = [jnp.ones((300 + i, 300)) for i in range(3)]
        begun = []
        compile_in_background(lambda: (jax.jit(reduce_tree).lower(xs), begun.append(1))[0], lambda lowered: lowered.compile())
        compile_in_background(lambda: print("never"), print)
        while not begun:
            time.sleep(0.01)
        print("over")
    """
    assert run_python(code) == "over"
