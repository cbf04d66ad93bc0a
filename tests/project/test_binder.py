"""Binder installs what the notebooks need and opens Lab on the first one."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
BINDER = ROOT / "binder"


def test_nothing_is_installed_but_the_package_with_what_its_notebooks_need():
    lines = (BINDER / "requirements.txt").read_text().splitlines()
    assert [line for line in lines if not line.startswith("#")] == [".[notebooks]"]


def test_lab_opens_on_the_first_notebook(tmp_path):
    shutil.copytree(ROOT / "notebooks", tmp_path / "notebooks", ignore=shutil.ignore_patterns("*.ipynb", ".*"))
    programs = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    subprocess.run(
        [BINDER / "postBuild"], cwd=tmp_path, check=True, env=os.environ | {"HOME": str(tmp_path), "PATH": programs}
    )
    config = json.loads((tmp_path / ".jupyter" / "jupyter_server_config.json").read_text())
    start = config["ServerApp"]["default_url"].removeprefix("/lab/tree/")
    assert json.loads((tmp_path / start).read_text())["nbformat"] == 4
