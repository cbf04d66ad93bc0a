"""Trackers belong to a task; what several threads save and train at once is of one moment."""

from __future__ import annotations

import asyncio
import copy
import gc
import io
import pickle
import signal
import threading

import cloudpickle
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb
from nbmodule.core.variables.frame import now
from tests.core.interrupting import assert_nothing_is_open

X = jnp.ones((1, 2))


def test_a_task_does_not_see_the_tracker_of_another():
    model = nb.Linear(2, 2)

    async def watches():
        with nb.track(model) as calls:
            model(X)
            await asyncio.sleep(0.02)
        return len(calls)

    async def works():
        await asyncio.sleep(0.01)
        model(X)

    async def both():
        return await asyncio.gather(watches(), works())

    assert asyncio.run(both())[0] == 1
    assert_nothing_is_open()


def test_trackers_of_two_tasks_that_end_in_turn_leave_nothing_on():
    model = nb.Linear(2, 2)

    async def watches(begin, end):
        await asyncio.sleep(begin)
        with nb.track(model) as calls:
            model(X)
            await asyncio.sleep(end)
            model(X)
        return len(calls)

    async def both():
        found = await asyncio.gather(watches(0.0, 0.03), watches(0.01, 0.04))
        assert now.tracker is None
        return found

    assert asyncio.run(both()) == [2, 2]
    assert_nothing_is_open()


def test_generators_that_track_in_turn_leave_nothing_on():
    model = nb.Linear(2, 2)

    def watches():
        with nb.track(model):
            yield

    first, second = watches(), watches()
    next(first), next(second)
    next(first, None), next(second, None)
    assert_nothing_is_open()


@pytest.mark.parametrize("start", ["thread", "to_thread"])
def test_a_thread_does_not_record_for_the_one_that_started_it(start):
    model = nb.Linear(2, 2)
    with nb.track(model) as calls:
        if start == "thread":
            thread = threading.Thread(target=model, args=(X,))
            thread.start()
            thread.join()
        else:
            asyncio.run(_to_thread(model))
    assert len(calls) == 0


async def _to_thread(model):
    await asyncio.to_thread(model, X)


class Coroutine(nb.Module):
    def __init__(self):
        super().__init__()
        self.w = nb.Parameter(1.0)

    async def forward(self, x):
        return x * self.w


class Generator(Coroutine):
    def forward(self, x):
        yield x * self.w


class AsyncGenerator(Coroutine):
    async def forward(self, x):
        yield x * self.w


@pytest.mark.parametrize("kind", [Coroutine, Generator, AsyncGenerator])
def test_variables_for_one_call_are_refused_where_forward_goes_on_after_it(kind):
    model = kind()
    with pytest.raises(
        TypeError,
        match=f"cannot call {kind.__name__} with v=: its forward is .*continues after the call",
    ):
        model(X, v=model.v * 2)
    assert_nothing_is_open()


def test_an_async_forward_runs_with_the_variables_that_the_model_has():
    model = Coroutine()
    assert float(asyncio.run(model(jnp.float32(3.0)))) == 3


def item(array, at=0):
    """Without a program of JAX, which `jax_check_tracer_leaks` has made anew each time."""
    return float(np.asarray(array)[at])


class Twin(nb.Module):
    """Its variables are equal after each step, and at no other time."""

    def __init__(self, size):
        super().__init__()
        self.parts = [nb.Parameter(jnp.zeros(size)) for _ in range(8)]


@pytest.mark.parametrize("donate", [False, True])
def test_what_is_saved_while_a_thread_trains_is_of_one_step(donate, tmp_path):
    model, optimizer, ends = Twin(20_000), nb.SGD(1.0), threading.Event()

    @nb.jit(donate=donate)
    def step():
        optimizer.update(model, nb.Container(parts={f"v{i}": -jnp.ones(20_000) for i in range(8)}))

    def train():
        while not ends.is_set():
            step()

    step()
    thread = threading.Thread(target=train)
    thread.start()
    try:
        for i in range(20):
            state = model.state_dict()
            assert len({item(array, at) for array in state.values() for at in (0, -1)}) == 1
            model.save_weights(tmp_path / "w.h5")
            saved = nb.load(tmp_path / "w.h5")
            assert len({item(leaf) for leaf in jax.tree.leaves(saved)}) == 1
            nb.save_checkpoint(tmp_path, step=i, model=model, optimizer=optimizer)
            assert len({item(part.value) for part in copy.deepcopy(model).parts}) == 1
    finally:
        ends.set()
        thread.join()
    other, state = Twin(20_000), nb.SGD(1.0)
    nb.restore_checkpoint(tmp_path, model=other, optimizer=state)
    assert {item(part.value) for part in other.parts} == {float(state.count)}


class Holder(nb.Module):
    """Pickled by code of its user."""

    def __init__(self, size):
        super().__init__()
        self.inside = Twin(size)

    def __getstate__(self):
        return super().__getstate__() | {"by_user": self.state_dict()}

    def __setstate__(self, state):
        self.by_user = state.pop("by_user")
        super().__setstate__(state)


class Sum(nb.Optimizer):
    """Its state, too, counts the steps."""

    def _step(self, v, grads):
        self._sum = getattr(self, "_sum", grads * 0) + grads
        return v - grads * self._lr


class InPython(pickle._Pickler):
    """Python's own pickler, in Python, from which others derive."""


def through_python(thing):
    file = io.BytesIO()
    InPython(file).dump(thing)
    return pickle.loads(file.getvalue())


def through(pickler):
    return lambda thing: pickler.loads(pickler.dumps(thing))


