"""`track_submod_rets`, `track_submod_call_order` and `expected_submod_rets`: on one call, compiled
or not, of any module.
"""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb
from tests.calls.test_track import WAYS

BLOCKS = [f"blocks__{i}{part}" for i in (0, 1) for part in ("__lin", "__act", "")]
KEYS = ["stem", *BLOCKS, "head"]


@pytest.mark.parametrize("way", WAYS)
def test_returns_are_listed_by_submodule_as_they_first_returned(way, net, x, hand):
    WAYS[way](lambda x: net(x, track_submod_rets=True))(x)
    assert list(net.submod_rets) == KEYS
    wanted: dict[str, list] = {}
    for path, value in hand(net, x):
        wanted.setdefault(path.replace(".", "__"), []).append(value)
    for key, returns in net.submod_rets.items():
        assert len(returns) == len(wanted[key]) == (2 if key.endswith("act") else 1)
        for found, value in zip(returns, wanted[key]):
            if way == "eager":
                np.testing.assert_array_equal(found, value)
            np.testing.assert_allclose(np.reshape(found, value.shape), value, rtol=1e-5, atol=1e-6)


TRANSFORMED = {
    "nb.jit": lambda net: nb.jit(nb.jit(net)),
    "nb.vmap": lambda net: nb.vmap(nb.jit(net)),
    "nb.checkpoint": nb.checkpoint,
}


@pytest.mark.parametrize("transform", TRANSFORMED)
def test_an_option_of_a_call_is_given_where_the_module_is_called(transform, net, x):
    name = transform.replace(".", r"\.")
    with pytest.raises(
        nb.ArgumentTypeError,
        match=rf"{name} takes arguments of forward; track_submod_rets= .*{name}\(lambda x: model\(",
    ):
        TRANSFORMED[transform](net)(x, track_submod_rets=True)


UNTRACKED = {
    "eager": lambda net: net,
    "v=": lambda net: lambda x: net(x, v=net.v),
    "jit of a call": lambda net: nb.jit(lambda x: net(x)),
    "jit of an argument": lambda net: functools.partial(nb.jit(lambda net, x: net(x)), net),
    "grad in jit": lambda net: nb.jit(lambda x: nb.grad(lambda net: net(x).sum())(net)),
    "jit in jit": lambda net: nb.jit(lambda x: nb.jit(net)(x)),
    "donated": lambda net: nb.jit(lambda x: net(x), donate=True),
    "jit": nb.jit,
    "jit with v=": lambda net: functools.partial(nb.jit(net), v=net.v),
    "vmap": nb.vmap,
}


@pytest.mark.parametrize("way", UNTRACKED)
def test_an_untracked_call_empties_both(way, net, x):
    run = UNTRACKED[way](net)
    for _ in range(3):
        net(x, track_submod_rets=True, track_submod_call_order=True)
        assert (len(net.submod_rets), len(net.submod_call_order)) == (8, 1)
        run(x)
        assert len(net.submod_rets) == len(net.submod_call_order) == 0


def test_the_called_module_is_the_root_also_as_a_part(net, x):
    net.blocks[0](net.stem(x), track_submod_rets=True)
    assert list(net.blocks[0].submod_rets) == ["lin", "act"]
    assert len(net.submod_rets) == 0


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "jit"])
def test_the_order_of_calls_is_nested_with_variables_at_the_bottom(compiled, net, x):
    run = lambda x: net(x, track_submod_call_order=True)
    (nb.jit(run) if compiled else run)(x)
    order = net.submod_call_order.Net_0
    assert list(order) == ["stem_0", "blocks__0_0", "blocks__1_0", "head_0"]
    assert list(order.blocks__0_0) == ["lin_0", "act_0", "act_1"]
    np.testing.assert_array_equal(order.blocks__1_0.lin_0.w, net.blocks[1].lin.weight.value)


BOUNDS = {
    "one level": ({"submod_depth": 1}, ["stem_0", "blocks__0_0", "blocks__1_0", "head_0"]),
    "no level": ({"submod_depth": 0}, []),
    "deep ones": (
        {"submods_to_track": ["blocks.*.act"]},
        [
            *("blocks__0_0", "blocks__0_0/act_0", "blocks__0_0/act_1"),
            *("blocks__1_0", "blocks__1_0/act_0", "blocks__1_0/act_1"),
        ],
    ),
    "a part and what is in it": (
        {"submods_to_track": ["blocks.1", "blocks.1.lin", "head"]},
        ["blocks__1_0", "blocks__1_0/lin_0", "head_0"],
    ),
    "both": (
        {"submods_to_track": ["blocks.1", "blocks.1.lin"], "submod_depth": 1},
        ["blocks__1_0"],
    ),
}


@pytest.mark.parametrize("bounds", BOUNDS)
@pytest.mark.parametrize("way", ["eager", "jit", "grad in jit", "scan"])
def test_the_bounds_of_tracked_returns_bound_the_order_of_calls_too(bounds, way, net, x):
    options, wanted = BOUNDS[bounds]
    WAYS[way](lambda x: net(x, track_submod_rets=True, track_submod_call_order=True, **options))(x)
    assert list(call_chains(net.submod_call_order.Net_0)) == wanted
    keys = {re.sub(r"_\d+(/|$)", r"\1", chain).replace("/", "__") for chain in wanted}
    callers = {"blocks__0", "blocks__1"} if bounds == "deep ones" else set()
    assert set(net.submod_rets) == keys - callers


def call_chains(order, prefix=""):
    """The calls of an order by chain, without the variables at its bottom."""
    for key, below in order.items():
        if isinstance(below, nb.Container) and key.rpartition("_")[2].isdigit():
            yield prefix + key
            yield from call_chains(below, f"{prefix}{key}/")


