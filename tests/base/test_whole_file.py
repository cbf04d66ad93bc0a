from __future__ import annotations

import io
import itertools
import multiprocessing
import os
import random
import resource
import signal
import time
from contextlib import nullcontext
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb
from nbmodule.base import whole_file as atomic
from nbmodule.base.whole_file import file_name, whole_file
from nbmodule.errors import ArgumentError, ArgumentTypeError, FileWriteError
from nbmodule.files import read, save
from tests.files.trees import equal


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


OLD = {"w": np.ones(3)}


@pytest.fixture
def path(tmp_path):
    """A file that was saved before, the only one in its folder."""
    path = tmp_path / "w.h5"
    save(path, OLD)
    return path


def assert_unchanged(path, tree=OLD):
    assert equal(read(path).variables, tree)
    assert names(path.parent) == [path.name]


def test_nobody_sees_the_new_file_before_it_is_whole(tmp_path):
    path = tmp_path / "w"
    path.write_bytes(b"old")
    with whole_file(path) as file:
        file.write(b"new")
        file.flush()
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"


def test_an_unfinished_file_is_removed_once_nobody_writes_it(tmp_path):
    path = tmp_path / "w"
    left = tmp_path / ".w.0123456789ab.unfinished"
    left.write_bytes(b"left by a killed process")
    os.utime(left, (0, 0))
    other = tmp_path / ".v.0123456789ab.unfinished"
    other.write_bytes(b"of another file")
    with whole_file(path) as first:
        first.write(b"first")
        with whole_file(path) as second:
            second.write(b"second")
        assert path.read_bytes() == b"second"
    assert path.read_bytes() == b"first"
    assert names(tmp_path) == [other.name, "w"]


@pytest.mark.parametrize("name", ["w" * 255, "é" * 127, ".h5", "a b\n.h5"])
def test_any_name_that_a_folder_can_hold_will_do(tmp_path, name):
    save(tmp_path / name, {"w": np.ones(2)})
    assert names(tmp_path) == [name]


def test_a_folder_in_place_of_a_file_and_the_reverse_are_named(tmp_path):
    (tmp_path / "w").mkdir()
    (tmp_path / "x").touch()
    for name, message in (("w", r"w: it is a folder\. No file"), ("x/w", "not a dir|file exists")):
        with pytest.raises(FileWriteError, match=f"cannot save .*({message})"):
            save(tmp_path / name, OLD)
    assert names(tmp_path) == ["w", "x"]


@pytest.mark.parametrize("options", [{}, {"packed": True}, {"compression": 0}], ids=str)
def test_a_limit_on_the_size_of_files_leaves_the_old_file_whole(path, options):
    old = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    tree = {"w": np.zeros(50_000), "v": {f"v{i}": np.ones(3) for i in range(100)}}
    try:
        with pytest.raises(FileWriteError, match=r"file too large. The previous file is unchanged"):
            save(path, tree, **options)
        with pytest.raises(FileWriteError, match=r"file too large. No file was written"):
            save(path.with_name("new.h5"), tree, **options)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, old)
    assert_unchanged(path)


FAILED, KEPT = OSError(5, "Input/output error"), "The previous file is unchanged."


@pytest.mark.parametrize(
    ("call", "number", "error", "message"),
    [
        (
            "open",
            1,
            OSError(13, "Permission denied"),
            f"denied. {KEPT} Choose a folder that you may",
        ),
        ("fsync", 1, OSError(28, "No space left on device"), f"on device. {KEPT} Make room on the"),
        ("replace", 1, FAILED, f"input/output error. {KEPT}"),
        ("fsync", 1, KeyboardInterrupt(), "^$"),
        ("fsync", 2, FAILED, "The new file is complete, but a power failure"),
        ("fchmod", 1, FAILED, None),  # permissions are a nicety
    ],
)
def test_an_error_of_any_system_call_is_explained_and_one_of_both_files_is_there(
    path, monkeypatch, call, number, error, message
):
    original, count = getattr(os, call), itertools.count(1)

    def failing(*args, **kwargs):
        is_read = call == "open" and not args[1] & os.O_CREAT
        if is_read or next(count) != number:
            return original(*args, **kwargs)
        raise error

    monkeypatch.setattr(atomic.os, call, failing)
    kind = FileWriteError if isinstance(error, OSError) else type(error)
    with nullcontext() if message is None else pytest.raises(kind, match=message):
        save(path, {"w": np.zeros(3)})
    monkeypatch.undo()
    is_new = number == 2 or message is None
    assert_unchanged(path, {"w": np.zeros(3)} if is_new else OLD)


def test_an_error_in_the_block_leaves_the_old_file(path):
    with pytest.raises(KeyError), whole_file(path) as file:
        file.write(b"half of the new")
        raise KeyError("stop")
    assert_unchanged(path)


def test_file_and_folder_are_synced_before_and_after_the_renaming(path, monkeypatch):
    events = []
    for call in ("fsync", "replace"):
        original = getattr(os, call)
        recorded = lambda *args, call=call, fn=original: events.append(call) or fn(*args)
        monkeypatch.setattr(atomic.os, call, recorded)
    save(path, OLD)
    assert events[:3] == ["fsync", "replace", "fsync"]


