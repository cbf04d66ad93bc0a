import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbmodule.errors import ArgumentError, ArgumentTypeError, DtypeError, ShapeError
from nbmodule.nn.functional.resize import interpolate

from jax_settings import spelled

F = pytest.importorskip("torch.nn.functional")

FORMAT = {1: "NWC", 2: "NHWC", 3: "NDHWC"}
CASES = [
    (1, {"size": 7}),
    (1, {"scale_factor": 2.5}),
    (2, {"size": (4, 13)}),
    (2, {"scale_factor": (2.0, 0.7)}),
    (3, {"size": (3, 8, 5)}),
    (1, {"size": 11, "mode": "linear"}),
    (2, {"size": (4, 13), "mode": "bilinear"}),
    (2, {"size": (4, 13), "mode": "bilinear", "align_corners": True}),
    (2, {"scale_factor": (2.3, 0.7), "mode": "bilinear"}),
    (2, {"size": (1, 1), "mode": "bilinear", "align_corners": True}),
    (2, {"size": (9, 12), "mode": "bicubic"}),
    (2, {"size": (9, 3), "mode": "bicubic", "align_corners": True}),
    (3, {"scale_factor": 2.0, "mode": "trilinear"}),
]


@pytest.mark.parametrize(("n", "options"), CASES)
def test_resizing_agrees_with_torch(n, options, draws, agrees_with_torch):
    x = draws.normal(size=(2, *(5, 6, 4)[:n], 3)).astype("f")
    theirs = (
        dict(options)
        if options.get("mode", "nearest") != "nearest"
        else {**options, "mode": "nearest"}
    )
    agrees_with_torch(
        lambda x: interpolate(x, data_format=FORMAT[n], **options),
        lambda x: F.interpolate(x.movedim(-1, 1), **theirs).movedim(1, -1),
        x,
    )


@settings(max_examples=12)
@given(old=st.integers(1, 12), new=st.integers(1, 30))
def test_nearest_pixels_are_those_of_torch(old, new):
    import torch

    x = np.arange(old, dtype="f")
    wanted = F.interpolate(torch.tensor(x)[None, None], size=new, mode="nearest")[0, 0]
    np.testing.assert_array_equal(interpolate(x[:, None], new, data_format="NWC")[:, 0], wanted)


def test_leading_axes_and_channel_order_change_nothing(draws):
    x = draws.normal(size=(2, 3, 4, 5, 2)).astype("f")
    y = interpolate(x, (7, 8), mode="bilinear")
    assert y.shape == (2, 3, 7, 8, 2)
    np.testing.assert_allclose(
        y[1, 2], interpolate(x[1, 2], (7, 8), mode="bilinear"), rtol=1e-5, atol=1e-6
    )
    first = interpolate(np.moveaxis(x, -1, -3), (7, 8), mode="bilinear", data_format="NCHW")
    np.testing.assert_allclose(np.moveaxis(first, -3, -1), y, rtol=1e-5, atol=1e-6)


def test_a_whole_factor_only_repeats_pixels(operations):
    found = operations(lambda x: interpolate(x, scale_factor=2.0), jnp.ones((4, 4, 1)))
    assert "dot_general" not in found
    assert "gather" not in found


IMAGE = jnp.ones((4, 4, 1))
BAD = [
    (
        lambda: interpolate(IMAGE),
        ArgumentError,
        "give size or scale_factor, got size=None and scale_factor=None",
    ),
    (
        lambda: interpolate(IMAGE, 3, scale_factor=2),
        ArgumentError,
        "give size or scale_factor, got size=3 and scale_factor=2",
    ),
    (
        lambda: interpolate(IMAGE, 3, mode="linear"),
        ArgumentError,
        r"mode 'linear' is not for 2 spatial axes \(NHWC\)",
    ),
    (
        lambda: interpolate(IMAGE, 3, mode="cubic"),
        ArgumentError,
        "mode must be one of 'nearest', 'linear', .*, got 'cubic'",
    ),
    (
        lambda: interpolate(IMAGE, 3, align_corners=True),
        ArgumentError,
        "align_corners is not for mode 'nearest'",
    ),
    (
        lambda: interpolate(IMAGE, scale_factor=0.1),
        ShapeError,
        r"scale_factor 0\.1 leaves nothing of x float32\[4, 4, 1\]",
    ),
    (
        lambda: interpolate(IMAGE, scale_factor=(1, 2, 3)),
        ArgumentError,
        r"one number or 2, got \(1, 2, 3\)",
    ),
    (
        lambda: interpolate(IMAGE, scale_factor=-1.0),
        ArgumentError,
        r"scale_factor must be above 0, got -1\.0",
    ),
    (
        lambda: interpolate(IMAGE, 2.5),
        ArgumentTypeError,
        r"size must be an integer or 2 of them, got 2\.5",
    ),
    (
        lambda: interpolate(IMAGE[0, 0], 3),
        ShapeError,
        r"x must have axes \(\*batch, H, W, C\), got float32\[1\]",
    ),
    (
        lambda: interpolate(IMAGE, 3, data_format="HW"),
        ArgumentError,
        "data_format must be 'NHWC' or 'NCHW', got 'HW'",
    ),
    (
        lambda: interpolate(IMAGE[:0], 3),
        ShapeError,
        r"x must have pixels, got float32\[0, 4, 1\]",
    ),
    (
        lambda: interpolate(IMAGE.astype(int), 3),
        DtypeError,
        r"interpolate: x must hold floating values, got int32\[4, 4, 1\]",
    ),
]


@pytest.mark.parametrize(("call", "error", "message"), BAD)
def test_what_makes_no_sense_is_refused_in_one_line(call, error, message):
    with pytest.raises(error, match=spelled(message)):
        call()
