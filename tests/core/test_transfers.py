"""Nothing is copied from the host to the device in the steady state: `jax.transfer_guard("disallow")` holds around it."""

import jax
import jax.numpy as jnp
import optax
import pytest

import nbmodule as nb

X, Y = jnp.ones((4, 3)), jnp.ones((4, 2))


class Net(nb.Module):
    def __init__(self):
        self.first, self.norm, self.drop, self.last = (
            nb.Linear(3, 8),
            nb.BatchNorm1d(8),
            nb.Dropout(0.5),
            nb.Linear(8, 2),
        )

    def forward(self, x):
        return self.last(self.drop(nb.relu(self.norm(self.first(x)))))


def copies_nothing(run, *args):
    for _ in range(3):  # values are drawn, programs compiled
        run(*args)
    with jax.transfer_guard("disallow"):
        run(*args)


OPTIMIZERS = {
    "sgd": lambda: nb.SGD(1e-2, momentum=0.9),
    "adam": lambda: nb.Adam(1e-3),
    "schedule, accumulated": lambda: nb.Adam(nb.cosine_schedule(1e-3, 100), accumulate=2),
    "optax": lambda: nb.Optax(optax.adam(1e-3)),
}


@pytest.mark.parametrize("donate", [False, True])
@pytest.mark.parametrize("name", [*OPTIMIZERS, "clipped"])
@pytest.mark.not_under("eager", reason="each operation of JAX copies the numbers in it")
def test_a_compiled_step_copies_nothing(name, donate):
    model, optimizer = Net(), nb.Adam(1e-3, clip_norm=1.0) if name == "clipped" else OPTIMIZERS[name]()

    def step(x, y):
        loss, grads = nb.value_and_grad(lambda model: nb.mse_loss(model(x), y))(model)
        optimizer.update(model, grads)
        return loss

    copies_nothing(nb.jit(step, donate=donate), X, Y)


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.not_under("eager", reason="each operation of JAX copies the numbers in it")
def test_an_eager_update_copies_nothing(name):
    model, optimizer = Net(), OPTIMIZERS[name]()
    grads = nb.grad(lambda model: nb.mse_loss(model(X), Y))(model)
    copies_nothing(lambda: optimizer.update(model, grads))


def tracked(run, model, returns):
    with nb.track(model, returns=returns):
        run(X)


CALLS = {
    "eager": lambda model: model(X),
    "eval": lambda model: model.eval()(X),
    "v=": lambda model: model(X, v=model.v),
    "v set": lambda model: setattr(model, "v", model.v),
    "state_dict": lambda model: model.state_dict(),
    "tracked": lambda model: tracked(model, model, True),
    "statistics": lambda model: tracked(model, model, "stats"),
    "vmap": lambda model: nb.vmap(lambda row: model.first(row))(X),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.not_under("eager", reason="each operation of JAX copies the numbers in it")
def test_a_call_copies_nothing(name):
    model = Net()
    copies_nothing(lambda: CALLS[name](model))


@pytest.mark.parametrize("returns", [True, "stats"])
@pytest.mark.not_under("eager", reason="each operation of JAX copies the numbers in it")
def test_a_compiled_call_that_is_tracked_copies_nothing(returns):
    model = Net()
    run = nb.jit(model)
    copies_nothing(lambda: tracked(run, model, returns))