# -- processes that save version after version: version n holds arrays full of n, so that a mixture
# of two versions would show
SIZE = 20_000


def tree_of(version: int) -> dict:
    """Arrays of several sizes, all full of the version's number."""
    return {
        "first": np.full(3, version),
        "layers": {f"v{i}": np.full(SIZE, version, np.float32) for i in range(4)},
        f"only{version % 2}": np.full((7, 5), version, np.int16),
    }


def version_of(path: Path) -> int:
    """The version that a file holds, after a look at every number of it."""
    tree = read(path).variables
    version = int(tree["first"][0])
    wanted = tree_of(version)
    assert tree.keys() == wanted.keys()
    assert tree["layers"].keys() == wanted["layers"].keys()
    for name, array in (*wanted.pop("layers").items(), *wanted.items()):
        np.testing.assert_array_equal(tree["layers"].get(name, tree.get(name)), array)
    return version


def loop(path: Path, first: int, stride: int) -> None:
    """Save without end."""
    for version in itertools.count(first, stride):
        save(path, tree_of(version % 30_000))


def kill_many(path: Path, count: int) -> tuple[int, int]:
    """Kill a saving process at random times; each time the file must be one version, whole, and
    never an older one.

    Returns:
        How many versions were found, and how many unfinished files.
    """
    rng, versions, unfinished = random.Random(count), [0], 0
    save(path, tree_of(0))  # loads what a first save loads
    began = time.perf_counter()
    save(path, tree_of(0))
    several = 8 * (time.perf_counter() - began)  # of this machine, as busy as it is now
    for _ in range(count):
        process = os.fork()
        if process == 0:
            loop(path, versions[-1] + 1, 1)
        time.sleep(rng.uniform(0, max(several, 0.06)))
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        versions.append(version_of(path))
        for left in path.parent.glob(".*.unfinished"):
            unfinished += 1
            left.unlink()
    assert versions == sorted(versions)
    return len(set(versions)), unfinished


@pytest.mark.parametrize("count", [30, pytest.param(300, marks=pytest.mark.long)])
def test_a_saving_loop_that_is_killed_leaves_a_whole_file(tmp_path, run_python, count):
    code = f"""
        from pathlib import Path
        from tests.base.test_whole_file import kill_many
        print(*kill_many(Path({str(tmp_path / "w.h5")!r}), {count}))
    """
    versions, killed_while_writing = map(int, run_python(code, timeout=1000).split())
    assert versions > count // 3 and killed_while_writing > 0


def test_two_processes_saving_to_one_path_leave_one_of_the_two(tmp_path):
    path = tmp_path / "w.h5"
    start = multiprocessing.get_context("spawn").Process
    processes = [start(target=loop, args=(path, first, 2)) for first in (0, 1)]
    seen, until = set(), time.monotonic() + 60
    try:
        for process in processes:
            process.start()
        while (seen != {0, 1} or len(names(tmp_path)) < 2) and time.monotonic() < until:
            if path.exists():
                seen.add(version_of(path) % 2)
        for _ in range(50):
            version_of(path)
    finally:
        for process in processes:
            process.kill()
            process.join()
    assert seen == {0, 1}
    version_of(path)


def calls_with(model, name):
    """Every public function that takes the name of a file or a folder."""
    graph, tree = nb.graph(jnp.sin, jnp.ones(3)), nb.Container(a=1)
    return [
        lambda: model.save_weights(name),
        lambda: model.load_weights(name),
        lambda: nb.save(name, model),
        lambda: nb.load(name),
        lambda: nb.load(name, model),
        lambda: nb.save_safetensors(name, model),
        lambda: nb.save_checkpoint(name, step=0, model=model),
        lambda: nb.restore_checkpoint(name, model=model),
        lambda: nb.checkpoint_steps(name),
        lambda: nb.in_background(nb.save, name, {}),
        lambda: nb.load_calls(name),
        lambda: graph.save(name),
        lambda: tree.cont_save(name),
        lambda: nb.Container.cont_load(name),
        lambda: tree.cont_to_disk_as_json(name),
        lambda: nb.Container.cont_from_disk_as_json(name),
    ]


@pytest.mark.parametrize(
    "name",
    [b"weights.h5", io.BytesIO(), None, 3, "a\0b.h5"],
    ids=["bytes", "file", "None", "number", "NUL"],
)
def test_every_function_refuses_an_invalid_file_name_in_the_same_words(name):
    given = rf"(found|got) {type(name).__name__}\."
    words = "holds a NUL character" if name == "a\0b.h5" else given
    for call in calls_with(nb.Linear(2, 2), name):
        with pytest.raises((ArgumentTypeError, ArgumentError), match=words):
            call()


def test_a_name_may_be_text_or_a_path():
    assert file_name("runs/w.h5", "save") == file_name(Path("runs") / "w.h5", "save") == "runs/w.h5"
