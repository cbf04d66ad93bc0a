from __future__ import annotations

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from nbmodule.errors import FileFormatError
from nbmodule.files import read, save, stored_leaf
from nbmodule.files.stored_leaf import from_bytes, kinds, to_bytes, to_host
from tests.files.trees import equal


@pytest.fixture
def elsewhere(monkeypatch):
    """Make arrays look as if they lay on an accelerator, and count the copies to the host."""
    originals, copies = [], []
    device_put = jax.device_put

    def counting(array, device):
        originals.append(array)
        copies.append(device_put(array, device))
        return copies[-1]

    monkeypatch.setattr(
        stored_leaf,
        "_platform",
        lambda array: "cpu" if any(array is copy for copy in copies) else "gpu",
    )
    monkeypatch.setattr(stored_leaf.jax, "device_put", counting)
    return originals


def test_arrays_of_a_device_are_copied_once_each_and_not_kept(tmp_path, elsewhere):
    tree = {f"w{i}": jnp.full(20_000, i, jnp.float32) for i in range(5)} | {
        "key": jax.random.key(0)
    }
    save(tmp_path / "w.h5", tree)
    assert len(elsewhere) == 6
    assert len({id(array) for array in elsewhere}) == 6
    assert equal(
        read(tmp_path / "w.h5").variables,
        {f"w{i}": np.full(20_000, i, np.float32) for i in range(5)} | {"key": jax.random.key(0)},
    )


def test_without_a_cpu_jax_copies_by_its_own_means(elsewhere, monkeypatch):
    def none(backend):
        raise RuntimeError(f"unknown backend {backend}")

    monkeypatch.setattr(stored_leaf.jax, "local_devices", none)
    np.testing.assert_array_equal(to_host(jnp.arange(3)), [0, 1, 2])
    assert elsewhere == []


def test_arrays_on_the_cpu_are_not_copied():
    array = jnp.arange(1000.0)
    assert to_host(array).ctypes.data == array.unsafe_buffer_pointer()


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
