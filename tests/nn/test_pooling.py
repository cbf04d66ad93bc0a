import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nbmodule as nb
from nbmodule.errors import ArgumentError, ArgumentTypeError, DtypeError, ShapeError
from nbmodule.nn.resizing import AdaptiveAvgPool1d, AdaptiveAvgPool2d, AdaptiveAvgPool3d, Upsample

from jax_settings import spelled

torch = pytest.importorskip("torch")

SIZES = (7, 6, 5)


def channels_last(module, x):
    return module(x.movedim(-1, 1)).movedim(1, -1)


@pytest.mark.parametrize(
    ("name", "n", "kernel", "options"),
    [
        ("MaxPool", 1, 3, {"stride": 2, "padding": 1}),
        ("MaxPool", 2, 2, {}),
        (
            "MaxPool",
            2,
            (3, 2),
            {"stride": (1, 2), "padding": (1, 0), "dilation": (2, 1), "ceil_mode": True},
        ),
        ("MaxPool", 3, 2, {"ceil_mode": True}),
        ("AvgPool", 1, 3, {"stride": 2, "padding": 1}),
        ("AvgPool", 2, 2, {}),
        (
            "AvgPool",
            2,
            (3, 2),
            {"stride": (1, 2), "padding": (1, 0), "count_include_pad": False, "ceil_mode": True},
        ),
        ("AvgPool", 3, 2, {"divisor_override": 3}),
    ],
)
def test_pooling_agrees_with_torch(name, n, kernel, options, draws, agrees_with_torch):
    x = draws.normal(size=(2, *SIZES[:n], 3)).astype("f")
    ours, theirs = (
        getattr(nb, f"{name}{n}d")(kernel, **options),
        getattr(torch.nn, f"{name}{n}d")(kernel, **options),
    )
    agrees_with_torch(ours, theirs, x, call=channels_last)


@pytest.mark.parametrize(
    ("ours", "theirs", "n"),
    [
        (AdaptiveAvgPool1d(4), torch.nn.AdaptiveAvgPool1d(4), 1),
        (AdaptiveAvgPool2d((3, None)), torch.nn.AdaptiveAvgPool2d((3, None)), 2),
        (AdaptiveAvgPool2d(1), torch.nn.AdaptiveAvgPool2d(1), 2),
        (AdaptiveAvgPool3d((2, 3, 1)), torch.nn.AdaptiveAvgPool3d((2, 3, 1)), 3),
    ],
)
def test_adaptive_pooling_agrees_with_torch(ours, theirs, n, draws, agrees_with_torch):
    agrees_with_torch(
        ours, theirs, draws.normal(size=(2, *SIZES[:n], 3)).astype("f"), call=channels_last
    )


@pytest.mark.parametrize(
    ("data_format", "options"),
    [
        ("NWC", {"size": 11}),
        ("NHWC", {"scale_factor": 2}),
        ("NHWC", {"size": [9, 4], "mode": "bilinear"}),
        ("NHWC", {"scale_factor": (2, 1.5), "mode": "bicubic", "align_corners": True}),
        ("NDHWC", {"scale_factor": 2, "mode": "trilinear"}),
    ],
)
def test_upsampling_agrees_with_torch(data_format, options, draws, agrees_with_torch):
    x = draws.normal(size=(2, *SIZES[: len(data_format) - 2], 3)).astype("f")
    for_torch = {
        name: tuple(value) if isinstance(value, list) else value for name, value in options.items()
    }
    agrees_with_torch(
        Upsample(**options, data_format=data_format),
        torch.nn.Upsample(**for_torch),
        x,
        call=channels_last,
    )


@pytest.mark.parametrize("make", [nb.MaxPool2d, nb.AvgPool2d, AdaptiveAvgPool2d])
def test_channels_may_come_first(make, draws):
    x = draws.normal(size=(2, 6, 4, 3)).astype("f")
    found = make(2, data_format="NCHW")(np.moveaxis(x, -1, 1))
    np.testing.assert_allclose(np.moveaxis(found, 1, -1), make(2)(x), rtol=1e-6)


