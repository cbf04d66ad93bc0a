"""Binder installs what the notebooks need and opens Lab on the first one."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BINDER = ROOT / "binder"


def test_nothing_is_installed_but_the_package_with_what_its_notebooks_need():
    lines = (BINDER / "requirements.txt").read_text().splitlines()
    assert [line for line in lines if not line.startswith("#")] == [".[notebooks]"]


def test_lab_opens_on_the_first_notebook(tmp_path):
    shutil.copytree(
        ROOT / "notebooks", tmp_path / "notebooks", ignore=shutil.ignore_patterns("*.ipynb", ".*")
    )
    programs = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    subprocess.run(
        [BINDER / "postBuild"],
        cwd=tmp_path,
        check=True,
        env=os.environ | {"HOME": str(tmp_path), "PATH": programs},
    )
    config = json.loads((tmp_path / ".jupyter" / "jupyter_server_config.json").read_text())
    start = config["ServerApp"]["default_url"].removeprefix("/lab/tree/")
    assert json.loads((tmp_path / start).read_text())["nbformat"] == 4


@pytest.mark.long
def test_the_first_notebook_runs_in_exactly_the_environment_that_binder_installs(tmp_path):
    shutil.copytree(
        ROOT,
        tmp_path / "repo",
        ignore=shutil.ignore_patterns(".venv", "node_modules", "build", ".git", ".*_cache"),
    )
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "env"], check=True)
    python = tmp_path / "env" / "bin" / "python"
    subprocess.run(
        [python, "-m", "pip", "install", "--quiet", "-r", "binder/requirements.txt"],
        cwd=tmp_path / "repo",
        check=True,
    )
    missing = "import importlib.util; print([n for n in ('torch', 'flax', 'pytest') if importlib.util.find_spec(n)])"
    assert (
        subprocess.run(
            [python, "-c", missing], capture_output=True, text=True, check=True
        ).stdout.strip()
        == "[]"
    )
    page = tmp_path / "first.html"
    subprocess.run(
        [python, "tools/make_page.py", "notebooks/01_first_model.py", page],
        cwd=tmp_path / "repo",
        check=True,
    )
    assert "nbm-view" in page.read_text()
