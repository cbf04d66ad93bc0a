"""`nb.track` around a compiled step of another framework: it runs uncompiled, with its numbers."""

import threading

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import nbmodule as nb
from tests.core.interrupting import assert_nothing_is_open, points

X = np.arange(-7.0, 8.0, dtype=np.float32).reshape(5, 3)
FIRST = np.array(
    [[1, -2, 0, 1], [0, 1, 2, -1], [2, 0, -1, 1]], np.float32
)  # small integers: no order of sums rounds
SECOND = np.array([[1, -1], [2, 0], [0, 1], [-1, 1]], np.float32)


class Net(nnx.Module):
    """Two layers without bias, a ReLU between."""

    def __init__(self):
        self.first = nnx.Linear(3, 4, use_bias=False, rngs=nnx.Rngs(0))
        self.second = nnx.Linear(4, 2, use_bias=False, rngs=nnx.Rngs(0))
        self.first.kernel[...] = jnp.asarray(FIRST)
        self.second.kernel[...] = jnp.asarray(SECOND)

    def __call__(self, x):
        return self.second(nnx.relu(self.first(x)))


TRACED: list[int] = []  # grows by one whenever Python runs the step


@nnx.jit(donate_argnums=0)
def descend(model, x):
    """Take a step of gradient descent on the sum of the outputs, and return the loss."""
    TRACED.append(1)
    loss, grads = nnx.value_and_grad(lambda m: m(x).sum())(model)
    params = nnx.state(model, nnx.Param)
    nnx.update(model, jax.tree.map(lambda p, g: p - 0.5 * g, params, grads))
    return loss


def test_a_compiled_step_is_recorded_call_by_call_and_its_program_stays():
    plain, model = Net(), Net()
    losses = [float(descend(plain, X)) for _ in range(2)]
    count, found = len(TRACED), []
    for _ in range(2):  # in two blocks
        with nb.track(model, gradients=True) as calls:
            found.append((float(descend(model, X)), calls))
    assert [loss for loss, _ in found] == losses
    np.testing.assert_array_equal(model.first.kernel[...], plain.first.kernel[...])
    descend(model, X)
    assert len(TRACED) == count + 2  # the compiled program is the same as before
    hidden, calls = X @ FIRST, found[0][1]
    np.testing.assert_array_equal(calls["first"].returns, hidden)
    np.testing.assert_array_equal(
        calls["first"].gradient, (np.ones((5, 2)) @ SECOND.T) * (hidden > 0)
    )
    later = found[1][1]["first"].returns  # the second step runs with the first one's weights
    assert later.shape == (5, 4) and not np.array_equal(later, hidden)


def test_a_part_in_a_closure_is_known_as_itself_alone():
    layer = eqx.nn.Linear(3, 4, use_bias=False, key=jax.random.key(0))
    one, other = (
        eqx.nn.Sequential([eqx.tree_at(lambda m: m.weight, layer, jnp.asarray(FIRST.T) * scale)])
        for scale in (1, 2)
    )
    step = jax.jit(lambda x: one.layers[0](x))
    for _ in range(2):
        with nb.track(one) as calls:
            step(X[0])
        np.testing.assert_array_equal(calls["layers.0"].returns, X[0] @ FIRST)
        with nb.track(other) as calls:
            step(X[0])
        assert not calls  # it has the same parts, and was not called


def test_each_iteration_of_a_scan_is_recorded():
    cell = nnx.Linear(3, 3, use_bias=False, rngs=nnx.Rngs(0))
    cell.kernel[...] = jnp.eye(3) * 2

    @nnx.jit
    def step(cell, x):
        return jax.lax.scan(lambda h, _: (cell(h), None), x, length=3)[0]

    for _ in range(2):
        with nb.track(cell) as calls:
            y = step(cell, jnp.asarray(X))
        np.testing.assert_array_equal(y, 8 * X)
        np.testing.assert_array_equal(calls["", 2].returns, 8 * X)


def test_a_failing_step_names_the_call_and_leaves_nothing_behind():
    model = Net()
    descend(model, X)
    before, count = vars(nnx.Linear)["__call__"], len(TRACED)
    with nb.track(model) as calls, pytest.raises(TypeError):
        descend(model, X[:, :2])
    assert calls.failed.path == "first"
    assert vars(nnx.Linear)["__call__"] is before
    assert not jax.config.jax_disable_jit
    descend(model, X)
    assert len(TRACED) == count + 1  # the failing one


def test_a_call_in_another_thread_is_not_recorded():
    model = Net()
    descend(model, X)
    found, count = [], len(TRACED)
    with nb.track(model) as calls:
        thread = threading.Thread(target=lambda: found.append(descend(model, X)))
        thread.start()
        thread.join()
    assert len(found) == 1 and not calls and len(TRACED) == count


def test_jit_that_the_user_has_turned_off_stays_off():
    model, count = Net(), len(TRACED)
    with jax.disable_jit(), nb.track(model) as calls:
        descend(model, X)
    assert len(TRACED) == count + 1 and len(calls) == 3
    assert not any("uncompiled" in note for note in calls.notes)


def test_an_interrupt_of_a_tracked_step_leaves_nothing_behind():
    original = vars(nnx.Linear)["__call__"]

    def act():
        model = Net()  # its arrays are donated; an interrupt may come before NNX has new ones
        with nb.track(model, returns="stats"):
            descend(model, X)

    act()
    for _ in points(act, most=60):
        assert_nothing_is_open()
        assert not jax.config.jax_disable_jit
        assert vars(nnx.Linear)["__call__"] is original
