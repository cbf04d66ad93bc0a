import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbmodule.nn.functional.convolution import (
    conv1d,
    conv2d,
    conv3d,
    conv_transpose1d,
    conv_transpose2d,
    conv_transpose3d,
    depthwise_conv2d,
)
from tests.nn.conftest import close

F = pytest.importorskip("torch.nn.functional")

CONV = {1: (conv1d, F.conv1d), 2: (conv2d, F.conv2d), 3: (conv3d, F.conv3d)}
SPREAD = {
    1: (conv_transpose1d, F.conv_transpose1d),
    2: (conv_transpose2d, F.conv_transpose2d),
    3: (conv_transpose3d, F.conv_transpose3d),
}


def through_torch(fn, weight_like_torch=lambda w: w.movedim(-1, 1), **options):
    """A function of torch on channel-last images and our weights."""

    def call(x, weight, *bias):
        return fn(x.movedim(-1, 1), weight_like_torch(weight), *bias, **options).movedim(1, -1)

    return call


CASES = [  # spatial axes, channels in, channels out, options
    (1, 3, 4, {}),
    (1, 4, 6, {"stride": 2, "padding": 1, "dilation": 2, "groups": 2}),
    (1, 3, 4, {"padding": "same"}),
    (2, 3, 4, {}),
    (2, 3, 4, {"stride": (2, 1), "padding": (1, 2), "dilation": (1, 2)}),
    (2, 4, 6, {"groups": 2, "padding": 1}),
    (2, 4, 4, {"groups": 4, "stride": 2, "padding": 2, "dilation": 2}),  # depthwise
    (
        2,
        3,
        6,
        {"groups": 3, "padding": (0, 1), "stride": (1, 2)},
    ),  # depthwise, two kernels a channel
    (3, 2, 4, {"stride": 2, "padding": (1, 0, 1), "groups": 2}),
    (3, 2, 2, {"groups": 2, "padding": (1, 0, 1)}),
]


