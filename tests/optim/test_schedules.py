"""Schedules by their values at chosen steps, and against optax."""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np
import optax
import pytest

import nbmodule as nb


def values(schedule, steps):
    return [float(schedule(jnp.asarray(step))) for step in steps]


def test_a_cosine_with_warmup_agrees_with_optax():
    ours = nb.cosine_schedule(0.5, 20, warmup=5, end=0.1)
    theirs = optax.warmup_cosine_decay_schedule(0.0, 0.5, 5, 20, 0.1)
    np.testing.assert_allclose(
        values(ours, range(25)), values(theirs, range(25)), rtol=1e-5, atol=1e-7
    )


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        (nb.cosine_schedule(2.0, 8), [1 + math.cos(math.pi * min(i, 8) / 8) for i in range(10)]),
        (nb.cosine_schedule(0.0, 5), [0] * 10),
        (nb.linear_schedule(1.0, 6, warmup=2, end=0.2), [0, 0.5, 1, 0.8, 0.6, 0.4, 0.2, 0.2]),
        (nb.step_schedule(1.0, {3: 0.5, 5: 0.1}, warmup=2), [0, 0.5, 1, 0.5, 0.5, 0.05, 0.05]),
    ],
    ids=repr,
)
def test_values_are_those_worked_out_by_hand(schedule, expected):
    found = values(schedule, range(len(expected)))
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_words_of_optax_and_pytorch_mean_the_same():
    ours = nb.cosine_schedule(0.5, 20, warmup=5, end=0.1)
    theirs = nb.cosine_schedule(0.5, total_steps=20, warmup_steps=5, end_value=0.1)
    assert repr(theirs) == repr(ours)
    with pytest.raises(TypeError, match='the closest name is "warmup"'):
        nb.linear_schedule(0.5, 20, warm=5)


AT_LEAST_0 = "must be finite and at least 0"


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: nb.cosine_schedule(-1.0, 5), nb.ArgumentError, AT_LEAST_0),
        (lambda: nb.cosine_schedule(1.0, 5, end=-1.0), nb.ArgumentError, AT_LEAST_0),
        (lambda: nb.cosine_schedule(1.0, 5, warmup=5), nb.ArgumentError, "5 steps does not fit"),
        (lambda: nb.linear_schedule(1.0, 5.5), nb.ArgumentTypeError, "steps, got 5.5"),
        (lambda: nb.step_schedule(1.0, {2: 0.1}, warmup=2), nb.ArgumentError, "after the warm-up"),
        (lambda: nb.step_schedule(1.0, [3]), nb.ArgumentTypeError, "from steps to factors"),
    ],
)
def test_schedules_that_make_no_sense_are_refused(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_a_schedule_is_written_as_the_call_that_made_it():
    schedule = nb.cosine_schedule(0.1, 100, warmup=10)
    assert repr(nb.Adam(schedule)).startswith("Adam(lr=cosine_schedule(0.1, 100, warmup=10), ")
    assert repr(nb.linear_schedule(1.0, 5, end=0.5)) == "linear_schedule(1, 5, end=0.5)"
    assert repr(nb.step_schedule(1.0, {3: 0.1})) == "step_schedule(1, {3: 0.1})"
