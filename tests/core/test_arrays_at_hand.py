"""A compiled function that only reads has the arrays of its last call at hand: they are those of now, and keep nothing alive."""

from __future__ import annotations

import gc
import tempfile
import threading
import weakref

import jax.numpy as jnp
import pytest

import nbmodule as nb
from nbmodule.optim.rate import Asked

THREES = jnp.full((2, 2), 3.0)


def by_a_thread(model):
    thread = threading.Thread(target=lambda: setattr(model.weight, "value", THREES))
    thread.start()
    thread.join()


def by_a_file(model):
    with tempfile.TemporaryDirectory() as folder:
        nb.save(f"{folder}/w.h5", {"weight": THREES})
        model.load_weights(f"{folder}/w.h5")


def by_an_optimizer(model):
    rule = nb.SGD(1.0)
    nb.jit(lambda: rule.update(model, model.v - 3.0))()


WRITES = {
    "the box": lambda model: setattr(model.weight, "value", THREES),
    "one by one": lambda model: [model.weight.__setitem__(i, 3.0) for i in range(2)],
    "all of them": lambda model: setattr(model, "v", model.v * 0 + 3.0),
    "a step": lambda model: nb.jit(lambda m: setattr(m, "v", m.v * 0 + 3.0))(model),
    "a donated step": lambda model: nb.jit(lambda m: setattr(m, "v", m.v * 0 + 3.0), donate=True)(model),
    "a state dict": lambda model: model.load_state_dict({"weight": THREES}),
    "another box": lambda model: setattr(model, "weight", nb.Parameter(THREES)),
    "a thread": by_a_thread,
    "a file": by_a_file,
    "an optimizer": by_an_optimizer,
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_what_only_reads_sees_each_new_value_at_its_next_call(write):
    model = nb.Linear(2, 2, bias=False)
    model.weight.value = jnp.ones((2, 2))
    given, held = nb.jit(lambda m: m.weight.value.sum()), nb.jit(lambda: model.weight.value.sum())
    assert [given(model) for _ in range(3)] == [held() for _ in range(3)] == [4, 4, 4]
    write(model)
    assert [given(model) for _ in range(3)] == [held() for _ in range(3)] == [12, 12, 12]


def test_a_number_that_a_function_gives_is_asked_for_at_each_call():
    answers = iter(range(10, 99))
    rate = Asked(lambda: next(answers))
    read = nb.jit(lambda: rate.value * 1.0)
    found = [float(read()) for _ in range(6)]
    assert found == sorted(set(found))


def test_what_only_reads_holds_no_large_array_that_was_replaced_and_none_of_a_model_that_is_gone():
    model = nb.Module(w=nb.Parameter(jnp.zeros(2**22 + 1)))
    read = nb.jit(lambda m: m.w.value[0])
    for _ in range(3):
        read(model)
    old = weakref.ref(model.w.value)
    model.w.value = jnp.ones(2**22 + 1)
    gc.collect()
    assert old() is None

    small = nb.Module(w=nb.Parameter(jnp.zeros(3)))
    for _ in range(3):
        read(small)
    old = weakref.ref(small.w.value)
    del small
    gc.collect()
    assert old() is None
