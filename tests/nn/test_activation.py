import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nbmodule as nb
from nbmodule.errors import ArgumentError, ArgumentTypeError, DtypeError, ShapeError

from jax_settings import spelled

torch = pytest.importorskip("torch")


class TorchGEGLU(torch.nn.Module):
    def forward(self, x):
        first, second = x.chunk(2, -1)
        return first * torch.nn.functional.gelu(second)


class TorchLogit(torch.nn.Module):
    def forward(self, x):
        return torch.logit(x, 1e-3)


PAIRS = [
    (nb.ReLU(), torch.nn.ReLU()),
    (nb.ReLU6(), torch.nn.ReLU6()),
    (nb.LeakyReLU(negative_slope=0.3), torch.nn.LeakyReLU(0.3)),
    (nb.ELU(alpha=0.7), torch.nn.ELU(0.7)),
    (nb.SELU(), torch.nn.SELU()),
    (nb.CELU(alpha=0.7), torch.nn.CELU(0.7)),
    (nb.GELU(), torch.nn.GELU()),
    (nb.GELU(approximate=True), torch.nn.GELU("tanh")),
    (nb.SiLU(), torch.nn.SiLU()),
    (nb.Mish(), torch.nn.Mish()),
    (nb.Softplus(beta=1.5), torch.nn.Softplus(1.5, 50.0)),
    (nb.Softsign(), torch.nn.Softsign()),
    (nb.Sigmoid(), torch.nn.Sigmoid()),
    (nb.LogSigmoid(), torch.nn.LogSigmoid()),
    (nb.Hardsigmoid(), torch.nn.Hardsigmoid()),
    (nb.Hardswish(), torch.nn.Hardswish()),
    (nb.Tanh(), torch.nn.Tanh()),
    (nb.Softmax(axis=0), torch.nn.Softmax(0)),
    (nb.LogSoftmax(), torch.nn.LogSoftmax(-1)),
    (nb.GLU(axis=0), torch.nn.GLU(0)),
    (nb.GEGLU(), TorchGEGLU()),
    (nb.Logit(eps=1e-3), TorchLogit()),
]


@pytest.mark.parametrize(("ours", "theirs"), PAIRS, ids=lambda layer: type(layer).__name__)
def test_activation_agrees_with_torch(ours, theirs, draws, agrees_with_torch):
    x = (draws.normal(size=(4, 6)) * 3).astype("f")
    agrees_with_torch(
        ours,
        theirs,
        draws.uniform(0.01, 0.99, size=(4, 6)).astype("f") if isinstance(ours, nb.Logit) else x,
    )


@pytest.mark.parametrize(("count", "axis"), [(1, -1), (4, -1), (3, 1)])
def test_prelu_agrees_with_torch(count, axis, draws, agrees_with_torch):
    x = draws.normal(size=(5, 3, 4)).astype("f")

    def call(module, x):
        return module(x) if axis == 1 else module(x.movedim(-1, 1)).movedim(1, -1)

    agrees_with_torch(nb.PReLU(count, axis=axis), torch.nn.PReLU(count), x, call=call)


def test_the_slope_of_prelu_begins_at_a_quarter_and_is_trained():
    layer = nb.PReLU(3)
    assert layer.v.w.tolist() == [0.25] * 3
    np.testing.assert_array_equal(
        nb.grad(lambda layer: layer(jnp.array([-1.0, -2.0, 3.0])).sum())(layer).w, [-1, -2, 0]
    )


def test_a_layer_computes_what_the_function_of_its_name_computes(draws):
    x = draws.normal(size=(4, 6)).astype("f")
    np.testing.assert_array_equal(nb.GELU()(x), nb.gelu(x))
    np.testing.assert_array_equal(
        nb.LeakyReLU(negative_slope=0.2)(x), nb.leaky_relu(x, negative_slope=0.2)
    )
    np.testing.assert_array_equal(nb.Softmax(axis=0)(x), nb.softmax(x, axis=0))


def test_an_option_can_be_changed_afterwards():
    layer = nb.LeakyReLU()
    compiled = nb.jit(layer)
    assert compiled(jnp.array([-1.0])).tolist() == pytest.approx([-0.01])
    layer.negative_slope = 0.5
    assert compiled(jnp.array([-1.0])).tolist() == layer(jnp.array([-1.0])).tolist() == [-0.5]


@settings(max_examples=6)
@given(
    shape=st.sampled_from([(), (0,), (2,), (2, 1, 3)]),
    layer=st.sampled_from([nb.ReLU(), nb.GELU(), nb.Sigmoid()]),
)
def test_shape_and_dtype_stay(shape, layer):
    y = layer(jnp.ones(shape, jnp.bfloat16))
    assert (y.shape, y.dtype) == (shape, jnp.bfloat16)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: nb.ReLU(slope=1),
            ArgumentError,
            "ReLU has no option slope; its options are: none",
        ),
        (lambda: nb.ELU(beta=1), ArgumentError, "ELU has no option beta; its options are: alpha"),
        (
            lambda: nb.GELU()(jnp.ones(3, int)),
            DtypeError,
            r"gelu: x must hold floating values, got int32\[3\]",
        ),
        (lambda: nb.GLU()(jnp.ones((2, 3))), ShapeError, r"got float32\[2, 3\]"),
        (lambda: nb.Softmax(axis=2)(jnp.ones(3)), ArgumentError, "axis must lie in -1 to 0"),
        (
            lambda: nb.PReLU(3)(jnp.ones((2, 4))),
            ShapeError,
            r"got float32\[3\] for x float32\[2, 4\]",
        ),
        (lambda: nb.PReLU(0), ArgumentError, "num_parameters must be at least 1, got 0"),
        (lambda: nb.PReLU(axis="a"), ArgumentTypeError, "axis must be a whole number, got 'a'"),
    ],
)
def test_bad_input_is_refused_in_one_line(call, error, message):
    with pytest.raises(error, match=spelled(message)) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_texts_say_what_is_not_usual():
    assert repr(nb.ReLU()) == "ReLU()"
    assert repr(nb.LeakyReLU(negative_slope=0.2)) == "LeakyReLU(negative_slope=0.2)"
    assert repr(nb.GELU(approximate=False)) == "GELU()"
