"""The interrupt key: softly at the next boundary, hard at the second press, and everything as before afterwards."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time

import pytest

from nbmodule.live.interrupt import SoftInterrupt, shield
from nbmodule.live.loop import Loop, steps


@pytest.fixture(autouse=True)
def _handler_is_restored():
    before = signal.getsignal(signal.SIGINT)
    yield
    assert signal.getsignal(signal.SIGINT) is before


def press() -> None:
    signal.raise_signal(signal.SIGINT)


def test_the_first_press_ends_the_loop_at_the_next_boundary():
    begun, ended = [], []
    with pytest.raises(KeyboardInterrupt, match="between two steps"):
        for i in steps(range(10)):
            begun.append(i)
            if i == 3:
                press()
            ended.append(i)
    assert begun == ended == [0, 1, 2, 3]


def test_the_second_press_interrupts_at_once():
    ended = []
    with pytest.raises(KeyboardInterrupt):
        for i in steps(range(10)):
            press()
            press()
            ended.append(i)
    assert ended == []


def test_a_press_in_the_last_step_is_not_lost():
    with pytest.raises(KeyboardInterrupt):
        for _ in steps(range(1)):
            press()


def test_a_press_ends_a_pause():
    loop = Loop()
    timer = threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        for i in loop.run(range(10)):
            if i == 0:
                loop.pause()
                timer.start()
    assert loop.done == 1


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


def test_the_handler_that_was_there_gets_the_second_press():
    heard = []
    before = signal.signal(signal.SIGINT, lambda number, frame: heard.append(number))
    try:
        with pytest.raises(KeyboardInterrupt):
            for _ in steps(range(3)):
                press()
                press()
                press()
        assert heard == [signal.SIGINT, signal.SIGINT]
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_handler_put_in_while_the_loop_runs_is_left_there():
    before = signal.getsignal(signal.SIGINT)
    mine = lambda number, frame: None
    try:
        for _ in steps(range(1)):
            signal.signal(signal.SIGINT, mine)
        assert signal.getsignal(signal.SIGINT) is mine
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_loop_that_was_left_open_does_not_swallow_interrupts_of_others():
    def leave():
        left = steps(range(10))
        next(left)
        return left

    left = leave()
    with pytest.raises(KeyboardInterrupt):
        press()
    left.close()


def test_a_loop_begun_beside_one_that_was_left_open_is_soft_again():
    def leave():
        left = steps(range(10))
        next(left)
        return left

    left, done = leave(), []
    with pytest.raises(KeyboardInterrupt, match="between two steps"):
        for i in steps(range(3)):
            press()
            done.append(i)
    assert done == [0]
    left.close()


def test_wrappers_around_the_loop_keep_it_soft():
    def wrapped(iterable):
        yield from iterable

    done = []
    with pytest.raises(KeyboardInterrupt, match="between two steps"):
        for i, _ in enumerate(wrapped(steps(range(5)))):
            if i == 1:
                press()
            done.append(i)
    assert done == [0, 1]


def test_a_press_in_an_inner_loop_ends_at_the_boundary_of_the_inner_one():
    done = []
    with pytest.raises(KeyboardInterrupt):
        for i in steps(range(3)):
            for j in steps(range(3)):
                if (i, j) == (1, 1):
                    press()
                done.append((i, j))
    assert done == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]


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


def test_where_interrupts_are_ignored_they_stay_ignored():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        done = []
        for i in steps(range(3)):
            press()
            done.append(i)
        assert done == [0, 1, 2]
    finally:
        signal.signal(signal.SIGINT, before)


def test_break_and_exceptions_put_the_handler_back():
    before = signal.getsignal(signal.SIGINT)
    for _ in steps(range(3)):
        break
    assert signal.getsignal(signal.SIGINT) is before
    with contextlib.suppress(ZeroDivisionError):
        for _ in steps(range(3)):
            1 / 0
    assert signal.getsignal(signal.SIGINT) is before


def test_leaving_twice_is_harmless():
    interrupt = SoftInterrupt()
    with interrupt:
        assert interrupt.active
    interrupt.__exit__()
    assert not interrupt.active


def test_two_hundred_presses_at_random_moments_leave_the_state_at_a_boundary():
    """The state is two numbers that a step changes one after the other; a boundary is where they agree."""
    chance, state = random.Random(7), {"first": 0, "second": 0}
    interrupted = 0
    while interrupted < 200:
        timer = threading.Timer(chance.random() * 0.01, lambda: os.kill(os.getpid(), signal.SIGINT))
        try:
            loop = steps(range(100_000))
            timer.start()
            for _ in loop:
                state["first"] += 1
                time.sleep(chance.random() * 0.002)
                state["second"] += 1
        except KeyboardInterrupt:
            interrupted += 1
        timer.join()
        assert state["first"] == state["second"]