@pytest.mark.parametrize(("n", "c_in", "c_out", "options"), CASES)
def test_convolution_agrees_with_torch(n, c_in, c_out, options, draws, agrees_with_torch):
    ours, theirs = CONV[n]
    x = draws.normal(size=(2, *(9, 8, 6)[:n], c_in)).astype("f")
    weight = draws.normal(size=(c_out, *(3, 2, 3)[:n], c_in // options.get("groups", 1))).astype(
        "f"
    )
    bias = draws.normal(size=c_out).astype("f")
    agrees_with_torch(
        lambda *a: ours(*a, **options), through_torch(theirs, **options), x, weight, bias, atol=1e-4
    )


@pytest.mark.parametrize("options", [{}, {"stride": 2}, {"stride": (1, 3), "padding": (1, 0)}])
def test_a_kernel_of_one_pixel_agrees_with_torch(options, draws, agrees_with_torch):
    x = draws.normal(size=(2, 5, 6, 3)).astype("f")
    weight = draws.normal(size=(4, 1, 1, 3)).astype("f")
    agrees_with_torch(
        lambda *a: conv2d(*a, **options), through_torch(F.conv2d, **options), x, weight
    )


def test_a_large_depthwise_kernel_agrees_with_torch(draws, agrees_with_torch):
    x = draws.normal(size=(2, 10, 11, 3)).astype("f")
    weight = draws.normal(size=(6, 9, 8, 1)).astype("f")
    agrees_with_torch(
        depthwise_conv2d, through_torch(F.conv2d, groups=3), x, weight, rtol=1e-4, atol=1e-4
    )


SPREAD_CASES = [
    (1, 3, 4, {}),
    (1, 4, 6, {"stride": 3, "padding": 1, "output_padding": 2, "groups": 2}),
    (2, 3, 4, {"stride": 2, "padding": 1, "output_padding": 1}),
    (2, 4, 6, {"stride": (2, 1), "dilation": (2, 3), "groups": 2, "padding": (1, 0)}),
    (3, 2, 4, {"stride": 2, "groups": 2}),
]


@pytest.mark.parametrize(("n", "c_in", "c_out", "options"), SPREAD_CASES)
def test_transposed_convolution_agrees_with_torch(
    n, c_in, c_out, options, draws, agrees_with_torch
):
    ours, theirs = SPREAD[n]
    groups = options.get("groups", 1)

    def weight_like_torch(w):  # (out, *kernel, in / groups) -> (in, out / groups, *kernel)
        return w.reshape(groups, c_out // groups, *w.shape[1:]).movedim(-1, 1).flatten(0, 1)

    x = draws.normal(size=(2, *(5, 4, 3)[:n], c_in)).astype("f")
    weight = draws.normal(size=(c_out, *(3, 2, 3)[:n], c_in // groups)).astype("f")
    bias = draws.normal(size=c_out).astype("f")
    theirs = through_torch(theirs, weight_like_torch, **options)
    agrees_with_torch(lambda *a: ours(*a, **options), theirs, x, weight, bias, atol=1e-4)


@pytest.mark.parametrize(("kernel", "stride"), [(3, 2), (4, 3), (1, 2)])
def test_same_transposed_convolution_is_the_gradient_of_the_same_convolution(kernel, stride, draws):
    small = draws.normal(size=(2, 4, 3)).astype("f")
    weight = draws.normal(size=(5, kernel, 3)).astype("f")
    large = jnp.zeros((2, 4 * stride, 5), "f")
    forward = lambda x: conv1d(x, weight.transpose(2, 1, 0), stride=stride, padding="SAME")
    (wanted,) = jax.vjp(forward, large)[1](small)
    close(
        conv_transpose1d(small, weight, stride=stride, padding="SAME"), wanted, rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize(("size", "kernel", "stride"), [(7, 3, 2), (8, 3, 2), (5, 2, 3), (4, 5, 1)])
def test_same_padding_gives_one_output_for_each_stride(size, kernel, stride):
    y = conv1d(jnp.ones((size, 1)), jnp.ones((1, kernel, 1)), stride=stride, padding="same")
    assert y.shape == (-(-size // stride), 1)


@settings(max_examples=10)
@given(
    batch=st.sampled_from([(), (1,), (0,), (2, 3), (2, 1, 2)]),
    groups=st.sampled_from([1, 2]),
    padding=st.sampled_from([0, 1]),
)
def test_leading_axes_are_only_a_batch(batch, groups, padding):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(*batch, 5, 4, 2)).astype("f")
    weight = rng.normal(size=(2, 3, 3, 2 // groups)).astype("f")
    y = conv2d(x, weight, groups=groups, padding=padding)
    rows = [conv2d(row, weight, groups=groups, padding=padding) for row in x.reshape(-1, 5, 4, 2)]
    assert y.shape == (*batch, 3 + 2 * padding, 2 + 2 * padding, 2)
    close(
        y.reshape(-1, *y.shape[-3:]),
        np.array(rows).reshape(-1, *y.shape[-3:]),
        rtol=1e-4,
        atol=1e-5,
    )


@pytest.mark.parametrize("padding", [(1, 2), ((1, 1), (2, 2)), [[1, 1], [2, 2]], (np.int64(1), 2)])
def test_forms_of_padding_mean_the_same(padding):
    x, weight = jnp.ones((4, 4, 1)), jnp.ones((1, 3, 3, 1))
    wanted = conv2d(jnp.pad(x, ((1, 1), (2, 2), (0, 0))), weight)
    np.testing.assert_array_equal(conv2d(x, weight, padding=padding), wanted)


def test_uneven_padding_makes_a_causal_convolution(draws):
    x, weight = draws.normal(size=(6, 1)).astype("f"), draws.normal(size=(1, 3, 1)).astype("f")
    y = conv1d(x, weight, padding=((2, 0),))
    changed = conv1d(np.concatenate([x[:4], x[4:] + 9]), weight, padding=((2, 0),))
    np.testing.assert_array_equal(y[:4], changed[:4])


IMAGE, WEIGHT = jnp.ones((8, 8, 3)), jnp.ones((4, 3, 3, 3))


def test_a_convolution_is_one_operation_of_the_program(operations):
    assert operations(conv2d, IMAGE, WEIGHT).count("conv_general_dilated") == 1
    assert not {"jit", "pjit"} & set(
        operations(lambda x, w: conv_transpose2d(x, w, stride=2), IMAGE, WEIGHT)
    )
