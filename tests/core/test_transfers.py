"""Nothing is copied from the host to the device in the steady state:
`jax.transfer_guard("disallow")` holds around it.

What a user gives to be kept is copied because he says so, and goes through. What JAX itself copies
is not ours: the first cotangent of `jax.grad`, the bounds in `jax.lax.switch`, a number beside an
array outside of a compiled function.
"""

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import nbmodule as nb

X, Y = jnp.ones((4, 3)), jnp.ones((4, 2))
NOT_EAGER = pytest.mark.not_under("eager", reason="each operation of JAX copies the numbers in it")
WEIGHTS, BIAS = np.ones((2, 3), "f"), np.ones(2, "f")


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
    "clipped": lambda: nb.Adam(1e-3, clip_norm=1.0),
    "sgd": lambda: nb.SGD(1e-2, momentum=0.9),
    "adam": lambda: nb.Adam(1e-3),
    "schedule, accumulated": lambda: nb.Adam(nb.cosine_schedule(1e-3, 100), accumulate=2),
    "optax": lambda: nb.Optax(optax.adam(1e-3)),
}


@pytest.mark.parametrize("how", ["eager", "compiled", "donated"])
@pytest.mark.parametrize("name", OPTIMIZERS)
@NOT_EAGER
def test_a_step_copies_nothing(name, how):
    model, optimizer = Net(), OPTIMIZERS[name]()
    loss = lambda model: nb.mse_loss(model(X), Y)
    if how == "eager":
        grads = nb.grad(loss)(model)
        copies_nothing(lambda: optimizer.update(model, grads))
        return
    step = lambda: optimizer.update(model, nb.grad(loss)(model))
    copies_nothing(nb.jit(step, donate=how == "donated"))


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
    "scan": lambda model: nb.scan(lambda carry, row: (carry, model.first(row)), X, X),
    "first_nonfinite": lambda model: nb.first_nonfinite(model, X),
    "graph": lambda model: nb.graph(model, X),
    "summary": lambda model: nb.summary(model, X),
    "repr": lambda model: (repr(model), repr(model.v), str(model.first.weight)),
}


@pytest.mark.parametrize("name", CALLS)
@NOT_EAGER
def test_a_call_copies_nothing(name):
    model = Net()
    copies_nothing(lambda: CALLS[name](model))


@pytest.mark.parametrize("returns", [True, "stats"])
@NOT_EAGER
def test_a_compiled_call_that_is_tracked_copies_nothing(returns):
    model = Net()
    run = nb.jit(model)
    copies_nothing(lambda: tracked(run, model, returns))


def set_item(layer):
    layer.weight[0] = 1


GIVEN = {
    "an array made a parameter": lambda layer: nb.Parameter(WEIGHTS),
    "a list made a buffer": lambda layer: nb.Buffer([1.0, 2.0]),
    "an array made an attribute": lambda layer: setattr(layer, "shift", WEIGHTS),
    "an array assigned": lambda layer: setattr(layer.weight, "value", WEIGHTS),
    "an item assigned": set_item,
    "v assigned": lambda layer: setattr(layer, "v", {"w": WEIGHTS, "b": BIAS}),
    "load_state_dict": lambda layer: layer.load_state_dict({"weight": WEIGHTS, "bias": BIAS}),
    "a learning rate": lambda layer: nb.Adam(1e-3).update(layer, layer.v),
    "a largest norm": lambda layer: nb.clip_by_global_norm(layer.v, 1.0),
    "a seed": lambda layer: nb.seed(3),
    "a model": lambda layer: nb.Sequential(
        nb.Conv2d(3, 4, 3), nb.BatchNorm2d(4), nb.LSTM(4, 2)
    ).state_dict(),
    "a model in another dtype": lambda layer: nb.Linear(3, 2).to(dtype="bfloat16").v,
    "an initializer of JAX": lambda layer: (
        nb.Linear(3, 2, weight_initializer=jax.nn.initializers.normal()).v
    ),
    "a pickle": lambda layer: pickle.loads(pickle.dumps(layer)).v,
    "batches": lambda layer: list(nb.batches(X, 2)),
}


@pytest.mark.parametrize("name", GIVEN)
@NOT_EAGER
def test_arguments_of_the_user_are_copied(name):
    layer = nb.Linear(3, 2)
    with jax.transfer_guard("disallow"):
        GIVEN[name](layer)


def test_a_guard_against_every_copy_holds_for_what_a_user_gives_too():
    with (
        jax.transfer_guard("disallow_explicit"),
        pytest.raises(jax.errors.JaxRuntimeError, match="Disallowed host-to-device transfer"),
    ):
        nb.Parameter(WEIGHTS)
