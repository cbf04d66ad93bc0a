"""Stacks of modules: mapped and scanned over, what their rows write is in the stack afterwards."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb

X = jnp.arange(24.0).reshape(2, 4, 3) / 24


def stack_of(members):
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *members)


def differentiated(fn):
    """`fn`, run for the gradient of its sum by its first argument."""
    return lambda *args: nb.grad(lambda *args: sum(leaf.sum() for leaf in jax.tree.leaves(fn(*args))))(*args)


OUTSIDE = {"eager": lambda fn: fn, "jit": nb.jit, "grad": differentiated, "both": lambda fn: nb.jit(differentiated(fn))}


@pytest.mark.parametrize("outside", OUTSIDE)
def test_statistics_of_mapped_norms_are_those_of_each_norm_alone(outside):
    members = [nb.BatchNorm1d(3) for _ in range(2)]
    stack = stack_of(members)
    run = OUTSIDE[outside](lambda stack, x: nb.vmap(lambda norm, x: norm(x))(stack, x))
    for _ in range(2):
        run(stack, X)
        for member, x in zip(members, X):
            member(x)
    np.testing.assert_allclose(stack.running_mean.value, np.stack([m.running_mean for m in members]), rtol=1e-5)
    np.testing.assert_allclose(stack.running_var.value, np.stack([m.running_var for m in members]), rtol=1e-5)


@pytest.mark.parametrize("outside", OUTSIDE)
@pytest.mark.parametrize("reverse", [False, True])
def test_statistics_of_scanned_norms_are_those_of_each_norm_in_its_turn(outside, reverse):
    members = [nb.BatchNorm1d(3) for _ in range(3)]
    stack = stack_of(members)
    run = OUTSIDE[outside](lambda stack, x: nb.scan(lambda c, norm: (norm(c) + 1, None), x, stack, reverse=reverse)[0])
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
    with pytest.raises(nb.TracerLeakError, match="left unchanged"):
        jax.eval_shape(lambda x: nb.vmap(lambda norm, x: norm(x))(stack, x), X)
    np.testing.assert_array_equal(stack.running_mean.value, np.zeros((2, 3)))


# -- while_loop --------------------------------------------------------------------------------------
@pytest.mark.parametrize("outside", [lambda fn: fn, nb.jit], ids=["eager", "jit"])
def test_calls_in_a_while_loop_are_listed_without_their_returns(outside):
    model = nb.Sequential(nb.Linear(2, 2, key=0), nb.ReLU())
    run = outside(lambda x: nb.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, model(s[1])), (0, x))[1])
    with nb.track(model, returns=True) as calls:
        run(jnp.ones(2))
    assert [(call.path, call.captured, call.lifted) for call in calls] == [
        (path, False, ("while_loop",)) for path in ("", "0", "1")
    ]
    assert "nb.scan records each turn" in str(calls) and "not called" not in str(calls)
