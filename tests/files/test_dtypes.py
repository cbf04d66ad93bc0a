from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbmodule.errors import FileFormatError
from nbmodule.files.stored_leaf import from_bytes, kind_of, kinds, to_bytes
from tests.files.trees import DTYPES, array_of, equal, shapes


@given(st.sampled_from(DTYPES), shapes, st.integers(0, 999))
def test_bytes_become_the_same_array_again(dtype, shape, seed):
    array = array_of(dtype, shape, seed)
    kind = kind_of(dtype)
    row = to_bytes(array, kind)
    assert row.dtype == np.uint8
    assert row.shape == (kind.nbytes(shape),)
    assert equal(from_bytes(row, kind, shape, "x"), array)


def test_every_number_type_of_numpy_and_jax_has_a_kind():
    for dtype in DTYPES:
        assert kind_of(dtype).name == dtype.name
    for name in np.typecodes["AllInteger"] + "?efdFD":
        assert kind_of(np.dtype(name)) is not None


@pytest.mark.parametrize("dtype", ["U3", "O", "M8[s]", "V4", "i4,i4", "float4_e2m1fn"])
def test_other_dtypes_have_none(dtype):
    assert kind_of(np.dtype(dtype)) is None


def test_bytes_are_little_endian_whatever_the_array_is():
    assert to_bytes(np.array([1, 258], ">i2"), kinds()["int16"]).tolist() == [1, 0, 2, 1]


@pytest.mark.parametrize(("name", "values"), [("int4", range(-8, 8)), ("uint4", range(16))])
def test_integers_of_four_bits_lie_in_pairs_the_first_lowest(name, values):
    array = np.array(values, np.int8).astype(kinds()[name].dtype)
    number = sum((int(value) % 16) << (4 * i) for i, value in enumerate(array.astype(int)))
    assert to_bytes(array, kinds()[name]).tobytes() == number.to_bytes(8, "little")


def test_bits_beyond_the_last_small_integer_mean_nothing():
    kind = kinds()["int4"]
    row = np.array([0x21, 0xF3], np.uint8)
    assert equal(from_bytes(row, kind, (3,), "x"), np.array([1, 2, 3], ml_dtypes.int4))


def test_bytes_that_are_no_bool_are_refused():
    with pytest.raises(
        FileFormatError, match=r'cannot load "/x": bytes of a bool array are neither 0 nor 1'
    ):
        from_bytes(np.array([0, 1, 2], np.uint8), kinds()["bool"], (3,), '"/x"')


def test_a_shape_that_no_array_can_have_is_refused():
    with pytest.raises(FileFormatError, match="no array can have the shape"):
        from_bytes(np.zeros(0, np.uint8), kinds()["float32"], (2**62, 2**62, 0), '"/x"')


def test_bytes_at_an_odd_place_become_an_aligned_array():
    room = np.arange(33, dtype=np.uint8)
    found = from_bytes(room[1:], kinds()["float64"], (4,), "x")
    assert found.flags.aligned
    assert found.tobytes() == room[1:].tobytes()
