"""Checkpoints of a training run: one file for each step; the newest are kept, and the latest intact
one is restored.

A checkpoint is one weights file (see `weights`) named `checkpoint-<step>.h5`, with a group for each
tree (`model`, `optimizer`,
...), so it is written atomically. Step and extra data are its metadata.
"""

from __future__ import annotations

import operator
import os
import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nbmodule.base.bounded_json import dump_json
from nbmodule.base.kinds import is_whole
from nbmodule.base.whole_file import file_name, remove_abandoned
from nbmodule.errors import ArgumentError, ArgumentTypeError, FileFormatError
from nbmodule.files.weights import read, save

_NAME = re.compile(r"checkpoint-(\d+)\.h5")


def save_checkpoint(
    directory: str | os.PathLike[str],
    *,
    step: int,
    trees: Mapping[str, Mapping[str, Any]],
    extra: object = None,
    keep: int | None = 3,
) -> Path:
    """Write the checkpoint of a step, then delete all but the newest.

    Older ones are deleted after the new file is synced. A checkpoint of the same step is replaced.

    Args:
        directory: Created if it is missing.
        step: Step of the training run, 0 or more.
        trees: Nested mappings of arrays by name, such as `{"model": ..., "optimizer": ...}`.
        extra: Any JSON value; NumPy and JAX scalars come back as Python numbers.
        keep: Number of checkpoints of the highest steps to keep, besides the new one; None keeps
            all.

    Returns:
        The path of the file.

    Raises:
        FileWriteError: if it cannot be written; earlier checkpoints are unchanged.

    Example:
        >>> import tempfile
        >>> from nbmodule.files import restore_checkpoint, save_checkpoint
        >>> folder = tempfile.mkdtemp()
        >>> for step in range(5):
        ...     trees = {"model": {"w": np.full(2, step)}}
        ...     path = save_checkpoint(folder, step=step, trees=trees, extra={"loss": 0.5})
        >>> path.name, sorted(file.name for file in path.parent.iterdir())
        ('checkpoint-4.h5', ['checkpoint-2.h5', 'checkpoint-3.h5', 'checkpoint-4.h5'])
        >>> restore_checkpoint(folder)
        (4, {'model': {'w': array([4, 4])}}, {'loss': 0.5})
    """
    step = check_step(step)
    dump_json(extra, "extra")
    if keep is not None and (not is_whole(keep) or keep < 1):
        raise ArgumentError(
            f"keep={keep!r}: expected the number of checkpoints to keep, at least 1, or None for "
            "all."
        )
    folder = Path(file_name(directory, "save a checkpoint"))
    path = folder / f"checkpoint-{step}.h5"
    save(
        path, trees, metadata={"checkpoint": 1, "step": step, "trees": list(trees), "extra": extra}
    )
    remove_abandoned(folder, ".checkpoint-")
    _delete_old(folder, step, keep)
    return path


def check_step(step: int) -> int:
    """Return a step as an int."""
    try:
        number = operator.index(step)
    except TypeError:
        raise ArgumentTypeError(
            f"step={step!r}: expected an integer, got {type(step).__name__}."
        ) from None
    if number < 0:
        raise ArgumentError(f"step={number}: expected 0 or more.")
    return number


def _delete_old(folder: Path, written: int, keep: int | None) -> None:
    """Delete checkpoints of lower steps; warn about those of higher steps."""
    steps = checkpoint_steps(folder)
    if steps and steps[-1] > written:
        warnings.warn(
            f"{folder} holds checkpoints of later steps than {written}, up to {steps[-1]}; "
            "restoring takes the latest. Pass step= to restore, or delete them.",
            stacklevel=3,
        )
    for old in steps[:-keep] if keep else ():
        if old != written:
            try:
                (folder / f"checkpoint-{old}.h5").unlink(missing_ok=True)
            except OSError as error:
                warnings.warn(
                    f"the old checkpoint of step {old} could not be deleted: {error}", stacklevel=3
                )


def checkpoint_steps(directory: str | os.PathLike[str]) -> list[int]:
    """List the steps of all checkpoints, in ascending order.

    Example:
        >>> import tempfile
        >>> from nbmodule.files import checkpoint_steps
        >>> checkpoint_steps(tempfile.mkdtemp())
        []
    """
    try:
        names = os.listdir(file_name(directory, "look for checkpoints"))
    except FileNotFoundError:
        return []
    matches = (_NAME.fullmatch(name) for name in names)
    return sorted(int(match[1]) for match in matches if match and match[1] == str(int(match[1])))


def restore_checkpoint(
    directory: str | os.PathLike[str], *, step: int | None = None
) -> tuple[int, dict[str, Any], Any]:
    """Load the latest intact checkpoint, or that of one step.

    Args:
        directory: The directory of `save_checkpoint`.
        step: Its step; None takes the highest step, and skips damaged files with a warning.

    Returns:
        The step, the trees as nested dicts of NumPy arrays, and extra (None if none was saved).

    Raises:
        FileNotFoundError: if there is no checkpoint, or none of this step.
        FileFormatError: if the checkpoint of this step, or every one, is damaged.
    """
    steps = checkpoint_steps(directory)
    if not steps:
        raise FileNotFoundError(f"there is no checkpoint in {os.fspath(directory)}.")
    if step is not None:
        if (step := check_step(step)) not in steps:
            raise FileNotFoundError(
                f"{os.fspath(directory)} has no checkpoint of step {step}; there are {steps[-10:]}."
            )
        return _restore(Path(directory) / f"checkpoint-{step}.h5", step)
    damaged: list[FileFormatError] = []
    for latest in reversed(steps):
        try:
            restored = _restore(Path(directory) / f"checkpoint-{latest}.h5", latest)
        except FileNotFoundError:  # another process has just deleted it
            continue
        except FileFormatError as error:
            damaged.append(error)
            continue
        for error in damaged:
            warnings.warn(
                f"skipped a damaged checkpoint, step {latest} is restored: {error}", stacklevel=2
            )
        return restored
    raise FileFormatError(
        f"every checkpoint in {os.fspath(directory)} is damaged; the latest: {damaged[:1]}"
    )


def _restore(path: Path, step: int) -> tuple[int, dict[str, Any], Any]:
    contents = read(path)
    about = contents.metadata
    if not isinstance(about, dict) or about.get("checkpoint") != 1:
        raise FileFormatError(f"cannot restore {path}: it is a weights file, not a checkpoint.")
    names = about.get("trees")
    if (
        about.get("step") != step
        or not isinstance(names, list)
        or sorted(map(str, names)) != sorted(contents.variables)
    ):
        raise FileFormatError(f"cannot restore {path}: its metadata and its trees do not match.")
    return step, contents.variables, about.get("extra")
