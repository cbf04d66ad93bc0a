import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nbmodule as nb
from nbmodule.errors import ArgumentError, ArgumentTypeError, DtypeError, ShapeError

from jax_settings import spelled

torch = pytest.importorskip("torch")

CONV = {
    1: (nb.Conv1d, torch.nn.Conv1d),
    2: (nb.Conv2d, torch.nn.Conv2d),
    3: (nb.Conv3d, torch.nn.Conv3d),
}
SPREAD = {
    1: (nb.ConvTranspose1d, torch.nn.ConvTranspose1d),
    2: (nb.ConvTranspose2d, torch.nn.ConvTranspose2d),
    3: (nb.ConvTranspose3d, torch.nn.ConvTranspose3d),
}
SIZES = (7, 6, 5)


def channels_last(module, x):
    return module(x.movedim(-1, 1)).movedim(1, -1)


def transposed_weight(groups):
    """(out, *kernel, in / groups) laid out as torch's (in, out / groups, *kernel)."""

    def laid_out(w):
        return np.concatenate(
            [np.moveaxis(part, (0, -1), (1, 0)) for part in np.split(w, groups)], 0
        )

    return laid_out


@pytest.mark.parametrize(
    ("n", "options"),
    [
        (1, {"stride": 2, "padding": 1, "dilation": 2, "groups": 2}),
        (2, {}),
        (2, {"stride": (2, 1), "padding": (1, 0), "dilation": (1, 2), "groups": 2}),
        (2, {"padding": "same", "with_bias": False}),
        (3, {"padding": 1, "groups": 2}),
    ],
)
def test_convolution_agrees_with_torch(n, options, draws, agrees_with_torch):
    ours, theirs = CONV[n]
    for_torch = {"bias" if name == "with_bias" else name: value for name, value in options.items()}
    x = draws.normal(size=(2, *SIZES[:n], 4)).astype("f")
    names = {"weight": ("weight", lambda w: np.moveaxis(w, -1, 1))}
    agrees_with_torch(
        ours(4, 6, 3, **options), theirs(4, 6, 3, **for_torch), x, names=names, call=channels_last
    )


@pytest.mark.parametrize(
    ("n", "options"),
    [
        (1, {"stride": 3, "padding": 1, "output_padding": 2, "groups": 2}),
        (2, {"stride": (2, 1), "padding": (1, 0), "dilation": (1, 2), "output_padding": (1, 0)}),
        (3, {"stride": 2, "with_bias": False}),
    ],
)
def test_transposed_convolution_agrees_with_torch(n, options, draws, agrees_with_torch):
    ours, theirs = SPREAD[n]
    for_torch = {"bias" if name == "with_bias" else name: value for name, value in options.items()}
    x = draws.normal(size=(2, *(5, 4, 3)[:n], 4)).astype("f")
    names = {"weight": ("weight", transposed_weight(options.get("groups", 1)))}
    agrees_with_torch(
        ours(4, 6, 3, **options), theirs(4, 6, 3, **for_torch), x, names=names, call=channels_last
    )


def test_depthwise_convolution_agrees_with_grouped_convolution_of_torch(draws, agrees_with_torch):
    x = draws.normal(size=(2, 6, 5, 3)).astype("f")
    theirs = torch.nn.Conv2d(3, 6, 3, padding=1, groups=3)
    names = {"weight": ("weight", lambda w: np.moveaxis(w, -1, 1))}
    agrees_with_torch(
        nb.DepthwiseConv2d(3, 3, depth_multiplier=2, padding=1),
        theirs,
        x,
        names=names,
        call=channels_last,
    )


@pytest.mark.parametrize(
    ("kind", "n"), [("Conv", 1), ("Conv", 2), ("Conv", 3), ("ConvTranspose", 2)]
)
def test_channels_may_come_first(kind, n, draws):
    layer, first = {1: "NWC", 2: "NHWC", 3: "NDHWC"}[n], {1: "NCW", 2: "NCHW", 3: "NCDHW"}[n]
    make = getattr(nb, f"{kind}{n}d")
    x = draws.normal(size=(2, *SIZES[:n], 4)).astype("f")
    wanted = make(4, 3, 2, key=0, data_format=layer)(x)
    found = make(4, 3, 2, key=0, data_format=first)(np.moveaxis(x, -1, 1))
    np.testing.assert_allclose(np.moveaxis(found, 1, -1), wanted, rtol=1e-5, atol=1e-5)


@settings(max_examples=5)
@given(batch=st.sampled_from([(), (0,), (2, 3)]), first=st.booleans())
def test_leading_axes_are_only_a_batch(batch, first):
    layer = nb.Conv2d(2, 3, 3, padding=1, key=0, data_format="NCHW" if first else "NHWC")
    x = (
        np.random.default_rng(0)
        .normal(size=(*batch, *((2, 5, 4) if first else (5, 4, 2))))
        .astype("f")
    )
    found = layer(x)
    assert found.shape == (*batch, *((3, 5, 4) if first else (5, 4, 3)))
    rows = x.reshape(-1, *x.shape[-3:])
    for mine, row in zip(found.reshape(-1, *found.shape[-3:]), rows, strict=True):
        np.testing.assert_allclose(mine, layer(row), rtol=1e-4, atol=1e-5)


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


