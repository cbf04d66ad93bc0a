import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb
from tests.interop.conftest import assert_close, assert_trained_alike, assert_viewed, batches_of


def convolutional(x):
    x = jax.nn.relu(hk.BatchNorm(True, True, 0.9)(hk.Conv2D(3, 3)(x), is_training=True))
    return hk.Linear(2)(x.reshape(x.shape[0], -1))


def recurrent(x):
    core = hk.LSTM(4)
    outputs, _ = hk.dynamic_unroll(core, x, core.initial_state(x.shape[0]), time_major=False)
    return hk.Linear(2)(outputs[:, -1])


def transformer(x):
    y = hk.LayerNorm(-1, True, True)(x)
    x = x + hk.MultiHeadAttention(2, 2, model_size=4, w_init=hk.initializers.VarianceScaling())(
        y, y, y
    )
    return x + hk.nets.MLP([8, 4])(x)


CASES = {
    "mlp": (lambda x: hk.nets.MLP([8, 2])(x), (4, 3), (4, 2)),
    "convolutional": (convolutional, (4, 4, 4, 2), (4, 2)),
    "recurrent": (recurrent, (4, 5, 3), (4, 2)),
    "transformer": (transformer, (3, 5, 4), (3, 5, 4)),
}


@pytest.mark.parametrize("case", CASES)
def test_outputs_gradients_and_ten_steps_agree(case, draws):
    fn, inputs, outputs = CASES[case]
    transformed, batches = hk.transform_with_state(fn), batches_of(draws, inputs, outputs)
    params, state = jax.jit(transformed.init)(jax.random.key(0), batches[0][0])
    wrapped = nb.from_haiku(transformed, params, state)
    apply = lambda params, state, x: transformed.apply(params, state, None, x)
    chain_of = lambda keys: "/".join(key.key for key in keys).replace("/~/", "/")
    last = assert_trained_alike(wrapped, apply, params, state, batches, chain_of)
    same, *kept = wrapped.to_haiku()
    assert same is transformed
    assert_close(kept, [*last], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("case", CASES)
def test_an_unconverted_function_is_viewed_with_its_own_numbers(case, draws):
    fn, shape, _ = CASES[case]
    net, x = (
        hk.without_apply_rng(hk.transform_with_state(fn)),
        jnp.asarray(draws.normal(size=shape), "float32"),
    )
    params, state = net.init(jax.random.key(0), x)
    assert_viewed(net, (params, state, x), net.apply(params, state, x)[0])


def test_a_function_that_draws_gets_keys():
    transformed = hk.transform(lambda x: hk.dropout(hk.next_rng_key(), 0.5, x))
    wrapped = nb.from_haiku(transformed, {}, with_rng=True)
    assert not np.array_equal(wrapped(jnp.ones(64)), wrapped(jnp.ones(64)))


@pytest.mark.parametrize(
    "fn",
    [lambda x: hk.Linear(2)(x), lambda *xs: hk.Linear(2)(xs[0]), lambda rng: hk.Linear(2)(rng)],
)
@pytest.mark.parametrize("transform", [hk.transform, hk.transform_with_state])
def test_a_function_that_takes_no_key_is_called_without_one(transform, fn):
    transformed, x = hk.without_apply_rng(transform(fn)), jnp.arange(6.0).reshape(2, 3)
    made = transformed.init(jax.random.key(0), x)
    made = made if transform is hk.transform_with_state else (made,)
    expected = transformed.apply(*made, x)
    np.testing.assert_allclose(
        nb.from_haiku(transformed, *made)(x),
        expected[0] if transform is hk.transform_with_state else expected,
        rtol=1e-6,
    )


def test_a_function_written_around_apply_still_gets_its_key():
    net, x = (
        hk.transform(lambda x: hk.dropout(hk.next_rng_key(), 0.5, hk.Linear(2)(x))),
        jnp.ones((2, 3)),
    )
    around = hk.Transformed(net.init, lambda params, *args: net.apply(params, *args))
    params = net.init(jax.random.key(0), x)
    assert nb.from_haiku(around, params, with_rng=True)(x).shape == (2, 2)


def test_layers_of_a_stack_are_apart_from_those_outside():
    def forward(x):
        x = hk.experimental.layer_stack(2)(lambda h: hk.Linear(3)(h))(x)
        return hk.Linear(3)(x)

    net = hk.transform(forward)
    x = jnp.ones((2, 3))
    params = net.init(jax.random.key(0), x)
    rows = {row.path: row for row in nb.summary(net, params, None, x)}
    assert rows["linear"].calls == 1 and rows["linear"].parameters == 12
    assert rows["__layer_stack_no_per_layer.linear"].parameters == 24
    assert rows["__layer_stack_no_per_layer.linear"].calls
