"""Commands from any thread, and controls as data."""

from __future__ import annotations

import json

import jax.numpy as jnp
import numpy as np
import optax
import pytest

import nbmodule as nb
from nbmodule.errors import ArgumentError, ArgumentTypeError, PathError
from nbmodule.live.controls.knobs import add_knobs
from nbmodule.live.run_data.control import CommandQueue, Controls


def test_a_page_that_greets_twice_before_the_answer_is_queued_once():
    commands = CommandQueue()
    for page in "aab":
        commands.put({"kind": "hello", "page": page})
    assert [message["page"] for message in commands.take()] == ["a", "b"]


def test_controls_describe_themselves_as_json():
    controls = Controls()
    controls.slider("lr", 1e-3, low=1e-5, high=0.1, log=True)
    controls.field("note", "a", choices=("a", "b"))
    controls.field("count", 3)
    controls.toggle("augment", False, group="more")
    described = json.loads(json.dumps(controls.describe()))
    slider = {"name": "lr", "kind": "slider", "value": 1e-3, "group": "", "error": None}
    assert described[0] == slider | {"low": 1e-5, "high": 0.1, "log": True}
    kinds = [(c["kind"], c["value"]) for c in described[1:]]
    assert kinds == [("field", "a"), ("field", 3), ("toggle", False)]
    assert described[1]["choices"] == ["a", "b"]
    assert described[2]["type"] == "int"


def test_a_value_whose_application_fails_is_not_kept_and_its_error_is_shown():
    controls = Controls()
    lr = controls.slider("lr", 0.5, lambda v: 1 / 0, low=0, high=1)
    with pytest.raises(ZeroDivisionError):
        controls.set("lr", 0.25)
    assert lr.value == 0.5
    assert lr.error == "ZeroDivisionError: division by zero"
    lr.apply = None
    controls.set("lr", 0.25)
    assert lr.error is None


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("rate", 2, "'rate' must be between 0 and 1, got 2"),
        ("rate", "x", "'rate' must be a number, got 'x'"),
        ("rate", True, "'rate' must be a number, got True"),
        ("rate", float("nan"), "'rate' must be finite"),
        ("mode", "c", "'mode' must be one of a, b, got 'c'"),
        ("augment", 1, "'augment' must be True or False, got 1"),
        ("count", 4.5, "'count' must be an integer, got 4.5"),
        ("lr", 1, "no control is called 'lr'; there are: 'rate', 'mode', 'augment', 'count'"),
    ],
)
def test_a_value_that_does_not_fit_its_control_is_refused(name, value, message):
    controls = Controls()
    controls.slider("rate", 0.5, low=0, high=1)
    controls.field("mode", "a", choices=("a", "b"))
    controls.toggle("augment", False)
    controls.field("count", 3)
    with pytest.raises((ArgumentError, ArgumentTypeError, PathError), match=message):
        controls.set(name, value)


@pytest.mark.parametrize(
    "limits",
    [{"low": 1, "high": 1}, {"low": 0, "high": float("inf")}, {"low": 0, "high": 1, "log": True}],
)
def test_a_slider_needs_limits_that_make_sense_and_a_field_is_no_switch(limits):
    with pytest.raises(ArgumentError, match="slider 'lr'"):
        Controls().slider("lr", 1, **limits)
    with pytest.raises(ArgumentTypeError, match="Use a toggle"):
        Controls().field("flag", True)


@pytest.mark.parametrize(
    ("first", "given", "kept"), [(3, 4.0, 4), ("a", 7, "7"), (jnp.float32(2), 1, 1.0)]
)
def test_a_field_keeps_its_kind(first, given, kept):
    controls = Controls()
    field = controls.field("x", first)
    controls.set("x", given)
    assert (type(field.value), field.value) == (type(kept), kept)


class Optimizer:
    def __init__(self, lr):
        self.lr = lr


class Fixed:
    lr = property(lambda self: 0.1)


TWO_RATES = nb.Sequential(nb.Dropout(0.5), nb.Dropout(0.1))


@pytest.mark.parametrize(
    ("model", "optimizer"),
    [(None, Optimizer(rate)) for rate in (None, "fast", 0.0)]
    + [(None, Fixed()), (None, nb.SGD(lambda: 0.1)), (TWO_RATES, None)],
    ids=["none", "text", "zero", "read only", "function of nothing", "dropout of two rates"],
)
def test_a_rate_that_cannot_be_steered_has_no_slider(model, optimizer):
    controls = Controls()
    add_knobs(controls, model, optimizer)
    assert [control.name for control in controls if "rate" in control.name] == []


def training(optimizer):
    """A model of three numbers whose loss is their sum, its step, and the traces of the step."""
    model, traces = nb.Module(w=nb.Parameter(jnp.zeros(3))), []

    @nb.jit
    def step():
        traces.append(1)
        optimizer.update(model, nb.grad(lambda m: m.w.value.sum())(model))

    return model, step, traces


