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


def test_the_latest_checkpoint_comes_back_as_it_was(tmp_path):
    for step in (1, 2, 10):
        save_checkpoint(
            tmp_path, step=step, trees=trees(step), extra={"history": [0.5, 0.25], "epoch": None}
        )
    step, found, extra = restore_checkpoint(tmp_path)
    assert step == 10
    assert equal(found, trees(10))
    assert extra == {"history": [0.5, 0.25], "epoch": None}


def test_a_step_can_be_asked_for(tmp_path):
    for step in range(3):
        save_checkpoint(tmp_path, step=step, trees=trees(step))
    assert restore_checkpoint(tmp_path, step=1)[1]["optimizer"]["count"] == 1
    with pytest.raises(
        FileNotFoundError, match=r"has no checkpoint of step 7; there are \[0, 1, 2"
    ):
        restore_checkpoint(tmp_path, step=7)


def test_only_the_newest_are_kept(tmp_path):
    for step in range(0, 60, 10):
        path = save_checkpoint(tmp_path, step=step, trees=trees(step), keep=2)
    assert checkpoint_steps(tmp_path) == [40, 50]
    assert path == tmp_path / "checkpoint-50.h5"
    save_checkpoint(tmp_path, step=60, trees=trees(60), keep=None)
    assert checkpoint_steps(tmp_path) == [40, 50, 60]


def test_other_files_are_left_alone(tmp_path):
    others = ["checkpoint-01.h5", "checkpoint-3.h5.bak", "checkpoint-x.h5", "notes.txt"]
    for name in others:
        (tmp_path / name).touch()
    for step in range(5):
        save_checkpoint(tmp_path, step=step, trees=trees(step), keep=1)
    assert sorted(os.listdir(tmp_path)) == sorted([*others, "checkpoint-4.h5"])


def test_going_back_to_an_earlier_step_keeps_the_new_one_and_warns(tmp_path):
    for step in (10, 20, 30):
        save_checkpoint(tmp_path, step=step, trees=trees(step))
    with pytest.warns(
        UserWarning,
        match="holds checkpoints of later steps than 5, up to 30; restoring takes the latest",
    ):
        save_checkpoint(tmp_path, step=5, trees=trees(5))
    assert checkpoint_steps(tmp_path) == [5, 10, 20, 30]


def test_a_damaged_latest_one_is_passed_over_with_a_warning(tmp_path):
    for step in range(3):
        path = save_checkpoint(tmp_path, step=step, trees=trees(step))
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


def test_if_every_one_is_damaged_that_is_the_error(tmp_path):
    damage(save_checkpoint(tmp_path, step=0, trees=trees(0)))
    with pytest.raises(
        FileFormatError, match=r"every checkpoint in .* is damaged; the latest: .*checksum"
    ):
        restore_checkpoint(tmp_path)


def test_no_folder_and_no_checkpoint_say_so(tmp_path):
    for folder in (tmp_path, tmp_path / "none"):
        with pytest.raises(FileNotFoundError, match="there is no checkpoint in"):
            restore_checkpoint(folder)


def test_a_weights_file_under_the_name_of_a_checkpoint_is_told_apart(tmp_path):
    save(tmp_path / "checkpoint-3.h5", {"w": np.ones(1)})
    with pytest.raises(FileFormatError, match="it is a weights file, not a checkpoint"):
        restore_checkpoint(tmp_path, step=3)


def test_a_checkpoint_of_another_step_under_this_name_is_refused(tmp_path):
    save_checkpoint(tmp_path, step=3, trees=trees(3)).rename(tmp_path / "checkpoint-4.h5")
    with pytest.raises(FileFormatError, match="do not match"):
        restore_checkpoint(tmp_path, step=4)


def test_if_saving_fails_no_checkpoint_is_deleted(tmp_path, monkeypatch):
    for step in range(3):
        save_checkpoint(tmp_path, step=step, trees=trees(step), keep=3)

    def full(_descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(atomic.os, "fsync", full)
    with pytest.raises(FileWriteError, match="no space left on device"):
        save_checkpoint(tmp_path, step=3, trees=trees(3), keep=1)
    monkeypatch.undo()
    assert checkpoint_steps(tmp_path) == [0, 1, 2]
    assert equal(restore_checkpoint(tmp_path)[1], trees(2))


def test_what_a_killed_run_left_of_another_step_is_removed(tmp_path):
    left = tmp_path / ".checkpoint-7.h5.0123456789ab.unfinished"
    left.write_bytes(b"x")
    os.utime(left, (0, 0))
    save_checkpoint(tmp_path, step=8, trees=trees(8))
    assert os.listdir(tmp_path) == ["checkpoint-8.h5"]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"step": -1}, ArgumentError, "step=-1: expected 0 or more"),
        ({"step": 1.5}, ArgumentTypeError, "step=1.5: expected an integer, got float"),
        ({"keep": 0}, ArgumentError, "keep=0: expected the number of checkpoints"),
        (
            {"trees": {"model": 3}},
            ArgumentTypeError,
            'cannot save "model": expected a nested mapping of arrays, got int',
        ),
        ({"extra": {1: 2}}, ArgumentTypeError, "got a dict with the key 1"),
        ({"extra": np.ones(2)}, ArgumentTypeError, "expected JSON values"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(tmp_path, options, error, message):
    with pytest.raises(error, match=message):
        save_checkpoint(tmp_path, **({"step": 1, "trees": trees(1)} | options))
    assert not os.listdir(tmp_path)
