import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nbmodule.nn.functional import activations as a
from tests.nn.conftest import close

from jax_settings import INT

torch = pytest.importorskip("torch")
F = pytest.importorskip("torch.nn.functional")

POINTWISE = {
    "relu": (a.relu, F.relu),
    "relu6": (a.relu6, F.relu6),
    "leaky_relu": (lambda x: a.leaky_relu(x, negative_slope=0.2), lambda x: F.leaky_relu(x, 0.2)),
    "elu": (lambda x: a.elu(x, alpha=1.5), lambda x: F.elu(x, 1.5)),
    "selu": (a.selu, F.selu),
    "celu": (lambda x: a.celu(x, alpha=0.7), lambda x: F.celu(x, 0.7)),
    "hardsigmoid": (a.hardsigmoid, F.hardsigmoid),
    "hardswish": (a.hardswish, F.hardswish),
    "sigmoid": (a.sigmoid, torch.sigmoid),
    "log_sigmoid": (a.log_sigmoid, F.logsigmoid),
    "tanh": (a.tanh, torch.tanh),
    "softsign": (a.softsign, F.softsign),
    "softplus": (lambda x: a.softplus(x, beta=2.0), lambda x: F.softplus(x, 2.0, threshold=1e9)),
    "silu": (a.silu, F.silu),
    "mish": (a.mish, F.mish),
    "gelu": (a.gelu, F.gelu),
    "gelu_tanh": (lambda x: a.gelu(x, approximate=True), lambda x: F.gelu(x, approximate="tanh")),
    "softmax": (a.softmax, lambda x: F.softmax(x, -1)),
    "log_softmax": (lambda x: a.log_softmax(x, axis=0), lambda x: F.log_softmax(x, 0)),
    "glu": (a.glu, F.glu),
}
names = pytest.mark.parametrize("name", POINTWISE)


@names
def test_values_and_gradients_are_those_of_torch(name, draws, agrees_with_torch):
    agrees_with_torch(*POINTWISE[name], draws.normal(scale=3, size=(5, 8)).astype("f"))


@names
def test_kinks_and_zero_have_the_values_and_gradients_of_torch(name, agrees_with_torch):
    points = np.array([[0.0, -0.0, 6.0, -6.0, 1e-30, -1e-30]], "f")
    agrees_with_torch(*POINTWISE[name], points)


@names
def test_gradient_is_finite_for_large_inputs(name):
    x = jnp.array([[-1e4, -90.0, -20.0, 20.0, 90.0, 1e4]])
    value, gradient = jax.value_and_grad(lambda x: POINTWISE[name][0](x).sum())(x)
    assert np.isfinite(value)
    assert np.isfinite(gradient).all()


@names
@pytest.mark.not_under("nans", reason="makes NaN on purpose")
def test_nan_is_kept(name):
    x = jnp.full((2, 4), jnp.nan)
    assert np.isnan(POINTWISE[name][0](x)).all()


def test_relu_takes_integers():
    np.testing.assert_array_equal(a.relu(jnp.array([-2, 3])), [0, 3])
    assert a.relu(jnp.array([-2, 3])).dtype == INT


@pytest.mark.parametrize("shape", [(), (1,)])
def test_prelu_has_one_slope_for_all(shape, draws, agrees_with_torch):
    x, weight = draws.normal(size=(4, 3)).astype("f"), np.full(shape, 0.3, "f")
    agrees_with_torch(a.prelu, lambda x, w: F.prelu(x, w.reshape(1)), x, weight)


def test_logit_inverts_sigmoid(draws, agrees_with_torch):
    p = draws.uniform(0.01, 0.99, size=(6, 3)).astype("f")
    agrees_with_torch(a.logit, torch.logit, p)
    close(a.sigmoid(a.logit(p)), p)


def test_logit_clips_and_has_no_gradient_beyond(agrees_with_torch):
    p = np.array([0.0, 0.05, 0.5, 1.0], "f")
    agrees_with_torch(lambda p: a.logit(p, eps=0.1), lambda p: torch.logit(p, eps=0.1), p)


def test_geglu_gates_by_gelu(draws, agrees_with_torch):
    x = draws.normal(size=(5, 8)).astype("f")
    agrees_with_torch(a.geglu, lambda x: x[:, :4] * F.gelu(x[:, 4:]), x)
    agrees_with_torch(
        lambda x: a.geglu(x, axis=0, approximate=True),
        lambda x: x[:2] * F.gelu(x[2:], approximate="tanh"),
        x[:4],
    )


def test_softmax_gives_masked_logits_no_probability_and_a_finite_gradient(agrees_with_torch):
    x = np.array([[1.0, -np.inf, 2.0]], "f")
    agrees_with_torch(a.softmax, lambda x: F.softmax(x, -1), x)


def test_softmax_of_an_empty_axis_is_empty():
    assert a.softmax(jnp.ones((2, 0))).shape == a.log_softmax(jnp.ones((2, 0))).shape == (2, 0)
