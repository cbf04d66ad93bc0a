from __future__ import annotations

import jax
import ml_dtypes
import numpy as np
import pytest

from nbmodule.errors import DeviceError
from nbmodule.files.weights import place_on


@pytest.mark.parametrize("count", [1, 300])
def test_arrays_go_to_the_device_and_other_leaves_stay(count):
    arrays = [np.full((2, i % 3), i, np.float32) for i in range(count)]
    key = jax.random.key(0)
    found = place_on([*arrays, "text", 5, None, key])
    assert all(isinstance(array, jax.Array) for array in found[:count])
    for array, original in zip(found, arrays, strict=False):
        np.testing.assert_array_equal(array, original)
        assert array.dtype == original.dtype
    assert found[count:] == ["text", 5, None, key]


@pytest.mark.parametrize("count", [3, 300])
@pytest.mark.parametrize("device", [None, "cpu:0"])
def test_arrays_are_committed_only_to_a_device_that_was_asked_for(count, device):
    found = place_on([np.full(2, i, np.float32) for i in range(count)], device)
    assert {array.committed for array in found} == {device is not None}
    assert jax.numpy.add(found[0], found[-1]).shape == (2,)


def test_no_dtype_changes():
    arrays = [np.ones(2), np.ones(2, np.int64), np.ones(2, complex), np.zeros(2, ml_dtypes.int2)]
    for array, found in zip(arrays, place_on(arrays), strict=True):
        assert found.dtype == array.dtype
    with jax.enable_x64(True):
        assert isinstance(place_on([np.ones(2)])[0], jax.Array)
    assert isinstance(place_on([np.ones(2)])[0], np.ndarray)


@pytest.mark.parametrize("device", ["tpu", "cpu:7", "cpu:x", "nonsense:0"])
def test_a_device_that_is_not_there_is_named_with_those_that_are(device):
    with pytest.raises(DeviceError, match=f"there is no device '{device}'; the devices .* cpu:0"):
        place_on([], device)