@pytest.mark.parametrize("donate", [False, True])
@pytest.mark.parametrize(
    "copied",
    [through(pickle), through(cloudpickle), through_python, copy.deepcopy],
    ids=["pickle", "cloudpickle", "python", "deepcopy"],
)
def test_what_is_pickled_while_a_thread_trains_is_of_one_step(donate, copied):
    model, ends, trains = Holder(20_000), threading.Event(), threading.Event()
    optimizer = Sum(1.0)
    grads = nb.Container(inside=nb.Container(parts={f"v{i}": -jnp.ones(20_000) for i in range(8)}))
    step = nb.jit(lambda: optimizer.update(model, grads), donate=donate)

    def train():
        while not ends.is_set() and int(optimizer.count) < 5_000:  # sums are exact up to here
            step()
            trains.set()

    optimizer.update(model, grads)
    thread = threading.Thread(target=train)
    thread.start()
    assert trains.wait(60)
    try:
        for _ in range(10):
            other, part = copied(model), copied([model.inside, model.inside.parts[0]])
            values = [*(variable.value for variable in other.inside.parts), *other.by_user.values()]
            assert len({item(value, at) for value in values for at in (0, -1)}) == 1
            assert len({item(variable.value) for variable in part[0].parts}) == 1
            # a pickle keeps sharing inside each model of a list, not between them
            assert copied is not copy.deepcopy or part[1] is part[0].parts[0]
            state = copied(optimizer).state
            assert {-item(leaf, at) for leaf in jax.tree.leaves(state.sum) for at in (0, -1)} == {
                float(state.count)
            }
            named = optimizer.state_dict()
            assert {-item(named[name]) for name in named if name.startswith("sum")} == {
                float(named["count"])
            }
    finally:
        ends.set()
        thread.join()


def test_a_pickle_that_fails_leaves_no_old_values_behind():
    model, stepped, ends = Twin(3), threading.Event(), threading.Event()
    step = nb.jit(lambda: setattr(model, "v", model.v + 1), donate=True)
    model.stop = threading.Lock()
    thread = threading.Thread(target=lambda: (step(), stepped.set(), ends.wait()))
    thread.start()
    try:
        assert stepped.wait(60)
        with pytest.raises(
            TypeError, match="cannot pickle"
        ) as kept:  # its traceback holds the pickler
            through_python(model)
        step()
        assert kept.tb is not None
        assert float(pickle.loads(pickle.dumps(model.parts[0])).value[0]) == 2
        del model.stop
        assert float(pickle.loads(pickle.dumps(model)).parts[0].value[0]) == 2
    finally:
        ends.set()
        thread.join()


@pytest.mark.parametrize("dumps", [pickle.dumps, cloudpickle.dumps])
def test_what_was_asked_for_by_hand_and_kept_leaves_no_old_values_behind(dumps):
    model = nb.Linear(2, 2, with_bias=False)
    kept = [model.__reduce_ex__(4), model.__reduce_ex__(5)]
    model.v = model.v * 0
    assert not np.any(pickle.loads(dumps(model)).weight.value)
    assert not np.any(pickle.loads(dumps(model.weight)).value)
    assert not np.any(copy.deepcopy(model).weight.value)
    assert len(kept) == 2


# -- real signals --
def interrupt(*_):
    raise KeyboardInterrupt


def signals(act, check, count):
    """Interrupt `act`, which is repeated meanwhile, by so many real signals; check after each."""
    act()
    delays = np.random.default_rng(0).uniform(0.0002, 0.003, count)
    before = signal.signal(signal.SIGALRM, interrupt)
    gc.disable()  # Python's callbacks of the collector swallow interrupts, with a warning
    try:
        for delay in delays:
            try:
                # Again after 50 ms, since the end of an array may have swallowed the first.
                signal.setitimer(signal.ITIMER_REAL, delay, 0.05)
                while True:
                    act()
            except (KeyboardInterrupt, Exception) as error:
                signal.setitimer(signal.ITIMER_REAL, 0)
                # JAX 0.8 catches everything where it asks an array for its type, and raises this
                # instead; where it compares keys of a cache JAX 0.12 still does, with the traceback
                # in the message.
                words = ("couldn't apply typeof", "KeyboardInterrupt")
                is_ours = isinstance(error, KeyboardInterrupt)
                if not is_ours and not any(text in str(error) for text in words):
                    raise
            check()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        gc.enable()
        signal.signal(signal.SIGALRM, before)


def compiled(model, donate):
    return nb.jit(lambda: setattr(model, "v", model.v + 1), donate=donate)


def add_one(model):
    model.v = model.v + 1


def tracked(model):
    with nb.track(model):
        add_one(model)


ACTS = {
    "compiled": lambda m: compiled(m, donate=False),
    "donated": lambda m: compiled(m, donate=True),
    "v": lambda m: lambda: add_one(m),
    "state": lambda m: lambda: m.load_state_dict({k: a + 1 for k, a in m.state_dict().items()}),
    "track": lambda m: lambda: tracked(m),
    "grad": lambda m: lambda: nb.grad(lambda x: (add_one(m), x.sum())[1])(jnp.ones(3)),
}


# Python swallows what a handler raises inside the callback of a weak reference, and warns.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    ("what", "count"),
    [
        *((what, 300 if what in ("compiled", "donated") else 100) for what in ACTS),
        pytest.param("donated", 3000, marks=pytest.mark.long),
    ],
)
def test_signals_never_lose_or_divide_a_commit(what, count):
    model = Twin(3)

    def check():
        assert len({item(part._value) for part in model.parts}) == 1
        assert_nothing_is_open()

    signals(ACTS[what](model), check, count)
