"""Files that earlier versions of this package wrote are kept in `fixtures/` and load as they did."""

from __future__ import annotations

import shutil

import h5py
import numpy as np
import pytest

from nbmodule.files import read
from tests.files.make_fixture import FOLDER, tree_of_format_1
from tests.files.trees import equal


@pytest.mark.parametrize("mmap", [False, True])
@pytest.mark.parametrize("kind", ["plain", "packed", "gzip"])
def test_files_of_format_1_load(kind, mmap):
    found = read(FOLDER / f"format_1_{kind}.h5", mmap=mmap)
    assert found.has_index
    assert equal(found.variables, tree_of_format_1())
    assert equal(found.buffers, {"bn": {"mean": np.arange(4.0)}})
    assert found.metadata == {"epoch": 3}


@pytest.mark.parametrize("kind", ["plain", "packed", "gzip"])
def test_files_of_format_1_load_through_hdf5_alone(tmp_path, kind):
    path = tmp_path / "w.h5"
    shutil.copy(FOLDER / f"format_1_{kind}.h5", path)
    with h5py.File(path, "r+"):
        pass
    found = read(path)
    assert not found.has_index
    assert equal(found.variables, tree_of_format_1())
    assert equal(found.buffers, {"bn": {"mean": np.arange(4.0)}})
    assert found.metadata == {"epoch": 3}
