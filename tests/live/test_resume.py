"""`nb.Live(resume=run)`: a run that was killed and resumed equals a run that was never killed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import nbmodule as nb
from nbmodule import nn
from nbmodule.errors import ArgumentError, ArgumentTypeError
from nbmodule.live.reporting import journal

ROOT = Path(__file__).parents[2]
PROGRAM = """
import sys, time
import numpy as np
import nbmodule as nb
from nbmodule import nn
from nbmodule.live.reporting import journal

journal._SNAPSHOT_EVERY, journal._SNAPSHOT_SHARE, journal.EVERY = 0.2, 10.0, 0.1
folder, kind, out = sys.argv[1:]
nb.seed(3)
rng = np.random.default_rng(0)
x, y = rng.normal(size=(40, 4)).astype("float32"), rng.normal(size=(40, 1)).astype("float32")
model = nb.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 1))
optimizer = nb.Adam(0.01)

@nb.jit
def step(x, y):
    loss, grads = nb.value_and_grad(lambda m: ((m(x) - y) ** 2).mean())(model)
    optimizer.update(model, grads)
    return loss

resume = nb.last_run(folder) if kind == "resumed" else None
with nb.Live(model, optimizer, display=False, journal=folder, resume=resume, keep_every=7) as live:
    for epoch in range(12):
        for batch in live.steps(nb.batches((x, y), 8)):
            live.log(loss=step(*batch))
            if kind == "killed":
                time.sleep(0.05)
                if live.step == 23:
                    while nb.last_run(folder).snapshot is None:
                        time.sleep(0.05)
                    print("on", flush=True)
                    time.sleep(600)  # it is killed here
        live.log(val_loss=float(((model(x) - y) ** 2).mean()))
