"""Track, view and refuse unconverted models of other frameworks."""

import equinox as eqx
import flax.linen as nn
import haiku as hk
import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest
import torch
from flax import nnx

import nbmodule as nb

X = jnp.arange(15.0).reshape(5, 3)


class Layers(eqx.Module):
    layers: list
    again: eqx.nn.Linear

    def __init__(self):
        first, second = jax.random.split(jax.random.key(0))
        self.layers = [eqx.nn.Linear(3, 4, key=first), jax.nn.relu, eqx.nn.Linear(4, 3, key=second)]
        self.again = self.layers[0]

    def __call__(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.again(x)


PATHS = [("", 0), ("layers.0", 0), ("layers.2", 0), ("layers.0", 1)]


def places(calls):
    return [(call.path, call.index) for call in calls]


def test_an_equinox_model_under_vmap_gives_values_with_rows_in_front():
    model = Layers()
    with nb.track(model) as calls:
        y = jax.vmap(model)(X)
    assert places(calls) == PATHS  # a shared module stands under its first path
    first = jax.vmap(model.layers[0])(X)
    np.testing.assert_allclose(calls["layers.0"].returns, first, rtol=1e-6)
    np.testing.assert_allclose(calls[""].returns, y, rtol=1e-6)
    assert calls["layers.0"].lifted == ("vmap 5",)
    assert calls["layers.0"].class_name == "Linear"


def test_nested_vmaps_stack_the_outer_one_first():
    model = eqx.nn.Sequential([eqx.nn.Linear(3, 2, key=jax.random.key(0))])
    xs = jnp.arange(24.0).reshape(4, 2, 3)
    with nb.track(model, returns="stats") as calls, nb.track(model) as full:
        y = jax.vmap(jax.vmap(model), in_axes=1, out_axes=1)(xs)
    assert full["layers.0"].returns.shape == (2, 4, 2)
    np.testing.assert_allclose(full["layers.0"].returns, jnp.swapaxes(y, 0, 1), rtol=1e-6)
    assert calls["layers.0"].statistics.size == 16


class Net(nnx.Module):
    def __init__(self):
        rngs = nnx.Rngs(0)
        self.blocks = nnx.List([nnx.Linear(3, 3, rngs=rngs), nnx.Linear(3, 3, rngs=rngs)])
        self.norm = nnx.BatchNorm(3, rngs=rngs)
        self.tied = self.blocks[0]

    def __call__(self, x):
        for block in self.blocks:
            x = block(x)
        return self.tied(self.norm(x))


class Linen(nn.Module):
    @nn.compact
    def __call__(self, x, train=True):
        x = nn.BatchNorm(use_running_average=not train)(nn.Dense(4)(x))
        return nn.Dropout(0.5, deterministic=True)(nn.Dense(2, name="head")(x))


def test_other_models_and_other_classes_are_left_alone_and_nothing_stays_behind():
    model, other = Layers(), eqx.nn.Linear(3, 3, key=jax.random.key(1))
    before = vars(eqx.nn.Linear)["__call__"]
    with nb.track(model) as calls:
        other(X[0])
        assert jax.config.jax_disable_jit
    assert not calls
    assert vars(eqx.nn.Linear)["__call__"] is before
    assert not jax.config.jax_disable_jit
    with pytest.raises(ZeroDivisionError), nb.track(model):
        raise ZeroDivisionError
    assert vars(eqx.nn.Linear)["__call__"] is before


DENSE, TRANSFORM = nn.Dense(2), hk.transform(lambda x: hk.Linear(2)(x))
REFUSALS = [
    (lambda: nb.from_equinox({}), "takes an eqx.Module; got dict"),
    (lambda: nb.from_equinox(Layers()).again(X), "can only be called by that model"),
    (lambda: nb.from_flax(3), "takes an nnx.Module or a linen nn.Module; got int"),
    (lambda: nb.from_flax(DENSE), "takes its variables too, the return of module.init"),
    (lambda: nb.from_flax(DENSE, {"batch_stats": {}}), "got keys batch_stats"),
    (lambda: nb.from_flax(Net(), {}), "holds its variables; pass only the model"),
    (lambda: nb.from_haiku(len, {}), "takes the return of hk.transform, got builtin_function"),
    (
        lambda: nb.from_haiku(hk.transform_with_state(lambda x: x), {}),
        "has a state, the second return of its init",
    ),
    (
        lambda: nb.from_haiku(hk.without_apply_rng(TRANSFORM), {}, with_rng=True),
        "hk.without_apply_rng has removed the random key from apply",
    ),
    (lambda: nb.from_keras(3), "takes a Keras layer or model; got int"),
    (lambda: nb.from_keras(keras.layers.Dense(2)), "Dense is not built"),
    (lambda: nb.from_torch({"weight": torch.ones(2)}), "needs like="),
    (lambda: nb.from_torch(3), "got int"),
    (lambda: nb.from_torch(torch.nn.Linear(2, 3), like="model"), "like= takes a module; got str"),
    (lambda: nb.Linear(2, 2).to_flax(linen="yes"), "linen must be True or False"),
    (lambda: nb.track(Layers(), operations="*"), "convert the model first"),
    (lambda: nb.track(3), "unconverted model of Flax, Equinox, Haiku, Keras or PyTorch, got int"),
    (lambda: nb.summary(Linen(), X), "nb.summary: Linen is a linen module, which holds no variab"),
    (lambda: nb.graph(TRANSFORM, X), r"nb\.graph\(net, params, key, x\)"),
]


@pytest.mark.parametrize(("call", "message"), REFUSALS)
def test_unsuitable_arguments_are_refused(call, message):
    with pytest.raises(nb.NbModuleError, match=message):
        call()


def test_a_jitted_training_step_of_equinox_is_recorded_with_gradients_by_returns():
    model = Layers()
    step = eqx.filter_jit(eqx.filter_value_and_grad(lambda m: (jax.vmap(m)(X) ** 2).sum()))
    loss, grads = step(model)
    with nb.track(model, gradients=True) as calls:
        tracked_loss, tracked_grads = step(model)
    # A copy of the model is called there, in which nothing is shared.
    assert [call.path for call in calls] == ["", "layers.0", "layers.2", "again"]
    np.testing.assert_allclose(tracked_loss, loss, rtol=1e-6)
    np.testing.assert_allclose(tracked_grads.again.weight, grads.again.weight, rtol=1e-5)

    def rest(hidden):
        return (jax.vmap(lambda h: model.again(model.layers[2](jax.nn.relu(h))))(hidden) ** 2).sum()

    hidden = jax.vmap(model.layers[0])(X)
    expected = jax.grad(rest)(hidden)
    np.testing.assert_allclose(calls["layers.0"].returns, hidden, rtol=1e-6)
    np.testing.assert_allclose(calls["layers.0"].gradient, expected, rtol=1e-5)
    with nb.track(model, returns="stats", gradients=True) as calls:
        step(model)
    assert calls["layers.0"].gradient is None
    np.testing.assert_allclose(calls["layers.0"].gradient_statistics.max, expected.max(), rtol=1e-5)
    assert step(model)[0] == loss


def test_a_return_is_replaced_inside_a_vmap_of_a_model_of_equinox():
    mlp = eqx.nn.MLP(3, 2, 4, 2, key=jax.random.key(0))

    class Batched(eqx.Module):
        mlp: eqx.nn.MLP

        def __call__(self, x):
            return jax.vmap(self.mlp, in_axes=1, out_axes=1)(x)

    found = nb.patch(Batched(mlp), X.T, X.T[:, ::-1] * 2, "mlp.layers.1")
    np.testing.assert_allclose(found.patched, found.clean, rtol=1e-6)
    assert not np.allclose(found.corrupt, found.clean)


def test_a_bound_linen_module_and_haiku_without_keys_are_viewed():
    module = Linen()
    bound = module.bind(module.init(jax.random.key(0), X))
    assert nb.summary(bound)["head"].parameters == 10
    transformed = hk.without_apply_rng(TRANSFORM)
    params = transformed.init(jax.random.key(0), X)
    assert nb.graph(transformed, params, X).find("linear").operations


def test_views_leave_an_nnx_model_unchanged():
    model = Net()
    before = jax.tree.map(jnp.copy, nnx.to_pure_dict(nnx.state(model)))
    nb.summary(model, X)
    nb.graph(model, X)
    nb.first_nonfinite(model, X)
    nb.patch(model, X, X + 1, "norm")
    nb.inspect(model, X)
    jax.tree.map(np.testing.assert_array_equal, nnx.to_pure_dict(nnx.state(model)), before)


def test_inspect_takes_keyword_arguments_of_a_foreign_model():
    module = Linen()
    linen = nb.inspect(module, module.init(jax.random.key(0), X, train=False), X, train=False)
    assert linen.calls.paths == ("", "Dense_0", "BatchNorm_0", "head", "Dropout_0")
    assert linen.graph is not None
