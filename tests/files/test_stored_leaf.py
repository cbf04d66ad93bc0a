from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nbmodule.files import read, save, stored_leaf
from nbmodule.files.stored_leaf import from_bytes, kinds, to_host
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


def test_bytes_at_an_odd_place_become_an_aligned_array():
    room = np.arange(33, dtype=np.uint8)
    found = from_bytes(room[1:], kinds()["float64"], (4,), "x")
    assert found.flags.aligned
    assert found.tobytes() == room[1:].tobytes()
