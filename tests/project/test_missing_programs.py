"""A machine that lacks programs: what apt may mend is mended once, everything else is said and
skipped.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.project.conftest import ROOT, run

BASICS = ["bash", "cat", "dirname", "env", "mkdir", "rm", "sh", "true"]


class Machine:
    """A machine with the programs of every system, a root user, and an apt-get that notes what it
    is asked for.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.programs, self.log = folder, folder / "bin", folder / "apt.log"
        self.programs.mkdir()
        (folder / "tools").mkdir()
        shutil.copy(ROOT / "tools" / "provision", folder / "tools")
        for name in BASICS:
            (self.programs / name).symlink_to(shutil.which(name))
        self.add("id", "echo 0")

    def add(self, name: str, script: str) -> None:
        program = self.programs / name
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)

    def add_apt(self, unknown: str = "nothing") -> None:
        self.add("apt-get", f'echo "$@" >> {self.log}\ncase "$*" in *{unknown}*) exit 1;; esac')

    def provision(self, *arguments: str) -> str:
        done = subprocess.run(
            [self.folder / "tools" / "provision", *arguments],
            env={"PATH": str(self.programs), "HOME": str(self.folder)},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout

    def asked_for(self) -> list[str]:
        """Packages that apt-get was asked to install."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [line.split()[-1] for line in lines if " install " in line]


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


def test_missing_programs_are_installed_with_apt_once(machine):
    machine.add_apt()
    machine.add("dot", "")
    machine.provision()
    assert machine.asked_for() == ["chromium", "nodejs", "npm"]
    for name in ("google-chrome", "node", "npm"):
        machine.add(name, "")
    assert machine.provision() == ""
    assert len(machine.asked_for()) == 3


def test_a_package_that_apt_does_not_know_is_tried_once(machine):
    machine.add_apt(unknown="chromium")
    assert "missing on this machine: chromium\n" in machine.provision()
    assert machine.asked_for() == ["chromium", "graphviz", "nodejs", "npm"]
    assert "missing on this machine: chromium" in machine.provision()
    assert len(machine.asked_for()) == 4
    machine.provision("--again")
    assert len(machine.asked_for()) > 4


def test_without_rights_the_command_to_run_is_printed(machine):
    assert "install chromium graphviz nodejs npm with the package manager" in machine.provision()
    machine.add_apt()
    machine.add("id", "echo 1000")
    machine.add("sudo", "exit 1")
    said = machine.provision("--ask")
    assert "`make provision`, which is sudo apt-get install chromium graphviz nodejs npm" in said
    assert machine.asked_for() == []


def test_a_password_is_asked_for_on_request_only(machine):
    machine.add_apt()
    machine.add("id", "echo 1000")
    machine.add("sudo", f'echo called >> {machine.folder}/sudo.log\nexec "$@"')
    machine.add("dot", "")
    said = machine.provision()
    assert not (machine.folder / "sudo.log").exists()
    assert machine.asked_for() == []
    assert "without chromium: tests of views, notebooks and pages in a browser are skipped" in said
    assert "graphviz" not in said
    assert "to get it: `make provision`" in said
    machine.provision("--ask")
    assert machine.asked_for() == ["chromium", "nodejs", "npm"]


@pytest.mark.parametrize(("require_all", "outcome"), [("0", "1 skipped"), ("1", "1 error")])
def test_a_test_whose_program_is_missing_is_skipped_or_fails_where_nothing_may_be(
    tmp_path, require_all, outcome
):
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-k", "types_hold"]
    env = {"PATH": str(tmp_path), "NBMODULE_REQUIRE_ALL": require_all}
    done = run(*command, "tests/views/page/test_node.py", env=env)
    assert outcome in done.stdout.splitlines()[-1]
    assert "node or npm is missing: `sudo apt-get install nodejs npm`" in done.stdout
