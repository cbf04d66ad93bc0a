"""Sharded checkpoints; orbax is an extra, so where it is missing only the error that says so is
tested.
"""

from __future__ import annotations

import importlib.util
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nbmodule.errors import MissingDependencyError
from nbmodule.files.sharded import restore_sharded, save_sharded
from tests.files.trees import equal

needs_orbax = pytest.mark.skipif(
    importlib.util.find_spec("orbax") is None,
    reason="orbax is missing: `pip install orbax-checkpoint`",
)
# orbax warns about itself, each version in another way.
pytestmark = pytest.mark.filterwarnings("default")


def trees(step: int) -> dict:
    return {
        "model": {
            "a/b": {"w": jnp.arange(8.0) + step},
            ".": np.arange(3),
            "key": jax.random.key(step),
            "empty": {},
        },
        "about": {"step": step, "name": "adam", "none": None},
    }


def test_without_orbax_the_error_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "orbax", None)
    monkeypatch.setitem(sys.modules, "orbax.checkpoint", None)
    for call in (
        lambda: save_sharded(tmp_path, step=0, trees=trees(0)),
        lambda: restore_sharded(tmp_path),
    ):
        with pytest.raises(MissingDependencyError, match="pip install orbax-checkpoint"):
            call()


@needs_orbax
def test_the_latest_checkpoint_comes_back_as_it_was(tmp_path):
    for step in range(4):
        save_sharded(tmp_path / "run", step=step, trees=trees(step), extra={"loss": [0.5]}, keep=2)
    step, found, extra = restore_sharded(tmp_path / "run")
    assert (step, extra) == (3, {"loss": [0.5]})
    assert equal(found, trees(3))
    assert restore_sharded(tmp_path / "run", step=2)[1]["about"]["step"] == 2
    with pytest.raises(FileNotFoundError, match=r"has no checkpoint of step 0; there are \[2, 3\]"):
        restore_sharded(tmp_path / "run", step=0)


@needs_orbax
def test_a_step_is_replaced_and_trees_may_hold_no_array(tmp_path):
    save_sharded(tmp_path, step=1, trees={"model": {"w": np.ones(2)}})
    save_sharded(tmp_path, step=1, trees={"model": {"n": 3}})
    assert restore_sharded(tmp_path) == (1, {"model": {"n": 3}}, None)


@needs_orbax
def test_arrays_come_back_with_the_sharding_that_is_wanted(run_python, tmp_path):
    code = f"""
        import warnings; warnings.simplefilter("ignore")
        import jax, jax.numpy as jnp
        from jax.sharding import NamedSharding, PartitionSpec
        from nbmodule.files.sharded import restore_sharded, save_sharded
        mesh = jax.make_mesh((4,), ("x",))
        split, whole = NamedSharding(mesh, PartitionSpec("x")), NamedSharding(mesh, PartitionSpec())
        save_sharded({str(tmp_path)!r}, step=1, trees={{"m": {{"w": jax.device_put(jnp.arange(8.0), split)}}}})
        same = restore_sharded({str(tmp_path)!r})[1]["m"]["w"]
        other = restore_sharded({str(tmp_path)!r}, sharding_of=lambda chain, shape: whole)[1]["m"]["w"]
        print(same.sharding == split, other.sharding == whole, (same == other).all(), other.sum())
    """
    assert run_python(code, devices=4) == "True True True 28.0"


@pytest.mark.skipif(importlib.util.find_spec("orbax") is None, reason="orbax is missing")
def test_no_folder_says_so(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no checkpoint in"):
        restore_sharded(tmp_path / "none")
