"""Behavior of single layers, in addition to the laws of all layers."""

import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb
from nbmodule.nn.attention import (
    LearnedPositionalEncoding,
    RotaryPositionalEncoding,
    SinusoidalPositionalEncoding,
)
from tests.nn.conftest import close


def test_the_padding_row_is_zero_at_first_and_only_it():
    rows = np.asarray(nb.Embedding(5, 3, padding_idx=-2, key=0).weight())
    plain = np.asarray(nb.Embedding(5, 3, key=0).weight())
    assert not rows[3].any()
    np.testing.assert_array_equal(np.delete(rows, 3, 0), np.delete(plain, 3, 0))


def test_flatten_takes_an_empty_batch():
    assert nb.Flatten()(jnp.ones((0, 3, 4))).shape == (0, 12)


def test_identity_returns_its_argument_and_takes_any_options():
    x = object()
    assert nb.Identity(54, unused=0.1)(x) is x


@pytest.mark.parametrize(
    ("make", "x"),
    [
        (lambda **options: nb.Linear(3, 2, **options), (4, 3)),
        (lambda **options: nb.Conv1d(3, 2, 1, **options), (4, 5, 3)),
        (lambda **options: nb.ConvTranspose1d(3, 2, 1, **options), (4, 5, 3)),
        (lambda **options: nb.DepthwiseConv2d(3, 1, **options), (4, 5, 5, 3)),
    ],
)
def test_a_bias_can_be_taken_away_asked_for_and_put_back(make, x):
    layer, x = make(bias_initializer=nb.Ones()), jnp.ones(x)
    plain, compiled = make(with_bias=False), nb.jit(lambda: layer(x))
    assert plain.bias is None and list(plain.state_dict()) == ["weight"]
    with_bias, layer.bias = compiled(), None
    plain.weight = layer.weight
    for other in (layer(x), compiled(), plain(x)):
        close(other, with_bias - 1)
    assert "with_bias=False" in repr(layer)
    layer.bias = nb.Parameter(jnp.ones(with_bias.shape[-1]))
    close(compiled(), with_bias)


def test_the_slope_of_prelu_begins_at_a_quarter():
    assert nb.PReLU(3).v.w.tolist() == [0.25] * 3


def test_an_option_can_be_changed_afterwards():
    layer = nb.LeakyReLU()
    compiled = nb.jit(layer)
    assert compiled(jnp.array([-1.0])).tolist() == pytest.approx([-0.01])
    layer.negative_slope = 0.5
    assert compiled(jnp.array([-1.0])).tolist() == layer(jnp.array([-1.0])).tolist() == [-0.5]


def test_a_list_is_as_good_as_a_tuple(draws):
    x = draws.normal(size=(1, 6, 6, 2)).astype("f")
    listed = nb.Conv2d(
        2, 3, [3, 2], stride=[2, 1], padding=[[1, 0], [0, 1]], dilation=[1, 1], key=0
    )
    wanted = nb.Conv2d(
        2, 3, (3, 2), stride=(2, 1), padding=((1, 0), (0, 1)), dilation=(1, 1), key=0
    )
    np.testing.assert_array_equal(listed(x), wanted(x))


def test_names_and_shapes_of_the_variables():
    layer = nb.Conv2d(4, 6, (3, 5), groups=2)
    assert list(layer.state_dict()) == ["bias", "weight"]
    assert sorted(layer.v.keys()) == ["b", "w"]
    assert layer.weight.shape == (6, 3, 5, 2)
    assert nb.ConvTranspose2d(4, 6, 3, groups=2).weight.shape == (6, 3, 3, 2)


def test_sinusoids_are_added_in_the_dtype_of_the_input_and_have_no_variables():
    layer = SinusoidalPositionalEncoding(4)
    assert not layer.state_dict()
    assert layer(jnp.ones((5, 4), jnp.bfloat16)).dtype == jnp.bfloat16
    close(layer(jnp.ones((5, 4))) - layer(jnp.zeros((5, 4))), 1)


def test_learned_vectors_are_added_and_trained(draws):
    layer = LearnedPositionalEncoding(7, 3, key=0)
    x = jnp.asarray(draws.normal(size=(2, 4, 3)), jnp.float32)
    close(layer(x), x + np.asarray(layer.weight())[:4])
    grads = nb.grad(lambda layer: layer(x).sum())(layer)
    np.testing.assert_array_equal(grads.w, [[2.0] * 3] * 4 + [[0.0] * 3] * 3)
    assert abs(np.asarray(LearnedPositionalEncoding(50, 60, key=0).weight()).std() - 0.02) < 0.002


def test_rotary_encoding_takes_positions(draws):
    x, positions = draws.normal(size=(5, 8)).astype("f"), np.array([7, 3, 0, 1, 9])
    wanted = nb.F.rotary_embedding(x, positions, base=100.0)
    np.testing.assert_array_equal(RotaryPositionalEncoding(base=100.0)(x, positions), wanted)
