"""A journal on disk: of a killed run, cut off at any byte, on a full disk."""

from __future__ import annotations

import errno
import os
import random
import shutil
import struct
import time
import zlib

import numpy as np
import optax
import pytest

import nbmodule as nb
from nbmodule.errors import FileFormatError, NbModuleError
from nbmodule.live.live import Live
from nbmodule.live.reporting import journal
from nbmodule.live.runs.record import RecordedRun, last_run


def written(folder, steps=50, **options) -> RecordedRun:
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


KILLED = """
import sys, time
from nbmodule.live.live import Live
with Live(display=False, journal=sys.argv[1]) as live:
    for k in live.steps(range(10**9)):
        live.log(at=time.time())
        time.sleep(0.01)
        if k == 3: print('on', flush=True)
"""


@pytest.mark.parametrize("seed", range(2))
def test_a_run_that_is_killed_misses_two_seconds_of_points_at_most(tmp_path, start_python, seed):
    with start_python(KILLED, tmp_path) as child:
        assert child.stdout.readline() == "on\n"
        time.sleep(1.5 + 1.5 * random.Random(seed).random())
        child.kill()
        killed = time.time()
    run = last_run(tmp_path)
    assert run.state == "died" and run.is_whole
    assert run.seen - run.history["at"].last < 0.5  # what was there when it last wrote is written
    assert killed - run.seen < 2 + 2  # the second two are a busy machine's
    assert "died at step" in repr(run)


def test_a_journal_that_is_damaged_anywhere_is_read_up_to_there(tmp_path):
    whole = written(tmp_path)
    data, losses = whole.path.read_bytes(), whole.history.loss.values.tolist()
    for at in (*range(10, len(data), 97), len(data) - 20):
        for damaged in (data[:at], data[:at] + bytes([data[at] ^ 255]) + data[at + 1 :]):
            whole.path.write_bytes(damaged)
            run = last_run(tmp_path)
            kept = run.history.loss.values.tolist() if "loss" in run.history else []
            assert kept == losses[: len(kept)] and (run.state, run.is_whole) == ("died", False)
    assert kept == losses and "the last record was cut off" in repr(run)


@pytest.mark.parametrize(
    "record",
    [
        b"\xa0\x86\x01\x00" + b"[" * 100_000,
        b'\x39\x00\x00\x00{"record":"points","name":"loss","count":9,"dtype":"<f4"}x',
    ],
    ids=["deep", "points"],
)
def test_a_journal_ends_at_a_crafted_record(tmp_path, record):
    path = tmp_path / f"x{journal.SUFFIX}"
    path.write_bytes(journal._MAGIC + struct.pack("<II", len(record), zlib.crc32(record)) + record)
    run = last_run(tmp_path)
    assert (run.state, run.is_whole) == ("died", False)


def test_a_file_that_is_no_journal_is_refused_and_hides_no_other(tmp_path):
    missing = r"there is no journal of a run.*nb\.Live\(\.\.\., journal='runs'\)"
    with pytest.raises(NbModuleError, match=missing):
        last_run(tmp_path)
    bad = tmp_path / f"99999999-000000-x{journal.SUFFIX}"
    bad.write_bytes(b"nothing of a journal")
    for given in (bad, tmp_path):
        with pytest.raises(FileFormatError, match="is no journal of a run"):
            last_run(given)
    good = written(tmp_path / "other")
    shutil.copy(good.path, tmp_path)
    os.utime(bad, (2e9, 2e9))  # the newest comes first
    with pytest.warns(UserWarning, match="skipped a journal: .* is no journal of a run"):
        run = last_run(tmp_path)
    assert run.run_id == good.run_id == last_run(good.path).run_id


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
    failed, again = (m.text for m in live._state.messages if "journal" in m.text)
    assert "cannot be written: No space left on device" in failed and "complete" in again
    run = last_run(tmp_path)
    assert run.history.loss.values.tolist() == list(range(100))
    assert (run.state, run.is_whole) == ("done", True)


def test_a_journal_that_others_remove_is_reported_and_the_training_goes_on(tmp_path):
    with Live(display=False, journal=tmp_path / "runs") as live:
        for k in live.steps(range(30)):
            live.log(loss=k)
            if k == 10:
                shutil.rmtree(tmp_path / "runs")
                assert not live._journal.write()
    assert live.progress.state == "done"
    (message,) = live._state.messages
    assert "cannot be written: others have removed it" in message.text


def test_the_journal_of_a_running_run_is_not_removed_and_reads_as_running(tmp_path, monkeypatch):
    monkeypatch.setattr(journal, "MOST_RUNS", 2)
    with Live(display=False, journal=tmp_path) as live:
        for k in live.steps(range(5)):
            live.log(loss=k)
            if k == 1:
                for _ in range(4):
                    written(tmp_path, steps=1)
        live._journal.write()
        run = RecordedRun(live._journal.path)
        assert run.state == "running" and repr(run).startswith("training: running at step 5")
    assert RecordedRun(live._journal.path).state == "done"
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


def test_a_folder_that_cannot_be_made_is_reported_in_one_line(tmp_path):
    (tmp_path / "taken").write_text("a file")
    with Live(display=False, journal=tmp_path / "taken") as live:
        for k in live.steps(range(3)):
            live.log(loss=k)
    (message,) = live._state.messages
    assert message.text.startswith("this run has no journal: ") and live.progress.state == "done"


@pytest.mark.parametrize(
    ("make", "dtype"),
    [
        (nb.Adam, "float32"),
        (nb.SGD, "bfloat16"),
        (lambda rate: nb.Optax(optax.adamw(rate)), "float32"),
    ],
    ids=["Adam", "SGD bfloat16", "optax"],
)
def test_the_last_training_state_is_saved_with_the_journal(tmp_path, compiled_step, make, dtype):
    model = nb.Sequential(nb.Linear(3, 4), nb.Tanh(), nb.Linear(4, 1)).to(dtype=dtype)
    optimizer = make(0.1)
    step = compiled_step(model, optimizer, lambda m, x: (m(x) ** 2).mean())
    with Live(model, optimizer, None, display=False, journal=tmp_path) as live:
        for _ in live.steps(range(12)):
            live.log(loss=step(np.ones((2, 3), dtype)))
    snapshot = last_run(tmp_path).snapshot
    assert snapshot is not None and snapshot["step"] == 12
    for part, owner in (("model", model), ("optimizer", optimizer)):
        state = owner.state_dict()
        assert snapshot[part].keys() == state.keys()
        for name, value in state.items():
            np.testing.assert_array_equal(snapshot[part][name], value, err_msg=name)
            assert snapshot[part][name].dtype == value.dtype
        owner.load_state_dict(snapshot[part])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_that_leaves_the_block_leaves_run_and_journal_to_its_parent(
    run_python, tmp_path
):
    code = f"""
        import os, time
        from nbmodule.live.live import Live
        from nbmodule.live.runs.record import last_run
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


def test_a_damaged_snapshot_and_other_weights_are_refused(tmp_path):
    run = written(tmp_path)
    path = run.path.with_suffix(journal.SNAPSHOT)
    path.write_bytes(b"nothing of a snapshot")
    with pytest.raises(FileFormatError, match="cannot load"):
        _ = run.snapshot
    nb.save(path, {"w": np.ones(3)})
    with pytest.raises(FileFormatError, match="it is no snapshot of a run"):
        _ = run.snapshot
