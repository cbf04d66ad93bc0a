"""Rules that judge a run: faults are named, their healthy twins are not, and nothing is changed."""

from __future__ import annotations

import copy
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import nbmodule as nb
from nbmodule.live.diagnosis import curve_rules
from nbmodule.live.diagnosis.evidence import (
    Batch,
    Evidence,
    LoggedCurve,
    Snapshot,
    VariableEvidence,
)
from nbmodule.live.diagnosis.examine import Examiner, examine
from nbmodule.live.diagnosis.rule import judge, rules
from tests.live.loops import Loop

RNG = np.random.default_rng(0)
STEPS = np.arange(1, 201)


def curves(**values):
    return {
        name: LoggedCurve(name, STEPS[: len(v)], np.asarray(v, float)) for name, v in values.items()
    }


def names(evidence):
    return set(judge(evidence).names)


def noise(scale, size=200):
    return scale * np.random.default_rng(1).normal(size=size)


FALLING = np.exp(-STEPS / 50)


# -- curves --
@pytest.mark.parametrize(
    ("expected", "loss", "held"),
    [
        ("nonfinite-loss", np.where(STEPS > 90, np.nan, FALLING), {}),
        ("oscillates", 1 + 0.5 * (-1.0) ** STEPS + noise(0.02), {}),
        ("overfits", FALLING, {"val_loss": FALLING[::10] + np.linspace(0, 2, 20)}),
        ("overfits", FALLING, {"eval_loss": FALLING[::10] + np.linspace(0, 2, 20)}),
        ("overfits", FALLING - 3, {"val/loss": np.r_[np.linspace(-1, -3, 8), np.linspace(-3, -1, 12)]}),
        ("overfits", FALLING, {"val_accuracy": np.r_[np.linspace(0.2, 0.9, 8), np.linspace(0.9, 0.5, 12)]}),
        ("validation-better", 2 + noise(0.1), {"val_loss": np.full(20, 0.5)}),
    ],
)  # fmt: skip
def test_a_curve_with_a_fault_is_named(expected, loss, held):
    sparse = {name: LoggedCurve(name, STEPS[9::10], values) for name, values in held.items()}
    assert expected in names(Evidence(curves(loss=loss) | sparse))


@pytest.mark.parametrize(
    "loss",
    [
        FALLING + 0.05 + np.abs(noise(0.02)),
        FALLING * np.random.default_rng(2).lognormal(0, 1, 200),
        (FALLING + 0.1) * np.random.default_rng(3).gamma(1.0, size=200),
        0.1 + np.abs(np.sin(STEPS / 20)) * FALLING,  # warm restarts
        FALLING - 5,
    ],
    ids=["noise", "log-normal", "gamma", "restarts", "negative"],
)
def test_a_healthy_curve_is_silent(loss):
    nothing = Snapshot(1, None, Batch({}, {}), None, (), ())
    assert names(Evidence(curves(loss=loss))) == names(Evidence(snapshots=(nothing,))) == set()
    still = {"d_loss": 0.7 + noise(0.02), "g_loss": 0.7 + noise(0.02)}
    assert names(Evidence(curves(**still))) == set()  # losses of adversaries need not fall


@pytest.mark.parametrize(
    ("rate", "second", "is_named"),
    [
        (1e20, np.nan, True), (10.0, np.inf, True), (10.0, 57.0, True), (1.0, 2.0, False),
        (0.1, np.nan, False),
    ],
)  # fmt: skip
def test_a_rate_that_is_far_too_high_is_named_in_a_run_and_its_journal(
    tmp_path, rate, second, is_named
):
    options = {"journal": tmp_path, "nonfinite": "ignore", "display": False}
    with nb.Live(optimizer=nb.SGD(rate), **options) as live:
        for loss in live.steps([1.7, second, *[2.0] * 30]):
            live.log(loss=loss)
    for diagnosis in (live.diagnosis, nb.runs(tmp_path)[0].diagnosis):
        assert ("rate-too-high" in diagnosis.names) == is_named
        if is_named:
            assert f"rate {rate:.3g}".replace("+", "") in diagnosis["rate-too-high"].text
            assert "nonfinite-loss" not in diagnosis.names


# -- one step, observed --
def make(*layers, lr=0.1):
    loop = Loop(model=nb.Sequential(*layers), optimizer=nb.SGD(lr=lr))
    return loop.model, loop.optimizer, loop.step


X = RNG.normal(size=(64, 3)).astype(np.float32)
Y = (X[:, 0] > 0).astype(np.int32)


