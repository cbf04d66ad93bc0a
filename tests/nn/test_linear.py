import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb
from tests.nn.conftest import close

torch = pytest.importorskip("torch")


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


def test_complex_inputs_are_taken_by_linear():
    layer = nb.Linear(2, 1, v={"w": np.array([[2.0, 3.0]], "f"), "b": np.array([1.0], "f")})
    close(layer(jnp.array([1j, 2.0])), [7 + 2j])


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
