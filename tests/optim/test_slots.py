"""State by chain: what it looks like, when it is made, how a run continues from it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import nbmodule as nb

MOMENTS = {
    "Adam": (lambda: nb.Adam(1e-2), lambda optimizer: optimizer.state.mw),
    "Optax": (lambda: nb.Optax(optax.adam(1e-2)), lambda optimizer: optimizer.optax_state[0].mu),
}


def test_state_is_a_container_like_the_variables(net, gradients):
    optimizer = nb.Adam(1e-2)
    optimizer.update(net, gradients(0))
    state = optimizer.state
    assert isinstance(state, nb.Container)
    assert sorted(state.keys()) == ["count", "mw", "vw"]
    assert jax.tree.structure(state.mw) == jax.tree.structure(net.v)
    np.testing.assert_allclose(
        state.mw.layers.v1.weight, 0.1 * gradients(0).layers.v1.weight, rtol=1e-5
    )
    np.testing.assert_allclose(state.vw.bias, 0.001 * gradients(0).bias ** 2, rtol=1e-5)
    assert int(state.count) == 1


def test_a_state_that_was_set_survives_a_donated_step_of_another(net, make_net, gradients):
    first, second, other = nb.Adam(1e-2), nb.Adam(1e-2), make_net()
    first.update(net, gradients(0))
    second.set_state(first.state)
    step = nb.jit(lambda g: first.update(net, g), donate=True)
    step(gradients(1))
    step(gradients(2))
    second.update(other, gradients(1))
    assert int(second.count) == 2


def test_a_plain_dict_of_numpy_arrays_is_a_state_too(net, gradients):
    optimizer = nb.SGD(1.0, 0.5)
    mw = jax.tree.map(np.ones_like, net.v.cont_to_dict())
    optimizer.set_state({"mw": mw, "count": 3})
    before = net.bias()
    optimizer.update(net, gradients(0))
    np.testing.assert_allclose(net.bias, before - gradients(0).bias - 0.5, rtol=1e-5)
    assert int(optimizer.count) == 4


def test_a_state_that_does_not_fit_is_refused_whole(net, gradients, agree):
    optimizer = nb.Adam(1e-2)
    optimizer.update(net, gradients(0))
    before = optimizer.state
    for change, message in (
        (lambda s: s.__delitem__("vw"), '(?s)the state of Adam.*missing: "vw/bias"'),
        (lambda s: s.__setitem__("speed", jnp.ones(1)), 'unexpected: "speed"'),
        (lambda s: s.__delitem__("vw/bias"), 'missing: "vw/bias"'),
        (lambda s: s.__setitem__("mw/bias", jnp.ones(4)), '"mw/bias" is float.*not float32'),
    ):
        state = optimizer.state.cont_deep_copy()
        change(state)
        with pytest.raises(nb.StructureError, match=message):
            optimizer.set_state(state)
        agree(optimizer.state, before, exactly=True)
    with pytest.raises(nb.ArgumentTypeError, match="expected a Container or a dict, got list"):
        optimizer.set_state([])


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


def test_a_layer_that_is_gone_leaves_its_state_behind(net, gradients):
    optimizer = nb.Adam(1e-2)
    optimizer.update(net, gradients(0))
    del net.scale
    grads = gradients(1)
    del grads["scale"]
    optimizer.update(net, grads)
    assert "scale" in optimizer.state.mw


def test_reset_begins_again(net, make_net, gradients, agree):
    optimizer, other = nb.Adam(1e-2), make_net()
    optimizer.update(net, gradients(0))
    optimizer.reset()
    optimizer.update(other, gradients(1))
    expected = nb.Adam(1e-2).step(make_net().v, gradients(1))
    agree(other.v, expected, exactly=True)
