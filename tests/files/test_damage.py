"""Damaged and hostile files in bulk; the same for single cases is in `test_checksums`, `test_hdf5_read`
and the other formats.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(folder: Path, count: int, kind: str, seed: int) -> dict:
    options = ["--count", str(count), "--kind", kind, "--seed", str(seed)]
    program = str(Path(__file__).with_name("damage_files.py"))
    command = [sys.executable, program, str(folder), *options]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
        "JAX_PLATFORMS": "cpu",
    }
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
    result = run(tmp_path, count, kind, seed=0)
    assert result["bad"] == []
    assert sum(result["outcomes"].values()) == count
    assert any(outcome.endswith("refused") for outcome in result["outcomes"])
    assert result["megabytes"] < 1000
    assert result["slowest"][0] < 2  # of this process
