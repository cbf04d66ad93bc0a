"""Saving and loading: few large arrays, where the disk decides, and many small ones, where the
format does.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import nbmodule as nb
from benchmarks.timing import Table, interleave

Arrays = dict[str, Any]
Format = tuple[Callable[[Path, Arrays], Any], Callable[[Path, Arrays], Any]]


def run(quick: bool = False) -> list[Table]:
    megabytes = 50 if quick else 500
    large = {f"a{i}": jnp.full(megabytes * 25_000, i, jnp.float32) for i in range(10)}
    small = {f"a{i:05d}": jnp.full(64, i, jnp.float32) for i in range(1_000 if quick else 10_000)}
    folder = Path(tempfile.mkdtemp())
    try:
        return [
            *_tables(f"{megabytes} MB in 10 arrays", large, folder, 3 if quick else 7, 1.5, None),
            *_tables(
                f"{len(small):,} arrays of 64 floats", small, folder, 3 if quick else 7, 2.5, None
            ),
        ]
    finally:
        shutil.rmtree(folder)


def _tables(
    title: str, arrays: Arrays, folder: Path, rounds: int, save: float | None, load: float | None
) -> list[Table]:
    # orbax writes a file for each array: minutes for many
    formats = {
        name: made for name, made in _formats().items() if len(arrays) < 100 or name != "orbax"
    }
    note = "Each variant ends with the bytes on the disk (fsync) and gives JAX arrays back, but for the mapped one."
    saves = {
        name: _bound(make, folder / name.replace(" ", "_"), arrays)
        for name, (make, _) in formats.items()
    }
    for fn in saves.values():
        fn()
    loads = {
        name: _bound(read, folder / name.replace(" ", "_"), arrays)
        for name, (_, read) in formats.items()
    }
    loads["nbmodule, mapped"] = lambda: _nothing(nb.load(folder / "nbmodule", mmap=True))
    floor = "plain file"
    return [
        interleave(
            f"Save {title}",
            saves,
            floor,
            targets={} if save is None else {"nbmodule": save},
            rounds=rounds,
            seconds=0,
            warm=0,
            note=note,
        ),
        interleave(
            f"Load {title}",
            loads,
            floor,
            targets={} if load is None else {"nbmodule": load},
            rounds=rounds,
            seconds=0,
            warm=0,
            note=note,
        ),
    ]


def _bound(fn: Callable[[Path, Arrays], Any], path: Path, arrays: Arrays) -> Callable[[], Any]:
    return lambda: fn(path, arrays)


def _nothing(_: Any) -> int:
    return 0


def _formats() -> dict[str, Format]:
    found: dict[str, Format] = {
        "plain file": (_save_plain, _load_plain),
        "nbmodule": (lambda path, arrays: nb.save(path, arrays), lambda path, _: nb.load(path)),
        "npz": (_save_npz, _load_npz),
    }
    if find_spec("safetensors"):
        found["safetensors"] = (_save_safetensors, _load_safetensors)
    if find_spec("equinox"):
        found["equinox"] = (_save_equinox, _load_equinox)
    if find_spec("orbax"):
        found["orbax"] = (_save_orbax, _load_orbax)
    return found


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def _save_plain(path: Path, arrays: Arrays) -> None:
    with path.open("wb") as file:
        for array in arrays.values():
            file.write(np.asarray(array).data)
        file.flush()
        os.fsync(file.fileno())


def _load_plain(path: Path, arrays: Arrays) -> Arrays:
    with path.open("rb") as file:
        return {
            name: jnp.asarray(np.frombuffer(file.read(a.nbytes), a.dtype).reshape(a.shape))
            for name, a in arrays.items()
        }


def _save_npz(path: Path, arrays: Arrays) -> None:
    with path.open("wb") as file:
        np.savez(file, **arrays)
    _sync(path)


def _load_npz(path: Path, arrays: Arrays) -> Arrays:
    with np.load(path) as file:
        return {name: jnp.asarray(file[name]) for name in arrays}


def _save_safetensors(path: Path, arrays: Arrays) -> None:
    from safetensors.numpy import save_file

    save_file({name: np.asarray(array) for name, array in arrays.items()}, path)
    _sync(path)


def _load_safetensors(path: Path, arrays: Arrays) -> Arrays:
    from safetensors.numpy import load_file

    return {name: jnp.asarray(array) for name, array in load_file(path).items()}


def _save_equinox(path: Path, arrays: Arrays) -> None:
    import equinox

    equinox.tree_serialise_leaves(path, arrays)
    _sync(Path(f"{path}.eqx") if not path.exists() else path)


def _load_equinox(path: Path, arrays: Arrays) -> Arrays:
    import equinox

    return equinox.tree_deserialise_leaves(path, arrays)


def _save_orbax(path: Path, arrays: Arrays) -> None:
    import orbax.checkpoint as ocp

    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(path, arrays, force=True)


def _load_orbax(path: Path, arrays: Arrays) -> Arrays:
    import orbax.checkpoint as ocp

    with ocp.StandardCheckpointer() as checkpointer:
        like = jax.tree.map(
            lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=a.sharding), arrays
        )
        return checkpointer.restore(path, like)
