"""`nb.doctor` reports what is installed, what is missing, and how to fix it."""

import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import jax
import pytest
from packaging.requirements import Requirement

import nbmodule as nb
from nbmodule.api import health
from nbmodule.base import jax_names

ROOT = Path(__file__).parents[2]


def named(report, name):
    return next(check for check in report if check.name == name)


def test_all_is_well_where_the_tests_run():
    report = nb.doctor()
    assert report.is_well
    assert named(report, "jax").result == __import__("jax").__version__
    assert repr(report).endswith("all is well")


def test_a_jaxlib_that_does_not_fit_its_jax_is_broken(monkeypatch):
    installed = health._installed
    monkeypatch.setattr(
        health, "_installed", lambda name: "0.1.0" if name == "jaxlib" else installed(name)
    )
    *_, check = (check for check in nb.doctor() if check.name == "jaxlib")
    assert check.is_broken
    assert f'pip install "jax=={installed("jax")}" "jaxlib' in check.fix


@pytest.mark.parametrize(("release", "is_broken"), [("0.9.2", True), (None, False)])
def test_a_cuda_plugin_of_another_release_is_broken(monkeypatch, release, is_broken):
    jaxlib = health._installed("jaxlib")
    packages = [
        SimpleNamespace(name="jax-cuda12-plugin", version=release or jaxlib),
        SimpleNamespace(name="jaxtyping", version="1"),
    ]
    monkeypatch.setattr(health, "distributions", lambda: packages)
    report = nb.doctor()
    assert named(report, "jax-cuda12-plugin").is_broken == is_broken
    assert ("jax-cuda12-plugin==" in named(report, "jax-cuda12-plugin").fix) == is_broken
    assert not [check for check in report if check.name == "jaxtyping" and check.result == "1"]


def test_a_jax_newer_than_the_tests_know_is_said(monkeypatch):
    installed = health._installed
    monkeypatch.setattr(
        health, "_installed", lambda name: "0.99.0" if name == "jax" else installed(name)
    )
    check = named(nb.doctor(), "jax's behavior")
    assert not check.is_broken
    assert "newer than" in check.fix


def test_a_jax_without_what_the_core_needs_is_broken(monkeypatch):
    monkeypatch.setattr(jax_names, "is_jit_being_traced", lambda: False)
    check = named(nb.doctor(), "jax's behavior")
    assert check.is_broken
    assert "a raw `jax.jit` is not detected" in check.fix


def test_where_compiled_programs_are_kept_is_said(tmp_path):
    assert "nb.cache_compiles()" in named(nb.doctor(), "compiled programs").fix
    assert "JAX_COMPILATION_CACHE_DIR" in named(nb.doctor(), "compiled programs").fix
    before = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", str(tmp_path))
    try:
        assert named(nb.doctor(), "compiled programs").result == f"kept in {tmp_path}"
    finally:
        jax.config.update("jax_compilation_cache_dir", before)


def test_each_extra_that_a_user_may_want_is_listed_with_its_packages():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    required = {
        extra: {Requirement(line).name for line in lines} for extra, lines in project.items()
    }
    listed = {extra: set(packages) for extra, (_, packages) in health._EXTRAS.items()}
    assert listed == {extra: required[extra] for extra in listed}
    assert set(required) - set(listed) == {"docs", "smoke", "test", "wild"}  # for contributors


def test_a_package_of_another_version_is_broken_and_the_fix_is_named(monkeypatch):
    monkeypatch.setattr(health, "_installed", lambda name: "0.4.1" if name == "jax" else "99.0")
    report = nb.doctor()
    assert named(report, "jax").is_broken
    assert named(report, "jax").fix.startswith('`pip install "jax')
    assert not report.is_well
    assert "✗ jax " in repr(report)


def test_a_package_that_is_missing_is_said(monkeypatch):
    monkeypatch.setattr(
        health, "_installed", lambda name: None if name in ("anywidget", "flax") else "9.0"
    )
    report = nb.doctor()
    assert named(report, "anywidget").result == "missing"
    assert "flax" in named(report, "interop").fix
    assert not named(report, "interop").is_broken


def test_a_check_that_fails_is_reported(monkeypatch):
    monkeypatch.setattr(health, "chosen_form", lambda form: 1 / 0)
    assert "ZeroDivisionError" in named(nb.doctor(), "check failed").result


@pytest.mark.parametrize(("words", "code"), [(["doctor"], 0), (["docter"], 2)])
def test_the_command_line_ends_with_what_was_found(words, code):
    done = subprocess.run(
        [sys.executable, "-m", "nbmodule", *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == code
    assert ("all is well" in done.stdout) == (code == 0)
