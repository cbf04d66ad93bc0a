import base64

import jax.numpy as jnp
import numpy as np
import pytest

from nbmodule.errors import ArgumentError
from nbmodule.views.joined.explore import EXACT, SIDE, slice_payload


def values_of(found):
    rows, columns = found["window"][1] - found["window"][0], found["window"][3] - found["window"][2]
    return np.frombuffer(base64.b64decode(found["values"]), "<f4").reshape(rows, columns)


@pytest.mark.parametrize(("down", "across"), [(0, 1), (1, 0), (0, 2), (2, 1), (2, 0)])
def test_any_two_axes_lie_down_and_across(down, across):
    x = np.arange(60.0).reshape(3, 4, 5)
    at = [2, 1, 3]
    found = slice_payload(x, {"down": down, "across": across, "at": at})
    (other,) = {0, 1, 2} - {down, across}
    plane = np.take(x, at[other], axis=other)
    np.testing.assert_array_equal(values_of(found), plane if down < across else plane.T)


def test_a_window_is_reduced_anew_from_its_own_elements():
    x = np.random.default_rng(0).normal(size=(1000, 2000)).astype("float32")
    whole = slice_payload(x, {})
    assert whole["picture"]["s"] == [1, 250, 286]
    assert whole["picture"]["notes"][0] == "mean of 4 × 6…7 blocks"
    assert "values" not in whole
    part = slice_payload(x, {"window": [990, 1000, 5, 25]})
    assert part["picture"]["w"] == [990, 5, 10, 20], (
        "so that the page names rows and columns of the array, not of the picture"
    )
    assert part["picture"]["s"] == [1, 10, 20]
    np.testing.assert_array_equal(values_of(part), x[990:, 5:25])


def test_what_is_asked_for_beyond_the_edge_is_cut():
    found = slice_payload(np.zeros((2, 3, 4)), {"at": [9, -1, 0], "window": [-5, 99, 2, 2]})
    assert (found["at"], found["window"]) == ([1, 0, 0], [0, 3, 2, 3])


def test_one_scale_for_all_slices_is_that_of_the_largest_value():
    x = np.stack([np.full((3, 3), 1.0), np.full((3, 3), -8.0)])
    apart = slice_payload(x, {"at": [0, 0, 0]})["picture"]["l"]
    alike = slice_payload(x, {"at": [0, 0, 0], "same": True})["picture"]["l"]
    assert (apart, alike) == ([0, 1], [0, 8])


def test_every_element_of_the_whole_array_is_counted_when_asked_for():
    x = np.random.default_rng(1).normal(size=(4, 500)).astype("float32")
    found = slice_payload(x, {"whole": True})["st"]
    assert (found["n"], sum(found["b"])) == (2000, 2000)


@pytest.mark.parametrize("dtype", ["bfloat16", "int4", "complex64", "bool", "uint8"])
def test_small_and_odd_dtypes_are_looked_into(dtype):
    x = jnp.ones((3, 4)).astype(dtype)
    assert values_of(slice_payload(x, {})).tolist() == [[1.0] * 4] * 3


def test_a_vector_and_an_empty_array_have_no_axes_to_choose():
    assert slice_payload(np.ones(3), {})["picture"]["k"] == "bars"
    assert slice_payload(np.ones((0, 3)), {})["picture"]["k"] == "text"


def test_what_cannot_be_read_or_is_no_axis_is_an_error_that_says_so():
    gone = jnp.ones((2, 2))
    gone.delete()
    with pytest.raises(ArgumentError, match="deleted"):
        slice_payload(gone, {})
    with pytest.raises(ArgumentError, match=r"axes 1 and 1: expected two axes of \[2, 2\]"):
        slice_payload(np.ones((2, 2)), {"down": 1})


def test_an_answer_stays_small():
    found = slice_payload(np.zeros((4096, 4096), "float32"), {})
    assert len(found["picture"]["d"]) <= SIDE * SIDE * 4 / 3 + 4
    edge = int(EXACT**0.5)
    assert len(slice_payload(np.zeros((edge, edge), "float32"), {})["values"]) <= EXACT * 16 / 3 + 4
