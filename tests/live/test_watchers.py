"""Statistics per submodule, against NumPy; when they are taken, and how they are kept."""

from __future__ import annotations

import contextlib
import time

import jax.numpy as jnp
import numpy as np
import pytest

from nbmodule.base.statistics import BINS
from nbmodule.live.live import Live
from nbmodule.live.monitors.weights import WeightWatch
from nbmodule.live.run_data.progress import CostMeter
from nbmodule.live.run_data.state import RunState
from nbmodule.live.run_data.strips import FIELDS, MOST_SAMPLES, Sample, Strips


def until(look, seconds=120):
    """Look until something is found, while functions are compiled in the background."""
    deadline = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < deadline
        time.sleep(0.005)
    return found


def measured(variables, step):
    """The samples of one measurement over a step, which returns other variables."""
    watch = WeightWatch(lambda: variables)
    until(lambda: watch.request(1) or watch._before)
    variables.update(step(variables))
    return {sample.quantity: sample for sample in until(lambda: watch.take(2))}


@pytest.fixture(scope="module")
def variables():
    rng = np.random.default_rng(0)
    shapes = {"head.weight": (7, 5), "head.bias": (5,), "blocks.0.w": (90, 70)}
    shapes |= {"blocks.1.w": (7, 5), "blocks.1.b": (5,)}
    made = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    made["blocks.0.w"][0, :7] = 0
    return made


@pytest.mark.parametrize("on_host", [True, False])
def test_statistics_and_updates_of_a_submodule_are_those_of_all_its_arrays(
    variables, on_host, monkeypatch
):
    """At first on the host, before anything is compiled; later by compiled functions."""
    if on_host:
        monkeypatch.setattr("nbmodule.live.monitors.weights.compile_in_background", None)
    else:
        monkeypatch.setattr("nbmodule.live.monitors.weights._MOST_MEASURED", 0)
    arrays = {name: jnp.asarray(a) for name, a in variables.items()}
    arrays |= {"zero.w": jnp.ones((3, 3)), "half.w": jnp.ones(4, jnp.bfloat16)}
    arrays |= {"still.w": jnp.ones(4), "count.n": jnp.ones(3, int), "none.w": jnp.ones((0, 3))}
    arrays |= {"text.w": "x", "bad.w": jnp.array([jnp.nan, jnp.inf, 2.0, 1.0])}
    still = arrays["still.w"]

    def step(v):
        floating = {n: a for n, a in v.items() if hasattr(a, "dtype") and "count" not in n}
        new = {name: a * 1.5 + 0.1 for name, a in floating.items()}
        return new | {"zero.w": v["zero.w"] * 0, "still.w": still}

    before = dict(arrays)
    samples = measured(arrays, step)
    weight, update = samples["weight"], samples["update"]
    paths = ["head", "blocks", "blocks.0", "blocks.1", "zero", "half", "still", "bad"]
    assert (weight.step, list(weight.paths), list(update.paths)) == (2, paths, paths)
    for path, row, (ratio,) in zip(paths, weight.values, update.values, strict=True):
        names = [n for n in arrays if n.startswith(f"{path}.")]
        old, new = (
            np.concatenate([np.ravel(x[n]) for n in names]).astype(np.float64)
            for x in (before, arrays)
        )
        fine = new[np.isfinite(new)]
        expected = [fine.mean(), fine.std(), fine.min(), fine.max(), new.size - fine.size]
        np.testing.assert_allclose(row, [*expected, (new == 0).mean()], rtol=1e-4, atol=1e-6)
        if path in ("zero", "still"):  # nothing to compare with, or not written
            assert np.isnan(ratio)
        elif path != "bad":
            assert ratio == pytest.approx(np.linalg.norm(new - old) / np.linalg.norm(new), rel=1e-3)


def test_donated_arrays_leave_the_weights_without_the_update():
    def donated(v):
        new = {"a.w": v["a.w"] * 2}
        v["a.w"].delete()
        return new

    assert list(measured({"a.w": jnp.ones(4)}, donated)) == ["weight"]


