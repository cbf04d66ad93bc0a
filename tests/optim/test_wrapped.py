"""Any transformation of optax as an optimizer."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import nbmodule as nb


def test_masks_and_labels_may_be_made_of_the_v_of_a_model(net, gradients, agree):
    mask = jax.tree.map(lambda leaf: leaf.ndim == 2, net.v)
    before, masked = net.v, optax.masked(optax.set_to_zero(), mask)
    nb.Optax(optax.chain(masked, optax.sgd(1.0))).update(net, gradients(0))
    agree(net.v.layers, before.layers, exactly=True)
    np.testing.assert_allclose(net.bias, before.bias - gradients(0).bias, rtol=1e-5)


@pytest.mark.not_under("eager", reason="nothing is traced")
def test_an_eager_step_is_compiled_once(net, gradients, train):
    traces, plain = [], optax.sgd(0.1)
    counted = optax.GradientTransformation(
        plain.init, lambda *args: traces.append(1) or plain.update(*args)
    )
    train("update", nb.Optax(counted), net, [gradients(i) for i in range(3)])
    assert len(traces) == 1


def test_a_learning_rate_inside_cannot_be_seen(net):
    with pytest.raises(nb.ArgumentError, match="inside the transformation"):  # no state yet
        nb.Optax(optax.inject_hyperparams(optax.sgd)(learning_rate=1.0)).lr = 1.0
    optimizer = nb.Optax(optax.adam(1e-2)).init(net)
    assert optimizer.lr is None
    with pytest.raises(nb.ArgumentError, match=r"inside the transformation.*inject_hyperparams"):
        optimizer.lr = 1.0


def test_extra_arguments_reach_the_transformation(net, gradients, reference, agree):
    make = lambda: optax.chain(
        optax.sgd(1.0), optax.contrib.reduce_on_plateau(factor=0.5, patience=1)
    )
    optimizer, losses = nb.Optax(make()), [1.0, 2.0, 2.0, 2.0, 2.0]
    grads = [gradients(i) for i in range(len(losses))]
    expected = reference(make(), net.v, grads, [{"value": loss} for loss in losses])
    step = nb.jit(lambda g, loss: optimizer.update(net, g, value=loss))
    for each, loss in zip(grads, losses):
        step(each, loss)
    agree(net.v, expected)
    assert float(optimizer.optax_state[1].scale) < 1


@pytest.mark.parametrize("compiled", [False, True])
def test_a_function_may_be_an_extra_argument(compiled):
    # a step of half the way to where `value_fn` is smallest along the gradient, for want of a real
    # line search
    def update(grads, state, params, *, value_fn):
        sizes = jnp.array([0.25, 0.5, 1.0])
        along = lambda size: value_fn(jax.tree.map(lambda p, g: p - size * g, params, grads))
        losses = jnp.stack([along(size) for size in sizes])
        return jax.tree.map(lambda g: -sizes[losses.argmin()] * g, grads), state

    optimizer = nb.Optax(optax.GradientTransformationExtraArgs(lambda params: (), update))
    loss = lambda v: ((v["w"] - 3.0) ** 2).sum()
    step = lambda v, g: optimizer.step(v, g, value_fn=loss)
    optimizer.init({"w": jnp.zeros(1)})
    v = (nb.jit(step) if compiled else step)(nb.Container(w=jnp.zeros(1)), {"w": jnp.full(1, -6.0)})
    np.testing.assert_allclose(v.w, [3.0])


def test_frozen_parameters_and_their_state_stay(net, gradients, agree):
    optimizer = nb.Optax(optax.adamw(0.1, weight_decay=0.5))
    optimizer.update(net, gradients(0))
    net.layers[0].requires_grad_(False)
    v, mu = net.v, optimizer.optax_state[0].mu
    optimizer.update(net, gradients(1))
    agree(net.v.layers.v0, v.layers.v0, exactly=True)
    agree(optimizer.optax_state[0].mu.layers.v0, mu.layers.v0, exactly=True)
    assert (net.v.bias != v.bias).all()


def test_state_is_named_by_its_place(net, gradients, agree):
    optimizer = nb.Optax(optax.adam(1e-2))
    optimizer.update(net, gradients(0))
    assert "optax/v0/mu/layers/v1/weight" in optimizer.state
    assert "optax/v0/nu/bias" in optimizer.state_dict()
    agree(optimizer.state.optax.v0.mu, optimizer.optax_state[0].mu, exactly=True)


def test_a_state_that_was_set_before_there_was_any_must_fit(net, gradients):
    wrong = nb.Optax(optax.adam(1e-2)).init(net).state.cont_deep_copy()
    wrong["optax/v0/mu/bias"] = jnp.ones(7, "f")
    fresh = nb.Optax(optax.adam(1e-2))
    fresh.set_state(wrong)
    with pytest.raises(nb.StructureError, match="the state that was loaded does not fit"):
        fresh.update(net, gradients(0))


@pytest.mark.not_under("eager", reason="nothing is traced")
def test_state_is_made_from_the_values_of_variables(net, gradients, agree):
    # Lookahead keeps a copy of the variables; here its state is made from them by hand.
    shadow = optax.GradientTransformation(
        lambda v: jax.tree.map(jnp.array, v),
        lambda g, state, v: (jax.tree.map(lambda s, p: s - p, state, v), state),
    )
    start = net.v
    optimizer = nb.Optax(optax.chain(optax.sgd(1.0), shadow))
    update = nb.jit(lambda g: optimizer.update(net, g))
    update(gradients(0))
    agree(net.v, start, exactly=True)
    other = nb.Optax(optax.chain(optax.sgd(1.0), shadow))
    step = nb.jit(lambda v, g: other.step(v, g))
    with pytest.raises(nb.TraceError, match=r"not known while tracing. Call `init\(v\)` outside"):
        step(start, gradients(0))
    other.init(start)
    agree(step(start, gradients(0)), start, exactly=True)


def test_anything_else_is_refused():
    with pytest.raises(nb.ArgumentTypeError, match="takes a transformation of optax.*got float"):
        nb.Optax(0.1)
