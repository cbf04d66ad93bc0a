"""A run on disk while it goes on: killed at any moment, cut off at any byte, on a disk that is
full, nothing else is lost.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import types
from pathlib import Path

import numpy as np
import optax
import pytest

import nbmodule as nb
from nbmodule.errors import FileFormatError, NbModuleError
from nbmodule.live.live import Live
from nbmodule.live.reporting import journal
from nbmodule.live.reporting.journal import LastRun, last_run

ROOT = Path(__file__).parents[2]


def written(folder, steps=50, **options) -> LastRun:
    with Live(display=False, journal=folder, **options) as live:
        for k in live.steps(range(steps)):
            live.log(loss=1 / (k + 1), accuracy=np.float32(k))
    return last_run(folder)


def test_a_run_is_read_back_as_it_was_logged(tmp_path):
    run = written(tmp_path)
    np.testing.assert_array_equal(run.history.loss.values, 1 / np.arange(1, 51))
    assert run.history.accuracy.values.dtype == np.float32
    assert run.history.loss.steps.tolist() == list(range(1, 51))
    assert (run.state, run.step, run.is_whole) == ("done", 50, True)
    assert run.path.stat().st_size < 50 * 2 * 24
    assert "done at step 50" in repr(run)


@pytest.mark.parametrize("seed", range(2))
def test_a_run_that_is_killed_misses_two_seconds_of_points_at_most(tmp_path, seed):
    code = (
        "import sys, time\n"
        "from nbmodule.live.live import Live\n"
        f"with Live(display=False, journal={str(tmp_path)!r}) as live:\n"
        "    for k in live.steps(range(10**9)):\n"
        "        live.log(at=time.time())\n"
        "        time.sleep(0.01)\n"
        "        if k == 3: print('on', flush=True)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        env=os.environ
        | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", str(ROOT))])},
    ) as child:
        assert child.stdout is not None and child.stdout.readline() == b"on\n"
        time.sleep(1.5 + 1.5 * random.Random(seed).random())
        os.kill(child.pid, signal.SIGKILL)
        killed = time.time()
    run = last_run(tmp_path)
    assert run.state == "died" and run.is_whole
    assert run.seen - run.history["at"].last < 0.5  # what was there when it last wrote is written
    assert killed - run.seen < 2 + 2  # the second two are a busy machine's
    assert "died at step" in repr(run)


def test_a_journal_that_is_cut_off_anywhere_gives_what_is_whole(tmp_path):
    whole = written(tmp_path)
    data = whole.path.read_bytes()
    for length in range(10, len(data), 97):
        whole.path.write_bytes(data[:length])
        run = LastRun(whole.path)
        if "loss" in run.history:
            assert (
                run.history.loss.values.tolist()
                == whole.history.loss.values.tolist()[: len(run.history.loss)]
            )
    assert run.state == "died" and "the last record was cut off" in repr(run)


def test_a_damaged_byte_ends_the_reading_there(tmp_path):
    whole = written(tmp_path)
    data = bytearray(whole.path.read_bytes())
    data[-20] ^= 255
    whole.path.write_bytes(data)
    run = LastRun(whole.path)
    assert not run.is_whole and run.state == "died"
    assert run.history.loss.values.tolist() == whole.history.loss.values.tolist()


def test_another_file_is_refused(tmp_path):
    (tmp_path / f"x{journal.SUFFIX}").write_bytes(b"hello")
    with pytest.raises(FileFormatError, match="is no journal of a run"):
        last_run(tmp_path)


def test_without_a_journal_it_is_said_how_to_have_one(tmp_path):
    with pytest.raises(
        NbModuleError, match=r"there is no journal of a run.*nb\.Live\(\.\.\., journal='runs'\)"
    ):
        last_run(tmp_path)


class FullDisk:
    """A file on a disk that takes half of what is written while it is full."""

    def __init__(self, file):
        self._file, self.is_full, self.refused = file, True, 0

    def write(self, data):
        if not self.is_full:
            return self._file.write(data)
        self.refused += 1
        if self.refused % 2:
            return self._file.write(data[: len(data) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def __getattr__(self, name):
        return getattr(self._file, name)


def test_on_a_full_disk_the_training_goes_on_and_the_journal_is_complete_once_there_is_room(
    tmp_path,
):
    with Live(display=False, journal=tmp_path) as live:
        disk = live._journal._file = FullDisk(live._journal._file)
        for k in live.steps(range(100)):
            live.log(loss=k)
            if k in (20, 30, 40):
                assert not live._journal.write()
            if k == 50:
                disk.is_full = False
                assert live._journal.write()
    assert len(live.history.loss) == 100 and live.progress.state == "done"
    said = [m.text for m in live._state.messages if "journal" in m.text]
    assert (
        len(said) == 2
        and "cannot be written: No space left on device" in said[0]
        and "complete" in said[1]
    )
    run = last_run(tmp_path)
    assert run.history.loss.values.tolist() == list(range(100)) and (run.state, run.is_whole) == (
        "done",
        True,
    )


def test_a_run_that_is_killed_on_a_full_disk_has_what_was_written_before(tmp_path):
    with Live(display=False, journal=tmp_path) as live:
        for k in live.steps(range(10)):
            live.log(loss=k)
            if k == 5:
                assert live._journal.write()
                live._journal._file = FullDisk(live._journal._file)
                assert not live._journal.write()
                left = live._journal.path.read_bytes()
        live._journal._file.is_full = False
    copy = tmp_path / "copy.nbrun"
    copy.write_bytes(left)
    run = LastRun(copy)
    assert (
        run.history.loss.values.tolist() == list(range(len(run.history.loss)))
        and len(run.history.loss) >= 5
    )


def test_a_run_that_begins_on_a_full_disk_has_its_journal_once_there_is_room(tmp_path, monkeypatch):
    written(tmp_path, steps=3)
    disks = []

    class Fullest(FullDisk):
        def write(self, data):
            if self.is_full:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return self._file.write(data)

    def opened(*args, **kwargs):
        disks.append(Fullest(open(*args, **kwargs)))  # noqa: SIM115 - the journal closes it
        return disks[-1]

    with monkeypatch.context() as patch:
        patch.setattr(journal, "open", opened, raising=False)
        live = Live(display=False, journal=tmp_path)
        live.__enter__()
    for k in live.steps(range(20)):
        live.log(loss=k)
        if k == 5:
            assert (
                len(last_run(tmp_path).history.loss) == 3
            )  # the one before: of this one nothing is there
            disks[0].is_full = False
    live._finish()
    assert last_run(tmp_path).history.loss.values.tolist() == list(range(20))


def test_values_that_find_no_room_do_not_end_the_journal_of_the_points(tmp_path, monkeypatch):
    monkeypatch.setattr(journal, "_SNAPSHOT_EVERY", 0.0)

    def full(path):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(journal, "whole_file", full)
    model = nb.Linear(2, 1)
    with Live(model, None, None, display=False, journal=tmp_path) as live:
        step = nb.jit(lambda x: model(x).sum())
        for k in live.steps(range(20)):
            live.log(loss=step(np.full((1, 2), k, np.float32)))
            live._journal.write()
    assert len(last_run(tmp_path).history.loss) == 20
    (said,) = [m.text for m in live._state.messages if "journal" in m.text]
    assert (
        said
        == "the values of all variables cannot be written beside the journal: No space left on device"
    )


def test_a_journal_whose_folder_is_deleted_is_written_anew(tmp_path):
    folder = tmp_path / "runs"
    with Live(display=False, journal=folder) as live:
        for k in live.steps(range(30)):
            live.log(loss=k)
            if k == 10:
                assert live._journal.write()
                shutil.rmtree(folder)
    run = last_run(folder)
    assert run.history.loss.values.tolist() == list(range(30)) and run.state == "done"


def test_code_that_goes_to_another_folder_leaves_the_journal_where_it_is(tmp_path, monkeypatch):
    monkeypatch.setattr(journal, "_SNAPSHOT_EVERY", 0.0)
    (tmp_path / "data").mkdir()
    monkeypatch.chdir(tmp_path)
    model = nb.Linear(2, 1)
    step = nb.jit(lambda x: model(x).sum())
    with Live(model, None, None, display=False, journal="runs") as live:
        for k in live.steps(range(20)):
            live.log(loss=step(np.full((1, 2), k, np.float32)))
            if k == 10:
                monkeypatch.chdir(tmp_path / "data")
    assert not [m.text for m in live._state.messages if "journal" in m.text]
    assert not list((tmp_path / "data").iterdir())
    run = last_run(tmp_path / "runs")
    assert len(run.history.loss) == 20 and run.snapshot is not None


def test_a_notebook_finds_its_journal_after_its_code_went_to_another_folder(tmp_path, monkeypatch):
    import IPython

    written(tmp_path / journal.FOLDER)
    (tmp_path / "data").mkdir()
    monkeypatch.chdir(tmp_path / "data")
    monkeypatch.setattr(
        IPython, "get_ipython", lambda: types.SimpleNamespace(starting_dir=str(tmp_path))
    )
    assert len(last_run().history.loss) == 50


def test_the_journal_of_a_run_that_goes_on_is_not_removed_by_others_and_says_that_it_goes_on(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(journal, "MOST_RUNS", 2)
    with Live(display=False, journal=tmp_path) as live:
        for k in live.steps(range(5)):
            live.log(loss=k)
            if k == 1:
                for _ in range(4):
                    written(tmp_path, steps=1)
        live._journal.write()
        run = LastRun(live._journal.path)
        assert run.state == "running" and repr(run).startswith("training: running at step 5")
    assert LastRun(live._journal.path).state == "done"
    assert len(list(tmp_path.glob(f"*{journal.SUFFIX}"))) == 2


def test_points_that_were_not_written_before_a_rewind_are_written_after_it(tmp_path, monkeypatch):
    monkeypatch.setattr(journal, "EVERY", 1000.0)
    weight = nb.Parameter(np.ones(2, np.float32))
    model = nb.Module(weight=weight)
    step = nb.jit(lambda x: (setattr(weight, "value", weight - 0.1 * x), (weight * x).sum())[1])
    went = []
    with Live(model, None, None, display=False, journal=tmp_path) as live:
        for k in live.steps(range(1, 31)):
            live.log(loss=step(np.float32(k)))
            if live.step in (4, 25) and live.step not in went:
                live._journal.write()
            if live.step in (10, 20, 27) and live.step not in went:
                live.rewind(live.step - 3)
            went.append(live.step)
    run = last_run(tmp_path)
    assert len(went) > 30 and run.history.loss.steps.tolist() == list(range(1, 31))
    np.testing.assert_array_equal(run.history.loss.values, live.history.loss.values)


def test_more_series_than_a_journal_tells_apart_do_no_harm(tmp_path, monkeypatch):
    monkeypatch.setattr(journal, "_MOST_NAMES", 3)
    with Live(display=False, journal=tmp_path) as live:
        for k in live.steps(range(4)):
            live.log({f"loss{i}": k for i in range(6)})
    run = last_run(tmp_path)
    assert run.history.names == ["loss0", "loss1", "loss2"] and run.state == "done"


def test_values_in_bfloat16_come_back_from_the_journal(tmp_path, monkeypatch):
    monkeypatch.setattr(journal, "_SNAPSHOT_EVERY", 0.0)
    model = nb.Linear(3, 2)
    model.to(dtype="bfloat16")
    step = nb.jit(lambda x: model(x).sum())
    with Live(model, None, None, display=False, journal=tmp_path) as live:
        for _ in live.steps(range(3)):
            step(np.ones((1, 3), "bfloat16"))
    snapshot = last_run(tmp_path).snapshot
    assert snapshot is not None and snapshot["model"]["weight"].dtype == "bfloat16"
    before = {name: np.asarray(p) for name, p in model.named_parameters()}
    for p in model.parameters():
        p.value = p.value * 0
    model.load_state_dict(snapshot["model"])
    for name, p in model.named_parameters():
        np.testing.assert_array_equal(np.asarray(p), before[name])


def test_a_folder_that_cannot_be_made_is_told_in_one_line(tmp_path):
    (tmp_path / "taken").write_text("a file")
    with Live(display=False, journal=tmp_path / "taken") as live:
        for k in live.steps(range(3)):
            live.log(loss=k)
    (message,) = live._state.messages
    assert message.text.startswith("this run has no journal: ") and live.progress.state == "done"


def test_a_rewind_is_in_the_journal(tmp_path):
    weight = nb.Parameter(np.ones(2, np.float32))
    model = nb.Module(weight=weight)

    @nb.jit
    def step(x):
        weight.value = weight - 0.1 * x
        return (weight * x).sum()

    went = []
    with Live(model, None, None, display=False, journal=tmp_path) as live:
        for k in live.steps(range(1, 21)):
            live.log(loss=step(np.float32(k)))
            if live.step == 15 and not went:
                went.append(live._journal.write())
                live.rewind(6)
    run = last_run(tmp_path)
    assert run.history.loss.steps.tolist() == list(range(1, 21))
    np.testing.assert_array_equal(run.history.loss.values, live.history.loss.values)


@pytest.mark.parametrize(
    "make",
    [lambda: nb.Adam(0.1), lambda: nb.SGD(0.1), lambda: nb.Optax(optax.adamw(0.1))],
    ids=["Adam", "SGD", "optax"],
)
def test_training_goes_on_from_the_newest_values_beside_the_journal(tmp_path, monkeypatch, make):
    monkeypatch.setattr(journal, "_SNAPSHOT_EVERY", 0.0)
    monkeypatch.setattr(journal, "_SNAPSHOT_SHARE", float("inf"))  # however slow the disk is

    @nb.jit
    def step(model, optimizer, x):
        loss, grads = nb.value_and_grad(lambda m: (m(x) ** 2).mean())(model)
        optimizer.update(model, grads)
        return loss

    model, optimizer = nb.Sequential(nb.Linear(3, 4), nb.Tanh(), nb.Linear(4, 1)), make()
    with Live(model, optimizer, None, display=False, journal=tmp_path, keep_every=5) as live:
        for _ in live.steps(range(12)):
            live.log(loss=step(model, optimizer, np.ones((2, 3), np.float32)))
    snapshot = last_run(tmp_path).snapshot
    assert snapshot is not None and 10 <= snapshot["step"] <= 12  # values are kept before step 11
    another, fresh = nb.Sequential(nb.Linear(3, 4), nb.Tanh(), nb.Linear(4, 1)), make()
    another.load_state_dict(snapshot["model"])
    fresh.load_state_dict(snapshot["optimizer"])
    for _ in range(12 - snapshot["step"]):
        step(another, fresh, np.ones((2, 3), np.float32))
    for name, p in model.named_parameters():
        np.testing.assert_array_equal(
            np.asarray(p), dict(another.named_parameters())[name], err_msg=name
        )
    assert int(fresh.state_dict()["count"]) == 12


def test_only_the_newest_journals_of_a_folder_stay(tmp_path, monkeypatch):
    monkeypatch.setattr(journal, "MOST_RUNS", 3)
    for _ in range(5):
        written(tmp_path, steps=1)
    assert len(list(tmp_path.glob(f"*{journal.SUFFIX}"))) == 3


def test_code_that_changes_the_time_of_python_does_not_hold_the_journal_up(tmp_path, monkeypatch):
    real, shift = time.time, [0.0]
    monkeypatch.setattr("time.time", lambda: real() + shift[0])
    with Live(display=False, journal=tmp_path) as live:
        for k in live.steps(range(6)):
            shift[0] = (-1e8, 3e8)[k % 2]
            live.log(loss=float(k))
            assert live._journal.write()
    assert last_run(tmp_path).history.loss.values.tolist() == [0, 1, 2, 3, 4, 5]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_that_leaves_the_block_leaves_run_and_journal_to_its_parent(
    run_python, tmp_path
):
    code = f"""
        import os, time
        from nbmodule.live.live import Live
        from nbmodule.live.reporting.journal import last_run
        with Live(display=False, journal={str(tmp_path)!r}) as live:
            for k in live.steps(range(6)):
                live.log(loss=float(k))
                if k == 2:
                    child = os.fork()
                    if not child:
                        raise SystemExit(5)
                    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), last_run({str(tmp_path)!r}).state)
        run = last_run({str(tmp_path)!r})
        print(run.state, run.step, run.is_whole, run.history.loss.values.tolist(), live.progress.state)
    """
    assert run_python(code).splitlines() == [
        "5 running",
        "done 6 True [0.0, 1.0, 2.0, 3.0, 4.0, 5.0] done",
    ]


@pytest.mark.skipif(
    not Path("/proc/self/fd").exists(), reason="this system does not tell where an open file is"
)
def test_a_journal_that_is_replaced_by_its_copy_or_cut_by_others_is_written_anew(tmp_path):
    with Live(display=False, journal=tmp_path) as live:
        path = live._journal.path
        for k in live.steps(range(60)):
            live.log(loss=k)
            if k == 20:
                assert live._journal.write()
                shutil.copy(path, tmp_path / "copy")
                os.replace(tmp_path / "copy", path)
            if k == 40:
                assert live._journal.write()
                with open(path, "r+b") as file:
                    file.truncate(50)
    run = last_run(tmp_path)
    assert (run.state, run.is_whole) == ("done", True)
    assert run.history.loss.values.tolist() == list(range(60))


def crafted_records():
    points = journal._POINTS.pack(3, 5, 1) + b"if"
    return {
        "no head": [(b"N", b'"loss"')],
        "head of another kind": [(b"H", b"[1]")],
        "no text": [(b"H", bytes([255, 254]))],
        "deep": [(b"H", b"[" * 100_000)],
        "name without end": [(b"N", b'"')],
        "points of nobody": [(b"P", points)],
        "points that are missing": [(b"N", b'"a"'), (b"P", journal._POINTS.pack(0, 9, 1) + b"if")],
        "short points": [(b"P", b"x")],
        "sample": [(b"S", b"\xff\xff\xff\xff{}")],
        "sample without keys": [(b"S", b"\x02\x00\x00\x00{}")],
        "times": [(b"B", journal._BEAT.pack(float("nan"), 1, 1)), (b"E", b'{"state": 1}')],
        "far future": [(b"H", b'{"began": 1e300}'), (b"B", journal._BEAT.pack(1e300, 1, 1))],
        "infinite": [(b"H", b'{"began": Infinity}')],
    }


@pytest.mark.parametrize("which", crafted_records())
def test_a_crafted_journal_ends_at_the_record_that_cannot_be_read(tmp_path, which):
    path = tmp_path / f"x{journal.SUFFIX}"
    records = crafted_records()[which]
    path.write_bytes(journal._MAGIC + b"".join(journal._framed(*record) for record in records))
    run = last_run(tmp_path)
    assert run.state == "died"
    assert isinstance(repr(run), str)


def test_a_damaged_journal_hides_no_other_and_one_can_be_read_by_its_path(tmp_path):
    good = written(tmp_path)
    bad = tmp_path / f"99999999-000000-x{journal.SUFFIX}"
    bad.write_bytes(b"nothing of a journal")
    with pytest.warns(UserWarning, match="skipped a journal: .* is no journal of a run"):
        assert last_run(tmp_path).path == good.path
    assert last_run(good.path).history.loss.values.tolist() == good.history.loss.values.tolist()
    with pytest.raises(FileFormatError):
        last_run(bad)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_what_is_no_file_is_no_journal(tmp_path):
    os.mkfifo(tmp_path / f"a{journal.SUFFIX}")
    (tmp_path / f"b{journal.SUFFIX}").mkdir()
    assert written(tmp_path).step == 50


def test_damaged_snapshots_are_refused_and_unpack_within_bounds(tmp_path):
    run = written(tmp_path)
    path = run.path.with_suffix(".npz")
    for data in (b"", b"PK\x03\x04nothing", b"PK\x05\x06" + bytes(18), bytes(1000)):
        path.write_bytes(data)
        with pytest.raises(FileFormatError, match="cannot load"):
            _ = run.snapshot
    np.savez_compressed(path, **{"model/w": np.zeros(2**27, np.float32)})
    with pytest.raises(FileFormatError, match="claims to unpack"):
        _ = run.snapshot


def test_unfinished_snapshots_of_killed_processes_are_removed(tmp_path):
    (tmp_path / ".x.npz.0123.unfinished").write_bytes(b"half")
    written(tmp_path)
    assert not list(tmp_path.glob(".*.unfinished"))
