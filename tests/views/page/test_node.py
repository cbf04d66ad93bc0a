"""The front end's own tests run under node, file by file, and its types are checked."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SOURCES = sorted((ROOT / "nbmodule" / "views" / "frontend").rglob("*.js"))
TESTS = sorted((ROOT / "tests" / "views" / "page").rglob("*.test.js"))

pytestmark = pytest.mark.node


def run(*command: str) -> None:
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=240
    )
    if done.returncode:
        pytest.fail(done.stdout + done.stderr, pytrace=False)


@pytest.mark.parametrize("file", TESTS, ids=lambda path: path.name)
def test_node_runs(file):
    run("node", "--test", str(file.relative_to(ROOT)))


@pytest.mark.skipif(not SOURCES, reason="there is no front end yet")
def test_types_hold_under_strict_checking():
    run("node", "node_modules/typescript/bin/tsc", "--project", "jsconfig.json")


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.name)
def test_the_module_can_be_joined_with_its_neighbors(source):
    """A widget arrives as one text; the file that joins knows one form of import and only
    neighbors.
    """
    imports = [
        line for line in source.read_text().splitlines() if line.lstrip().startswith("import")
    ]
    for line in imports:
        assert line.startswith("import { "), line
        assert line.endswith('.js";'), line
        assert ' from "./' in line, line