def test_a_model_that_is_too_large_for_the_host_or_built_in_its_first_step_does_no_harm(
    monkeypatch,
):
    arrays = {}
    watch = WeightWatch(lambda: arrays)
    watch.request(0)
    arrays["a.w"] = jnp.ones((3, 11))
    assert [sample.quantity for sample in watch.take(1)] == ["weight"]
    monkeypatch.setattr("nbmodule.live.monitors.weights._MOST_MEASURED", 8)
    large = WeightWatch(lambda: arrays)
    large.request(0)
    assert large.take(1) == ()
    assert large.is_preparing or large._compiled


def test_the_picture_is_the_largest_array_of_the_submodule_itself(variables):
    watch = WeightWatch(lambda: {name: jnp.asarray(a) for name, a in variables.items()})
    assert watch.picture("head").shape == (7, 5)
    assert watch.picture("blocks") is None


def sample(step, paths, value=0.0):
    values = np.full((len(paths), len(FIELDS)), value)
    return Sample(step, "weight", paths, values, np.ones((len(paths), BINS)))


def test_strips_keep_rows_by_path_when_the_model_changes():
    strips = Strips("weight")
    strips.add(sample(1, ("a", "b"), 1))
    strips.add(sample(2, ("b", "c"), 2))
    strips.add(sample(3, ("a", "b", "c"), 3))
    assert strips.paths == ("a", "b", "c")
    means = [[1, 1, np.nan], [np.nan, 2, 2], [3, 3, 3]]
    np.testing.assert_array_equal(strips.values[:, :, 0], means)
    assert np.isnan(strips.bins("c")[0]).all()
    assert (strips.bins("c")[1] == 1).all()


def test_strips_stay_small_and_keep_the_newest():
    strips = Strips("weight")
    for step in range(5000):
        strips.add(sample(step, ("a",), step))
    assert len(strips) <= MOST_SAMPLES
    assert strips.steps[-1] == 4999
    assert strips.values[-1, 0, 0] == 4999
    gaps = np.diff(strips.steps)
    assert gaps.max() <= 4 * max(gaps.min(), 8)


def test_the_cost_is_a_share_of_the_busy_time_of_the_last_seconds(monkeypatch):
    clock = FakeTime()
    monkeypatch.setattr("nbmodule.live.run_data.progress.time", clock)
    meter = CostMeter()
    meter.busy = lambda: clock.now / 2  # half of the time goes to other processes
    meter.start()
    clock.now += 4.0
    meter.note(1.0)
    assert meter.fraction() == pytest.approx(0.5)
    clock.now += 4.0
    assert meter.fraction() == pytest.approx(0.25)
    clock.now += 8.0
    assert meter.fraction() == 0
    meter.note(0.6)
    assert meter.fraction() == pytest.approx(0.6 / 6)


class FakeTime:
    """Time that passes only where somebody says so."""

    def __init__(self):
        self.now = 100.0
        self.sleep = time.sleep

    def monotonic(self):
        return self.now

    thread_time = process_time = perf_counter = time = monotonic


class CostlyLine:
    """A progress line that takes five milliseconds of the thread each time it is shown."""

    def __init__(self, clock):
        self.clock, self.shown = clock, []

    def flush(self, _):
        self.clock.now += 0.005
        self.shown.append(self.clock.now)

    def close(self, _):
        pass


@pytest.mark.parametrize("step", [0.0005, 0.005, 0.05, 3.0])
def test_showing_takes_half_of_the_budget_for_steps_of_any_length(step, monkeypatch):
    clock = FakeTime()
    for room in ("boundary", "controls.loop", "run_data.progress"):
        monkeypatch.setattr(f"nbmodule.live.{room}.time", clock)
    line = CostlyLine(clock)
    with Live(budget=0.02, display=False, keep=False) as live:
        live._loop._view = line
        begun = clock.now
        for _ in live.steps(range(int(60 / step))):
            clock.now += step
    shown = [at for at in line.shown if at > begun + 3]
    share = len(shown) * 0.005 / (shown[-1] - shown[0])
    if step < 1:
        assert 0.0075 <= share <= 0.0105
    else:
        assert len(shown) >= 18  # after each step


