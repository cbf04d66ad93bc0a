"""The loop acts at its boundaries: epochs, progress, pause, step, stop, from any thread."""

from __future__ import annotations

import itertools
import threading
import time

import pytest

from nbmodule.errors import ArgumentError, ArgumentTypeError
from nbmodule.live.controls import loop as loop_module
from nbmodule.live.controls.loop import LOOK_EVERY, Loop, steps
from nbmodule.live.run_data.progress import Meter


class Batches:
    """Begins anew each time, and does not know its length."""

    def __init__(self, n):
        self.n = n

    def __iter__(self):
        return iter(range(self.n))


@pytest.mark.parametrize(
    "make", [lambda: [1, 2], lambda: Batches(2), lambda: range(2), lambda: {1: 0, 2: 0}]
)
def test_an_iterable_that_begins_anew_runs_for_several_epochs(make):
    assert list(steps(make(), epochs=3)) == list(make()) * 3


@pytest.mark.parametrize("make", [iter, lambda items: (i for i in items)])
def test_several_epochs_over_an_iterator_are_refused_before_the_first_step(make):
    message = "an iterator can be used only once.*Pass an iterable that restarts"
    with pytest.raises(ArgumentError, match=message):
        steps(make([1]), epochs=2)


def test_an_iterable_that_turns_out_to_be_used_up_is_noticed_in_the_second_epoch():
    class Once:
        items = [1, 2]

        def __iter__(self):
            items, self.items = self.items, []
            return iter(items)

    with pytest.raises(ArgumentError, match="epoch 2 of 2 had no item.*2 steps were run"):
        list(steps(Once(), epochs=2))


@pytest.mark.parametrize(
    ("epochs", "error"), [(-1, ArgumentError), (1.0, ArgumentTypeError), (True, ArgumentTypeError)]
)
def test_epochs_is_a_count(epochs, error):
    with pytest.raises(error, match="epochs"):
        steps([1], epochs=epochs)


def test_the_step_counts_from_1_and_goes_on_over_loops_and_epochs():
    loop, seen = Loop(), []
    for _ in loop.run("ab", epochs=2):
        seen.append((loop.count.step, loop.count.epoch))
    for _ in loop.run("c"):
        seen.append((loop.count.step, loop.count.epoch))
    assert seen == [(1, 1), (2, 1), (3, 2), (4, 2), (5, 1)]
    assert loop.count.step == loop.count.done == 5


def test_the_total_is_known_from_len_or_after_the_first_epoch():
    loop, totals = Loop(), []
    for _ in loop.run(Batches(3), epochs=2):
        totals.append(loop.count.progress.total)
    assert totals == [None, None, None, 6, 6, 6]
    loop = Loop()
    next(loop.run([1, 2, 3], epochs=4))
    assert loop.count.progress.total == 12


def test_stop_ends_inner_and_outer_loop_and_those_that_follow():
    loop, seen = Loop(), []
    for i in loop.run(range(10)):
        for j in loop.run(range(10)):
            seen.append((i, j))
            if (i, j) == (1, 1):
                loop.stop("enough")
    assert seen == [(0, j) for j in range(10)] + [(1, 0), (1, 1)]
    assert loop.count.done == 2
    assert list(loop.run([1])) == []
    loop.finish("stopped")
    assert (loop.count.state, loop.count.progress.reason) == ("stopped", "enough")


def test_a_step_left_by_break_counts_and_one_ended_by_an_exception_does_not():
    loop = Loop()
    for _ in loop.run(range(5)):
        break
    assert loop.count.step == 1
    loop.finish("done")
    assert loop.count.done == 1
    loop = Loop()
    with pytest.raises(ZeroDivisionError):
        for _ in loop.run(range(5)):
            1 / 0
    loop.finish("failed", "x")
    assert loop.count.done == 0


