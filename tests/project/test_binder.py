"""Binder installs what the notebooks need and opens Lab on the first one."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.project.conftest import ROOT, run

BINDER = ROOT / "binder"


def test_nothing_is_installed_but_the_package_with_what_its_notebooks_need():
    lines = (BINDER / "requirements.txt").read_text().splitlines()
    assert [line for line in lines if not line.startswith("#")] == [".[notebooks]"]


def test_lab_opens_on_the_first_notebook(tmp_path):
    sources = shutil.ignore_patterns("*.ipynb", ".*")
    shutil.copytree(ROOT / "notebooks", tmp_path / "notebooks", ignore=sources)
    programs = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    env = {"HOME": str(tmp_path), "PATH": programs}
    assert run(BINDER / "postBuild", cwd=tmp_path, env=env).returncode == 0
    config = json.loads((tmp_path / ".jupyter" / "jupyter_server_config.json").read_text())
    start = config["ServerApp"]["default_url"].removeprefix("/lab/tree/")
    assert json.loads((tmp_path / start).read_text())["nbformat"] == 4


@pytest.mark.long
def test_the_first_notebook_runs_in_exactly_the_environment_that_binder_installs(tmp_path):
    made = shutil.ignore_patterns(".venv", "node_modules", "build", ".git", ".*_cache")
    shutil.copytree(ROOT, tmp_path / "repo", ignore=made)
    python = tmp_path / "env" / "bin" / "python"
    install = ["-m", "pip", "install", "--quiet", "-r", "binder/requirements.txt"]
    page = tmp_path / "first.html"
    make = ["tools/make_page.py", "notebooks/01_first_model.py", page]
    for command in ([sys.executable, "-m", "venv", tmp_path / "env"], [python, *install]):
        assert run(*command, cwd=tmp_path / "repo").returncode == 0
    missing = "import importlib.util; print([n for n in ('torch', 'flax', 'pytest') if importlib.util.find_spec(n)])"
    assert run(python, "-c", missing).stdout.strip() == "[]"
    assert run(python, *make, cwd=tmp_path / "repo").returncode == 0
    assert "nbm-view" in page.read_text()
