import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("with_bias", [True, False])
def test_linear_agrees_with_torch(with_bias, draws, agrees_with_torch):
    x = draws.normal(size=(2, 5, 3)).astype("f")
    agrees_with_torch(
        nb.Linear(3, 4, with_bias=with_bias), torch.nn.Linear(3, 4, bias=with_bias), x
    )


def test_bilinear_agrees_with_torch(draws, agrees_with_torch):
    x1, x2 = draws.normal(size=(2, 5, 3)).astype("f"), draws.normal(size=(2, 5, 4)).astype("f")
    agrees_with_torch(nb.Bilinear(3, 4, 2), torch.nn.Bilinear(3, 4, 2), x1, x2)


@pytest.mark.parametrize("padding_idx", [None, 2, -1])
def test_embedding_agrees_with_torch(padding_idx, draws, agrees_with_torch):
    indices = np.array([[1, 2, 9], [2, 2, 0]])
    agrees_with_torch(
        nb.Embedding(10, 4, padding_idx=padding_idx),
        torch.nn.Embedding(10, 4, padding_idx=padding_idx),
        indices,
    )


def test_the_padding_row_is_zero_at_first_and_only_it():
    rows = np.asarray(nb.Embedding(5, 3, padding_idx=-2, key=0).weight())
    plain = np.asarray(nb.Embedding(5, 3, key=0).weight())
    assert not rows[3].any()
    np.testing.assert_array_equal(np.delete(rows, 3, 0), np.delete(plain, 3, 0))


@pytest.mark.parametrize(("start", "end"), [(1, -1), (0, -1), (0, 1), (-3, -2), (2, 2)])
def test_flatten_agrees_with_torch(start, end, draws):
    x = draws.normal(size=(2, 3, 4, 5)).astype("f")
    wanted = torch.nn.Flatten(start, end)(torch.tensor(x))
    np.testing.assert_array_equal(nb.Flatten(start, end)(x), wanted)


def test_flatten_takes_an_empty_batch():
    assert nb.Flatten()(jnp.ones((0, 3, 4))).shape == (0, 12)


def test_identity_returns_its_argument_and_takes_any_options():
    x = object()
    assert nb.Identity(54, unused=0.1)(x) is x


def test_names_in_v_are_short_and_in_the_state_dict_long():
    layer = nb.Linear(3, 2)
    assert sorted(layer.v.keys()) == ["b", "w"]
    assert list(layer.state_dict()) == ["bias", "weight"]
    assert layer.weight.shape == (2, 3)
    assert sorted(nb.Bilinear(3, 4, 2).v.keys()) == ["b", "w"]
    assert list(nb.Embedding(3, 4).v.keys()) == ["w"]
    assert list(nb.Linear(3, 2, with_bias=False).state_dict()) == ["weight"]


@pytest.mark.parametrize(
    "make",
    [
        lambda k: nb.Linear(3, 4, key=k),
        lambda k: nb.Bilinear(2, 3, 4, key=k),
        lambda k: nb.Embedding(3, 4, key=k),
    ],
)
def test_a_key_decides_the_first_values_and_leaves_the_default_stream_alone(make):
    nb.seed(0)
    after = nb.Linear(2, 2).weight()
    nb.seed(0)
    first, second, other = make(3), make(jax.random.key(3)), make(4)
    np.testing.assert_array_equal(nb.Linear(2, 2).weight(), after)
    np.testing.assert_array_equal(first.weight(), second.weight())
    assert (np.asarray(first.weight()) != np.asarray(other.weight())).any()


def test_initializers_may_be_numbers_and_see_the_fans():
    layer = nb.Linear(
        3, 2, weight_initializer=0.5, bias_initializer=nb.Uniform(1, "fan_in", 1, 1), key=0
    )
    np.testing.assert_array_equal(layer.weight(), np.full((2, 3), 0.5, "f"))
    assert abs(np.asarray(layer.bias())).max() <= 1 / 3


def test_the_default_weights_are_within_the_bound_of_glorot():
    weight = np.asarray(nb.Linear(40, 60, key=0).weight())
    bound = (6 / 100) ** 0.5
    assert 0.95 * bound < abs(weight).max() <= bound


def test_complex_inputs_are_taken_by_linear():
    layer = nb.Linear(2, 1, v={"w": np.array([[2.0, 3.0]], "f"), "b": np.array([1.0], "f")})
    np.testing.assert_allclose(layer(jnp.array([1j, 2.0])), [7 + 2j])


def test_numpy_arrays_and_boxes_are_inputs_too():
    layer = nb.Linear(3, 2, key=0)
    x = np.arange(3, dtype="f")
    np.testing.assert_array_equal(layer(x), layer(nb.Buffer(x)))


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
        np.testing.assert_allclose(other, with_bias - 1, rtol=1e-6)
    assert "with_bias=False" in repr(layer)
    layer.bias = nb.Parameter(jnp.ones(with_bias.shape[-1]))
    np.testing.assert_allclose(compiled(), with_bias, rtol=1e-6)
