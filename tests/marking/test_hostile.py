"""Attempts of a hostile notebook and their results: the lines of the table in docs/teaching.md."""

from __future__ import annotations

import socket
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from nbmodule.marking import Limits, mark
from nbmodule.marking.confine import _version
from tests.marking.notebooks import notebook

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="the system that tells of processes")

# Attempts of a cell, with the version of Landlock that refuses them; 0 if allowed. Seccomp is older.
TRIES = {
    "open({neighbor!r}).read()": 1,
    "open({link!r}).read()": 1,
    "open({secret!r}).read()": 1,
    "import os\nassert 'MY_API_TOKEN' not in os.environ and 'HOME' in os.environ": 0,
    "import socket\nsocket.create_connection(('127.0.0.1', {port}), timeout=5)": 1,
    "import os\nos.kill(os.getppid(), 0)": 6,
    "import shutil\nshutil.rmtree({elsewhere!r})": 1,
    "import numpy as np, jax\nassert np.loadtxt('data.csv').sum() + jax.numpy.ones(3).sum() == 9": 0,
    "import socket\nsocket.socket(socket.AF_INET, socket.SOCK_DGRAM)": 1,
    "import socket\nsocket.socket(socket.AF_UNIX)": 1,
    "import os, resource\nresource.prlimit(os.getppid(), resource.RLIMIT_CPU, (1, 1))": 1,
    "import os\nos.chmod({neighbor!r}, 0), os.chmod({secret!r}, 0), os.utime({neighbor!r}, (0, 0))": 0,
    "import os\nassert 'SSH_AUTH_SOCK' not in os.environ": 0,
    "import os\nopen(f'/proc/{os.getppid()}/environ').read()": 1,
    "import asyncio, socket\nsocket.socketpair(), asyncio.new_event_loop()": 0,
    "import shutil\nopen('own', 'w').write('1'), shutil.copy('own', 'copy')": 0,
    "import os, shutil\nshutil.rmtree(os.getcwd(), ignore_errors=True)\nassert os.listdir() == []": 0,
    "import nbmodule as nb\nnb.check(1, 1)": 0,
}
LEAVES = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(600)
    os._exit(0)
os.wait()
"""
STARTS = """
import os, time
for _ in range(40):
    if os.fork() == 0:
        time.sleep(600)
        os._exit(0)
time.sleep(600)
"""
FILLS = """
import os, time
held = []
for number in range(32):
    held.append(open(f"held{number}", "wb"))
    os.unlink(f"held{number}")
    held[-1].write(bytes(2**22)), held[-1].flush()
time.sleep(600)
"""


def write(folder, name, cells):
    (folder / f"{name}.ipynb").write_text(notebook(*cells))


def still_running(sign):
    """Processes whose environment holds a word."""
    found = []
    for each in Path("/proc").glob("[0-9]*/environ"):
        try:
            found += [each.parent.name] if sign.encode() in each.read_bytes() else []
        except OSError:
            continue
    return found


@LINUX
def test_a_notebook_cannot_read_write_reach_or_end_anything_of_others(tmp_path, monkeypatch):
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    folder = home / "students"
    for each in (home / ".ssh", folder, elsewhere):
        each.mkdir(parents=True)
    (home / ".ssh" / "id").write_text("secret")
    (folder / "data.csv").write_text("1\n2\n3\n")
    (home / "link").symlink_to(folder)
    write(folder, "neighbor", ["import nbmodule as nb\nnb.check(1, 2)"])
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("MY_API_TOKEN", "secret")
    monkeypatch.setenv("SSH_AUTH_SOCK", "/tmp/agent")
    with socket.create_server(("127.0.0.1", 0)) as server:
        places = {
            "neighbor": str(folder / "neighbor.ipynb"),
            "link": str(home / "link" / "neighbor.ipynb"),
            "secret": str(home / ".ssh" / "id"),
            "elsewhere": str(elsewhere),
            "port": server.getsockname()[1],
        }
        is_form = lambda text: "!r}" in text or "{port}" in text
        write(folder, "hostile", [x.format(**places) if is_form(x) else x for x in TRIES])
        (marks,) = mark(folder, against=None, limits=Limits())[:1]
    assert marks.name == "hostile" and marks.ended is None
    assert marks.exercises[0].right, "it goes on after all of it"
    refused = {int(fault.partition(",")[0].removeprefix("cell ")): fault for fault in marks.faults}
    expected = {n for n, version in enumerate(TRIES.values(), 1) if 0 < version <= _version()}
    assert set(refused) == expected
    assert all("PermissionError" in fault for fault in refused.values())
    for path in (folder / "neighbor.ipynb", home / ".ssh" / "id"):
        assert path.stat().st_mode & 0o600 == 0o600
        assert path.stat().st_mtime > 0
    assert elsewhere.exists()


def test_malformed_events_and_endless_expressions_end_their_notebook_alone(tmp_path):
    """Each writes lines of its own into the pipe of events, as any code of a notebook can."""
    forge = "import os\nfor fd in range(3, 64):\n    try: os.write(fd, {line!r})\n    except OSError: pass"
    check = "import nbmodule as nb\nnb.check(1, 1)"
    write(tmp_path, "event", [forge.format(line=b"{}\n"), check])
    write(tmp_path, "long", ["x = " + "-" * 100_000 + "1", check])
    (tmp_path / "nested.ipynb").write_text("[" * 10**6)
    write(tmp_path, "zoe", [check])
    order: list[str] = []
    results = mark(tmp_path, on_marks=lambda marks: order.append(marks.name), jobs=2)
    assert sorted(order) == [marks.name for marks in results]
    by_name = {marks.name: marks for marks in results}
    assert by_name["zoe"].points == 1 and by_name["zoe"].ended is None
    assert "no event of a notebook" in by_name["event"].ended and by_name["event"].unmarked == 1
    assert by_name["long"].points == 1 and len(by_name["long"].faults) == 1
    assert "is no notebook" in by_name["nested"].ended


@LINUX
@pytest.mark.parametrize(
    ("code", "limits", "said"),
    [
        (LEAVES, Limits(), None),
        (
            STARTS,
            Limits(processes=20, memory=2**50),
            "it started more than 20 processes, in cell 1",
        ),
        (FILLS, Limits(disk=2**24), "it wrote more than 16.0 MiB, in cell 1"),
    ],
    ids=["leaves a process", "starts many", "fills what has no name"],
)
def test_no_process_of_a_notebook_over_its_limits_is_left(
    tmp_path, monkeypatch, code, limits, said
):
    sign = uuid.uuid4().hex
    monkeypatch.setenv("NBMODULE_SIGN", sign)
    write(tmp_path, "one", [code, "import nbmodule as nb\nnb.check(1, 1)"])
    (marks,) = mark(tmp_path, limits=limits)
    assert still_running(sign) == []
    assert marks.ended is None if said is None else marks.ended.startswith(said)
    assert marks.points == (said is None)


@LINUX
def test_children_that_were_there_before_are_left_alone(tmp_path):
    command = [sys.executable, "-c", "input()"]
    own = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
    try:
        write(tmp_path, "one", ["import nbmodule as nb\nnb.check(1, 1)"])
        assert mark(tmp_path)[0].points == 1
        assert own.poll() is None
    finally:
        own.communicate(b"\n")
