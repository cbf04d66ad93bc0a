"""A run on disk while it goes on: killed at any moment, cut off at any byte, on a disk that is full, nothing else is lost."""

from __future__ import annotations

import errno
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import nbmodule as nb
from nbmodule.errors import FileFormatError, NbModuleError
from nbmodule.live.live import Live
from nbmodule.live.telling import journal
from nbmodule.live.telling.journal import LastRun, last_run

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
        [sys.executable, "-c", code], stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": str(ROOT)}
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
            assert run.history.loss.values.tolist() == whole.history.loss.values.tolist()[: len(run.history.loss)]
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
    with pytest.raises(NbModuleError, match=r"there is no journal of a run.*nb\.Live\(\.\.\., journal='runs'\)"):
        last_run(tmp_path)


def test_a_full_disk_ends_the_journal_and_not_the_training(tmp_path, monkeypatch):
    monkeypatch.setattr(journal, "EVERY", 0.01)

    class Full:
        closed = False

        def write(self, _):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        def close(self):
            pass

    with Live(display=False, journal=tmp_path) as live:
        live._journal._file.close()
        live._journal._file = Full()
        for k in live.steps(range(100)):
            live.log(loss=k)
    assert len(live.history.loss) == 100 and live.progress.state == "done"
    (message,) = [m for m in live.messages if "journal" in m.text]
    assert "the journal of this run ends here: No space left on device" in message.text


def test_a_folder_that_cannot_be_made_is_told_in_one_line(tmp_path):
    (tmp_path / "taken").write_text("a file")
    with Live(display=False, journal=tmp_path / "taken") as live:
        for k in live.steps(range(3)):
            live.log(loss=k)
    (message,) = live.messages
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


def test_the_newest_values_of_all_variables_are_beside_the_journal(tmp_path, monkeypatch):
    monkeypatch.setattr(journal, "_SNAPSHOT_EVERY", 0.0)
    model, optimizer = nb.Linear(3, 1), nb.Adam(0.1)

    @nb.jit
    def step(x):
        loss, grads = nb.value_and_grad(lambda m: (m(x) ** 2).mean())(model)
        optimizer.update(model, grads)
        return loss

    seen = {}
    with Live(model, optimizer, None, display=False, journal=tmp_path, keep_every=5) as live:
        for _k in live.steps(range(12)):
            live.log(loss=step(np.ones((2, 3), np.float32)))
            if live.step == 10:
                seen = {name: np.asarray(p) for name, p in model.named_parameters()}
    run = last_run(tmp_path)
    assert run.snapshot is not None and run.snapshot["step"] == 10
    assert len(run.snapshot["optimizer"]) >= 4
    model.load_state_dict(run.snapshot["model"])
    for name, p in model.named_parameters():
        np.testing.assert_array_equal(np.asarray(p), seen[name])


def test_only_the_newest_journals_of_a_folder_stay(tmp_path, monkeypatch):
    monkeypatch.setattr(journal, "MOST_RUNS", 3)
    for _ in range(5):
        written(tmp_path, steps=1)
    assert len(list(tmp_path.glob(f"*{journal.SUFFIX}"))) == 3
