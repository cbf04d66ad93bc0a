"""Values on their way into the history: no wait, no tracer, no surprise."""

from __future__ import annotations

import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nbmodule.errors import ArgumentTypeError, TracerLeakError
from nbmodule.live.run.history import History
from nbmodule.live.steering.intake import Intake


@pytest.fixture
def intake() -> Intake:
    return Intake(History())


@pytest.fixture(scope="module")
def slow():
    """A compiled computation that takes about a second."""
    function = jax.jit(lambda x: jax.lax.fori_loop(0, 300, lambda i, y: y @ y * 0.01, x).sum())
    x = jnp.ones((500, 500))
    function(x).block_until_ready()
    return lambda: function(x)


def test_numbers_of_all_kinds_are_read(intake):
    intake.put(
        1,
        {
            "a": 1,
            "b": 2.5,
            "c": np.float32(3),
            "d": jnp.float32(4),
            "e": np.array([[5.0]]),
            "f": True,
            "g": jnp.bfloat16(1.5),
        },
    )
    intake.drain()
    assert {s.name: s.last for s in intake.history} == {"a": 1, "b": 2.5, "c": 3, "d": 4, "e": 5, "f": 1, "g": 1.5}


def test_values_of_float32_stay_float32_and_others_float64(intake):
    intake.put(1, {"narrow": jnp.float32(0.1), "wide": 0.1, "count": jnp.int32(16_777_217)})
    intake.drain()
    assert intake.history["narrow"].values.dtype == np.float32
    assert intake.history["wide"].last == 0.1
    assert intake.history["count"].last == 16_777_217


def test_logging_never_waits_for_the_device(intake, slow):
    value = slow()
    intake.put(1, {"loss": value})
    intake.put(2, {"loss": 5.0})
    assert intake.drain() == 0
    assert not value.is_ready()
    assert len(intake) == 2
    assert intake.settle(60)
    assert intake.history.loss.values.tolist() == [float(value), 5.0]


def test_settling_gives_up_after_its_time(intake, slow):
    intake.put(1, {"loss": slow()})
    assert not intake.settle(0.01)
    assert intake.settle(60)


def test_a_tracer_is_refused_with_the_remedy(intake):
    @jax.jit
    def step(x):
        intake.put(1, {"loss": x.sum()})
        return x

    with pytest.raises(
        TracerLeakError, match=r"cannot log 'loss' from inside .*\(float32\[\]\).*Return the value from the step"
    ):
        step(jnp.ones(3))
    assert len(intake) == 0


def test_an_array_that_is_changed_later_keeps_the_value_it_was_logged_with(intake):
    value = np.array([1.0])
    intake.put(1, {"a": value})
    value[0] = 9
    intake.drain()
    assert intake.history["a"].last == 1.0


def test_a_donated_value_is_reported_and_takes_no_other_with_it():
    said = []
    intake = Intake(History(), on_error=said.append)
    value = jnp.ones(())
    intake.put(3, {"gone": value, "kept": 2.0})
    value.delete()
    intake.drain()
    assert intake.history["kept"].last == 2.0
    assert said == [
        "'gone' of step 3 could not be read: its memory was donated to a later step; log a value the step returns"
    ]


def test_texts_arrays_and_pictures_go_to_the_shelf(intake):
    intake.put(4, {"text": "hello", "map": jnp.zeros((2, 3)), "picture": np.zeros((2, 2, 3), np.uint8)})
    intake.drain()
    shelf = intake.history.shelf
    assert [(shelf[n][0].step, shelf[n][0].kind) for n in shelf] == [(4, "text"), (4, "array"), (4, "picture")]


def test_a_box_is_read_as_it_is_when_logged(intake):
    class Box:
        value = jnp.float32(1)

        def __jax_array__(self):
            return self.value

    box = Box()
    intake.put(1, {"a": box})
    box.value = jnp.float32(2)
    intake.drain()
    assert intake.history["a"].last == 1


@pytest.mark.parametrize("value", [object(), [1, 2], {"a": 1}, None])
def test_what_cannot_be_shown_is_refused_at_once(intake, value):
    with pytest.raises(ArgumentTypeError, match="cannot log 'x': expected a number, a text, an array or a picture"):
        intake.put(1, {"x": value})


def test_a_random_key_is_refused(intake):
    with pytest.raises(ArgumentTypeError, match="random key"):
        intake.put(1, {"key": jax.random.key(0)})


def test_two_threads_may_drain_at_once(intake):
    for step in range(2000):
        intake.put(step, {"a": float(step)})
    threads = [threading.Thread(target=intake.drain) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    intake.drain()
    assert intake.history["a"].values.tolist() == list(range(2000))
