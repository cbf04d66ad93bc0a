import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbmodule.nn.functional.resize import interpolate
from tests.nn.conftest import close

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
    close(y[1, 2], interpolate(x[1, 2], (7, 8), mode="bilinear"))
    first = interpolate(np.moveaxis(x, -1, -3), (7, 8), mode="bilinear", data_format="NCHW")
    close(np.moveaxis(first, -3, -1), y)


def test_a_whole_factor_only_repeats_pixels(operations):
    found = operations(lambda x: interpolate(x, scale_factor=2.0), jnp.ones((4, 4, 1)))
    assert "dot_general" not in found
    assert "gather" not in found
