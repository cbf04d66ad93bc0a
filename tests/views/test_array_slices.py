import base64

import jax.numpy as jnp
import numpy as np
import pytest

from nbmodule.errors import ArgumentError
from nbmodule.views.arrays.scales import quantize
from nbmodule.views.comm.array_slices import EXACT, SIDE, cell_payload, slice_payload


def values_of(found):
    """Return the exact values that an answer holds, without an axis of one tile."""
    picture = found["picture"]
    flat = np.frombuffer(base64.b64decode(picture["exact"]), f"<{picture['exact_type']}")
    values = flat.reshape(picture["shape"])
    return values[0] if len(values) == 1 else values


def test_a_window_is_reduced_anew_from_its_own_elements():
    x = np.random.default_rng(0).normal(size=(1000, 2000)).astype("float32")
    whole = slice_payload(x, {})
    assert whole["picture"]["shape"] == [1, 250, 286]
    assert whole["picture"]["notes"][0] == "mean of 4 × 6…7 blocks"
    assert "exact" not in whole["picture"]
    part = slice_payload(x, {"window": [990, 1000, 5, 25]})
    assert part["picture"]["window"] == [990, 5, 10, 20], (
        "so that the page names rows and columns of the array, not of the picture"
    )
    assert part["picture"]["shape"] == [1, 10, 20]
    np.testing.assert_array_equal(values_of(part), x[990:, 5:25])


@pytest.mark.parametrize(
    ("asked", "limits"),
    [
        ({"at": [0, 0, 0]}, [0, 1]),
        ({"at": [0, 0, 0], "same": True}, [-8, 8]),
        ({"scale": "range", "same": True}, [-8, 1]),
    ],
)
def test_one_scale_for_all_slices_is_that_of_the_whole_array(asked, limits):
    x = np.stack([np.full((3, 3), 1.0), np.full((3, 3), -8.0)])
    assert slice_payload(x, asked)["picture"]["limits"] == limits


def test_statistics_of_the_whole_array_count_every_element_on_request():
    x = np.random.default_rng(1).normal(size=(4, 500)).astype("float32")
    found = slice_payload(x, {"whole": True})["st"]
    assert (found["n"], sum(found["b"])) == (2000, 2000)


@pytest.mark.parametrize("dtype", ["bfloat16", "int4", "complex64", "bool", "uint8"])
def test_slices_of_small_and_odd_dtypes_hold_their_values(dtype):
    x = jnp.ones((3, 4)).astype(dtype)
    assert values_of(slice_payload(x, {})).tolist() == [[1.0] * 4] * 3
    assert cell_payload(x, {"window": [0, 1, 0, 1]})["text"].startswith(("1", "True"))


def test_vectors_and_empty_arrays_have_no_axes_and_windows_are_cut_at_the_edge():
    assert slice_payload(np.ones(3), {})["picture"]["kind"] == "bars"
    assert slice_payload(np.ones((0, 3)), {})["picture"]["kind"] == "text"
    found = slice_payload(np.zeros((2, 3, 4)), {"at": [9, -1, 0], "window": [-5, 99, 2, 2]})
    assert (found["at"], found["window"]) == ([1, 0, 0], [0, 3, 2, 3])


def test_unreadable_arrays_and_unknown_axes_or_scales_raise():
    gone = jnp.ones((2, 2))
    gone.delete()
    with pytest.raises(ArgumentError, match="deleted"):
        slice_payload(gone, {})
    with pytest.raises(ArgumentError, match=r"axes 1, 1: expected different axes of \[2, 2\]"):
        slice_payload(np.ones((2, 2)), {"down": 1})
    with pytest.raises(ArgumentError, match="the scale 'cubic', which is not known"):
        slice_payload(np.ones((2, 2)), {"scale": "cubic"})


def test_an_answer_stays_small():
    found = slice_payload(np.zeros((4096, 4096), "float32"), {})
    assert len(found["picture"]["data"]) <= SIDE * SIDE * 4 / 3 + 4
    edge = int(EXACT**0.5)
    found = slice_payload(np.zeros((edge, edge), "float32"), {})
    assert len(found["picture"]["exact"]) <= EXACT * 16 / 3 + 4


@pytest.mark.parametrize(
    ("down", "across", "tiles"),
    [(2, 3, [0, 1, 4]), (4, 0, [3, 2]), (1, 2, [0]), (0, 1, []), (3, 1, [])],
)
def test_any_axes_can_be_rows_columns_and_tiles_in_any_order(down, across, tiles):
    x = np.arange(2 * 3 * 4 * 5 * 2.0).reshape(2, 3, 4, 5, 2)
    found = slice_payload(
        x, {"down": down, "across": across, "tiles": tiles, "at": [1, 1, 1, 1, 1], "count": 99}
    )
    index = tuple(slice(None) if axis in (down, across, *tiles) else 1 for axis in range(5))
    kept = sorted((down, across, *tiles))
    wanted = x[index].transpose([kept.index(axis) for axis in (*tiles, down, across)])
    wanted = wanted.reshape(-1, *wanted.shape[-2:])
    np.testing.assert_array_equal(values_of(found), wanted if tiles else wanted[0])
    axes = [down, across, *tiles]
    assert found["picture"]["axes"] == axes
    assert found["picture"]["lengths"] == [x.shape[axis] for axis in axes]