@settings(max_examples=5)
@given(
    batch=st.sampled_from([(), (0,), (2, 3)]),
    kind=st.sampled_from([nb.MaxPool1d, nb.AvgPool1d, AdaptiveAvgPool1d]),
)
def test_leading_axes_are_only_a_batch(batch, kind):
    x = np.random.default_rng(0).normal(size=(*batch, 6, 2)).astype("f")
    found = kind(3)(x)
    rows = [kind(3)(row) for row in x.reshape(-1, 6, 2)]
    np.testing.assert_allclose(
        found.reshape(-1, *found.shape[-2:]),
        np.array(rows).reshape(-1, *found.shape[-2:]),
        rtol=1e-6,
    )


def test_whole_numbers_have_a_largest_one_too():
    assert nb.MaxPool1d(2)(jnp.arange(4)[:, None])[:, 0].tolist() == [1, 3]


def test_pooling_layers_hold_no_variables():
    for layer in (nb.MaxPool2d(2), nb.AvgPool2d(2), AdaptiveAvgPool2d(2), Upsample(4)):
        assert not layer.state_dict()


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: nb.MaxPool2d(3)(jnp.ones((1, 2, 2, 1))), ShapeError, "does not fit"),
        (
            lambda: nb.MaxPool2d(3)(jnp.ones((2, 2))),
            ShapeError,
            r"x must have axes \(\*batch, H, W, C\), got float32\[2, 2\]",
        ),
        (lambda: nb.AvgPool2d(2)(jnp.ones((1, 4, 4, 1), int)), DtypeError, "got int32"),
        (lambda: nb.MaxPool2d(0), ArgumentError, "kernel_size must be at least 1, got 0"),
        (lambda: nb.MaxPool2d(2, stride=-1), ArgumentError, "stride must be at least 1, got -1"),
        (
            lambda: nb.MaxPool2d(2, padding=-1),
            ArgumentError,
            "padding must be at least 0, got -1",
        ),
        (lambda: nb.MaxPool2d(2, padding=0.5), ArgumentTypeError, "padding must be"),
        (
            lambda: nb.AvgPool2d(2, divisor_override=0),
            ArgumentError,
            "divisor_override must be above 0, got 0",
        ),
        (
            lambda: nb.MaxPool2d(2, ceil_mode="no"),
            ArgumentTypeError,
            "ceil_mode must be True or False",
        ),
        (
            lambda: nb.MaxPool2d(2, data_format="NWC"),
            ArgumentError,
            "data_format must be one of 'NHWC', 'NCHW'",
        ),
        (
            lambda: AdaptiveAvgPool2d((1, 2, 3)),
            ArgumentError,
            r"output_size must be a number or 2 of them, got \[1, 2, 3\]",
        ),
        (lambda: AdaptiveAvgPool2d(0), ArgumentError, "output_size must be at least 1"),
        (lambda: AdaptiveAvgPool2d(2)(jnp.ones((2, 3))), ShapeError, r"got float32\[2, 3\]"),
        (lambda: Upsample(), ArgumentError, "give size or scale_factor"),
        (lambda: Upsample(4, scale_factor=2), ArgumentError, "give size or scale_factor"),
        (
            lambda: Upsample(scale_factor=-1),
            ArgumentError,
            "scale_factor must be above 0, got -1",
        ),
        (
            lambda: Upsample(scale_factor=(1, 2, 3)),
            ArgumentError,
            "scale_factor must be a number or 2 of them",
        ),
        (lambda: Upsample(4, mode="cubic"), ArgumentError, "mode must be one of"),
        (
            lambda: Upsample(4, mode="linear"),
            ArgumentError,
            "mode 'linear' is not for 2 spatial axes",
        ),
        (
            lambda: Upsample(4, align_corners=True),
            ArgumentError,
            "align_corners is not for mode 'nearest'",
        ),
    ],
)
def test_bad_input_is_refused_in_one_line(call, error, message):
    with pytest.raises(error, match=spelled(message)) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_texts_say_the_sizes():
    assert (
        repr(nb.MaxPool2d(3, stride=2, padding=1))
        == "MaxPool2d(kernel_size=(3, 3), stride=(2, 2), padding=1)"
    )
    assert nb.AvgPool2d((2, 3)).brief() == "2×3"
    assert AdaptiveAvgPool2d((7, None)).brief() == "→ 7×same"
    assert repr(Upsample(scale_factor=2)) == "Upsample(scale_factor=2.0, mode='nearest')"
