"""Damaged and hostile files of every format, in bulk; what is said of single places is in
`test_checksums`, `test_hdf5_read` and the other formats.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from nbmodule.errors import FileFormatError
from nbmodule.files import read, save
from tests.files.trees import equal

ROOT = Path(__file__).parents[2]
TREE = {"a": {"w": np.arange(12, dtype=np.float32).reshape(3, 4)}, "b": np.ones(64)}


def save_torch(path: Path) -> None:
    torch = pytest.importorskip("torch")
    torch.save({"a.w": torch.tensor(TREE["a"]["w"].T.copy()).T, "b": torch.tensor(TREE["b"])}, path)


# Formats with a checksum for each array.
FORMATS = {
    "w.h5": lambda path: save(path, TREE),
    "packed.h5": lambda path: save(path, TREE, packed=True),
    "gzip.h5": lambda path: save(path, TREE, compression=1),
    "w.npz": lambda path: np.savez(path, **{"a/w": TREE["a"]["w"], "b": TREE["b"]}),
    "w.pt": save_torch,
}


@pytest.mark.parametrize("name", FORMATS)
def test_a_changed_byte_is_refused_or_without_effect_and_no_part_of_a_file_loads(name, tmp_path):
    path, rng = tmp_path / name, np.random.default_rng(0)
    FORMATS[name](path)
    data = path.read_bytes()
    assert equal(read(path).variables, TREE)

    def found(changed):
        path.unlink()  # its last map may be open
        path.write_bytes(changed)
        try:
            return read(path).variables
        except FileFormatError:
            return None

    at = data.find(TREE["b"].tobytes()) + 5
    places = [*rng.integers(0, len(data), 150), *([at] if at > 5 else [])]
    for place in places:
        changed = bytearray(data)
        changed[place] ^= 1 << rng.integers(8)
        variables = found(changed)
        assert variables is None or (place != at and equal(variables, TREE)), place
    for length in {*range(1, len(data), 1 + len(data) // 100), len(data) - 5}:
        assert found(data[:length]) is None, length


def run(folder: Path, count: int, kind: str) -> dict:
    program = str(Path(__file__).with_name("damage_files.py"))
    command = [sys.executable, program, str(folder), "--count", str(count), "--kind", kind]
    paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = os.environ | {"PYTHONPATH": paths, "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("kind", "count"),
    [
        ("", 100),
        ("safetensors", 200),
        ("npz", 200),
        pytest.param("", 2_000, marks=pytest.mark.long),
    ],
)
def test_damaged_files_load_equal_or_are_refused_and_do_no_harm(tmp_path, kind, count):
    result = run(tmp_path, count, kind)
    assert result["bad"] == []
    assert sum(result["outcomes"].values()) == count
    assert any(outcome.endswith("refused") for outcome in result["outcomes"])
    assert result["megabytes"] < 1000
    assert result["slowest"][0] < 2  # of this process
