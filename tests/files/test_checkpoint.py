from __future__ import annotations

import os

import jax
import numpy as np
import pytest

from nbmodule.base import whole_file as atomic
from nbmodule.errors import ArgumentError, ArgumentTypeError, FileFormatError, FileWriteError
from nbmodule.files import checkpoint_steps, restore_checkpoint, save, save_checkpoint
from tests.files.trees import equal


def trees(step: int) -> dict:
    return {
        "model": {"linear": {"w": np.full((3, 2), step, np.float32)}},
        "optimizer": {"count": step, "mw": {}, "a/b": {"w": np.ones(2)}},
        "streams": {"default": jax.random.key(step)},
    }


def damage(path) -> None:
    data = bytearray(path.read_bytes())
    at = data.find(np.ones(2).tobytes())
    data[at] ^= 1
    path.write_bytes(data)


def save_steps(folder, steps, **options):
    return [save_checkpoint(folder, step=step, trees=trees(step), **options) for step in steps][-1]


def test_the_latest_checkpoint_or_that_of_a_step_comes_back_as_it_was(tmp_path):
    extra = {"history": [0.5, 0.25], "epoch": None}
    save_steps(tmp_path, (1, 2, 10), extra=extra)
    step, found, kept = restore_checkpoint(tmp_path)
    assert (step, kept) == (10, extra)
    assert equal(found, trees(10))
    assert equal(restore_checkpoint(tmp_path, step=1)[1], trees(1))
    with pytest.raises(
        FileNotFoundError, match=r"has no checkpoint of step 7; there are \[1, 2, 1"
    ):
        restore_checkpoint(tmp_path, step=7)


def test_only_the_newest_are_kept_and_other_files_are_left_alone(tmp_path):
    others = ["checkpoint-01.h5", "checkpoint-3.h5.bak", "checkpoint-x.h5", "notes.txt"]
    for name in others:
        (tmp_path / name).touch()
    left = tmp_path / ".checkpoint-7.h5.0123456789ab.unfinished"
    left.write_bytes(b"x")
    os.utime(left, (0, 0))  # of a run that was killed
    path = save_steps(tmp_path, range(0, 60, 10), keep=2)
    assert checkpoint_steps(tmp_path) == [40, 50]
    assert path == tmp_path / "checkpoint-50.h5"
    save_checkpoint(tmp_path, step=60, trees=trees(60), keep=None)
    assert checkpoint_steps(tmp_path) == [40, 50, 60]
    kept = [f"checkpoint-{step}.h5" for step in (40, 50, 60)]
    assert sorted(os.listdir(tmp_path)) == sorted([*others, *kept])


def test_going_back_to_an_earlier_step_keeps_the_new_one_and_warns(tmp_path):
    save_steps(tmp_path, (10, 20, 30))
    with pytest.warns(
        UserWarning, match="later steps than 5, up to 30; restoring takes the latest"
    ):
        save_checkpoint(tmp_path, step=5, trees=trees(5))
    assert checkpoint_steps(tmp_path) == [5, 10, 20, 30]


def test_a_damaged_latest_one_is_passed_over_with_a_warning(tmp_path):
    path = save_steps(tmp_path, range(3))
    damage(path)
    with pytest.warns(
        UserWarning,
        match=r"skipped a damaged checkpoint, step 1 is restored: .*checkpoint-2\.h5.*checksum",
    ):
        assert restore_checkpoint(tmp_path)[0] == 1
    with pytest.raises(FileFormatError, match="checksum"):
        restore_checkpoint(tmp_path, step=2)
    path.write_bytes(b"")
    with pytest.warns(UserWarning, match="skipped"):
        assert equal(restore_checkpoint(tmp_path)[1], trees(1))


def test_an_error_is_raised_if_every_checkpoint_is_damaged(tmp_path):
    damage(save_checkpoint(tmp_path, step=0, trees=trees(0)))
    with pytest.raises(
        FileFormatError, match=r"every checkpoint in .* is damaged; the latest: .*checksum"
    ):
        restore_checkpoint(tmp_path)


def test_no_folder_and_no_checkpoint_say_so(tmp_path):
    for folder in (tmp_path, tmp_path / "none"):
        with pytest.raises(FileNotFoundError, match="there is no checkpoint in"):
            restore_checkpoint(folder)


def test_a_weights_file_under_the_name_of_a_checkpoint_is_refused(tmp_path):
    save(tmp_path / "checkpoint-3.h5", {"w": np.ones(1)})
    with pytest.raises(FileFormatError, match="it is a weights file, not a checkpoint"):
        restore_checkpoint(tmp_path, step=3)


def test_if_saving_fails_no_checkpoint_is_deleted(tmp_path, monkeypatch):
    save_steps(tmp_path, range(3), keep=3)

    def full(_descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(atomic.os, "fsync", full)
    with pytest.raises(FileWriteError, match="no space left on device"):
        save_checkpoint(tmp_path, step=3, trees=trees(3), keep=1)
    monkeypatch.undo()
    assert checkpoint_steps(tmp_path) == [0, 1, 2]
    assert equal(restore_checkpoint(tmp_path)[1], trees(2))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"step": -1}, ArgumentError, "step=-1: expected 0 or more"),
        ({"step": 1.5}, ArgumentTypeError, "step=1.5: expected an integer, got float"),
        ({"keep": 0}, ArgumentError, "keep=0: expected the number of checkpoints"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(tmp_path, options, error, message):
    with pytest.raises(error, match=message):
        save_checkpoint(tmp_path, **({"step": 1, "trees": trees(1)} | options))
    assert not os.listdir(tmp_path)