@pytest.mark.parametrize("donate", [False, True])
def test_observing_a_step_changes_nothing_and_agrees_with_numpy(donate):
    model, optimizer, step = make(nb.Linear(3, 8), nb.ReLU(), nb.Dropout(0.5), nb.Linear(8, 2))
    step = nb.jit(step.__wrapped__, donate=donate)
    step(X, Y)
    state = copy.deepcopy(model.state_dict()), copy.deepcopy(optimizer.state_dict())
    snapshot = examine(partial(step, X, Y), model, 7)
    assert list(snapshot.batch.inputs) == ["x"] and list(snapshot.batch.targets) == ["y"]
    assert snapshot.classes == 2
    for before, now in zip(state, (model.state_dict(), optimizer.state_dict())):
        assert jax.tree.all(
            jax.tree.map(lambda a, b: np.array_equal(a, b), dict(before), dict(now))
        )
    weight = np.asarray(model[0].weight.value)
    linear = next(call for call in snapshot.calls if call.path == "0")
    np.testing.assert_allclose(
        linear.returns, X @ weight.T + np.asarray(model[0].bias.value), atol=1e-5
    )
    loss = float(step(X, Y))
    assert snapshot.loss == pytest.approx(loss, rel=1e-6)
    change = next(v for v in snapshot.variables if v.path == "0.weight").change
    assert change == pytest.approx(
        np.linalg.norm(np.asarray(model[0].weight.value) - weight), rel=1e-4
    )


def test_a_step_that_raises_is_observed_no_more():
    model, _, step = make(nb.Linear(3, 2))
    examiner = Examiner(model)
    examiner.see_step(partial(step, X[:, :2], Y), 1)
    assert "ShapeError" in examiner.error
    assert not examiner.is_due(100)


# -- before training --
def setup(model, x=X, y=Y, loss=nb.cross_entropy):
    return nb.check_setup(model, x, y, loss)


def mlp(*more):
    nb.seed(0)
    return nb.Sequential(nb.Linear(3, 8), nb.ReLU(), nb.Linear(8, 2), *more)


class Scaled(nb.Module):
    def __init__(self, factor):
        self.body, self.scale = mlp(), nb.Lambda(lambda x: jnp.float16(factor) * x)

    def forward(self, x):
        return self.scale(jnp.abs(self.body(x)).astype(jnp.float16) + 1)


def likelihood(prediction, target):
    return -jnp.log(jnp.take_along_axis(prediction, target[:, None], 1)).mean()


def of_logits(prediction, target):
    return optax.softmax_cross_entropy_with_integer_labels(prediction, target).mean()


def in_float32(prediction, _):
    return prediction.astype(jnp.float32).mean()


SOFTMAX = mlp(nb.Softmax())


@pytest.mark.parametrize(
    ("model", "given", "named"),
    [
        (mlp(), {}, ""),
        (mlp(), {"x": X * 300}, "input-scale"),
        (SOFTMAX, {}, "double-softmax"),
        (SOFTMAX, {"loss": of_logits}, "double-softmax"),
        (SOFTMAX, {"loss": likelihood}, ""),
        (Scaled(3e4), {"loss": in_float32}, "nonfinite-return half-precision-overflow"),
        (Scaled(1), {"loss": in_float32}, ""),
    ],
)
def test_one_batch_shows_a_fault_before_training(model, given, named):
    assert " ".join(setup(model, **given).names) == named


def test_a_step_while_the_loss_falls_from_a_peak_is_no_spike():
    flat = 0.002 + noise(1e-5, 1000)
    loss = np.r_[flat, np.exp(-np.arange(60) / 6) * 20 + 0.002, flat[:40]]
    loss[1025] *= 4  # far above the steps of an age ago, and below those just before
    assert loss[1025] < np.median(loss[1005:1025])

    def spikes(loss):
        curve = LoggedCurve("loss", np.arange(1, len(loss) + 1), loss)
        return list(curve_rules.spikes(Evidence({"loss": curve})))

    assert not spikes(loss)
    loss[1080] = 0.5
    (spike,) = spikes(loss)
    assert spike.step == 1081 and "loss is 0.5 at step 1,081, usually 0.002" in spike.text


@pytest.mark.parametrize("trained", [True, False], ids=["trained by other steps", "never"])
def test_a_part_is_frozen_only_if_no_step_trains_it(trained):
    model = mlp()

    def step(x):  # changes the last layer only, as if the gradient stopped before it
        model[2].weight = model[2].weight * 0.9
        return model(x).sum()

    snapshots = []
    for number in range(1, 4):
        snapshots.append(examine(partial(step, X), model, number))
        step(X)
        if trained:
            model[0].weight = model[0].weight * 1.1
    assert ("frozen-in-part" in names(Evidence(snapshots=snapshots))) is not trained


@pytest.mark.parametrize(("change", "named"), [(1e-4, True), (1e-3, False)])
def test_a_loss_that_hardly_falls_with_small_updates_is_named(change, named):
    weight = VariableEvidence("0.weight", (8, 3), True, 1.0, change, False)
    targets = {"y": np.linspace(-3, 3, 32)}
    snapshots = [
        Snapshot(step, None, Batch({}, targets), None, (), (weight,)) for step in (1, 2, 4)
    ]
    evidence = Evidence(curves(loss=2 - STEPS / 2000 + noise(1e-3)), snapshots)
    assert ("learns-slowly" in names(evidence)) is named


