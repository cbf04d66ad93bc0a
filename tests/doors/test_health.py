"""`nb.doctor` says what is there, what is missing, and what to do about it."""

import subprocess
import sys

import pytest

import nbmodule as nb
from nbmodule.doors import health as room


def named(report, name):
    return next(finding for finding in report if finding.name == name)


def test_all_is_well_where_the_tests_run():
    report = nb.doctor()
    assert report.is_well
    assert named(report, "jax").found == __import__("jax").__version__
    assert repr(report).endswith("all is well")


def test_a_package_of_another_version_is_broken_and_the_cure_is_named(monkeypatch):
    monkeypatch.setattr(
        room, "_installed", lambda name: "0.4.1" if name == "jax" else "99.0" if name == "jaxlib" else "9.0"
    )
    report = nb.doctor()
    for name in ("jax", "jaxlib"):
        assert named(report, name).is_broken
        assert named(report, name).cure.startswith(f'`pip install "{name}')
    assert not report.is_well
    assert "✗ jax " in repr(report)


def test_a_package_that_is_missing_is_said(monkeypatch):
    monkeypatch.setattr(room, "_installed", lambda name: None if name in ("anywidget", "flax") else "9.0")
    report = nb.doctor()
    assert named(report, "anywidget").found == "missing"
    assert "flax" in named(report, "interop").cure
    assert not named(report, "interop").is_broken


def test_an_old_kernel_is_advised_to_be_newer(monkeypatch):
    monkeypatch.setattr(room, "_installed", lambda name: "6.0.0" if name == "ipykernel" else "9.0")
    assert named(nb.doctor(), "in a notebook").cure == "`pip install -U ipykernel`"


def test_a_look_that_fails_is_a_finding(monkeypatch):
    monkeypatch.setattr(room, "chosen_form", lambda form: 1 / 0)
    assert "ZeroDivisionError" in named(nb.doctor(), "could not look").found


@pytest.mark.parametrize(("words", "code"), [(["doctor"], 0), (["docter"], 2)])
def test_the_command_line_ends_with_what_was_found(words, code):
    done = subprocess.run([sys.executable, "-m", "nbmodule", *words], capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert ("all is well" in done.stdout) == (code == 0)
