"""The interrupt key: softly at the next boundary, hard at the second press, and everything as
before afterwards.
"""

from __future__ import annotations

import contextlib
import functools
import os
import random
import signal
import threading
import time

import jax
import pytest

import nbmodule as nb
from nbmodule.live.controls.interrupt import shield
from nbmodule.live.controls.loop import Loop, steps


@pytest.fixture(autouse=True)
def _handler_is_restored():
    before = signal.getsignal(signal.SIGINT)
    yield
    assert signal.getsignal(signal.SIGINT) is before


@pytest.fixture
def set_handler():
    """Set the handler of interrupts until the test ends."""
    before = signal.getsignal(signal.SIGINT)
    yield functools.partial(signal.signal, signal.SIGINT)
    signal.signal(signal.SIGINT, before)


def press() -> None:
    signal.raise_signal(signal.SIGINT)


def wrapped(iterable):
    yield from iterable


@pytest.mark.parametrize("wrap", [iter, lambda loop: map(max, enumerate(wrapped(loop)))])
@pytest.mark.parametrize("at", [3, 9])
def test_the_first_press_ends_the_loop_at_the_next_boundary(wrap, at):
    begun, ended = [], []
    with pytest.raises(KeyboardInterrupt, match="between two steps"):
        for i in wrap(steps(range(10))):
            begun.append(i)
            if i == at:
                press()
            ended.append(i)
    assert begun == ended == list(range(at + 1))


def test_the_second_press_interrupts_at_once():
    ended = []
    with pytest.raises(KeyboardInterrupt):
        for i in steps(range(10)):
            press()
            press()
            ended.append(i)
    assert ended == []


def test_a_press_ends_a_pause():
    loop = Loop()
    timer = threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        for i in loop.run(range(10)):
            if i == 0:
                loop.commands.put({"kind": "pause"})
                timer.start()
    assert loop.count.done == 1


def test_a_shield_holds_the_second_press_until_its_end():
    done = []
    with pytest.raises(KeyboardInterrupt):
        for _ in steps(range(1)):
            with shield():
                press()
                press()
                with shield():
                    pass
                done.append("whole")
            done.append("not reached")
    assert done == ["whole"]


def test_a_shield_without_a_loop_holds_nothing_back():
    with pytest.raises(KeyboardInterrupt), shield():
        press()


def test_the_handler_that_was_there_gets_the_second_press(set_handler):
    heard = []
    set_handler(lambda number, frame: heard.append(number))
    with pytest.raises(KeyboardInterrupt):
        for _ in steps(range(3)):
            press()
            press()
            press()
    assert heard == [signal.SIGINT, signal.SIGINT]


def test_a_handler_that_is_set_while_the_loop_runs_stays(set_handler):
    mine = lambda number, frame: None
    for _ in steps(range(1)):
        set_handler(mine)
    assert signal.getsignal(signal.SIGINT) is mine


@pytest.fixture
def left_open():
    """A loop that was left without being closed, because a variable holds it."""

    def leave():
        left = steps(range(10))
        next(left)
        return left

    left = leave()
    yield
    left.close()


@pytest.mark.usefixtures("left_open")
def test_a_loop_that_was_left_open_does_not_swallow_interrupts_of_others():
    with pytest.raises(KeyboardInterrupt):
        press()


@pytest.mark.usefixtures("left_open")
def test_a_loop_begun_after_one_that_was_left_open_is_soft_again():
    done = []
    with pytest.raises(KeyboardInterrupt, match="between two steps"):
        for i in steps(range(3)):
            press()
            done.append(i)
    assert done == [0]


def test_in_another_thread_nothing_is_touched():
    seen = []

    def work():
        handler = signal.getsignal(signal.SIGINT)
        for _ in steps(range(2)):
            seen.append(signal.getsignal(signal.SIGINT) is handler)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(20)
    assert seen == [True, True]


def test_where_interrupts_are_ignored_they_stay_ignored(set_handler):
    set_handler(signal.SIG_IGN)
    done = []
    for i in steps(range(3)):
        press()
        done.append(i)
    assert done == [0, 1, 2]


def press_soon(chance, times, begun):
    """Press once or twice at a random moment of the milliseconds after a loop has begun."""

    def work():
        begun.wait(60)
        time.sleep(chance.random() * 0.012)
        for _ in range(times):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(chance.random() * 0.002)

    thread = threading.Thread(target=work)
    thread.start()
    return thread


class Training:
    """A network with momentum and dropout; step `n` learns batch `n`."""

    def __init__(self, compiled_step):
        nb.seed(3)
        layers = nb.Linear(6, 8), nb.ReLU(), nb.Dropout(0.2, key=5), nb.Linear(8, 2)
        self.model, self.optimizer = nb.Sequential(*layers), nb.Adam(1e-2)
        self.data = jax.random.normal(jax.random.key(1), (50, 4, 6))
        loss_of = lambda model, batch: (model(batch) ** 2).mean()
        self.compiled = compiled_step(self.model, self.optimizer, loss_of, donate=True)

    @property
    def count(self):
        return int(self.optimizer.count)

    def step(self, n):
        return self.compiled(self.data[n % 50])

    def state(self):
        return {**self.model.state_dict(), **self.optimizer.state_dict()}


# Python drops an exception that a signal handler raises within the callback of a weak reference.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("presses", [15, pytest.param(200, marks=pytest.mark.long)])
def test_an_interrupted_training_goes_on_bit_for_bit(compiled_step, presses, times, set_handler):
    """Pressed once the loop ends at a boundary; pressed twice it ends at once, and the compiled
    step is whole or not done.
    """
    chance, armed = random.Random(11), [False]

    def heard(number, frame):
        if armed[0]:
            raise KeyboardInterrupt

    set_handler(heard)
    undisturbed, training = Training(compiled_step), Training(compiled_step)
    undisturbed.step(0)
    training.step(0)
    interrupted, reached = 0, 1
    while interrupted < presses:
        first, begun = training.count, threading.Event()
        thread = press_soon(chance, times, begun)
        with contextlib.suppress(KeyboardInterrupt):
            armed[0] = True
            with nb.Live(training.model, training.optimizer, display=False) as live:
                for n in live.steps(range(first, 10**9)):
                    begun.set()
                    live.log(loss=training.step(n))
        armed[0] = False
        interrupted += 1
        thread.join()
        while reached < training.count:
            undisturbed.step(reached)
            reached += 1
        for name, value in undisturbed.state().items():
            assert (value == training.state()[name]).all(), name
        made = training.count - first
        live.history  # reads what was still being computed
        logged = len(live.history["loss"]) if "loss" in live.history else 0
        assert made - logged in ((0,) if times == 1 else (0, 1)), (made, logged)
        assert times == 2 or live.progress.done == made
