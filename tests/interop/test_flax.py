import copy
import pickle

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import nbmodule as nb
from tests.interop.architectures import Nnx


class Dropped(nn.Module):
    @nn.compact
    def __call__(self, x, train=True):
        return nn.Dropout(0.5, deterministic=not train)(nn.Dense(64)(x))


def test_parts_without_variables_are_met_in_the_first_call_or_by_an_example():
    module, x = Dropped(), jnp.ones((2, 3))
    variables = module.init(jax.random.key(0), x, train=False)
    wrapped = nb.from_flax(module, variables, rngs=("dropout",))
    assert [name for name, _ in wrapped.named_children()] == ["Dense_0"]
    wrapped(x)
    known = nb.from_flax(module, variables, x, rngs=("dropout",), train=False)
    assert [name for name, _ in wrapped.named_children()] == [
        name for name, _ in known.named_children()
    ]
    with nb.track(known) as calls:
        nb.jit(lambda x: known(x))(x)
    assert calls.paths == ("", "Dense_0", "Dropout_0")
    assert [call.class_name for call in calls] == ["Dropped", "Dense", "Dropout"]


def test_a_model_that_draws_gets_another_key_in_each_call():
    module, x = Dropped(), jnp.ones((2, 3))
    wrapped = nb.from_flax(
        module, module.init(jax.random.key(0), x, train=False), rngs=("dropout",)
    )
    step = nb.jit(lambda x: wrapped(x))
    assert not np.array_equal(step(x) == 0, step(x) == 0)
    assert not (wrapped(x, train=False) == 0).any()


class Normed(nnx.Module):
    def __init__(self):
        self.norm = nnx.BatchNorm(3, rngs=nnx.Rngs(0))
        self.drop = nnx.Dropout(0.5, rngs=nnx.Rngs(1))

    def __call__(self, x):
        return self.drop(self.norm(x))


def test_an_nnx_model_given_in_evaluation_mode_stays_in_it_until_it_is_trained(draws):
    x, model = jnp.asarray(draws.normal(size=(5, 3)) + 1), Normed()
    model.eval()
    wrapped = nb.from_flax(model)
    assert not wrapped.training
    np.testing.assert_allclose(wrapped(x), model(x), rtol=1e-6)
    assert bool((wrapped.train()(x) == 0).any())  # dropout
    np.testing.assert_allclose(wrapped.norm.mean, 0.01 * np.mean(x, 0), rtol=1e-4)
    assert not bool((wrapped.eval()(x) == 0).any())


def test_an_nnx_model_given_in_training_mode_or_without_modes_is_in_training_mode():
    assert nb.from_flax(Normed()).training
    assert nb.from_flax(nnx.Linear(2, 2, rngs=nnx.Rngs(0))).training


def test_a_shared_nnx_module_is_listed_once_and_called_under_one_path():
    class Shared(nnx.Module):
        def __init__(self, rngs):
            self.first = nnx.Linear(3, 3, rngs=rngs)
            self.second = self.first

        def __call__(self, x):
            return self.second(self.first(x))

    wrapped = nb.from_flax(Shared(nnx.Rngs(0)))
    assert len(list(wrapped.parameters())) == 2
    with nb.track(wrapped) as calls:
        wrapped(jnp.ones((1, 3)))
    assert [(call.path, call.index) for call in calls] == [("", 0), ("first", 0), ("first", 1)]


def test_copies_and_pickles_have_variables_of_their_own():
    # Layers of Flax 0.12.0 keep their initializer, and what JAX makes as one is a local function,
    # which no pickle takes.
    model, x = Nnx(nnx.Rngs(0), kernel_init=jax.nn.initializers.ones), jnp.ones((1, 4, 4, 2))
    wrapped = nb.from_flax(model)
    for other in (copy.deepcopy(wrapped), pickle.loads(pickle.dumps(wrapped))):
        np.testing.assert_allclose(other.eval()(x), wrapped.eval()(x), rtol=1e-6)
        other.v = other.v * 0
        assert wrapped.v["conv/kernel"].any()


def test_the_error_of_a_stream_without_a_name_shows_how_to_name_it():
    drop = nn.Dropout(0.5, deterministic=False)
    with pytest.raises(Exception, match="needs PRNG") as caught:
        nb.from_flax(drop, {"params": {}})(np.ones(3, np.float32))
    assert any("rngs=('dropout',)" in note for note in caught.value.__notes__)
    assert set(
        np.unique(nb.from_flax(drop, {"params": {}}, rngs=("dropout",))(np.ones(64, np.float32)))
    ) == {0.0, 2.0}