def test_both_fans_count_the_area_of_the_kernel():
    weight = np.asarray(nb.Conv2d(8, 16, 5, key=0).weight())
    bound = (6 / (25 * 8 + 25 * 16)) ** 0.5
    assert 0.98 * bound < abs(weight).max() <= bound


def test_a_key_decides_the_first_values():
    first, second = nb.Conv1d(2, 3, 3, key=5), nb.Conv1d(2, 3, 3, key=jax.random.key(5))
    np.testing.assert_array_equal(first.weight(), second.weight())


def test_dtype_is_the_one_asked_for():
    layer = nb.Conv2d(2, 3, 3, dtype="bfloat16")
    assert (
        layer.weight.dtype
        == layer.bias.dtype
        == layer(jnp.ones((1, 4, 4, 2), jnp.bfloat16)).dtype
        == jnp.bfloat16
    )


def test_names_with_a_capital_are_aliases():
    assert nb.Conv2D is nb.Conv2d
    assert nb.ConvTranspose3D is nb.ConvTranspose3d
    assert nb.DepthwiseConv2D is nb.DepthwiseConv2d


def test_a_compiled_layer_gives_what_an_eager_one_gives(draws):
    layer, x = nb.Conv2d(3, 4, 3, key=0), draws.normal(size=(2, 6, 6, 3)).astype("f")
    np.testing.assert_allclose(nb.jit(layer)(x), layer(x), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: nb.Conv2d(3, 4, 3)(jnp.ones((2, 8, 8, 4))),
            ShapeError,
            r"conv2d: x must have 3 channels .*got 4 in x float32\[2, 8, 8, 4\]",
        ),
        (
            lambda: nb.Conv2d(3, 4, 3)(jnp.ones((8, 3))),
            ShapeError,
            r"x must have axes \(\*batch, H, W, C\), got float32\[8, 3\]",
        ),
        (lambda: nb.Conv2d(3, 4, 9)(jnp.ones((1, 8, 8, 3))), ShapeError, "does not fit"),
        (lambda: nb.Conv2d(3, 4, 3)(jnp.ones((1, 8, 8, 3), int)), DtypeError, "got int32"),
        (
            lambda: nb.Conv2d(3, 4, 3, groups=2),
            ArgumentError,
            "in_channels=3 cannot be divided into 2 groups",
        ),
        (
            lambda: nb.Conv2d(4, 3, 3, groups=2),
            ArgumentError,
            "out_channels=3 cannot be divided into 2 groups",
        ),
        (lambda: nb.Conv2d(-1, 4, 3), ArgumentError, "in_channels must be at least 1, got -1"),
        (lambda: nb.Conv2d(3, 4, 0), ArgumentError, "kernel_size must be at least 1, got 0"),
        (
            lambda: nb.Conv2d(3, 4, (3, 3, 3)),
            ArgumentError,
            r"kernel_size must be a number or 2 of them, got \[3, 3, 3\]",
        ),
        (lambda: nb.Conv2d(3, 4, "3"), ArgumentTypeError, "kernel_size must be a whole number"),
        (lambda: nb.Conv2d(3, 4, 3, stride=0), ArgumentError, "stride must be at least 1"),
        (
            lambda: nb.Conv2d(3, 4, 3, padding=-1),
            ArgumentError,
            "padding must be at least 0, got -1",
        ),
        (
            lambda: nb.Conv2d(3, 4, 3, padding="full"),
            ArgumentError,
            "padding must be 'SAME', 'VALID' or numbers, got 'full'",
        ),
        (lambda: nb.Conv2d(3, 4, 3, padding=((1, 1),)), ArgumentError, "padding must hold 2 pairs"),
        (lambda: nb.Conv2d(3, 4, 3, padding=1.5), ArgumentTypeError, "padding must be"),
        (
            lambda: nb.Conv2d(3, 4, 3, data_format="NWC"),
            ArgumentError,
            "data_format must be one of 'NHWC', 'NCHW', got 'NWC'",
        ),
        (
            lambda: nb.ConvTranspose2d(3, 4, 3, output_padding=-1),
            ArgumentError,
            "output_padding must be at least 0",
        ),
        (lambda: nb.DepthwiseConv2d(3, 3, groups=1), ArgumentError, "groups= cannot be given"),
    ],
)
def test_bad_input_is_refused_in_one_line(call, error, message):
    with pytest.raises(error, match=spelled(message)) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_texts_say_what_is_not_usual():
    assert (
        repr(nb.Conv2d(3, 8, 3, padding=1))
        == "Conv2d(3, 8, kernel_size=3, padding=1, with_bias=True)"
    )
    assert (
        repr(nb.Conv2d(4, 8, (3, 1), groups=4))
        == "Conv2d(4, 8, kernel_size=(3, 1), groups=4, with_bias=True)"
    )
    assert nb.Conv2d(1, 16, 3).brief() == "1 → 16, 3×3"
