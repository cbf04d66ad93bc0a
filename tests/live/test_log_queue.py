"""Logged values on their way into the history: no wait, no tracer."""

from __future__ import annotations

import collections
import re
import threading
from decimal import Decimal

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib.figure import Figure

import nbmodule as nb
from nbmodule.live.controls.log_queue import LogQueue
from nbmodule.live.run_data.state import RunState


@pytest.fixture
def log_queue() -> LogQueue:
    return LogQueue(RunState("tested"))


def reported(log_queue):
    return [message.text for message in log_queue._run.messages]


@pytest.fixture(scope="module")
def slow():
    """A compiled computation that takes about a second."""
    function = jax.jit(lambda x: jax.lax.fori_loop(0, 300, lambda i, y: y @ y * 0.01, x).sum())
    x = jnp.ones((500, 500))
    function(x).block_until_ready()
    return lambda: function(x)


def test_values_of_float32_stay_float32_and_others_float64(log_queue):
    log_queue.put(1, {"narrow": jnp.float32(0.1), "wide": 0.1, "count": jnp.int32(16_777_217)})
    log_queue.drain()
    assert log_queue.history["narrow"].values.dtype == np.float32
    assert log_queue.history["wide"].last == 0.1
    assert log_queue.history["count"].last == 16_777_217


def test_logging_never_waits_for_the_device(log_queue, slow):
    value = slow()
    log_queue.put(1, {"loss": value})
    log_queue.put(2, {"loss": 5.0})
    log_queue.drain()
    assert not value.is_ready()
    assert len(log_queue.history) == 0
    log_queue.settle(60)
    assert log_queue.history.loss.values.tolist() == [float(value), 5.0]


def test_a_tracer_is_reported_with_the_fix_and_the_step_goes_on(log_queue):

    @jax.jit
    def step(x):
        log_queue.put(1, {"loss": x.sum(), "kept": 2.0})
        return x

    step(jnp.ones(3))
    log_queue.drain()
    assert log_queue.history["kept"].last == 2
    (line,) = reported(log_queue)
    assert re.match(
        r"cannot log 'loss' from inside .*\(float32\[\]\).*Return the value from the step", line
    )


def test_an_array_that_is_changed_later_keeps_the_value_it_was_logged_with(log_queue):
    value = np.array([1.0])
    log_queue.put(1, {"a": value})
    value[0] = 9
    log_queue.drain()
    assert log_queue.history["a"].last == 1.0


def test_a_donated_value_is_reported_and_others_are_kept(log_queue):
    value = jnp.ones(())
    log_queue.put(3, {"gone": value, "kept": 2.0})
    value.delete()
    log_queue.drain()
    assert log_queue.history["kept"].last == 2.0
    (line,) = reported(log_queue)
    assert line.startswith("'gone' of step 3 could not be read: its memory was donated")


def test_texts_arrays_and_pictures_are_media(log_queue):
    pixels, figure = np.zeros((2, 2, 4), np.uint8), Figure(figsize=(1, 1), dpi=50)
    log_queue.put(4, {"text": "hello", "map": jnp.zeros((2, 3)), "pixels": pixels, "plot": figure})
    log_queue.drain()
    kept = [(items[0].step, np.shape(items[0].value)) for items in log_queue.history.media.values()]
    assert kept == [(4, ()), (4, (2, 3)), (4, (2, 2, 3)), (4, (50, 50, 3))]


def test_a_variable_is_read_when_it_is_logged(log_queue):
    variable = nb.Buffer(jnp.float32(1))
    log_queue.put(1, {"a": variable})
    variable.value = jnp.float32(2)
    log_queue.drain()
    assert log_queue.history["a"].last == 1


