"""Checkpoints of arrays that are spread over several devices or hosts, through orbax: every host
writes its own part.

Needs the package `orbax-checkpoint`. For what fits on one host, `save_checkpoint` writes one plain
file instead.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import jax
import jax.numpy as jnp
import numpy as np

from nbmodule.base.bounded_json import dump_json
from nbmodule.errors import ArgumentTypeError, MissingDependencyError
from nbmodule.files.chains import EMPTY, flatten_levels, nest, unescape
from nbmodule.files.checkpoint import check_step


def _import_orbax() -> Any:
    try:
        import orbax.checkpoint as orbax  # pyright: ignore[reportMissingImports]  (an extra)
    except ImportError as error:
        raise MissingDependencyError(
            "sharded checkpoints need orbax, which is not installed: `pip install "
            "orbax-checkpoint` (or `nbmodule[checkpoint]`)."
        ) from error
    return orbax


def save_sharded(
    directory: str | os.PathLike[str],
    *,
    step: int,
    trees: Mapping[str, Mapping[str, Any]],
    extra: object = None,
    keep: int | None = 3,
) -> None:
    """Write the checkpoint of a step; on several hosts each calls this with the same arguments.

    Args:
        directory: Made if it is missing; all hosts must see the same one.
        step: Of the training run, 0 or more.
        trees: Nested mappings of arrays, random keys and numbers by name, as for `save_checkpoint`.
        extra: Anything that JSON can say; NumPy and JAX scalars come back as Python numbers.
        keep: How many checkpoints stay; None keeps all.

    Raises:
        MissingDependencyError: if orbax is not installed.
    """
    orbax, step = _import_orbax(), check_step(step)
    extra = json.loads(dump_json(extra, "extra"))
    arrays: dict[str, Any] = {}
    others: dict[str, Any] = {}
    for path, leaf in flatten_levels(trees, what="trees"):
        if leaf is EMPTY:
            others[path] = {"kind": "level"}
        elif leaf is None or type(leaf) in (bool, int, float, str):
            others[path] = {"kind": "value", "value": leaf}
        elif not isinstance(leaf, (jax.Array, np.ndarray, np.generic)):
            raise ArgumentTypeError(
                f'cannot save "/{path}": expected an array, a number, text or None, got '
                f"{type(leaf).__name__}."
            )
        elif isinstance(leaf, jax.Array) and not isinstance(leaf.dtype, np.dtype):
            others[path] = {"kind": "key", "impl": str(jax.random.key_impl(leaf))}
            arrays[path] = jax.random.key_data(leaf)
        else:
            arrays[path] = leaf
    about = {
        "checkpoint": 1,
        "step": step,
        "extra": extra,
        "arrays": {path: list(array.shape) for path, array in arrays.items()},
        "dtypes": {path: str(array.dtype) for path, array in arrays.items()},
        "others": others,
    }
    if jax.process_count() > 1:
        # what each host has for itself is the same on all: the first one writes it
        is_own = {path: getattr(x, "is_fully_addressable", False) for path, x in arrays.items()}
        arrays = {path: np.asarray(x) if is_own[path] else x for path, x in arrays.items()}
    with _manager(orbax, directory, keep) as manager:
        if step in manager.all_steps():
            manager.delete(step)
        parts = {"about": orbax.args.JsonSave(about)}
        if arrays:
            quoted = {quote(path, safe=""): array for path, array in arrays.items()}
            parts["arrays"] = orbax.args.StandardSave(quoted)
        manager.save(step, args=orbax.args.Composite(**parts), force=True)
        manager.wait_until_finished()


def _manager(orbax: Any, directory: str | os.PathLike[str], keep: int | None) -> Any:
    options = orbax.CheckpointManagerOptions(max_to_keep=keep, enable_async_checkpointing=False)
    return orbax.CheckpointManager(Path(directory).resolve(), options=options)


def restore_sharded(
    directory: str | os.PathLike[str],
    *,
    sharding_of: Callable[[tuple[str, ...], tuple[int, ...]], Any] | None = None,
    step: int | None = None,
) -> tuple[int, dict[str, Any], Any]:
    """Load the latest checkpoint, or that of one step, each array with the sharding it shall have.

    Args:
        directory: That was given to `save_sharded`.
        sharding_of: Gives the sharding of an array from its path, with the tree's name, and its
            shape; None for a NumPy array. Without it arrays get the saved shardings, which needs
            the same devices.
        step: Which one; None takes the latest.

    Returns:
        The step, the trees, and extra (None if none was saved).

    Raises:
        FileNotFoundError: if there is no checkpoint, or none of this step.
        MissingDependencyError: if orbax is not installed.
    """
    orbax = _import_orbax()
    if not Path(directory).is_dir():
        raise FileNotFoundError(f"there is no checkpoint in {os.fspath(directory)}.")
    with _manager(orbax, directory, None) as manager:
        steps = sorted(manager.all_steps())
        if not steps or (step is not None and step not in steps):
            which = "" if step is None else f" of step {step}"
            raise FileNotFoundError(
                f"{os.fspath(directory)} has no checkpoint{which}; there are {steps}."
            )
        chosen = steps[-1] if step is None else step
        args = orbax.args
        about = manager.restore(chosen, args=args.Composite(about=args.JsonRestore())).about
        arrays = {}
        if about["arrays"]:
            restore = args.StandardRestore(sharding_of and _placed(sharding_of, about))
            arrays = manager.restore(chosen, args=args.Composite(arrays=restore)).arrays
    leaves = {unquote(name): array for name, array in arrays.items()}
    for path, record in about["others"].items():
        if record["kind"] == "key":
            leaves[path] = jax.random.wrap_key_data(leaves[path], impl=record["impl"])
        else:
            leaves[path] = EMPTY if record["kind"] == "level" else record["value"]
    return chosen, nest(leaves.items(), where=os.fspath(directory)), about["extra"]


def _placed(sharding_of: Callable[..., Any], about: dict[str, Any]) -> dict[str, Any]:
    """Return the placement of each array of the checkpoint."""
    targets: dict[str, Any] = {}
    for path, shape in about["arrays"].items():
        dtype = jnp.dtype(about["dtypes"][path])
        sharding = sharding_of(tuple(map(unescape, path.split("/"))), tuple(shape))
        target = jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)
        targets[quote(path, safe="")] = np.empty(shape, dtype) if sharding is None else target
    return targets
