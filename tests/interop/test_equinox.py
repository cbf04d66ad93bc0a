import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb
from tests.interop.architectures import EQUINOX, EquinoxConvolutional, over_rows
from tests.interop.conftest import assert_close


def test_state_is_kept_in_buffers_and_used_in_inference(draws):
    x = jnp.asarray(draws.normal(size=(4, 4, 4, 2)), "float32")
    model, state = eqx.nn.make_with_state(EquinoxConvolutional)()
    wrapped = nb.from_equinox(model, state, call=over_rows)
    assert [name for name, _ in wrapped.named_buffers()] == [
        "norm.batch_counter",
        "norm.batch_state_index.0",
        "norm.batch_state_index.1",
    ]
    wrapped(x)
    back, kept = wrapped.to_equinox()
    wanted, _ = eqx.filter_jit(over_rows)(eqx.nn.inference_mode(back), x, kept)
    assert_close(nb.jit(wrapped.eval())(x), wanted)


def test_donated_steps_leave_the_wrapped_model_unchanged(draws):
    model = EQUINOX["mlp"]()
    before = np.asarray(model.layers[0].weight)
    wrapped = nb.from_equinox(model, call=over_rows)
    step = nb.jit(lambda x: setattr(wrapped, "v", wrapped.v * 2), donate=True)
    step(jnp.ones(3))
    np.testing.assert_array_equal(model.layers[0].weight, before)
    np.testing.assert_array_equal(wrapped.layers[0].weight, 2 * before)


def test_classes_are_as_they_were_after_a_call_that_fails():
    wrapped, before = nb.from_equinox(EQUINOX["mlp"]()), vars(eqx.nn.Linear)["__call__"]
    with pytest.raises(TypeError) as caught:
        wrapped(jnp.ones(4))
    assert any("in layers.0 (Linear)" in note for note in caught.value.__notes__)
    assert vars(eqx.nn.Linear)["__call__"] is before


def test_a_model_given_in_inference_mode_stays_in_it_until_it_is_trained():
    class Dropped(eqx.Module):
        drop: eqx.nn.Dropout = eqx.nn.Dropout(0.5)

        def __call__(self, x):
            return self.drop(x, key=jax.random.key(0))

    x = jnp.ones(20)
    wrapped = nb.from_equinox(eqx.nn.inference_mode(Dropped()))
    assert not wrapped.training
    np.testing.assert_array_equal(wrapped(x), x)
    assert bool((wrapped.train()(x) == 0).any())
    np.testing.assert_array_equal(wrapped.eval()(x), x)
    assert nb.from_equinox(Dropped()).training
    assert nb.from_equinox(eqx.nn.Linear(2, 2, key=jax.random.key(0))).training