Pair = collections.namedtuple("Pair", "mean std")


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        ({"train": {"loss": 1, "acc": 0.5}}, {"x/train/loss": 1, "x/train/acc": 0.5}),
        ([0.1, 0.2], {"x/0": 0.1, "x/1": 0.2}),
        ((1, (2, {"a": 3})), {"x/0": 1, "x/1/0": 2, "x/1/1/a": 3}),
        (Pair(1, 2), {"x/mean": 1, "x/std": 2}),
        ({"a": None, 7: 7}, {"x/7": 7}),
        (None, {}),
        ({}, {}),
        (Decimal("0.5"), {"x": 0.5}),
        (True, {"x": 1}),
        (np.float32(3), {"x": 3}),
        (np.array([[5.0]]), {"x": 5}),
        (jnp.float32(4), {"x": 4}),
        (jnp.bfloat16(1.5), {"x": 1.5}),
    ],
)
def test_numbers_of_all_kinds_and_nested_values_are_kept(log_queue, value, kept):
    log_queue.put(1, {"x": value})
    log_queue.drain()
    assert {series.name: series.last for series in log_queue.history} == kept
    assert reported(log_queue) == []


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_tensor_that_requires_gradients_is_a_number(log_queue, dtype):
    torch = pytest.importorskip("torch")
    log_queue.put(1, {"x": torch.tensor(0.25, dtype=getattr(torch, dtype), requires_grad=True)})
    log_queue.drain()
    assert (log_queue.history["x"].last, reported(log_queue)) == (0.25, [])


class Unspeakable:
    def __str__(self):
        raise ValueError("no name")

    __repr__ = __str__


def circle():
    made = {}
    made["again"] = made
    return made


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("x", object(), "cannot log 'x': expected a number, .* or a picture, got object"),
        ("x", {1, 2}, "cannot log 'x'.*got set"),
        ("x", circle(), "maximum recursion depth"),
        ("x", [0.0] * 1001, "the list has 1,001 items"),
        ("x", jax.random.key(0), "random key"),
        ("x", 10**400, "could not be read: int too large"),
        (Unspeakable(), 1.0, "no name"),
        ("x", Unspeakable(), "cannot log 'x'"),
    ],
)
def test_a_value_that_cannot_be_logged_is_reported_once_and_others_are_kept(
    log_queue, name, value, words
):
    for step in range(3):
        log_queue.put(step, {name: value, "loss": float(step)})
    log_queue.drain()
    (line,) = reported(log_queue)
    assert re.search(words, line)
    assert log_queue.history["loss"].values.tolist() == [0, 1, 2]


def test_a_vector_of_a_scanned_step_is_as_many_steps(log_queue):
    losses = np.random.default_rng(0).normal(size=47).astype("float32")
    for turn, part in enumerate((losses[:20], losses[20:40], losses[40:]), 1):
        log_queue.put(turn, {"loss": jnp.asarray(part), "rate": turn / 10})
        log_queue.put(turn, {"val_loss": turn})
    log_queue.drain()
    np.testing.assert_array_equal(log_queue.history["loss"].steps, range(1, 48))
    np.testing.assert_array_equal(log_queue.history["loss"].values, losses)
    assert log_queue.history["loss"].values.dtype == np.float32
    for name in ("rate", "val_loss"):
        assert log_queue.history[name].steps.tolist() == [20, 40, 47]


def test_a_vector_logged_with_numbers_is_an_array_of_its_step(log_queue):
    for step in range(1, 5):
        log_queue.put(step, {"loss": 1 / step, "per_class": np.linspace(0, 1, 10)})
    log_queue.put(4, {"by_class": np.linspace(0, 1, 7), "tokens": np.arange(5)})
    log_queue.put(5, {"loss": 0.0})
    log_queue.drain()
    assert log_queue.history["loss"].steps.tolist() == [1, 2, 3, 4, 5]
    assert list(log_queue.history.media) == ["per_class", "by_class", "tokens"]


def test_two_threads_may_drain_at_once(log_queue):
    for step in range(2000):
        log_queue.put(step, {"a": float(step)})
    threads = [threading.Thread(target=log_queue.drain) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    log_queue.drain()
    assert log_queue.history["a"].values.tolist() == list(range(2000))
