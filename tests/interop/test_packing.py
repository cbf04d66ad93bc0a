"""Modules handed to other frameworks: outputs, gradients, statistics, and steps with the other's
own tools.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import nbmodule as nb
from tests.interop.conftest import assert_close


class Net(nb.Module):
    def __init__(self):
        self.conv, self.norm = nb.Conv2d(1, 3, 3, padding=1), nb.BatchNorm2d(3)
        self.dropout, self.head = nb.Dropout(0.1), nb.Linear(48, 2)

    def forward(self, x):
        x = jax.nn.relu(self.norm(self.conv(x)))
        return self.head(self.dropout(x.reshape(x.shape[0], -1)))


@pytest.fixture(scope="module")
def given():
    """A model in evaluation mode, an input, its output, and the gradients of the squared output by
    chain.
    """
    nb.seed(0)
    model, x = Net().eval(), jax.random.normal(jax.random.key(0), (2, 4, 4, 1))
    grads = nb.jit(nb.grad(lambda m: (m(x) ** 2).sum()))(model)
    return model, x, nb.jit(model)(x), dict(grads.cont_to_iterator())


def square(y):
    return (y**2).sum()


def packed_for_equinox(model):
    packed = model.to_equinox()
    assert not packed.buffers["norm"]["running_mean"].any()
    return lambda packed, x: packed(x), packed, lambda grads: grads.parameters["conv"]["weight"]


def packed_for_linen(model):
    module, variables = model.to_flax(linen=True)
    made = jax.eval_shape(module.init, jax.random.key(0), jnp.ones((2, 4, 4, 1)))
    assert jax.tree.map(jnp.shape, made) == jax.tree.map(jnp.shape, variables)
    return module.apply, variables, lambda grads: grads["params"]["conv.weight"]


def packed_for_haiku(model):
    transformed, params, state = model.to_haiku()
    call = lambda params, x: transformed.apply(params, state, None, x)[0]
    return call, params, lambda grads: grads["~"]["conv.weight"]


@pytest.mark.parametrize("pack", [packed_for_equinox, packed_for_linen, packed_for_haiku])
def test_a_module_keeps_its_outputs_and_gradients_in_other_frameworks(given, pack):
    model, x, y, grads = given
    call, variables, weight_of = pack(model)
    assert_close(eqx.filter_jit(call)(variables, x), y)
    found = eqx.filter_jit(eqx.filter_grad(lambda v: square(call(v, x))))(variables)
    assert_close(weight_of(found), grads["conv/w"], rtol=1e-4)


def test_equinox_gets_new_buffers_from_update(given):
    _, x, *_ = given
    nb.seed(0)
    model = Net()
    packed = model.to_equinox()
    _, after = eqx.filter_jit(lambda m, x: m.update(x))(packed, x)
    model(x)
    assert_close(after.buffers["norm"]["running_mean"], model.norm.running_mean.value)
    assert not np.array_equal(after.buffers["random_state"], packed.buffers["random_state"])


def test_nnx_gets_a_module_that_trains_with_its_optimizer(given):
    model, x, y, _ = given
    packed = model.to_flax()
    optimizer = nnx.Optimizer(packed, optax.sgd(0.1), wrt=nnx.Param)

    @nnx.jit
    def step(packed, optimizer):
        value, grads = nnx.value_and_grad(lambda m: square(m(x)))(packed)
        optimizer.update(packed, grads)
        return value

    copy = nb.from_flax(packed)
    assert_close(float(step(packed, optimizer)), float(square(y)), rtol=1e-5)
    ours = nb.SGD(0.1)
    ours.update(copy, nb.jit(nb.grad(lambda m: square(m(x))))(copy))
    names = [name for name, _ in copy.named_tensors()]
    assert "variables.conv.weight" in names
    assert "variables.norm.running_mean" in names
    assert_close(
        copy.variables["conv"]["weight"].value, packed.variables["conv"]["weight"][...], rtol=1e-4
    )


def test_the_other_framework_gets_copies_of_the_arrays(given):
    _, x, *_ = given
    model = Net().eval()
    packed = model.to_equinox()
    nb.jit(lambda: setattr(model, "v", model.v * 2), donate=True)()
    packed(x)
    assert not np.array_equal(packed.parameters["conv"]["weight"], model.conv.weight)
