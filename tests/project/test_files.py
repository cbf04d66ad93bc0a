"""Rules for every file that is kept: it stands alone, it is formatted."""

from __future__ import annotations

import functools
import re
import shutil
import sys
from pathlib import Path

import pytest

from tests.project.conftest import ROOT, run

GENERATED = {"package-lock.json", "LICENSE"}

# Brackets around one letter keep this file from holding what it looks for.
PLACES = re.compile(r"(?<![\w.$~*}/-])/(?:(?:work|farm|root|Users|mnt)/|home/(?!ada/)|tmp/\w+/)\w")
HOSTS = re.compile(
    r"py[p]i\.org|python[h]osted\.org|registry\.[n]pmjs|[a]naconda\.(?:org|com)|download\.[p]ytorch"
    r"|[u]npkg\.com|[j]sdelivr|[c]dnjs|[e]sm\.sh"
)
GUESSES = re.compile(
    r"\bimport dis\b|\bdis\.|gc\.get_|gi_frame|f_lasti|co_code\b|_infer_params|tracing_eqns"
)
MARKS = re.compile(r"\b(?:TOD[O]|FIXM[E]|XX[X]|HAC[K])\b")


@functools.cache
def kept_files() -> list[Path]:
    """What git keeps or would keep; without git, what a source archive holds."""
    if shutil.which("git") and (ROOT / ".git").exists():
        command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
        listed = run(*command).stdout.split("\0")
    else:
        skipped = {".venv", "node_modules", "build", "dist", ".git", "__pycache__"}
        listed = [str(path.relative_to(ROOT)) for path in ROOT.rglob("*")]
        listed = [name for name in listed if not skipped.intersection(Path(name).parts)]
    return sorted(ROOT / name for name in listed if name and (ROOT / name).is_file())


@functools.cache
def texts() -> dict[str, str]:
    found = {}
    for path in kept_files():
        data = path.read_bytes()
        if path.name not in GENERATED and b"\0" not in data:
            found[str(path.relative_to(ROOT))] = data.decode("utf-8")
    return found


def places_of(pattern: re.Pattern[str], names: list[str] | None = None) -> list[str]:
    return [
        f"{name}:{number}: {line.strip()[:120]}"
        for name, text in texts().items()
        if names is None or name.startswith(tuple(names))
        for number, line in enumerate(text.splitlines(), 1)
        if pattern.search(line)
    ]


def test_no_file_names_a_place_on_one_machine():
    assert places_of(PLACES) == []


def test_no_file_names_the_host_of_a_package_registry_or_of_a_script_server():
    assert places_of(HOSTS) == []


def test_the_lock_file_says_nothing_of_where_packages_came_from():
    lock = (ROOT / "package-lock.json").read_text()
    assert '"resolved"' not in lock
    assert '"integrity"' in lock


def test_nothing_is_left_to_be_done_later():
    assert places_of(MARKS, ["nbmodule/", "tests/", "tools/"]) == []


def test_the_package_reads_no_bytecode_and_asks_the_collector_for_no_objects():
    assert places_of(GUESSES, ["nbmodule/"]) == []


def test_one_file_reads_closures_and_names_of_code():
    places = places_of(re.compile(r"__closure__|co_names"), ["nbmodule/"])
    assert {line.split(":")[0] for line in places} == {"nbmodule/core/compiled/capture.py"}


def test_no_file_is_named_for_being_useful():
    vague = re.compile(r"(?:^|/)(?:utils?|helpers?|misc|common)\.\w+$")
    assert [name for name in texts() if vague.search(name)] == []


def test_a_place_on_one_machine_is_recognized():
    assert all(map(PLACES.search, ("see /" + "root/x", "'/" + "home/ann/model.py'")))
    others = "the path layers/root/w", "$HOME/.cache", "https://example.org/home/page"
    assert not any(map(PLACES.search, others))


@pytest.mark.parametrize(
    "arguments", [["check", "--quiet"], ["format", "--check"]], ids=["lint", "format"]
)
def test_ruff_finds_nothing_to_say(arguments):
    done = run(sys.executable, "-m", "ruff", *arguments, "--output-format=concise", ".")
    if done.returncode:
        pytest.fail(f"`make format` mends most of it:\n{done.stdout}{done.stderr}", pytrace=False)
