"""First steps that are compiled: state is made when a step meets a model, and traced again."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import nbmodule as nb
from tests.optim.test_laws import Momentum

pytestmark = pytest.mark.not_under("eager", reason="nothing is traced")

X, Y = np.linspace(-1, 1, 12, dtype="f").reshape(4, 3), np.ones((4, 2), "f")


class Net(nb.Module):
    def __init__(self, width: int = 4) -> None:
        self.first, self.second = nb.Linear(3, width, key=0), nb.Linear(width, 2, key=1)

    def forward(self, x: Any) -> Any:
        return self.second(nb.tanh(self.first(x)))


def loss(model: Any, x: Any, y: Any) -> Any:
    return ((model(x) - y) ** 2).mean()


def descend(model: Any, optimizer: Any, x: Any = X) -> Any:
    value, grads = nb.value_and_grad(loss)(model, x, Y)
    optimizer.update(model, grads)
    return value


@pytest.mark.parametrize("donate", [False, True])
def test_a_step_may_be_given_model_and_optimizer(donate):
    traces = []

    @nb.jit(donate=donate)
    def step(model, optimizer, x):
        traces.append(1)
        return descend(model, optimizer, x)

    model, optimizer = Net(), nb.Adam(1e-2)
    assert step(model, optimizer, X) > step(model, optimizer, X)
    assert len(traces) <= 2 + donate and int(optimizer.count) == 2


class Late(nb.Module):
    def _build(self, x: Any) -> None:
        self.net = nb.Linear(x.shape[-1], 2)

    def forward(self, x: Any) -> Any:
        return self.net(x)


def test_a_model_that_is_built_in_its_first_call_is_traced_to_its_end_once():
    ends = []
    model, optimizer = Late(build_mode="on_call"), nb.Adam(1e-2)

    @nb.jit
    def step(x):
        value = descend(model, optimizer, x)
        ends.append(1)
        return value

    step(X), step(X)
    assert len(ends) == 1


@pytest.mark.parametrize("donate", [False, True])
def test_an_optimizer_of_a_part_of_the_model_has_state_for_that_part_alone(donate):
    model, optimizer = Net(), nb.Adam(1e-2)
    before = model.state_dict()

    @nb.jit(donate=donate)
    def step(x):
        def head(second: Any) -> Any:
            return ((second(nb.tanh(model.first(x))) - Y) ** 2).mean()

        optimizer.update(model.second, nb.grad(head)(model.second))

    step(X), step(X)
    assert sorted(optimizer.state.mw) == sorted(model.second.v)
    assert (model.second.weight() != before["second.weight"]).any()
    np.testing.assert_array_equal(model.first.weight(), before["first.weight"])


def test_a_function_that_takes_no_step_leaves_the_optimizer_without_state():
    model, optimizer = Net(), nb.Adam(1e-2)

    @nb.jit
    def evaluate(x, trains=None):
        if trains:
            optimizer.update(model, model.v)
        return loss(model, x, Y) * optimizer.lr

    np.testing.assert_allclose(evaluate(X), loss(model, X, Y) * 1e-2, rtol=1e-5)
    assert list(optimizer.state_dict()) == ["count", "lr"]


def test_init_takes_variables_too():
    optimizer = nb.Adam(0.1).init({"w": jnp.ones(2), "table": jnp.arange(3)})
    assert list(optimizer.state.mw) == ["w"]
    np.testing.assert_array_equal(optimizer.state.mw.w, [0, 0])


@pytest.mark.parametrize(
    ("make", "theirs", "is_nested"),
    [
        (lambda: nb.Adam(1e-2), optax.adam(1e-2), False),
        (lambda: nb.Adam(1e-2), optax.adam(1e-2), True),
        (lambda: Momentum(0.1), optax.sgd(0.1, 0.5), False),
    ],
)
def test_a_step_that_raises_after_the_update_is_no_step(
    make, theirs, is_nested, net, gradients, reference, agree
):
    optimizer, fails, before = make(), [True], net.v

    @nb.jit
    def update(g):
        optimizer.update(net, g)
        if fails[0]:
            raise RuntimeError("not yet")

    step = nb.jit(lambda g: update(g)) if is_nested else update
    with pytest.raises(RuntimeError, match="not yet"):
        step(gradients(9))
    assert net.v is before and optimizer.count == 0
    fails[0] = False
    expected = reference(theirs, net.v, [gradients(0), gradients(1)])
    optimizer.update(net, gradients(0))
    step(gradients(1))
    agree(net.v, expected)


RAW = {
    "jit": lambda f: jax.jit(f)(X),
    "eval_shape": lambda f: jax.eval_shape(f, X),
    "make_jaxpr": lambda f: jax.make_jaxpr(f)(X),
    "grad": lambda f: jax.grad(f)(X),
    "scan": lambda f: jax.lax.scan(lambda carry, x: (carry, f(x)), 0.0, X[None]),
}


@pytest.mark.parametrize("raw", RAW)
@pytest.mark.parametrize("donate", [False, True])
@pytest.mark.parametrize(
    "make", [lambda: nb.Adam(1e-2), lambda: nb.Optax(optax.adam(1e-2))], ids=["Adam", "Optax"]
)
def test_a_step_that_is_refused_in_a_raw_transform_is_no_step(make, donate, raw):
    model, optimizer = nb.Linear(3, 2, key=0), make()

    @nb.jit(donate=donate)
    def step(x):
        optimizer.update(model, nb.grad(lambda model: (model(x) ** 2).mean())(model))
        return x.sum()

    with pytest.raises(nb.TracerLeakError):
        RAW[raw](step)
    assert optimizer.count == 0
    assert not any(leaf.any() for leaf in jax.tree.leaves(optimizer.state))
    step(X)
    assert optimizer.count == 1 and len(optimizer.state_dict()) > 2
