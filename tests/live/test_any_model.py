"""`nb.Live` on models of any framework, training states, functions, lists and
dicts of models and optimizers.
"""

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch
from flax import nnx
from flax.training.train_state import TrainState

import nbmodule as nb

torch.set_num_threads(1)  # its waiting threads spin, and would starve what is compiled aside
X = jnp.linspace(-1, 1, 15).reshape(5, 3)


@pytest.fixture
def run(train_until):
    """Make steps until something has been seen; nothing is reported."""

    def train(live, step, *, until):
        train_until(live, lambda _: step(), until)
        assert not [message for message in live._state.messages if message.kind != "note"]

    return train


def moves(live):
    """Return True if an update other than zero was measured."""
    found = live.watched.get("update")
    return found is not None and len(found) and bool((found.newest > 0).any())


def test_a_model_of_pytorch_is_watched_and_its_rate_is_steered(run):
    layers = [torch.nn.Linear(3, 4), torch.nn.Dropout(0.5), torch.nn.Linear(3, 1)]
    model, rates = torch.nn.ModuleList(layers), {0: 0.1, 2: 0.2}
    groups = [{"params": model[k].parameters(), "lr": rate} for k, rate in rates.items()]
    optimizer = torch.optim.SGD(groups)
    x = torch.tensor(np.asarray(X))

    def step():
        optimizer.zero_grad()
        loss = model[0](x).sum() + model[2](x).sum()  # of one slope: no update is ever zero
        loss.backward()
        optimizer.step()
        live.log(loss=loss)

    with nb.Live(model, optimizer, display=False) as live:
        assert all(name in live.controls for name in ("learning rate", "dropout rate", "watch"))
        live.controls.set("learning rate", 0.01)
        run(live, step, until=lambda: moves(live))
    assert [group["lr"] for group in optimizer.param_groups] == pytest.approx([0.01, 0.02])
    assert live.watched["weight"].paths == ("0", "2")
    assert len(live.history.loss) > 1


def nnx_run():
    model = nnx.Linear(3, 1, rngs=nnx.Rngs(0))
    rule = optax.inject_hyperparams(optax.sgd)(learning_rate=0.01)
    optimizer = nnx.Optimizer(model, rule, wrt=nnx.Param)

    @nnx.jit
    def step(model, optimizer):
        optimizer.update(model, nnx.grad(lambda m: m(X).sum())(model))

    return model, optimizer, lambda: step(model, optimizer)


def state_run():
    module = nn.Dense(1)
    variables = module.init(jax.random.key(0), X)
    parts = {"apply_fn": module.apply, "params": variables["params"], "tx": optax.sgd(0.01)}
    held = {"state": TrainState.create(**parts)}

    @jax.jit
    def update(state):
        grads = jax.grad(lambda p: state.apply_fn({"params": p}, X).sum())(state.params)
        return state.apply_gradients(grads=grads)

    def step():
        held["state"] = update(held["state"])

    return lambda: held["state"], None, step


def equinox_run():
    held = {"model": eqx.nn.Linear(3, 1, key=jax.random.key(0))}

    @eqx.filter_jit
    def update(model):
        slope = eqx.filter_grad(lambda m: jax.vmap(m)(X).sum())(model)
        return eqx.apply_updates(model, jax.tree.map(lambda g: -0.01 * g, slope))

    def step():
        held["model"] = update(held["model"])

    return lambda: held["model"], None, step


def gan_run():
    models = {"g": nb.Linear(3, 1), "d": nb.Linear(3, 1)}
    optimizers = {name: nb.SGD(0.01) for name in models}

    def step():
        for name, model in models.items():
            optimizers[name].update(model, nb.grad(lambda m: m(X).sum())(model))

    return models, optimizers, step


RUNS = {
    "NNX": nnx_run,
    "TrainState by a function": state_run,
    "Equinox by a function": equinox_run,
    "a dict of models": gan_run,
}


@pytest.mark.parametrize("kind", RUNS)
def test_updates_of_trained_arrays_are_measured(run, kind):
    model, optimizer, step = RUNS[kind]()
    with nb.Live(model, optimizer, display=False, keep=False) as live:
        names = [control.name for control in live.controls]
        run(live, step, until=lambda: moves(live))
        assert not live.notes()
    rates = {"NNX": ["learning rate"], "a dict of models": ["learning rate g", "learning rate d"]}
    assert [name for name in names if name.startswith("learning rate")] == rates.get(kind, [])


def test_arrays_given_in_the_loop_are_watched_even_if_the_next_step_donates_them(run):
    held = {"params": {"w": jnp.ones((3, 1))}}

    @jax.jit
    def slope(params):
        return jax.grad(lambda p: ((X + 1) @ p["w"]).sum())(params)

    update = jax.jit(lambda p, g: jax.tree.map(lambda a, b: a - 0.01 * b, p, g), donate_argnums=0)

    def step():
        grads = slope(held["params"])
        held["params"] = update(held["params"], grads)
        live.watch(params=held["params"], grads=grads)

    with nb.Live(display=False) as live:
        assert "watch" not in live.controls
        run(live, step, until=lambda: {"weight", "gradient"} <= live.watched.keys())
        assert "watch" in live.controls
    assert live.watched["gradient"].paths == ("",)  # arrays of the root


def test_a_note_reports_arrays_that_never_change(run):
    with nb.Live({"w": jnp.ones(3)}, display=False, keep=False) as live:
        run(live, lambda: None, until=lambda: live.notes())
        assert live.notes() == [
            "these arrays never change: pass a function that gives those of now, as in nb.Live(lambda: params)"
        ]
    assert "update" not in live.watched


def test_a_model_that_cannot_be_watched_gets_a_note_and_no_control():
    reasons = {"Dense holds no parameters: pass a function": nn.Dense(3)}
    reasons["object holds no named arrays"] = object()
    for reason, model in reasons.items():
        with nb.Live(model, display=False) as live:
            assert "watch" not in live.controls
            assert live.notes()[0].startswith(reason)
