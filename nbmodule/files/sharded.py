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
        elif leaf is None or (
            isinstance(leaf, (bool, int, float, str)) and not isinstance(leaf, np.generic)
        ):
            others[path] = {"kind": "value", "value": leaf}
        elif isinstance(leaf, jax.Array) and not isinstance(leaf.dtype, np.dtype):
            others[path] = {"kind": "key", "impl": str(jax.random.key_impl(leaf))}
            arrays[quote(path, safe="")] = jax.random.key_data(leaf)
        elif isinstance(leaf, (jax.Array, np.ndarray)):
            arrays[quote(path, safe="")] = leaf
        else:
            raise ArgumentTypeError(
                f'cannot save "/{path}": expected an array, a number, text or None, got '
                f"{type(leaf).__name__}."
            )
    shapes = {unquote(name): list(array.shape) for name, array in arrays.items()}
    dtypes = {unquote(name): str(array.dtype) for name, array in arrays.items()}
    about = {
        "checkpoint": 1,
        "step": step,
        "extra": extra,
        "arrays": shapes,
        "dtypes": dtypes,
        "others": others,
    }
    if (
        jax.process_count() > 1
    ):  # what each host has for itself is the same on all: the first one writes it
        arrays = {
            name: np.asarray(array) if getattr(array, "is_fully_addressable", False) else array
            for name, array in arrays.items()
        }
    with _manager(orbax, directory, keep) as manager:
        if step in manager.all_steps():
            manager.delete(step)
        parts = {"about": orbax.args.JsonSave(about)}
        if arrays:
            parts["arrays"] = orbax.args.StandardSave(arrays)
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
        about = manager.restore(
            chosen, args=orbax.args.Composite(about=orbax.args.JsonRestore())
        ).about
        targets = None if sharding_of is None else _placed(sharding_of, about)
        arrays = {}
        if about["arrays"]:
            arrays = manager.restore(
                chosen, args=orbax.args.Composite(arrays=orbax.args.StandardRestore(targets))
            ).arrays
    rows = [(unquote(name), array) for name, array in arrays.items()]
    return (
        chosen,
        nest(_with_others(rows, about["others"]), where=os.fspath(directory)),
        about["extra"],
    )


def _placed(sharding_of: Callable[..., Any], about: dict[str, Any]) -> dict[str, Any]:
    """Say where each array of the checkpoint shall lie."""
    targets = {}
    for path, shape in about["arrays"].items():
        chain = tuple(map(unescape, path.split("/")))
        dtype = jax.numpy.dtype(about["dtypes"][path])
        where = sharding_of(chain, tuple(shape))
        leaf = (
            np.empty(shape, dtype)
            if where is None
            else jax.ShapeDtypeStruct(shape, dtype, sharding=where)
        )
        targets[quote(path, safe="")] = leaf
    return targets


def _with_others(rows: list[tuple[str, Any]], others: dict[str, Any]) -> list[tuple[str, Any]]:
    """Add what is no array, and make keys of their numbers again."""
    for path, record in others.items():
        if record["kind"] == "level":
            rows.append((path, EMPTY))
        elif record["kind"] == "value":
            rows.append((path, record["value"]))
    impls = {path: record["impl"] for path, record in others.items() if record["kind"] == "key"}
    return [
        (path, jax.random.wrap_key_data(leaf, impl=impls[path]) if path in impls else leaf)
        for path, leaf in rows
    ]
