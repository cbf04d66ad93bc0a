import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb


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
