"""`nb.track` around any code: what is recorded, in which order, under which path, at what cost."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb
from nbmodule import tap, track

from jax_settings import FLOAT


def squares(model, x):
    return (model(x) ** 2).sum()


# Transforms of a call; `LIFTED` says which of them stack the values.
WAYS = {
    "eager": lambda call: call,
    "jit": lambda call: nb.jit(lambda x: call(x)),
    "jit in jit": lambda call: nb.jit(nb.jit(lambda x: call(x))),
    "grad": lambda call: nb.grad(lambda x: (call(x) ** 2).sum()),
    "grad in jit": lambda call: nb.jit(nb.grad(lambda x: (call(x) ** 2).sum())),
    "checkpoint": lambda call: nb.grad(nb.checkpoint(lambda x: call(x).sum())),
    "cond": lambda call: lambda x: nb.cond(True, lambda x: call(x), lambda x: x[:, :2], x),
    "vmap": lambda call: nb.vmap(lambda row: call(row)),
    "scan": lambda call: lambda x: nb.scan(lambda c, row: (c, call(row)), 0, x),
    "scan in jit": lambda call: nb.jit(lambda x: nb.scan(lambda c, row: (c, call(row)), 0, x)),
    "vmap of scan": lambda call: nb.vmap(
        lambda row: nb.scan(lambda c, r: (c, call(r)), 0, row[None])
    ),
}
LIFTED = {
    "vmap": "vmap 5",
    "scan": "scan 5",
    "scan in jit": "scan 5",
    "vmap of scan": "scan 1, vmap 5",
}


@pytest.mark.parametrize("way", [*WAYS, "v="])
def test_every_return_equals_the_computation_by_hand(way, net, x, hand):
    run, wanted = WAYS.get(way, lambda call: lambda x: call(x, v=net.v))(net), hand(net, x)
    with track(net) as calls:
        run(x)
    assert [call.path for call in calls] == [path for path, _ in wanted]
    assert {", ".join(call.lifted) for call in calls} == {LIFTED.get(way, "")}
    for call, (_, value) in zip(calls, wanted):
        if way == "eager":
            np.testing.assert_array_equal(call.returns, value)
        returns = np.reshape(call.returns, value.shape)
        np.testing.assert_allclose(returns, value, rtol=1e-5, atol=1e-6)


def test_calls_know_parent_index_depth_and_shapes(net, x):
    with track(net) as calls:
        net(x)
    first, second = calls[0], calls["blocks.0.act", 1]
    assert (second.index, second.depth) == (1, 2)
    assert (second.parent.path, second.parent.parent.path) == ("blocks.0", "")
    assert first.parent is None
    assert (first.input_shapes, first.return_shapes) == (f"{FLOAT}[5, 3]", f"{FLOAT}[5, 2]")
    assert calls["blocks.1.act"].index == 0
    assert calls.not_called == ("spare",)


def test_returns_may_be_any_pytree(x):
    class Odd(nb.Module):
        def forward(self, x):
            return {
                "a": (x, None),
                "text": "hello",
                "n": 3,
                "key": jax.random.key(0),
                "flag": x > 0,
            }

    class Outer(nb.Module):
        def __init__(self):
            self.odd = Odd()

        def forward(self, x):
            return self.odd(x)["a"][0]

    model = Outer()
    for run in (model, nb.jit(lambda x: model(x))):
        with track(model) as calls:
            run(x)
        found = calls["odd"].returns
        assert (found["text"], found["n"], found["a"][1]) == ("hello", 3, None)
        np.testing.assert_array_equal(found["flag"], x > 0)
        assert model(x, track_submod_rets=True) is not None
        assert model.submod_rets["odd"][0]["text"] == "hello"


def test_depth_and_only_choose_what_is_listed(net, x):
    with track(net, depth=1) as calls:
        net(x)
    assert calls.paths == ("", "stem", "blocks.0", "blocks.1", "head")
    with track(net, only=["blocks.*", net.head], depth=1) as calls:
        net(x)
    assert calls.paths == ("blocks.0", "blocks.1", "head")
    with track(net, only="blocks.1.act") as calls:
        net(x)
    assert [(call.path, call.parent) for call in calls] == [("blocks.1.act", None)] * 2


def test_without_order_calls_are_listed_as_they_returned(net, x):
    with track(net, order=False) as calls:
        net(x)
    parts = ["blocks.0.lin", "blocks.0.act", "blocks.0.act", "blocks.0"]
    assert [call.path for call in calls][:5] == ["stem", *parts]
    assert calls[-1].path == ""
    assert {call.parent for call in calls} == {None}


def test_each_outermost_call_is_a_step_and_the_last_ones_are_kept(net, x):
    step = nb.jit(lambda x: net(x))
    with track(net, last=3) as calls:
        for i in range(10):
            step(x * i)
    assert calls.steps == (7, 8, 9)
    np.testing.assert_allclose(calls.step(8)["head"].returns, net(x * 8), rtol=1e-5)
    np.testing.assert_allclose(calls.step(-1)["head"].returns, net(x * 9), rtol=1e-5)
    assert "the last 3 of 10 steps are kept" in repr(calls)
    with pytest.raises(nb.PathError, match="no step 2; the nearest is 7, kept are 7, 8, 9"):
        calls.step(2)


def test_look_ups_by_path_number_glob_and_condition(net, x):
    with track(net) as calls:
        net(x)
        net(x)
    assert calls["head"] is calls["head", 0]
    assert (calls["head", 1].step, calls["head", -1].step) == (1, 1)
    assert calls["blocks.*.act"].paths == ("blocks.0.act", "blocks.1.act")
    found = calls.find(lambda c: c.class_name == "Linear" and c.step == 0)
    assert [c.path for c in found] == ["stem", "blocks.0.lin", "blocks.1.lin", "head"]
    assert [c.path for c in calls[1:3]] == ["stem", "blocks.0"]


def test_the_texts_of_calls_say_the_keys_that_find_them(net, x):
    with track(net) as calls:
        net(x)
    keys = re.findall(r'^ +("[^:]*?)(?: Net)?:', repr(calls), re.MULTILINE)
    assert [eval(f"calls[{key}]", {"calls": calls}) for key in keys] == list(calls)
    assert 'calls["blocks.0.act", 1] is the second call of "blocks.0.act"' in str(calls)


def test_unknown_paths_name_the_closest_one(net, x):
    with track(net) as calls:
        net(x)
    with pytest.raises(
        nb.PathError, match=r'no call of "blocks.1.akt".*closest name is "blocks.1.act"'
    ):
        calls["blocks.1.akt"]
    with pytest.raises(nb.PathError, match='"spare" was not called'):
        calls["spare"]
    with pytest.raises(nb.PathError, match=r'"head" was called 1 times.*no call 3'):
        calls["head", 3]
    with pytest.raises(nb.PathError, match=r'no submodule "blok\.0".*closest path is "blocks\.0"'):
        track(net, only="blok.0")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"returns": "all"}, "returns must be True, False or 'stats'"),
        ({"returns": False, "order": False}, "records nothing"),
        ({"depth": -1}, "depth must be None or at least 0"),
        ({"last": 0}, "last must be at least 1"),
        ({"budget": "many"}, "budget must be a positive number of bytes"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(options, message, net):
    with pytest.raises(nb.ArgumentError, match=message):
        track(net, **options)


def test_only_modules_are_tracked():
    with pytest.raises(nb.ArgumentTypeError, match="follows a module.*, got function"):
        track(lambda x: x)


def test_inside_a_compiled_function_the_context_is_refused(net, x):
    @nb.jit
    def step(x):
        with track(net):
            return net(x)

    with pytest.raises(nb.TraceError, match="around the call of the compiled function"):
        step(x)


@pytest.mark.parametrize("way", ["eager", "jit", "grad", "scan"])
def test_an_exception_leaves_what_was_recorded_and_marks_the_failing_call(way, net):
    def run(x):
        return (
            net(x) if x.shape[-1] == 3 else net.head(net.stem(jnp.ones((2, 3))) @ jnp.ones((4, 7)))
        )

    with pytest.raises(nb.ShapeError), track(net) as calls:
        WAYS[way](run)(jnp.ones((2, 7)))
    assert [(call.path, bool(call.error)) for call in calls] == [("stem", False), ("head", True)]
    assert calls.failed.input_shapes == f"{FLOAT}[2, 7]"
    assert "ShapeError" in calls.failed.error
    if way == "eager":
        np.testing.assert_array_equal(calls["stem"].returns, net.stem(jnp.ones((2, 3))))
    with track(net) as after:
        net(jnp.ones((2, 3)))
    assert len(after) == 11  # nothing of it is left behind


def test_an_interruption_closes_the_open_calls(x):
    class Stops(nb.Module):
        def forward(self, x):
            raise KeyboardInterrupt

    model = nb.Sequential(nb.Tanh(), Stops())
    with pytest.raises(KeyboardInterrupt), track(model) as calls:
        model(x)
    errors = {call.path: call.error for call in calls}
    assert errors == {"": "KeyboardInterrupt", "0": "", "1": "KeyboardInterrupt"}


def test_calls_under_a_raw_transform_are_listed_without_values(net, x):
    step = nb.jit(
        lambda x: net.stem(x) + jax.vmap(lambda row: net.blocks[0].act(row))(jnp.ones((5, 4)))
    )
    with track(net) as calls:
        step(x)
    assert {call.path: call.captured for call in calls} == {"stem": True, "blocks.0.act": False}
    assert calls["blocks.0.act"].returns is None
    assert [repr(call).count("(not captured)") for call in calls] == [0, 1]
    assert repr(calls).count("(not captured)") == 1
    assert "calls marked 'not captured'" in str(calls) and "from nbmodule" in " ".join(calls.notes)


def test_nested_trackers_record_their_own_model(net, x):
    step = nb.jit(lambda x: net(x))
    with track(net, returns="stats") as outer:
        with track(net.blocks[0]) as inner:
            step(x)
        net(x, track_submod_rets=True)
    assert len(outer) == 22
    assert outer["head"].returns is None
    assert outer["head"].statistics is not None
    assert inner.paths == ("", "lin", "act")
    np.testing.assert_allclose(inner["act"].returns, net.submod_rets.blocks__0__act[0], rtol=1e-5)


@pytest.mark.not_under("eager", reason="nothing is compiled")
def test_inputs_are_kept_in_eager_code_and_on_request_in_compiled_code(net, x):
    step = nb.jit(lambda x: net(x))
    with track(net) as eager:
        net(x)
    with track(net) as shapes:
        step(x)
    with track(net, inputs=True) as kept:
        step(x)
    np.testing.assert_array_equal(eager["stem"].inputs[0], x)
    assert shapes["stem"].inputs is None
    np.testing.assert_array_equal(kept["stem"].inputs[0], x)
    np.testing.assert_allclose(kept["blocks.1"].inputs[0], kept["blocks.0"].returns)


def test_taps_record_named_values(x):
    class Attends(nb.Module):
        def __init__(self):
            self.lin = nb.Linear(3, 3)

        def forward(self, x):
            return tap(self.lin(x) ** 2, "scores") + 1

    model = nb.Sequential(Attends())
    plain = nb.jit(lambda x: model(x))
    np.testing.assert_allclose(plain(x), model(x), rtol=1e-6)
    for run in (model, nb.jit(lambda x: model(x)), lambda x: nb.grad(squares)(model, x)):
        with track(model, gradients=True) as calls:
            run(x)
        np.testing.assert_allclose(calls["0.scores"].returns, model(x) - 1, rtol=1e-5, atol=1e-6)
        assert calls["0.scores"].kind == "tap"
    np.testing.assert_allclose(calls["0.scores"].gradient, 2 * model(x), rtol=1e-5)