def test_variables_stand_at_the_bottom_of_a_bounded_order(net, x):
    net(x, track_submod_call_order=True, submod_depth=1)
    block = net.submod_call_order.Net_0.blocks__1_0
    assert block.cont_all_key_chains() == net.blocks[1].v.cont_all_key_chains()


def test_the_rows_of_a_bounded_order_keep_the_levels_of_the_calls(net, x):
    net(x, track_submod_call_order=True, submods_to_track=["blocks.0.lin"])
    rows = net.submod_call_order._facts
    found = {row["path"]: (row["parent"], row["depth"]) for row in rows}
    assert found == {"": (None, 0), "blocks.0": (0, 1), "blocks.0.lin": (1, 2)}


@pytest.mark.parametrize("way", ["eager", "jit", "grad in jit"])
def test_the_first_return_that_differs_is_named(way, net, x):
    net(x, track_submod_rets=True)
    expected = net.submod_rets
    WAYS[way](lambda x: net(x, expected_submod_rets=expected))(x)
    wrong = np.asarray(expected["blocks__1__act"][1]).copy()
    wrong[2, 3] += 0.5
    given = {"blocks__1__act": [None, wrong], "head": 100.0, "unknown": 3}
    with pytest.raises(
        nb.SubmoduleReturnError, match=r'"blocks__1__act", call 1,.*0\.5 at \[2, 3\]'
    ) as caught:
        WAYS[way](lambda x: net(x, expected_submod_rets=given))(x)
    assert (caught.value.path, caught.value.number) == ("blocks__1__act", 1)


def test_tolerances_are_given_for_all_calls_or_for_each(net, x):
    net(x, track_submod_rets=True)
    near = [np.asarray(value) + 0.01 for value in net.submod_rets["blocks__0__act"]]
    net(x, expected_submod_rets={"blocks__0__act": {"val": near, "atol": 0.02}})
    net(x, expected_submod_rets={"blocks__0__act": {"val": near, "atol": [0.02, 0.02], "rtol": 0}})
    with pytest.raises(nb.SubmoduleReturnError, match="call 1"):
        net(x, expected_submod_rets={"blocks__0__act": {"val": near, "atol": [0.02]}})
    with pytest.raises(nb.SubmoduleReturnError, match=r"has shape \[5, 2\], expected was \[5, 3\]"):
        net(x, expected_submod_rets={"head": np.zeros((5, 3))})


def test_expectations_that_make_no_sense_are_refused_before_anything_runs(net, x):
    with pytest.raises(nb.ArgumentError, match="there is no \"val\" among 'atol'"):
        net(x, expected_submod_rets={"stem": {"atol": 1.0}})


@pytest.mark.not_under("eager", reason="nothing is traced")
def test_traced_expectations_are_refused(net, x):
    with pytest.raises(nb.ArgumentError, match="holds traced arrays"):
        nb.jit(lambda x, e: net(x, expected_submod_rets=e))(x, {"stem": jnp.ones((5, 4))})


def test_an_exception_leaves_what_was_recorded(net):
    with pytest.raises(nb.ShapeError):
        net.blocks[0](jnp.ones((2, 7)), track_submod_rets=True, track_submod_call_order=True)
    assert list(net.blocks[0].submod_call_order.Block_0) == ["lin_0"]

    class Breaks(nb.Module):
        def __init__(self):
            self.first, self.second = nb.Tanh(), nb.Linear(3, 4)

        def forward(self, x):
            return self.second(self.first(x))

    model = Breaks()
    with pytest.raises(nb.ShapeError):
        model(jnp.ones((2, 7)), track_submod_rets=True)
    assert list(model.submod_rets) == ["first"]
    jax.block_until_ready(model(jnp.ones((2, 3))))
    assert len(model.submod_rets) == 0


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "jit"])
def test_a_return_that_is_expected_and_does_not_come_differs(compiled, net, x):
    def call(x, **expected):
        run = lambda x: net(x, **expected)
        return (nb.jit(run) if compiled else run)(x)

    stem = net.stem(x)
    call(x, expected_submod_rets={"stem": [stem, None], "spare": None})
    with pytest.raises(
        nb.SubmoduleReturnError, match='Net: "stem" returned 1 time, expected were 2 returns'
    ):
        call(x, expected_submod_rets={"stem": [stem, stem]})
    near = {"val": np.asarray(stem) + 0.1, "atol": jnp.float32(0.2), "rtol": [None]}
    call(x, expected_submod_rets={"stem": near})


def test_a_text_is_refused_as_a_replaced_return(net, x):
    with pytest.raises(
        nb.ArgumentTypeError,
        match="a return for Linear must be an array, a number, .*got 'some text'",
    ):
        net(x, replace_submod_rets={"stem": "some text"})


@pytest.mark.not_under("eager", reason="nothing is compiled")
def test_a_call_that_falls_back_is_recorded_once(net, x):
    class Falling(nb.Module):
        def __init__(self):
            super().__init__(fallback_to_non_compiled=True)
            self.act, self.other = nb.Tanh(), nb.ReLU()

        def forward(self, x):
            x = self.act(x)
            return self.other(x) if float(x.sum()) > 0 else x

    model = Falling().compile()
    with pytest.warns(UserWarning, match="runs eagerly"):
        model(x + 1, track_submod_rets=True, track_submod_call_order=True)
    np.testing.assert_allclose(model.submod_rets["act"][0], np.tanh(x + 1), rtol=1e-5)
    assert list(model.submod_rets) == ["act", "other"]
    assert list(model.submod_call_order["Falling_0"]) == ["act_0", "other_0"]
