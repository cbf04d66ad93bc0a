"""The commands that the README promises exist, do what it says, and ask for nothing they do not need."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def make():
    """`make -n`: what a command would run, in this folder, with everything still to be made."""
    if shutil.which("make") is None:
        pytest.skip("make is missing: `sudo apt-get install make`")

    def dry_run(*arguments: str) -> str:
        done = subprocess.run(
            ["make", "--dry-run", "--always-make", "--no-print-directory", *arguments],
            cwd=ROOT, capture_output=True, text=True, check=False, env=dict(os.environ) | {"MAKEFLAGS": ""},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    return dry_run


def test_the_readme_names_the_two_commands_and_the_demo():
    text = (ROOT / "README.md").read_text()
    assert {"make lab", "make test", "make demo"} <= set(re.findall(r"make \w+", text))


def test_each_command_of_the_readme_is_one_of_make(make):
    for command in re.findall(r"(?:`|^)make (\w+)", (ROOT / "README.md").read_text(), re.M):
        make(command)


def test_each_command_that_make_lists_can_be_planned(make):
    helped = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for command in re.findall(r"^make (\w+)", helped, re.M):
        make(command)


def test_lab_installs_what_notebooks_need_and_passes_flags_on(make):
    plan = make("lab", "LAB_FLAGS=--no-browser --port=8899")
    assert '--editable ".[notebooks]"' in plan
    assert re.search(r"-m jupyterlab notebooks/01_first_model\.ipynb .*--no-browser --port=8899", plan)


def test_nothing_is_run_by_the_name_python(make):
    for command in ("lab", "demo", "test", "lint"):
        assert not re.search(r"(?:^|[;&|{]) *(?:python|pip|jupyter)\s", make(command), re.M)


def test_an_environment_that_is_up_to_date_is_left_alone(tmp_path):
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    venv = tmp_path / ".venv"
    venv.mkdir()
    (venv / "folder").write_text(f"{tmp_path}\n")
    stamp = venv / "installed-notebooks"
    stamp.touch()

    def plan() -> str:
        return subprocess.run(
            ["make", "--dry-run", "demo"], cwd=tmp_path, capture_output=True, text=True, check=True
        ).stdout

    assert "pip install" not in plan()
    os.utime(tmp_path / "pyproject.toml", (stamp.stat().st_mtime + 10,) * 2)
    assert "pip install" in plan()
    os.utime(tmp_path / "pyproject.toml", (0, 0))
    (venv / "folder").write_text("/elsewhere\n")
    assert "pip install" in plan()


def test_continuous_integration_lets_no_test_be_skipped_for_a_missing_program():
    text = (ROOT / ".ci" / "run").read_text()
    assert "NBMODULE_REQUIRE_ALL=1" in text
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