np.savez(
    out, loss=live.history.loss.values, steps=live.history.loss.steps,
    val=live.history.val_loss.values, val_steps=live.history.val_loss.steps,
    **{f"m/{k}": v for k, v in model.state_dict().items()},
    **{f"o/{k}": v for k, v in optimizer.state_dict().items()},
    random=np.asarray(nb.core.numbers.random.default.state.value),
)
print(" | ".join(m.text for m in live._state.messages))
"""


@pytest.mark.slow
def test_a_killed_run_that_is_resumed_equals_one_that_was_never_killed(tmp_path, start_python):
    with start_python(PROGRAM, tmp_path / "plain", "plain", tmp_path / "plain.npz") as child:
        child.communicate(timeout=120)
    with start_python(PROGRAM, tmp_path / "killed", "killed", tmp_path / "none.npz") as child:
        assert child.stdout.readline() == "on\n"
        child.kill()
    dead = nb.last_run(tmp_path / "killed")
    assert dead.state == "died" and dead.snapshot is not None
    assert 1 <= dead.snapshot["step"] <= dead.step < 60
    assert dead.history.loss.steps[-1] >= dead.snapshot["step"]
    with start_python(PROGRAM, tmp_path / "killed", "resumed", tmp_path / "resumed.npz") as child:
        printed, _ = child.communicate(timeout=120)
    assert f"resumed from step {dead.snapshot['step']} of the run of" in printed
    assert "another batch" not in printed
    plain, resumed = np.load(tmp_path / "plain.npz"), np.load(tmp_path / "resumed.npz")
    assert len(plain["loss"]) == 60 and len(plain["val"]) == 12
    assert sorted(plain) == sorted(resumed)
    for name in plain:
        np.testing.assert_array_equal(resumed[name], plain[name], err_msg=name)
    (first,) = [run for run in nb.runs(tmp_path / "killed") if run.parent]
    assert first.parent == dead.run_id and first.history.loss.steps.tolist() == list(range(1, 61))


class Training:
    def __init__(self):
        nb.seed(0)
        self.generator, self.critic = nn.Linear(2, 3), nn.Linear(3, 1)
        self.optimizers = {"G": nb.Adam(0.1), "D": nb.SGD(0.1)}

        @nb.jit
        def step(x):
            loss, grads = nb.value_and_grad(lambda g: self.critic(g(x)).mean())(self.generator)
            self.optimizers["G"].update(self.generator, grads)
            _, grads = nb.value_and_grad(lambda d: -d(self.generator(x)).mean())(self.critic)
            self.optimizers["D"].update(self.critic, grads)
            return loss

        self.step = step

    def run(self, folder, items, in_steps=True, **options):
        models = {"G": self.generator, "D": self.critic}
        with nb.Live(models, self.optimizers, display=False, journal=folder, **options) as live:
            for x in live.steps(items) if in_steps else items:
                live.log(loss=self.step(x))
        return live

    def state(self):
        parts = [self.generator, self.critic, *self.optimizers.values()]
        return {f"{k}.{n}": v for k, part in enumerate(parts) for n, v in part.state_dict().items()}


ITEMS = [np.full((4, 2), k / 10, np.float32) for k in range(1, 31)]


@pytest.mark.parametrize("keep", [True, False])
def test_several_models_and_controls_continue_under_their_names(tmp_path, keep):
    whole, part = Training(), Training()
    whole.run(False, ITEMS)
    part.run(tmp_path, ITEMS[:12], keep=keep)
    run = nb.last_run(tmp_path)
    assert run.snapshot["step"] == 12 and list(run.snapshot["model"]) == ["G", "D"]
    again = Training()
    live = again.run(tmp_path, ITEMS, resume=run, keep=keep)
    assert live.step == 30 and live.history.loss.steps.tolist() == list(range(1, 31))
    for name, value in whole.state().items():
        np.testing.assert_array_equal(again.state()[name], value, err_msg=name)


def test_a_control_that_was_moved_keeps_its_value(tmp_path):
    got = []

    def train(items, **options):
        with nb.Live(nn.Linear(1, 1), display=False, journal=tmp_path, **options) as live:
            beta = live.controls.slider("beta", 1.0, low=0.0, high=2.0)
            for _ in live.steps(range(items)):
                got.append(beta.value)
                if live.step == 3:
                    live.controls.set("beta", 0.5)

    train(5)
    train(7, resume=nb.last_run(tmp_path))
    assert got == [1.0, 1.0, 1.0, 0.5, 0.5, 0.5, 0.5]


def test_batches_in_another_order_are_reported(tmp_path):
    Training().run(tmp_path, ITEMS[:5])
    live = Training().run(tmp_path, ITEMS[::-1], resume=nb.last_run(tmp_path))
    assert any("had another batch than this loop gives" in m.text for m in live._state.messages)


def test_a_loop_without_live_steps_continues_the_curve(tmp_path):
    Training().run(tmp_path, ITEMS[:4], in_steps=False)
    live = Training().run(tmp_path, ITEMS[:3], in_steps=False, resume=nb.last_run(tmp_path))
    assert live.history.loss.steps.tolist() == list(range(7))


def test_a_run_without_a_saved_state_is_not_resumed(tmp_path):
    with pytest.raises(ArgumentTypeError, match="resume must be a run of nb.last_run"):
        nb.Live(resume=str(tmp_path))
    with nb.Live(display=False, journal=tmp_path) as live:
        for k in live.steps(range(3)):
            live.log(loss=k)
    with pytest.raises(ArgumentError, match="its journal holds no state of model and optimizer"):
        nb.Live(resume=nb.last_run(tmp_path))


def test_a_state_that_does_not_fit_leaves_all_models_as_they_were(tmp_path):
    Training().run(tmp_path, ITEMS[:5])
    other = Training()
    other.critic = nn.Linear(3, 2)  # the generator fits, and comes first
    before = other.state()
    with pytest.raises(nb.ShapeError):
        other.run(False, ITEMS, resume=nb.last_run(tmp_path))
    for name, value in other.state().items():
        np.testing.assert_array_equal(value, before[name], err_msg=name)


def test_a_state_that_is_too_large_is_reported_once(tmp_path, monkeypatch):
    from nbmodule.live.replay import saved_state

    monkeypatch.setattr(saved_state, "MOST_BYTES", 10)
    monkeypatch.setattr(journal, "_SNAPSHOT_EVERY", 0.0)
    live = Training().run(tmp_path, ITEMS)
    texts = [m.text for m in live._state.messages]
    assert sum("cannot be written beside the journal" in text for text in texts) == 1
    assert nb.last_run(tmp_path).snapshot is None
