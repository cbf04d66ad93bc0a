"""The learning rate: numbers, functions of nothing, schedules."""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np
import optax
import pytest

import nbmodule as nb

from jax_settings import FLOAT

V, G = {"w": jnp.zeros(1)}, {"w": jnp.ones(1)}


def moves(optimizer, steps, step=None):
    """Distances that a variable moves along a gradient of 1."""
    step = optimizer.step if step is None else step
    return [-float(step(V, G)["w"][0]) for _ in range(steps)]


@pytest.mark.parametrize(
    "number", [0.25, np.float32(0.25), np.float64(0.25), jnp.array(0.25), np.array(0.25), 1, 0]
)
def test_a_number_of_any_kind_will_do(number):
    assert moves(nb.SGD(number), 1) == [float(number)]


RATES = {
    "of all": lambda: nb.SGD(1.0),
    "injected": lambda: nb.Optax(optax.inject_hyperparams(optax.sgd)(learning_rate=1.0)),
}


@pytest.mark.not_under("eager", reason="nothing is traced")
@pytest.mark.parametrize("which", RATES)
def test_a_new_number_is_used_by_a_compiled_step_without_a_trace(which, net, gradients):
    traces, optimizer = [], RATES[which]().init(net)

    @nb.jit
    def update(g):
        traces.append(1)
        optimizer.update(net, g)

    for lr in (1.0, 0.5, 0.125):
        optimizer.lr = lr
        before = net.bias()
        update(gradients(1))
        np.testing.assert_allclose(net.bias, before - lr * gradients(1).bias, rtol=1e-5, atol=1e-6)
        assert optimizer.lr == lr
    assert len(traces) == 1
    with pytest.raises(nb.ArgumentError, match="a learning rate must be finite and at least 0"):
        optimizer.lr = -1.0


def test_the_learning_rate_may_be_changed_inside_a_compiled_function():
    optimizer = nb.SGD(1.0)

    @nb.jit
    def step(v, g):
        optimizer.lr = optimizer.lr * 0.5
        return optimizer.step(v, g)

    assert moves(optimizer, 3, step) == [0.5, 0.25, 0.125]
    assert optimizer.lr == 0.125


def test_one_variable_may_be_the_learning_rate_of_two_optimizers():
    lr = nb.Buffer(0.5)
    one, two = nb.SGD(lr), nb.SGD(0.0, groups={"w": {"lr": lr}})
    step = nb.jit(lambda v, g: two.step(v, g))
    assert moves(one, 1) == moves(two, 1, step) == [0.5]
    lr.value = 0.25
    assert moves(one, 1) == moves(two, 1, step) == [0.25]


def test_lr_is_what_was_given_and_current_lr_what_the_next_step_will_use():
    schedule = lambda step: 1.0 / (1 + step)
    optimizer, asked = nb.SGD(schedule), nb.SGD(lambda: 0.25)
    assert optimizer.lr is schedule
    assert optimizer.current_lr == 1.0
    moves(optimizer, 1)
    assert optimizer.current_lr == 0.5
    assert (asked.lr(), asked.current_lr) == (0.25, 0.25)


def test_the_kind_of_a_learning_rate_is_not_changed_inside_a_compiled_function():
    optimizer = nb.SGD(lambda step: 1.0)

    @nb.jit
    def step(v, g):
        optimizer.lr = 0.5
        return optimizer.step(v, g)

    with pytest.raises(nb.TraceError, match="from a number to a number only"):
        step(V, G)


def test_a_schedule_in_plain_python_works_outside_of_compiled_code():
    optimizer = nb.SGD(lambda step: 0.5 if step < 2 else math.sqrt(step) / 8)
    expected = [0.5, 0.5, math.sqrt(2) / 8, math.sqrt(3) / 8, 0.25]
    np.testing.assert_allclose(moves(optimizer, 5), expected, rtol=1e-6)


