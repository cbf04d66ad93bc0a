"""A compiled function that only reads may keep the arrays of its last call: it sees each new value,
and keeps nothing alive.
"""

from __future__ import annotations

import gc
import threading
import types
import weakref

import jax
import jax.numpy as jnp
import pytest

import nbmodule as nb
from nbmodule.optim.rate import FunctionRate

THREES = jnp.full((2, 2), 3.0)


def write_in_a_thread(model):
    thread = threading.Thread(target=lambda: setattr(model.weight, "value", THREES))
    thread.start()
    thread.join()


def update_by_an_optimizer(model):
    rule = nb.SGD(1.0)
    nb.jit(lambda: rule.update(model, model.v - 3.0))()


def set_all(model):
    model.v = model.v * 0 + 3.0


WRITES = {
    "variable": lambda model: setattr(model.weight, "value", THREES),
    "items": lambda model: [model.weight.__setitem__(i, 3.0) for i in range(2)],
    "all": set_all,
    "step": lambda model: nb.jit(set_all)(model),
    "donated step": lambda model: nb.jit(set_all, donate=True)(model),
    "state dict": lambda model: model.load_state_dict({"weight": THREES}),
    "another variable": lambda model: setattr(model, "weight", nb.Parameter(THREES)),
    "thread": write_in_a_thread,
    "optimizer": update_by_an_optimizer,
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_function_that_only_reads_sees_each_new_value_at_its_next_call(write):
    model = nb.Linear(2, 2, with_bias=False)
    model.weight.value = jnp.ones((2, 2))
    given, held = nb.jit(lambda m: m.weight.value.sum()), nb.jit(lambda: model.weight.value.sum())
    assert [given(model) for _ in range(3)] == [held() for _ in range(3)] == [4, 4, 4]
    write(model)
    assert [given(model) for _ in range(3)] == [held() for _ in range(3)] == [12, 12, 12]


def test_a_rate_that_a_function_returns_is_computed_at_each_call():
    answers = iter(range(10, 99))
    rate = FunctionRate(lambda: next(answers))
    read = nb.jit(lambda: rate.value * 1.0)
    found = [float(read()) for _ in range(6)]
    assert found == sorted(set(found))


@pytest.mark.not_under("eager", reason="nothing is compiled")
@pytest.mark.parametrize("donate", [False, True])
def test_folds_with_fresh_models_and_optimizers_leave_one_without_the_collector(donate):
    @nb.jit(donate=donate)
    def step(model, optimizer, x):
        loss, grads = nb.value_and_grad(lambda m: (m(x) ** 2).mean())(model)
        optimizer.update(model, grads)
        return loss

    def count_bytes():
        return sum(array.nbytes for array in jax.live_arrays() if array.shape == (61, 61))

    x, models = jnp.ones((2, 61)), []
    gc.collect()
    gc.disable()
    try:
        before = count_bytes()
        for _ in range(100):
            model, optimizer = nb.Linear(61, 61, with_bias=False), nb.Adam(1e-3)
            step(model, optimizer, x)
            models.append(weakref.ref(model))
        assert sum(model() is not None for model in models) == 1
        assert count_bytes() - before == 3 * model.weight.value.nbytes  # with two slots of Adam
        del model, optimizer
        assert count_bytes() == before
    finally:
        gc.enable()


@pytest.mark.not_under("eager", reason="nothing is traced")
def test_numbers_stored_next_to_a_model_do_not_trace_again():
    traces, x = [], jnp.ones(3)
    state = types.SimpleNamespace(model=nb.Linear(3, 2), losses=[])
    step = nb.jit(lambda x: (traces.append(1), state.model(x).sum())[1])
    for i in range(4):
        state.losses.append(step(x))
        setattr(state, f"loss{i}", step(x))
    assert len(traces) == 1


@pytest.mark.not_under("eager", reason="nothing is traced")
def test_a_model_added_to_a_dict_of_numbers_is_noticed():
    nets = {"a": nb.Linear(3, 2), "loss": 1.0}
    total = nb.jit(lambda x: sum(m(x).sum() for m in nets.values() if isinstance(m, nb.Module)))
    x = jnp.ones(3)
    total(x)
    nets["b"] = nb.Linear(3, 2)
    assert float(total(x)) == pytest.approx(float((nets["a"](x) + nets["b"](x)).sum()), rel=1e-5)
