"""Files that earlier versions of this package wrote are kept in `fixtures/` and load as they did."""

from __future__ import annotations

import shutil

import h5py
import numpy as np
import pytest

from nbmodule.files import read
from tests.files.make_fixture import FOLDER, tree_of_format_1
from tests.files.trees import equal


@pytest.mark.parametrize("how", ["mapped", "copied", "through HDF5 alone"])
@pytest.mark.parametrize("kind", ["plain", "packed", "gzip"])
def test_files_of_format_1_load(tmp_path, kind, how):
    path = shutil.copy(FOLDER / f"format_1_{kind}.h5", tmp_path / "w.h5")
    if how == "through HDF5 alone":
        with h5py.File(path, "r+"):
            pass  # h5py drops the index
    found = read(path, mmap=how == "mapped")
    assert found.has_index == (how != "through HDF5 alone")
    assert equal(found.variables, tree_of_format_1())
    assert equal(found.buffers, {"bn": {"mean": np.arange(4.0)}})
    assert found.metadata == {"epoch": 3}
