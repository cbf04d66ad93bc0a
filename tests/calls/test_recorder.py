"""Recorders: back and forth in time, in memory and on disk."""

import errno
import os
import re

import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb
from nbmodule import Recorder, memory, track


@pytest.fixture
def train(net, x):
    def step(x):
        value, grads = nb.value_and_grad(lambda model: (model(x) ** 2).mean())(net)
        net.v = net.v - grads * 0.1
        return value

    return nb.jit(step, donate=True)


def run(recorder, train, x, steps):
    for _ in range(steps):
        with recorder:
            train(x)


@pytest.mark.parametrize("where", ["memory", "disk"])
@pytest.mark.parametrize("returns", ["stats", True])
def test_every_nth_step_is_kept_with_what_was_asked(where, returns, net, x, train, tmp_path):
    place = "memory" if where == "memory" else tmp_path / "run"
    recorder = Recorder(net, returns, parameters=True, gradients=True, every=3, where=place)
    wanted = {}
    for number in range(8):
        with recorder:
            train(x)
        wanted[number] = np.array(net.stem.weight.value)
    assert recorder.steps == (0, 3, 6)
    for number in recorder.steps:
        step = recorder[number]
        assert (step.number, step.paths[:2]) == (number, ("", "stem"))
        found, name = step["head"], "stem.weight"
        parameter, gradient = step.parameters[name], step.gradients[name]
        if returns == "stats":
            assert found.statistics.size == 10
            figures = [wanted[number].mean(), wanted[number].max()]
            np.testing.assert_allclose([parameter.mean, parameter.max], figures, 1e-4, 1e-6)
            assert gradient.size == 12
        else:
            assert found.returns.shape == (5, 2)
            np.testing.assert_array_equal(parameter, wanted[number])
            assert gradient.shape == (4, 3)
            assert found.gradient.shape == (5, 2)


@pytest.mark.not_under("eager", reason="counts what is compiled")
def test_steps_between_run_the_untracked_executable(net, x):
    traces, recorder = [], Recorder(net, every=4)
    net.register_forward_hook(lambda *_: traces.append(1))
    run(recorder, nb.jit(lambda x: net(x)), x, 12)
    assert len(traces) == 2
    assert recorder.steps == (0, 4, 8)


def test_steps_may_be_numbered_by_hand(net, x):
    recorder = Recorder(net, every=100)
    for number in (100, 150, 1200):
        with recorder.step(number):
            net(x)
    assert recorder.steps == (100, 1200)
    with pytest.raises(nb.PathError, match="no step 150; the nearest is 100, kept are 100, 1200"):
        recorder[150]


@pytest.mark.not_under(
    "eager", reason="what goes in is kept as well, as by a call that is not compiled"
)
@pytest.mark.parametrize("where", ["memory", "disk"])
def test_the_budget_drops_the_oldest(where, net, tmp_path):
    net.to(dtype="float32")
    recorder = Recorder(
        net, True, every=1, budget="90kB", where="memory" if where == "memory" else tmp_path / "run"
    )
    run(recorder, nb.jit(lambda x: net(x)), jnp.ones((100, 3), "float32"), 12)
    assert 1 < len(recorder) < 12
    assert recorder.steps[-1] == 11
    assert recorder.nbytes <= 90_000


def test_a_recorder_continues_after_the_steps_of_an_earlier_run(net, x, train, tmp_path):
    first = Recorder(net, every=2, where=tmp_path / "run")
    run(first, train, x, 5)
    del first
    second = Recorder(net, every=2, where=tmp_path / "run")
    assert (second.steps, second.next) == ((0, 2, 4), 5)
    run(second, train, x, 3)
    assert second.steps == (0, 2, 4, 6)
    assert second[2]["head"].statistics.size == 10


def test_a_step_that_fails_is_recorded_up_to_the_error(net):
    recorder = Recorder(net, True, every=1)
    with pytest.raises(nb.ShapeError), recorder:
        net(jnp.ones((2, 7)))
    assert recorder[0].failed.path == "stem"
    with recorder:
        net(jnp.ones((2, 3)))
    assert recorder.steps == (0, 1)


def full_disk(monkeypatch):
    def fail(path, *more, **options):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), os.fspath(path))

    monkeypatch.setattr("nbmodule.calls.recorder.write_record", fail)


def test_a_full_disk_leaves_the_training_and_the_earlier_steps_alone(net, x, tmp_path, monkeypatch):
    recorder = Recorder(net, every=1, where=tmp_path / "run")
    run(recorder, net, x, 2)
    full_disk(monkeypatch)
    with pytest.warns(
        RuntimeWarning, match=r"step 2 could not be recorded.*No space left.*Training goes on"
    ):
        run(recorder, net, x, 1)
    assert recorder.steps == (0, 1)
    assert recorder[1]["head"].statistics.size == 10
    assert len(recorder.errors) == 1


def test_a_truncated_file_loses_one_step_only(net, x, tmp_path):
    recorder = Recorder(net, every=1, where=tmp_path / "run")
    run(recorder, net, x, 3)
    file = sorted((tmp_path / "run").iterdir())[1]
    file.write_bytes(file.read_bytes()[:500])
    with pytest.raises(nb.FileFormatError, match="step 1 cannot be read: "):
        recorder[1]
    assert recorder[2]["head"].statistics == recorder[0]["head"].statistics


def test_bad_arguments_are_refused(net, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(nb.ArgumentError, match="every must be at least 1"):
        Recorder(net, every=0)
    with pytest.raises(nb.ArgumentError, match="and .*file is a file"):
        Recorder(net, where=tmp_path / "file")


def test_memory_lists_what_is_held(net, x):
    recorder = Recorder(net, True, every=1)
    run(recorder, nb.jit(lambda x: net(x)), x, 3)
    with track(net) as calls:
        net(x)
    held = {id(row.holder): row for row in memory()}
    assert held[id(recorder)].nbytes == recorder.nbytes > 0
    assert held[id(calls)].nbytes == calls.nbytes > 0
    assert re.search("Net, 3 steps, in memory +recorder", repr(memory()))
    recorder.clear()
    calls.clear()
    assert recorder.nbytes == calls.nbytes == 0