@pytest.mark.parametrize(
    ("each_step", "left"), [(0.0, 0.02), (0.0001, 0.01), (0.00015, 0.005), (0.01, 0.005)]
)
def test_deferrable_work_gets_the_rest_of_the_budget(each_step, left, monkeypatch):
    run = RunState("training", budget=0.02)
    busy = [40.0]  # the process is older than the run
    run.cost = CostMeter()
    run.cost.busy = lambda: busy[0]
    run.cost.start()
    busy[0] += 100 * 0.01  # 100 steps of 10 ms
    run.cost.next_step()
    monkeypatch.setattr("time.thread_time", lambda: 1 + 100 * each_step / 16)
    run.cost.end(1.0)
    run.cost.note_each_step()
    assert run.share == pytest.approx(left / 4)


def test_a_watcher_that_fails_is_reported_and_switched_off_and_the_loop_goes_on(monkeypatch):
    taken = []
    monkeypatch.setattr(WeightWatch, "take", lambda _, step: taken.append(step) or [][step])
    with Live({}, display=False) as live:
        for _ in live.steps(range(300)):
            time.sleep(0.001)
    assert live.progress.state == "done" and len(taken) == 3
    (message,) = live._state.messages
    assert "watching raised IndexError" in message.text and "[][step]" in message.text


def test_watching_can_be_switched_off_and_on_by_its_control(monkeypatch):
    asked = []
    monkeypatch.setattr(WeightWatch, "request", lambda _, step: asked.append(step))
    with Live({}, display=False) as live:
        for i in live.steps(range(400)):
            time.sleep(0.002)
            if i == 100:
                live.controls.set("watch", "off")
                before = len(asked)
            if i == 250:
                assert len(asked) == before > 0
                live.controls.set("watch", "weights")
    assert len(asked) > before


def test_weights_that_are_not_finite_stop_the_loop_and_name_the_submodule(train_until):
    model = {"head": {"w": jnp.ones(3)}, "body": {"w": jnp.ones(3)}}

    def step(k):
        if k == 20:
            model["body"]["w"] = jnp.array([1.0, jnp.nan, jnp.inf])

    with Live(model, display=False) as live:
        train_until(live, step, lambda: False)
    assert live.progress.state == "stopped"
    assert "2 weights of body are not finite (seen after step" in live.progress.reason
    assert [m.kind for m in live._state.messages if "not finite" in m.text] == ["error"]


class Recorder:
    """Keeps which steps were entered, and how they were left."""

    every, returns = 2, True

    def __init__(self, next_=0, fail=False):
        self.next, self.fail, self.log = next_, fail, []

    @contextlib.contextmanager
    def step(self, number):
        if self.fail:
            raise OSError("disk full")
        self.log.append(number)
        yield
        self.log.append("left")


@pytest.mark.parametrize(
    ("begun", "failing", "numbers"), [(0, None, [2, 4]), (7, None, [8, 10, 12]), (0, 1, [2])]
)
def test_a_recorder_records_steps_under_their_numbers_also_one_that_fails(begun, failing, numbers):
    recorder = Recorder(begun)
    with contextlib.suppress(ZeroDivisionError), Live(recorder=recorder, display=False) as live:
        for i in live.steps(range(5)):
            assert (recorder.log[-1:] == [begun + i + 1]) == ((begun + i + 1) % 2 == 0)
            if i == failing:
                raise ZeroDivisionError
    assert recorder.log == [entry for number in numbers for entry in (number, "left")]
    assert live.progress.state == ("done" if failing is None else "failed")


def test_a_recorder_that_fails_is_reported_and_the_training_goes_on():
    with Live(recorder=Recorder(fail=True), display=False) as live:
        list(live.steps(range(5)))
    assert live.step == 5
    assert ["disk full" in m.text for m in live._state.messages] == [True]


def test_small_arrays_that_are_donated_while_they_are_measured_do_no_harm():
    arrays = {"a.b": jnp.ones(4), "a.w": jnp.ones((40, 40))}
    watch = WeightWatch(lambda: arrays)
    watch.request(0)
    watch.take(1)  # the first is made on the host
    until(lambda: watch.request(1) or watch._before)
    old = dict(arrays)
    arrays.update({name: a * 2 for name, a in arrays.items()})
    watch._start(2, watch._before[1])
    watch._before = None
    for array in (*old.values(), *arrays.values()):
        array.delete()
    samples = until(lambda: watch.take(3))
    assert [s.quantity for s in samples] == ["weight", "update"]
    np.testing.assert_allclose(samples[1].values, 0.5, rtol=1e-6)
