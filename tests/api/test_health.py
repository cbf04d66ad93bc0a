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


INSTALLED = {
    "a jaxlib that does not fit its jax": ("jaxlib", "0.1.0", "jaxlib", True, 'pip install "jax=='),
    "a jax newer than the tests know": ("jax", "0.99.0", "jax's behavior", False, "newer than"),
    "a package that is too old": ("jax", "0.4.1", "jax", True, 'pip install "jax'),
    "a package that is missing": ("anywidget", None, "anywidget", True, 'pip install "anywidget'),
    "an extra in part": ("flax", None, "interop", False, "for flax: "),
}


@pytest.mark.parametrize("case", INSTALLED)
def test_installed_packages_are_checked_and_the_fix_is_named(monkeypatch, case):
    package, version, name, is_broken, fix = INSTALLED[case]
    installed = health._installed
    monkeypatch.setattr(
        health, "_installed", lambda other: version if other == package else installed(other)
    )
    report = nb.doctor()
    *_, check = (check for check in report if check.name == name and check.fix)
    assert check.is_broken == is_broken and fix in check.fix
    assert report.is_well or "✗ " in repr(report)
    assert report.is_well != any(check.is_broken for check in report)


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


def test_a_jax_without_what_the_core_needs_is_broken(monkeypatch):
    monkeypatch.setattr(jax_names, "is_jit_being_traced", lambda: False)
    check = named(nb.doctor(), "jax's behavior")
    assert check.is_broken
    assert "a raw `jax.jit` is not detected" in check.fix


def test_the_folder_of_compiled_programs_is_reported(tmp_path):
    assert "nb.cache_compiles()" in named(nb.doctor(), "compiled programs").fix
    assert "JAX_COMPILATION_CACHE_DIR" in named(nb.doctor(), "compiled programs").fix
    before = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", str(tmp_path))
    try:
        assert named(nb.doctor(), "compiled programs").result == f"kept in {tmp_path}"
    finally:
        jax.config.update("jax_compilation_cache_dir", before)


def test_each_extra_that_a_user_may_want_is_listed_with_its_packages():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    required = {each: {Requirement(line).name for line in extras[each]} for each in extras}
    listed = {extra: set(packages) for extra, (_, packages) in health._EXTRAS.items()}
    assert listed == {extra: required[extra] for extra in listed}
    assert set(required) - set(listed) == {"docs", "smoke", "test", "wild"}  # for contributors


def test_a_check_that_fails_is_reported(monkeypatch):
    monkeypatch.setattr(health, "chosen_form", lambda form: 1 / 0)
    assert "ZeroDivisionError" in named(nb.doctor(), "check failed").result


@pytest.mark.parametrize(("words", "code"), [(["doctor"], 0), (["docter"], 2)])
def test_the_exit_status_tells_of_faults(words, code):
    command = [sys.executable, "-m", "nbmodule", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert ("all is well" in done.stdout) == (code == 0)