def test_the_requested_number_of_tiles_is_drawn_and_the_rest_are_counted():
    picture = slice_payload(np.zeros((100, 3, 3)), {"tiles": [0], "count": 80})["picture"]
    assert picture["shape"] == [80, 3, 3]
    assert picture["notes"] == ["20 more"]


def decoded(picture, k):
    """Return the number that the page reads from a byte."""
    (low, high), code = picture["limits"], base64.b64decode(picture["data"])[k]
    if "log" in picture["scale"]:
        zero, steps = (3, 251) if picture["scale"] == "log" else (129, 125)
        if code == zero:
            return 0.0
        size = low * (high / low) ** ((abs(code - zero) - 1) / steps)
        return np.sign(code - zero) * size
    if "ends" in picture:  # each tile has an end of its own
        end = picture["ends"][k // (picture["shape"][1] * picture["shape"][2])]
        low, high = low / high * end, end
    return low + (code - 3) / 252 * (high - low)


@pytest.mark.parametrize("scale", ["", "range", "log", "tiles"])
@pytest.mark.parametrize("signed", [True, False])
def test_each_scale_is_read_back_as_the_values(scale, signed):
    rng = np.random.default_rng(2)
    x = rng.lognormal(sigma=3, size=(4, 6, 7)) * np.array([1, 10, 100, 1e-3])[:, None, None]
    x[0, 0, 0] = 0
    x = x * np.where(rng.random(x.shape) < 0.5, -1, 1) if signed else x
    picture = slice_payload(x, {"down": 1, "across": 2, "tiles": [0], "scale": scale})["picture"]
    found = np.array([decoded(picture, k) for k in range(x.size)]).reshape(x.shape)
    if scale == "log":
        low, high = picture["limits"]
        lowest = max(abs(x[x != 0]).min(), 1e-8 * abs(x).max())
        assert (low, high) == pytest.approx((lowest, abs(x).max()), rel=1e-5)
        shown = abs(x) >= low
        np.testing.assert_allclose(found[shown], x[shown], rtol=0.12)
        np.testing.assert_allclose(abs(found[~shown & (x != 0)]), low, rtol=1e-6)
        assert found[0, 0, 0] == 0
        return
    if scale == "range":
        assert picture["limits"] == pytest.approx([x.min(), x.max()], rel=1e-5)
        step = (x.max() - x.min()) / 252
    else:
        assert x.size < 200  # so few that nothing is clipped
        ends = abs(x).max((1, 2), keepdims=True) if scale else abs(x).max()
        x, step = np.clip(x, -ends, ends), ends * (2 if signed else 1) / 252
    assert (abs(found - x) <= 0.51 * step + 1e-4 * abs(x)).all()
    zeros = np.zeros((2, 3, 3))
    assert set(quantize(zeros, zeros, "float32", scale=scale).data) == {3}


@pytest.mark.parametrize("value", [16_777_217, 2**62 + 1, -5])
def test_large_integers_are_sent_and_written_exactly(value):
    x = np.full((2, 3), value)
    assert values_of(slice_payload(x, {})).tolist() == [[value] * 3] * 2
    assert cell_payload(x, {"window": [1, 2, 0, 1]}) == {"text": str(value)}


def test_a_block_is_described_by_mean_extremes_and_counts_of_nonfinite_values():
    x = np.random.default_rng(4).normal(size=(40, 60)).astype("float32")
    x[3, 3], x[4, 4] = np.nan, -np.inf
    block = x[2:9, 3:11]
    good = block[np.isfinite(block)].astype("float64")
    words = cell_payload(x, {"window": [2, 9, 3, 11]})["text"]
    assert (
        words == f"mean {good.mean():.6g}, {good.min():.4g} … {good.max():.4g}, NaN 1, −Inf 1 of 56"
    )
    assert cell_payload(x, {"window": [3, 4, 3, 4]}) == {"text": "nan"}


def test_a_complex_value_is_written_with_magnitude_and_angle():
    x = jnp.array([[1 + 1j, 0.1 - 0.2j]])
    assert cell_payload(x, {"window": [0, 1, 1, 2]}) == {"text": "0.1-0.2j (|x| 0.2236 ∠ -63.4°)"}
    picture = slice_payload(x, {})["picture"]
    assert picture["scale"] == "phase"
    found = values_of({"picture": picture | {"shape": [1, 2]}})
    np.testing.assert_array_equal(found, np.asarray(x)[0])