@pytest.mark.not_under("eager", reason="nothing is traced")
def test_a_schedule_in_plain_python_is_refused_in_compiled_code():
    optimizer = nb.SGD(lambda step: 0.5 if step < 2 else 0.25)
    with pytest.raises(nb.TraceError, match=r"it wants the step as a Python number.*jnp\.where"):
        nb.jit(lambda v, g: optimizer.step(v, g))(V, G)


def test_a_schedule_may_read_a_variable():
    base = nb.Buffer(1.0)
    optimizer = nb.SGD(lambda step: base / (1 + step))
    step = nb.jit(lambda v, g: optimizer.step(v, g))
    assert moves(optimizer, 1) + moves(optimizer, 1, step) == [1.0, 0.5]
    base.value = 3.0
    assert moves(optimizer, 1, step) + moves(optimizer, 1) == [1.0, 0.75]


@pytest.mark.parametrize(
    "compiled",
    [False, pytest.param(True, marks=pytest.mark.not_under("eager", reason="nothing is traced"))],
)
def test_a_function_of_nothing_is_called_before_each_step(compiled):
    rates = iter([0.5, 0.25, 0.125])
    now = [1.0]
    optimizer, traces = nb.SGD(lambda: now[0]), []

    def step(v, g):
        traces.append(1)
        return optimizer.step(v, g)

    run, found = nb.jit(step) if compiled else step, []
    for rate in rates:
        now[0] = rate
        found += moves(optimizer, 1, run)
    assert found == [0.5, 0.25, 0.125]
    assert len(traces) == (1 if compiled else 3)


def test_a_number_may_be_replaced_by_a_schedule_and_back():
    optimizer = nb.SGD(0.5)
    step = nb.jit(lambda v, g: optimizer.step(v, g))
    found = moves(optimizer, 1, step)
    optimizer.lr = lambda step: 1.0 / (1 + step)
    found += moves(optimizer, 2, step)
    optimizer.lr = 0.125
    found += moves(optimizer, 1, step)
    np.testing.assert_allclose(found, [0.5, 1 / 2, 1 / 3, 0.125], rtol=1e-6)


@pytest.mark.parametrize(
    ("lr", "error", "message"),
    [
        (-0.1, nb.ArgumentError, "a learning rate must be finite and at least 0, got -0.1"),
        (float("nan"), nb.ArgumentError, "got nan"),
        (float("inf"), nb.ArgumentError, "got inf"),
        (jnp.array(-1.0), nb.ArgumentError, "got -1.0"),
        (True, nb.ArgumentTypeError, "a function of nothing, or a function of the step, got bool"),
        ("0.1", nb.ArgumentTypeError, "got str"),
        (None, nb.ArgumentTypeError, "got NoneType"),
        (jnp.ones(2), nb.ShapeError, rf"a learning rate must be one number, got {FLOAT}\[2\]"),
        (nb.Buffer(np.ones(2, "f")), nb.ShapeError, r"one number, got buffer float32\[2\]"),
        (lambda a, b: 0.1, nb.ArgumentTypeError, "wants a, b"),
        (lambda *, step: 0.1, nb.ArgumentTypeError, "wants step"),
    ],
)
def test_an_invalid_learning_rate_is_refused(lr, error, message):
    with pytest.raises(error, match=message):
        nb.Adam(lr)
    optimizer = nb.Adam(0.5)
    with pytest.raises(error, match=message):
        optimizer.lr = lr
    assert optimizer.lr == 0.5


NOT_ONE = rf"a learning rate must be one number, the function returned {FLOAT}\[1\]"


@pytest.mark.parametrize(
    ("lr", "error", "message"),
    [
        (lambda: -1.0, nb.ArgumentError, "got -1.0"),
        (lambda: "fast", nb.ArgumentTypeError, "the function given as lr, .* must return a number"),
        (lambda step: jnp.ones(1) * step, nb.ShapeError, NOT_ONE),
    ],
)
def test_the_rate_that_a_function_returns_is_checked(lr, error, message):
    with pytest.raises(error, match=message):
        nb.SGD(lr).step(V, G)
