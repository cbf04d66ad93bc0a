"""Costs of tracking, and the costs that it reports: executables, memory, seconds, FLOPs."""

import gc

import jax
import jax.numpy as jnp
import pytest

import nbmodule as nb
from nbmodule import track
from nbmodule.core.compiled.call_record import record_call


def squares(model, x):
    return (model(x) ** 2).sum()


@pytest.mark.not_under("eager", reason="counts what is compiled")
def test_tracking_compiles_once_and_leaves_the_untracked_program_in_place(net, x):
    traces, step = [], nb.jit(lambda x: net(x))
    net.register_forward_hook(lambda *_: traces.append(1))
    step(x)
    before = record_call(step, (x,), {}).program
    for _ in range(2):
        with track(net):
            step(x), step(x)
        step(x)
    assert len(traces) == 2  # once untracked, once tracked
    assert record_call(step, (x,), {}).program == before


def test_the_budget_bounds_what_is_kept(net):
    step = nb.jit(lambda x: net(x))
    with track(net, budget="40kB") as calls:
        for _ in range(10):
            step(jnp.ones((100, 3)))
    assert 0 < len(calls.steps) < 10
    assert calls.nbytes <= 40_000


@pytest.mark.not_under("eager", reason="thousands of steps take minutes where nothing is compiled")
@pytest.mark.parametrize("count", [2000, pytest.param(20_000, marks=pytest.mark.long)])
@pytest.mark.parametrize("around", ["each step", "all steps"])
def test_thousands_of_tracked_steps_do_not_grow(around, count, net, x):
    step = nb.jit(lambda x: nb.grad(squares)(net, x))
    watching = track(net, returns="stats", gradients=True, last=5)

    def run(times):
        if around == "all steps":
            with watching as calls:
                for _ in range(times):
                    step(x)
            return calls
        for _ in range(times):
            with watching as calls:
                step(x)
        return calls

    run(50)
    gc.collect()
    objects, live = len(gc.get_objects()), len(jax.live_arrays())
    calls = run(count)
    assert len(calls.steps) == (5 if around == "all steps" else 1)
    del calls
    gc.collect()
    assert len(jax.live_arrays()) <= live
    assert len(gc.get_objects()) < objects + 200


def test_recorded_values_are_freed_with_the_calls(net, x):
    step = nb.jit(lambda x: net(x))
    step(x)
    gc.collect()
    live = len(jax.live_arrays())
    with track(net, returns=True) as calls:
        y = step(x)
    assert len(jax.live_arrays()) > live + 1
    del calls
    gc.collect()
    assert len(jax.live_arrays()) <= live + 1  # y
    del y


def test_profiling_measures_each_submodule_alone(net, x):
    step = nb.jit(lambda x: net(x))
    with track(net, profile=True) as calls:
        step(x)
    assert all(call.seconds > 0 and call.start is None for call in calls)
    assert calls["blocks.0.act"].seconds == calls["blocks.0.act", 1].seconds


def test_estimated_flops_are_those_of_the_compiler(net, x):
    with track(net) as calls:
        nb.jit(lambda x: net(x))(x)
    calls.estimate()
    lowered = jax.jit(lambda w, b, x: x @ w.T + b).lower(
        net.stem.weight.value, net.stem.bias.value, x
    )
    assert calls["stem"].flops == lowered.cost_analysis()["flops"]
    assert calls[0].flops > sum(
        call.flops for call in calls if call.depth == 1 and call.class_name == "Linear"
    )
