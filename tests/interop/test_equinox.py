import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb
from tests.interop.conftest import assert_close, assert_trained_alike, assert_viewed, batches_of

KEY = jax.random.key(0)


class Convolutional(eqx.Module):
    conv: eqx.nn.Conv2d
    norm: eqx.nn.BatchNorm
    head: eqx.nn.Linear

    def __init__(self):
        first, second = jax.random.split(KEY)
        self.conv = eqx.nn.Conv2d(2, 3, 3, key=first)
        self.norm = eqx.nn.BatchNorm(3, "batch", mode="batch")
        self.head = eqx.nn.Linear(3 * 4, 2, key=second)

    def __call__(self, x, state):
        x, state = self.norm(self.conv(x), state)
        return self.head(jax.nn.relu(x).reshape(-1)), state


class Recurrent(eqx.Module):
    cell: eqx.nn.LSTMCell
    head: eqx.nn.Linear

    def __init__(self):
        first, second = jax.random.split(KEY)
        self.cell, self.head = eqx.nn.LSTMCell(3, 4, key=first), eqx.nn.Linear(4, 2, key=second)

    def __call__(self, xs):
        start = jnp.zeros(4), jnp.zeros(4)
        state, _ = jax.lax.scan(lambda state, x: (self.cell(x, state), None), start, xs)
        return self.head(state[0])


class Block(eqx.Module):
    attention: eqx.nn.MultiheadAttention
    norm: eqx.nn.LayerNorm
    layers: list

    def __init__(self):
        first, second = jax.random.split(KEY)
        self.attention, self.norm = eqx.nn.MultiheadAttention(2, 4, key=first), eqx.nn.LayerNorm(4)
        self.layers = [
            eqx.nn.Linear(4, 8, key=second),
            jax.nn.gelu,
            eqx.nn.Linear(8, 4, key=second),
        ]

    def __call__(self, x):
        y = jax.vmap(self.norm)(x)
        x = x + self.attention(y, y, y)
        for layer in self.layers:
            y = jax.vmap(layer)(y) if isinstance(layer, eqx.Module) else layer(y)
        return x + y


def over_rows(model, x):
    return jax.vmap(model)(x)


def chain_of(keys):
    return "/".join(getattr(key, "name", f"v{getattr(key, 'idx', '')}") for key in keys)


CASES = {
    "mlp": (lambda: eqx.nn.MLP(3, 2, 8, 1, key=KEY), (4, 3), (4, 2)),
    "recurrent": (Recurrent, (4, 5, 3), (4, 2)),
    "transformer": (Block, (3, 5, 4), (3, 5, 4)),
}


@pytest.mark.parametrize("case", CASES)
def test_outputs_gradients_and_ten_steps_agree(case, draws):
    make, inputs, outputs = CASES[case]
    model, batches = make(), batches_of(draws, inputs, outputs)
    wrapped = nb.from_equinox(model, call=over_rows)
    params, static = eqx.partition(model, eqx.is_inexact_array)
    apply = lambda params, state, x: (over_rows(eqx.combine(params, static), x), state)

    last, _ = assert_trained_alike(wrapped, apply, params, None, batches, chain_of)
    back = wrapped.to_equinox()
    assert type(back) is type(model)
    assert_close(eqx.filter(back, eqx.is_inexact_array), last, rtol=1e-4)


def normed():
    layers = [eqx.nn.Conv2d(2, 3, 3, key=KEY), eqx.nn.GroupNorm(1, 3), eqx.nn.Lambda(jax.nn.relu)]
    return eqx.nn.Sequential(layers)


@pytest.mark.parametrize("case", [*CASES, "convolutional"])
def test_an_unconverted_model_is_viewed_with_its_own_numbers(case, draws):
    make, shape, _ = CASES.get(case, (normed, (1, 2, 5, 5), ()))
    model, x = make(), jnp.asarray(draws.normal(size=shape[1:]), "float32")
    assert_viewed(model, (x,), model(x))


def test_state_is_kept_in_buffers_and_handed_back(draws):
    model, state = eqx.nn.make_with_state(Convolutional)()
    call = lambda model, x, state: jax.vmap(
        model, axis_name="batch", in_axes=(0, None), out_axes=(0, None)
    )(x, state)
    batches = batches_of(draws, (4, 2, 4, 4), (4, 2))
    wrapped = nb.from_equinox(model, state, call=call)
    params, static = eqx.partition(model, eqx.is_inexact_array)
    apply = lambda params, state, x: call(eqx.combine(params, static), x, state)
    _, last = assert_trained_alike(wrapped, apply, params, state, batches, chain_of)
    _, kept = wrapped.to_equinox()
    assert_close(
        kept.get(model.norm.batch_state_index), last.get(model.norm.batch_state_index), rtol=1e-4
    )
    assert [name for name, _ in wrapped.named_buffers()] == [
        "norm.batch_counter",
        "norm.batch_state_index.0",
        "norm.batch_state_index.1",
    ]
    inference = eqx.nn.inference_mode(wrapped.to_equinox()[0])
    wanted = eqx.filter_jit(lambda m, x: call(m, x, kept)[0])(inference, batches[0][0])
    assert_close(nb.jit(wrapped.eval())(batches[0][0]), wanted)


def test_donated_steps_leave_the_wrapped_model_unchanged(draws):
    model = CASES["mlp"][0]()
    before = np.asarray(model.layers[0].weight)
    wrapped = nb.from_equinox(model, call=over_rows)
    step = nb.jit(lambda x: setattr(wrapped, "v", wrapped.v * 2), donate=True)
    step(jnp.ones(3))
    np.testing.assert_array_equal(model.layers[0].weight, before)
    np.testing.assert_array_equal(wrapped.layers[0].weight, 2 * before)


def test_classes_are_as_they_were_after_a_call_that_fails():
    wrapped, before = nb.from_equinox(CASES["mlp"][0]()), vars(eqx.nn.Linear)["__call__"]
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