def test_step_makes_one_step_and_holds_again():
    loop, seen = Loop(), []

    def steer():
        deadline = time.monotonic() + 20
        for expected, next_ in ((1, "step"), (2, "step"), (3, "resume")):
            while (loop.count.state, loop.count.done) != ("paused", expected):
                assert time.monotonic() < deadline
                time.sleep(0.005)
            seen.append(expected)
            loop.commands.put({"kind": next_})

    thread = threading.Thread(target=steer)
    for i in loop.run(range(6)):
        if i == 0:
            loop.commands.put({"kind": "pause"})
            thread.start()
    thread.join(20)
    assert seen == [1, 2, 3]
    assert loop.count.done == 6


def test_looks_are_rare_in_a_fast_loop():
    looks = []
    loop = Loop()
    loop.look = lambda clock, _: looks.append(clock)
    begun = time.monotonic()
    for _ in loop.run(range(200_000)):
        pass
    assert len(looks) <= (time.monotonic() - begun) / LOOK_EVERY + 3


def test_the_rate_is_that_of_the_last_seconds_and_the_rest_follows_from_it():
    meter = Meter(total=1000, clock=0.0)
    for second in range(1, 11):
        meter.update(done=second, clock=float(second))
    for second in range(11, 21):
        meter.update(done=10 + 20 * (second - 10), clock=float(second))
    assert meter.rate == pytest.approx(20, rel=0.05)
    assert meter.remaining == pytest.approx((1000 - 210) / 20, rel=0.05)


def test_the_rate_is_unknown_while_the_loop_only_runs_ahead_of_its_device():
    meter = Meter(total=10, clock=0.0)
    meter.update(done=1, clock=1.0)
    meter.restart(1, clock=1.0)
    meter.update(done=2, clock=1.001)  # handed to the device, and not computed
    assert meter.rate is None and meter.remaining is None
    meter.update(done=3, clock=1.4)
    assert meter.rate == pytest.approx(5) and meter.remaining == pytest.approx(7 / 5)


def test_time_in_a_pause_does_not_count():
    meter = Meter(total=None, clock=0.0)
    meter.update(done=10, clock=1.0)
    meter.pause(clock=1.0)
    meter.update(done=10, clock=20.0)  # looks go on in a pause
    assert meter.rate == 10
    meter.resume(clock=31.0)
    meter.update(done=20, clock=32.0)
    assert (meter.rate, meter.elapsed(clock=32.0)) == (10, 2)


def test_steps_that_are_begun_and_not_computed_do_not_count_for_the_rate(monkeypatch):
    def last_rate(in_flight):
        clock = itertools.count(start=100.0, step=0.05)
        monkeypatch.setattr(loop_module.time, "monotonic", lambda: next(clock))
        loop, rates = Loop(), []
        loop.look = lambda *_: rates.append(loop.count.meter.rate)
        loop.in_flight = lambda: in_flight(loop.count.done)
        list(loop.run(range(100)))
        return rates[-1]

    device_is_half_as_fast = last_rate(lambda done: done // 2)
    assert device_is_half_as_fast == pytest.approx(last_rate(lambda done: 0) / 2, rel=0.1)


def test_the_loop_closes_the_iterators_of_the_user():
    closed = []

    def batches():
        try:
            yield from range(10)
        finally:
            closed.append(True)

    for _ in steps(batches()):
        break
    assert closed == [True]


def test_receipts_and_measurements_are_no_reason_to_do_all_that_is_due():
    loop, looks, heard = Loop(), [], []
    loop.tell_every, loop.act = 1e9, heard.append

    def look(_, is_due):
        looks.append((loop.count.done, is_due))
        if loop.count.done in (12, 13):
            loop.measure_soon()

    loop.look = look
    for k in loop.run(range(20)):
        if k in (5, 8):
            loop.commands.put({"kind": "ack", "n": k})
        if k == 11:
            loop.measure_soon()
        if k == 16:
            loop.commands.put({"kind": "hello"})
    assert [message.get("n") for message in heard] == [5, 8, None]
    assert [done for done, is_due in looks if is_due] == [0, 1, 17]
    assert {6, 9, 12, 13, 14} <= {done for done, _ in looks}
