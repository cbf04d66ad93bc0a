"""Stacks of modules: mapped and scanned over, what their rows write is in the stack afterwards."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb

from jax_settings import FLOAT

X = jnp.arange(24.0).reshape(2, 4, 3) / 24


def stack_of(members):
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *members)


def differentiated(fn):
    """`fn`, run for the gradient of its sum by its first argument."""
    return lambda *args: nb.grad(
        lambda *args: sum(leaf.sum() for leaf in jax.tree.leaves(fn(*args)))
    )(*args)


OUTSIDE = {
    "eager": lambda fn: fn,
    "jit": nb.jit,
    "grad": differentiated,
    "both": lambda fn: nb.jit(differentiated(fn)),
}


@pytest.mark.parametrize("outside", OUTSIDE)
def test_statistics_of_mapped_norms_are_those_of_each_norm_alone(outside):
    members = [nb.BatchNorm1d(3) for _ in range(2)]
    stack = stack_of(members)
    run = OUTSIDE[outside](lambda stack, x: nb.vmap(lambda norm, x: norm(x))(stack, x))
    for _ in range(2):
        run(stack, X)
        for member, x in zip(members, X):
            member(x)
    np.testing.assert_allclose(
        stack.running_mean.value, np.stack([m.running_mean for m in members]), rtol=1e-5
    )
    np.testing.assert_allclose(
        stack.running_var.value, np.stack([m.running_var for m in members]), rtol=1e-5
    )


@pytest.mark.parametrize("outside", OUTSIDE)
@pytest.mark.parametrize("reverse", [False, True])
def test_statistics_of_scanned_norms_are_those_of_each_norm_in_its_turn(outside, reverse):
    members = [nb.BatchNorm1d(3) for _ in range(3)]
    stack = stack_of(members)
    run = OUTSIDE[outside](
        lambda stack, x: nb.scan(lambda c, norm: (norm(c) + 1, None), x, stack, reverse=reverse)[0]
    )
    run(stack, X[0])
    carry = X[0]
    for member in reversed(members) if reverse else members:
        carry = member(carry) + 1
    np.testing.assert_allclose(
        stack.running_mean.value, np.stack([m.running_mean for m in members]), rtol=1e-5, atol=1e-6
    )


def test_streams_of_a_stack_of_dropouts_move_on():
    stack = stack_of([nb.Dropout(0.5, key=i) for i in range(3)])
    before = np.asarray(stack.stream.state.value)
    first, second = (nb.vmap(lambda layer: layer(jnp.ones(32)))(stack) for _ in range(2))
    np.testing.assert_array_equal(np.asarray(stack.stream.state.value) - before, [[0, 0, 2]] * 3)
    assert len({tuple(row) for row in np.concatenate([first, second]).tolist()}) == 6


@pytest.mark.parametrize("outside", [lambda fn: fn, nb.jit], ids=["eager", "jit"])
def test_a_step_of_each_member_trains_the_stack(outside):
    stack = stack_of([nb.Module(w=nb.Parameter(float(i))) for i in range(3)])

    def step(member, target):
        member.v = member.v - 0.5 * nb.grad(lambda m: (m.w - target) ** 2)(member)
        return member.w * 1

    values = outside(lambda stack, x: nb.vmap(step)(stack, x))(stack, jnp.array([5.0, 6.0, 7.0]))
    np.testing.assert_allclose(values, [5.0, 6.0, 7.0])
    np.testing.assert_allclose(stack.w.value, [5.0, 6.0, 7.0])


def write_first(tree):
    tree["m"].a[0] = tree["x"]
    return tree["x"]


def test_rows_lie_along_the_axis_that_was_given():
    model, x = nb.Module(a=nb.Buffer(jnp.zeros((3, 2)))), jnp.array([1.0, 2.0])
    for axes in ((1,), ({"m": 1, "x": 0},), ({"m": -1, "x": 0},)):
        model.a.value = jnp.zeros((3, 2))
        if axes == (1,):
            nb.vmap(lambda m, x: write_first({"m": m, "x": x}), in_axes=(1, 0))(model, x)
        else:
            nb.vmap(write_first, in_axes=axes)({"m": model, "x": x})
        np.testing.assert_array_equal(model.a.value, [[1, 2], [0, 0], [0, 0]])
    named = nb.Module(a=nb.Buffer(jnp.zeros((2, 3))))
    nb.vmap(lambda m, x: write_first({"m": m, "x": x}))(x=x, m=named)
    np.testing.assert_array_equal(named.a.value, [[1, 0, 0], [2, 0, 0]])


def test_a_stack_inside_a_raw_transform_is_left_unchanged():
    stack = stack_of([nb.BatchNorm1d(3) for _ in range(2)])
    with pytest.raises(nb.TracerLeakError, match="is unchanged"):
        jax.eval_shape(lambda x: nb.vmap(lambda norm, x: norm(x))(stack, x), X)
    np.testing.assert_array_equal(stack.running_mean.value, np.zeros((2, 3)))


# -- models made inside --
class Late(nb.Module):
    """Builds at its first call."""

    def __init__(self):
        super().__init__(build_mode="on_call")

    def _build(self, x):
        self.inner = nb.Linear(x.shape[-1], 2)

    def _forward(self, x):
        return self.inner(x)


MAKES = {
    "Linear": lambda: nb.Linear(3, 2).weight(),
    "late": lambda: Late()(jnp.ones(3)),
    "Embedding": lambda: nb.Embedding(4, 3, padding_idx=0).weight()[1:],
    "Sequential": lambda: nb.Sequential(nb.Linear(3, 3), nb.BatchNorm1d(3), nb.Linear(3, 2))[
        2
    ].weight(),
    "SpectralNorm": lambda: nb.SpectralNorm(nb.Linear(3, 2)).left(),
}


@pytest.mark.parametrize("make", ["Linear", "late", "Embedding", "Sequential"])
def test_models_made_in_jit_and_scan_are_those_made_one_after_another(make):
    make = MAKES[make]
    nb.seed(3)
    alone = [make() for _ in range(5)]
    nb.seed(3)
    compiled = nb.jit(make)
    inside = [compiled(), compiled(), *nb.scan(lambda c, _: (c, make()), 0.0, length=2)[1], make()]
    np.testing.assert_allclose(inside, alone, rtol=1e-5, atol=1e-6)
    assert len({tuple(np.ravel(value).tolist()) for value in inside}) == 5


@pytest.mark.parametrize("outside", [lambda fn: fn, nb.jit], ids=["eager", "jit"])
@pytest.mark.parametrize("make", MAKES)
def test_models_made_in_vmap_differ_from_row_to_row_and_from_call_to_call(make, outside):
    run = outside(lambda: nb.vmap(lambda _: MAKES[make]())(jnp.arange(3)))
    rows = [tuple(np.ravel(row).tolist()) for _ in range(2) for row in run()]
    assert len(set(rows)) == 6


def test_tracing_a_function_that_makes_a_model_does_not_advance_the_stream():
    nb.seed(0)
    expected = nb.Linear(3, 3).weight()
    nb.seed(0)
    nb.eval_shape(MAKES["Linear"])
    nb.make_jaxpr(MAKES["Linear"])()
    with pytest.raises(ZeroDivisionError):
        nb.jit(lambda: (nb.Linear(3, 3), 1 // 0))()
    np.testing.assert_array_equal(nb.Linear(3, 3).weight(), expected)


def test_a_layer_that_a_model_makes_in_its_first_compiled_call_is_its_own():
    class Lazy(nb.Module):
        layer = None

        def forward(self, x):
            if self.layer is None:
                self.layer = nb.Sequential(nb.Embedding(4, 3, padding_idx=0), nb.BatchNorm1d(3))
            return self.layer(x)

    model, x = Lazy(), jnp.arange(4)
    first = nb.jit(lambda x: model(x))(x)
    assert not any(isinstance(variable.value, jax.core.Tracer) for variable in model.tensors())
    np.testing.assert_array_equal(model.layer[0].weight()[0], np.zeros(3))
    np.testing.assert_allclose(model(x), first, rtol=1e-5)


# -- stack --
@pytest.mark.parametrize("x64", [False, True])
@pytest.mark.parametrize("compiled", [False, True])
def test_a_stack_has_the_members_that_are_made_one_after_another(compiled, x64):
    with jax.enable_x64(x64):
        make = lambda: nb.Sequential(nb.Linear(3, 4), nb.BatchNorm1d(4), nb.Linear(4, 2))
        nb.seed(1)
        members = [make() for _ in range(3)]
        nb.seed(1)
        stack = (nb.jit if compiled else lambda fn: fn)(lambda: nb.stack(make, 3))()
        for name, array in stack.state_dict().items():
            np.testing.assert_allclose(
                array, [m.state_dict()[name] for m in members], rtol=1e-5, atol=1e-6
            )
            assert array.dtype == members[0].state_dict()[name].dtype
        x = jnp.array(np.asarray(X[0]))
        out = nb.vmap(lambda m, x: m(x), in_axes=(0, None))(stack.eval(), x)
        np.testing.assert_allclose(out, [m.eval()(x) for m in members], rtol=1e-4, atol=1e-6)


def test_members_that_cannot_be_stacked_are_refused():
    sizes = iter([2, 3])
    with pytest.raises(
        nb.StructureError, match=rf"the first has \.bias {FLOAT}\[2\], another \.bias {FLOAT}\[3\]"
    ):
        nb.stack(lambda: nb.Linear(3, next(sizes)), 2)
    with pytest.raises(nb.NotBuiltError, match="Late has no variables yet.*inside make"):
        nb.stack(Late, 2)
    with pytest.raises(nb.ArgumentError, match="at least 1, got 0"):
        nb.stack(Late, 0)
    with pytest.raises(nb.ArgumentError, match="must return a module, got int"):
        nb.stack(lambda: 1, 2)


# -- while_loop --
@pytest.mark.parametrize("outside", [lambda fn: fn, nb.jit], ids=["eager", "jit"])
def test_calls_in_a_while_loop_are_listed_without_their_returns(outside):
    model = nb.Sequential(nb.Linear(2, 2, key=0), nb.ReLU())
    run = outside(
        lambda x: nb.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, model(s[1])), (0, x))[1]
    )
    with nb.track(model, returns=True) as calls:
        run(jnp.ones(2))
    assert [(call.path, call.captured, call.lifted) for call in calls] == [
        (path, False, ("while_loop",)) for path in ("", "0", "1")
    ]
    assert "nb.scan records each iteration" in str(calls) and "not called" not in str(calls)
