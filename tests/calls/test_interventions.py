"""`replace_submod_rets`, `nb.patch`, and hooks: what a submodule returns is replaced, compiled or
not.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb
from nbmodule import track
from nbmodule.interventions.patch import patch

from jax_settings import FLOAT


def rest(net, h, start=0):
    for block in net.blocks[start:]:
        h = block(h)
    return net.head(h)


def double(x):
    return 2 * x


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "jit"])
@pytest.mark.parametrize(
    "instead",
    [lambda h: jnp.full_like(h, 0.3), lambda h: 0.0, lambda h: double],
    ids=["array", "number", "function"],
)
def test_a_return_is_replaced(instead, compiled, net, x):
    h = net.stem(x)
    given = instead(h)
    wanted = rest(net, given(h) if callable(given) else jnp.broadcast_to(given, h.shape))
    run = lambda x: net(x, replace_submod_rets={"stem": given})
    run = nb.jit(run) if compiled else run
    np.testing.assert_allclose(run(x), wanted, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(run(x), wanted, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(net(x), rest(net, h), rtol=1e-5)


@pytest.mark.not_under("eager", reason="counts what is compiled")
def test_arrays_are_inputs_and_functions_are_static(net, x):
    traces = []
    net.head.register_forward_hook(lambda module, given, out: traces.append(1))
    net.compile()
    for i in range(3):
        net(x, replace_submod_rets={"stem": jnp.full((5, 4), float(i))})
        net(x, replace_submod_rets={"blocks.0": double})
    assert len(traces) == 2


def test_globs_name_several(net, x):
    found = net(x, replace_submod_rets={"blocks.*.act": 0.0})
    np.testing.assert_allclose(found, net.head(net.stem(x)), rtol=1e-6)


def test_whole_trees_are_replaced(x):
    class Pair(nb.Module):
        def forward(self, x):
            return x, {"b": 2 * x}

    class Sum(nb.Module):
        def __init__(self):
            self.pair = Pair()

        def forward(self, x):
            a, rest = self.pair(x)
            return a + rest["b"]

    found = Sum()(x, replace_submod_rets={"pair": (x * 0, {"b": x + 1})})
    np.testing.assert_array_equal(found, x + 1)


def test_another_shape_is_refused(net, x):
    with pytest.raises(
        nb.ShapeError, match=rf"Linear returns {FLOAT}\[5, 4\], got {FLOAT}\[2, 2\]"
    ):
        net(x, replace_submod_rets={"stem": jnp.ones((2, 2))})


def test_unknown_paths_name_the_closest_one(net, x):
    with pytest.raises(nb.PathError, match='closest path is "blocks.0.act"'):
        net(x, replace_submod_rets={"blocks.0.akt": 0.0})


def replaced(net, x):
    return lambda h: net(x, replace_submod_rets={"stem": h})


@pytest.mark.parametrize("compiled", [False, True], ids=["", "compiled"])
@pytest.mark.parametrize(
    ("run", "wanted"),
    [
        (lambda net, x: nb.jit(replaced(net, x)), rest),
        (
            lambda net, x: nb.grad(lambda h: replaced(net, x)(h).sum()),
            lambda net, h: jax.grad(lambda h: rest(net, h).sum())(h),
        ),
        (lambda net, x: lambda h: nb.jit(lambda x: replaced(net, x)(h))(x), rest),
    ],
    ids=["in a program", "in a gradient", "from outside of a program"],
)
@pytest.mark.not_under("eager", reason="nothing is traced")
def test_traced_replacements_leave_no_traced_value(run, wanted, compiled, net, x):
    h = jnp.full((5, 4), 0.1)  # weakly typed: a buffer of it is converted in the trace
    wanted = wanted(net, h)
    if compiled:
        net.compile()
    with jax.checking_leaks():
        call = run(net, x)
        found = [call(h), call(h)]
    np.testing.assert_allclose(found, [wanted] * 2, rtol=1e-5)


def test_a_patch_puts_the_clean_return_into_the_corrupt_run(net, x):
    found = patch(net, x, x + 1, "blocks.0")
    np.testing.assert_allclose(found.clean, net(x), rtol=1e-6)
    np.testing.assert_allclose(found.corrupt, net(x + 1), rtol=1e-6)
    np.testing.assert_allclose(
        found.patched, net(x), rtol=1e-5
    )  # everything passes through the block
    net.compile()
    np.testing.assert_allclose(
        patch(net, x, x + 1, net.blocks[0]).patched, found.patched, rtol=1e-5
    )


def test_a_patch_of_a_submodule_that_runs_twice_or_never_is_refused(net, x):
    with pytest.raises(nb.ArgumentError, match='"blocks.0.act" runs 2 times in one call'):
        patch(net, x, x + 1, "blocks.0.act")
    with pytest.raises(nb.PathError, match='"spare" did not run'):
        patch(net, x, x + 1, "spare")


def test_interventions_are_seen_by_tracking(net, x):
    with track(net) as calls:
        net(x, replace_submod_rets={"stem": 0.0})
    assert not np.any(calls["stem"].returns)


def test_interventions_on_one_submodule_add_up_the_outermost_first():
    model = nb.Sequential(nb.Identity(), nb.Identity())
    with nb.patch(model, {"0": nb.scale_by(2.0)}):
        found = model(jnp.ones(2), replace_submod_rets={"0": lambda x: x + 1})
    np.testing.assert_array_equal(found, [3.0, 3.0])