def test_a_run_moves_the_factor_of_a_schedule_and_compiles_once_for_it():
    schedule, counts = optax.linear_schedule(0.1, 0.0, 10), []
    optimizer = nb.SGD(schedule)
    model, step, traces = training(optimizer)
    with nb.Live(model, optimizer, display=False, returns=None) as live:
        for i in live.steps(range(8)):
            if i in (3, 5):
                live.controls.set("learning rate factor", 0.5 if i == 3 else 0.25)
            step()
            counts.append(len(traces))
        assert counts[0] == counts[2] < counts[3] == counts[7]
    step()
    factors = 3 * [1] + 2 * [0.5] + 4 * [0.25]
    rates = np.array([float(schedule(i)) for i in range(9)]) * factors
    np.testing.assert_allclose(model.w.value, -rates.sum(), rtol=1e-5)
    assert float(optimizer.current_lr) == pytest.approx(0.25 * float(schedule(9)))


def test_code_may_set_a_rate_of_zero_below_the_scale_of_the_slider():
    optimizer = nb.SGD(0.1)
    with nb.Live(optimizer=optimizer, display=False) as live:
        for _ in live.steps(range(3)):
            live.set("learning rate", 0.0)
    assert float(optimizer.lr) == 0.0
    with pytest.raises(ArgumentError, match="must be between 0 and 10, got 11"):
        live.controls["learning rate"].check(11.0)


def test_an_optimizer_of_optax_without_a_rate_gets_a_note_with_the_fix():
    model, optimizer = nb.Linear(2, 1), nb.Optax(optax.sgd(0.1))
    with nb.Live(model, optimizer, display=False, returns=None) as live:
        for _ in live.steps(range(2)):
            live._loop.look(0.0, True)
        assert "learning rate" not in live.controls
        assert any("inject_hyperparams" in note for note in live.notes())


def test_a_rate_that_optax_has_only_after_the_first_step_gets_its_slider_then():
    optimizer = nb.Optax(optax.inject_hyperparams(optax.sgd)(learning_rate=0.1))
    model, step, _ = training(optimizer)
    with nb.Live(model, optimizer, display=False, returns=None) as live:
        for _ in live.steps(range(10_000)):
            step()
            if "learning rate" in live.controls:
                break
        live.controls.set("learning rate", 0.5)
    assert live.step < 10_000
    assert float(optimizer.lr) == 0.5


def test_the_dropout_rate_of_a_layer_moves_with_one_compile_and_none_after_it():
    model, traces, counts, shares = nb.Sequential(nb.Dropout(0.5)), [], [], []

    @nb.jit
    def step(x):
        traces.append(1)
        return (model(x) == 0).mean()

    rates = (0.5, 0.5, 0.1, 0.2, 0.9, 0.0)
    with nb.Live(model, returns=None, display=False) as live:
        for rate in live.steps(rates):
            live.controls.set("dropout rate", rate)
            shares.append(float(step(jnp.ones((200, 200)))))
            counts.append(len(traces))
            assert ("steered" in repr(model)) == (rate != 0.5)
    np.testing.assert_allclose(shares, rates, atol=0.02)
    assert counts[0] == counts[1] < counts[2] == counts[5]
    assert model[0].rate == 0.0
    assert "Dropout(rate=0)" in repr(model)


def test_the_learning_rate_of_a_real_optimizer_moves_without_a_compile():
    optimizer = nb.SGD(0.1)
    model, step, traces = training(optimizer)
    with nb.Live(model, optimizer, display=False, returns=None) as live:
        slider = live.controls["learning rate"]
        limits = [slider.value, slider.details["low"], slider.details["high"]]
        assert limits == pytest.approx([0.1, 1e-3, 10.0])
        for i in live.steps(range(6)):
            if i == 3:
                live.controls.set("learning rate", 1.0)
            step()
    np.testing.assert_allclose(model.w.value, -(3 * 0.1 + 3 * 1.0), rtol=1e-6)
    assert len(traces) == 1
    assert float(optimizer.lr) == 1.0


def test_a_frozen_child_holds_still_until_it_is_set_free():
    model = nb.Sequential(nb.Linear(2, 2), nb.Linear(2, 2))
    optimizer = nb.SGD(0.1)

    @nb.jit
    def step(x):
        optimizer.update(model, nb.grad(lambda m: m(x).sum())(model))

    with nb.Live(model, optimizer, display=False) as live:
        seen = []
        for i in live.steps(range(6)):
            if i in (2, 4):
                live.controls.set("freeze 0", i == 2)
            step(jnp.ones((1, 2)))
            seen.append(np.array(model[0].weight()))
    still = [bool((a == b).all()) for a, b in zip(seen, seen[1:], strict=False)]
    assert still == [False, True, True, False, False]
