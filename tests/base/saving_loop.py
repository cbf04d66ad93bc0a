"""Save version after version to one path, for processes that are killed.

Version n holds arrays full of n, so a mixture of two versions would show.
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import time
from pathlib import Path

import h5py  # noqa: F401  (before the processes are forked, so that each begins to save at once)
import numpy as np

from nbmodule.files import read, save

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
