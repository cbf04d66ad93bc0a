"""The state of optimizers by chain: how it looks, is set, saved and loaded, all or nothing."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import nbmodule as nb
from nbmodule.base.trees import nest

MOMENTS = {
    "Adam": (lambda: nb.Adam(1e-2), lambda optimizer: optimizer.state.mw),
    "Optax": (lambda: nb.Optax(optax.adam(1e-2)), lambda optimizer: optimizer.optax_state[0].mu),
}


@pytest.fixture
def adam(net, gradients):
    """After one step."""
    optimizer = nb.Adam(1e-2)
    optimizer.update(net, gradients(0))
    return optimizer


def test_state_is_a_container_like_the_variables(adam, net, gradients):
    state = adam.state
    assert isinstance(state, nb.Container)
    assert sorted(state.keys()) == ["count", "mw", "vw"]
    assert jax.tree.structure(state.mw) == jax.tree.structure(net.v)
    np.testing.assert_allclose(
        state.mw.layers.v1.weight, 0.1 * gradients(0).layers.v1.weight, rtol=1e-5
    )
    np.testing.assert_allclose(state.vw.bias, 0.001 * gradients(0).bias ** 2, rtol=1e-5)
    assert int(state.count) == 1


def test_a_state_that_was_set_survives_a_donated_step_of_another(
    adam, net, make_net, gradients, train
):
    second = nb.Adam(1e-2)
    second.set_state(adam.state)
    train("donate", adam, net, [gradients(1), gradients(2)])
    second.update(make_net(), gradients(1))
    assert int(second.count) == 2


def test_a_plain_dict_of_numpy_arrays_is_a_state_too(net, gradients):
    optimizer = nb.SGD(1.0, 0.5)
    mw = jax.tree.map(np.ones_like, net.v.cont_to_dict())
    optimizer.set_state({"mw": mw, "count": 3})
    before = net.bias()
    optimizer.update(net, gradients(0))
    np.testing.assert_allclose(net.bias, before - gradients(0).bias - 0.5, rtol=1e-5)
    assert int(optimizer.count) == 4


@pytest.mark.parametrize("way", ["set_state", "load_state_dict"])
@pytest.mark.parametrize(("name", "slot"), [("Adam", "mw"), ("Optax", "optax/v0/mu")])
def test_a_state_that_does_not_fit_is_refused_whole(name, slot, way, net, gradients, agree):
    optimizer = MOMENTS[name][0]()
    optimizer.update(net, gradients(0))
    before, bias = optimizer.state_dict(), f"{slot}/bias"
    for changes, message in (
        ({bias: None}, f'missing: "{bias}"'),
        ({"speed": np.ones(3)}, 'unexpected: "speed"'),
        ({bias: np.ones(4, "f")}, rf'"{bias}" is float32\[4\], not float32\[3\]'),
    ):
        rows = {
            key: array + 1 for key, array in before.items() if way != "set_state" or key != "lr"
        }
        state = {key: array for key, array in (rows | changes).items() if array is not None}
        if way == "set_state":
            state = nest({tuple(key.split("/")): array for key, array in state.items()})
        with pytest.raises(nb.StructureError, match=f"(?s)the state of {name}.*{message}"):
            getattr(optimizer, way)(state)
        agree(dict(optimizer.state_dict()), dict(before), exactly=True)


@pytest.mark.parametrize(
    ("way", "state", "error", "message"),
    [
        ("set_state", [], nb.ArgumentTypeError, "expected a Container or a dict, got list"),
        ("load_state_dict", [], nb.ArgumentTypeError, "from names to arrays, got list"),
        ("load_state_dict", {"lr": -1.0}, nb.ArgumentError, "must be finite and at least 0"),
    ],
)
def test_an_invalid_state_is_refused(adam, way, state, error, message):
    state = state and {**adam.state_dict(), **state}
    with pytest.raises(error, match=message):
        getattr(adam, way)(state)


@pytest.mark.parametrize("name", MOMENTS)
def test_a_new_layer_gets_state_and_the_others_keep_theirs(name, net, gradients):
    make, moment_of = MOMENTS[name]
    optimizer = make()
    update = nb.jit(lambda g: optimizer.update(net, g))
    update(gradients(0))
    update(gradients(1))
    net.extra = nb.Parameter([1.0, 2.0])
    known = moment_of(optimizer).bias
    grads = gradients(2)
    grads["extra"] = jnp.ones(2)
    update(grads)
    moment = moment_of(optimizer)
    np.testing.assert_allclose(moment.bias, 0.9 * known + 0.1 * grads.bias, rtol=1e-5)
    np.testing.assert_allclose(moment.extra, [0.1, 0.1], rtol=1e-5)
    assert int(optimizer.count) == 3


@pytest.mark.parametrize("name", MOMENTS)
def test_one_optimizer_for_two_models_of_other_shapes_is_refused(name, net, gradients):
    optimizer, v = MOMENTS[name][0](), {"bias": jnp.zeros(5, "f")}
    optimizer.update(net, gradients(0))
    message = (
        rf'{name} cannot take a step: its state for "bias" is float32\[3\], the variable is '
        r"float32\[5\].*one optimizer for each model"
    )
    with pytest.raises(nb.StructureError, match=message):
        optimizer.step(v, v)
    optimizer.reset()
    np.testing.assert_array_equal(optimizer.step(v, v)["bias"], np.zeros(5))


def test_a_layer_that_is_gone_leaves_its_state_behind(adam, net, gradients):
    del net.scale
    grads = gradients(1)
    del grads["scale"]
    adam.update(net, grads)
    assert "scale" in adam.state.mw


def test_reset_begins_again(adam, make_net, gradients, agree):
    adam.reset()
    expected = nb.Adam(1e-2).step(make_net().v, gradients(1))
    agree(adam.step(make_net().v, gradients(1)), expected, exactly=True)


def test_a_number_as_learning_rate_is_restored_and_a_schedule_is_not(net, gradients):
    first = nb.Adam(0.5, groups={"bias": {"lr": 0.25}})
    first.update(net, gradients(0))
    first.lr = 0.125
    saved = first.state_dict()
    second = nb.Adam(1.0, groups={"bias": {"lr": 1.0}})
    second.load_state_dict(saved)
    restored = second.state_dict()
    assert (restored["lr"], restored["group_lr/0"]) == (0.125, 0.25)
    third = nb.Adam(lambda step: 1.0 * (step + 1))
    third.load_state_dict(saved)
    assert third.current_lr == 2.0


def test_state_of_optax_kept_as_an_attribute_is_saved_and_loaded(net, make_net, gradients, agree):
    class Held(nb.Optimizer):
        transformation = optax.adam(1e-2)

        def __init__(self, lr):
            super().__init__(lr)
            self._inner = None

        def _step(self, v, grads):
            state = self.transformation.init(v) if self._inner is None else self._inner
            updates, self._inner = self.transformation.update(grads, state, v)
            return optax.apply_updates(v, updates)

    first, second, other = Held(1e-2), Held(1e-2), make_net()
    for i in range(3):
        first.update(net, gradients(i))
    second.update(other, gradients(9))  # the structure is known after one step
    second.load_state_dict(first.state_dict())
    other.v = net.v
    for optimizer, model in ((first, net), (second, other)):
        optimizer.update(model, gradients(3))
    agree(other.v, net.v, exactly=True)
    agree(dict(second.state_dict()), dict(first.state_dict()), exactly=True)