# -- the table --
def test_a_rule_of_the_user_can_be_muted_and_its_error_hides_no_other_rule():
    @nb.rule("too-long", needs=("curve",))
    def too_long(evidence):
        """The run is long."""
        yield nb.RuleVerdict("too-long", "more than 100 steps")
        raise ZeroDivisionError("oops")

    evidence = Evidence(curves(loss=np.ones(200)))
    try:
        diagnosis = judge(evidence)
        assert {"too-long", "does-not-learn"} <= set(diagnosis.names)
        assert diagnosis["too-long"].explanation == "The run is long."
        assert any("could not judge" in verdict.text for verdict in diagnosis)
        nb.mute_rule("too-long")
        assert "too-long" not in names(evidence)
        nb.mute_rule("too-long", muted=False)
        assert "too-long" in names(evidence)
    finally:
        nb.mute_rule("too-long")


def test_an_unknown_rule_or_need_is_refused_with_the_nearest_name():
    with pytest.raises(nb.errors.ArgumentError, match='"overfits"'):
        nb.mute_rule("overfit")
    with pytest.raises(nb.errors.ArgumentError, match="curve, batch"):
        nb.rule("x", needs=("curves",))
    with pytest.raises(nb.errors.ArgumentError, match="targets and loss together"):
        nb.check_setup(mlp(), X, None, nb.cross_entropy)


def test_every_rule_explains_itself_and_is_on_the_page_of_the_docs(request):
    page = (request.config.rootpath / "docs" / "views" / "diagnosis.md").read_text()
    for each in rules():
        if each.category != "own":
            assert len(each.explanation.split()) >= 8, each.name
            assert f"({each.name})=" in page, (
                f"run `python -m benchmarks.clinic.page` for {each.name}"
            )


# -- in a run --


def test_a_long_curve_is_judged_by_few_medians(monkeypatch):
    count, median = [0], np.median

    def counted(*args, **kwargs):
        count[0] += 1
        return median(*args, **kwargs)

    monkeypatch.setattr(np, "median", counted)
    values = np.exp(-np.arange(20_000) / 5000) + 0.1
    smoothed = curve_rules.smoothed(values)
    assert count[0] <= curve_rules.MOST_MEDIANS
    np.testing.assert_allclose(smoothed[5000], values[3001:5001].mean(), rtol=0.02)


def test_a_diagnosis_shows_its_evidence_and_its_fixes():
    diagnosis = judge(Evidence(curves(loss=1 + STEPS / 20 + noise(0.1))))
    html = diagnosis._repr_mimebundle_()["text/html"]
    assert "data:image/svg+xml" in html and "live.what_if(50, rates=[0.1, 1])" in html
    x = X.copy()
    x[3, 1] = np.nan
    (verdict,) = setup(mlp(), x)
    assert verdict.severity == "wrong" and "x[3, 1]" in verdict.text
    assert str(setup(mlp())) == "no fault found"


def test_the_fix_of_a_verdict_is_tried_without_a_change_of_the_run():
    model, optimizer, step = make(nb.Linear(3, 8), nb.ReLU(), nb.Linear(8, 2), lr=0.5)
    with nb.Live(model, optimizer, display=False, journal=False, returns=None) as live:
        for i in live.steps(range(60)):
            step(X, Y)
            live.log(loss=1 + i / 10)
            if i == 50:
                before = np.asarray(model[0].weight.value)
                branches = live.try_fix("diverges", 3)
                np.testing.assert_array_equal(before, np.asarray(model[0].weight.value))
    assert [branch.label for branch in branches] == ["x 0.1", "x 1"]
    with pytest.raises(nb.errors.ArgumentError, match="has no finding"):
        live.try_fix("overfits")


def test_a_run_reports_unscaled_inputs_and_one_batch_for_items_that_differ(monkeypatch):
    monkeypatch.setattr("nbmodule.live.diagnosis.examine.AT_ONCE", 1e9)
    monkeypatch.setattr("nbmodule.live.monitors.watching._LEAST", 0.0)
    model, optimizer, step = make(nb.Linear(3, 8), nb.ReLU(), nb.Linear(8, 2), lr=1e-6)
    items = [(RNG.normal(size=(64, 3)).astype(np.float32), Y) for _ in range(100)]
    with nb.Live(model, optimizer, budget=1.0, display=False, journal=False) as live:
        for _ in live.steps(items, epochs=1000):
            live.log(loss=step(X * 400, Y))
            if live._state.examiner is not None and len(live._state.examiner.digests) >= 10:
                live.stop()
    assert live._state.examiner.error == ""
    assert {"same-batch", "input-scale"} <= set(live.diagnosis.names)
    assert any("about 0 and 1 are expected" in finding.text for finding in live.findings)
