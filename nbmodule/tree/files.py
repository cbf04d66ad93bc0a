"""A Container in a file, and read back; nothing is pickled and nothing is executed.

JSON is written here. HDF5 belongs to a higher room, which is asked through a socket. What reads is
given the class to make.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from nbmodule.base.file_name import file_name
from nbmodule.base.format import describe_shape
from nbmodule.base.sockets import socket
from nbmodule.base.whole_file import whole_file
from nbmodule.errors import ArgumentError, ArgumentTypeError, FileFormatError, StructureError
from nbmodule.tree.converting import to_dict, to_iterator
from nbmodule.tree.leaves import is_array
from nbmodule.tree.nested import Kind, Nested

_FORMATS = {"hdf5": "hdf5", "h5": "hdf5", "h5py": "hdf5", "json": "json"}


def to_disk_as_hdf5(container: Nested, path: str | os.PathLike[str]) -> None:
    """Write an HDF5 file: a group for each level, a dataset for each leaf."""
    for chain, leaf in to_iterator(container):
        if not (is_array(leaf) or isinstance(leaf, (bool, int, float, complex, np.generic))):
            raise ArgumentTypeError(
                f'cannot write "{chain}" to HDF5: {type(leaf).__name__} is neither an array nor '
                "a number. No file was written."
            )
    socket("save_hdf5")(path, to_dict(container))


def from_disk_as_hdf5(kind: Callable[[Any], Kind], path: str | os.PathLike[str]) -> Kind:
    """Read an HDF5 file; see `cont_to_disk_as_hdf5`."""
    return kind(socket("load_hdf5")(path))


def to_disk_as_json(
    container: Nested, path: str | os.PathLike[str], *, arrays: str | None = None
) -> None:
    """Write a JSON file of numbers, text, lists, True, False and None."""
    if arrays not in (None, "text"):
        raise ArgumentError(f'arrays= is None or "text"; found {arrays!r}.')
    text = json.dumps(_jsonable(container, "", arrays is not None), indent=4, ensure_ascii=False)
    _write(Path(file_name(path, "save", "written")), text)


def from_disk_as_json(kind: Callable[[Any], Kind], path: str | os.PathLike[str]) -> Kind:
    """Read a JSON file; its objects become levels."""
    try:
        with open(file_name(path, "load", "read"), encoding="utf-8") as file:
            value = json.load(file, object_pairs_hook=_unique)
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError, FileFormatError) as error:
        raise FileFormatError(f"{os.fspath(path)} is no JSON that can be read: {error}") from error
    if not isinstance(value, dict):
        raise FileFormatError(
            f"{os.fspath(path)} holds a {type(value).__name__}, not an object with keys."
        )
    try:
        return kind(value)
    except StructureError as error:
        raise FileFormatError(f"{os.fspath(path)} cannot be a Container: {error}") from error


def save(container: Nested, path: str | os.PathLike[str], format: str | None) -> None:
    """Write a file as `"hdf5"` or `"json"`; by default its ending decides."""
    if _format(path, format) == "json":
        to_disk_as_json(container, path)
    else:
        to_disk_as_hdf5(container, path)


def load(kind: Callable[[Any], Kind], path: str | os.PathLike[str], format: str | None) -> Kind:
    """Read a file that is `"hdf5"` or `"json"`; by default its ending decides."""
    return (
        from_disk_as_json(kind, path)
        if _format(path, format) == "json"
        else from_disk_as_hdf5(kind, path)
    )


def _format(path: str | os.PathLike[str], format: str | None) -> str:
    requested = (
        format
        if format is not None
        else Path(file_name(path, "save or load", "done")).suffix.removeprefix(".") or "hdf5"
    )
    result = _FORMATS.get(str(requested).lower())
    if result is None:
        raise ArgumentError(
            f'there is no format {requested!r}; there are "hdf5" and "json". Nothing is ever '
            f"pickled."
        )
    return result


def _jsonable(value: object, chain: str, arrays_as_text: bool) -> Any:
    """Turn a Container or a leaf into what JSON knows."""
    if isinstance(value, (Nested, dict)):
        level = {}
        for key, part in value.items():
            if not isinstance(key, str):
                raise ArgumentTypeError(
                    f'cannot write "{chain}" to JSON: its key {key!r} is no text. No file was '
                    f"written."
                )
            level[key] = _jsonable(part, f"{chain}/{key}" if chain else key, arrays_as_text)
        return level
    if isinstance(value, (list, tuple)):
        return [
            _jsonable(part, f"{chain}/v{index}", arrays_as_text) for index, part in enumerate(value)
        ]
    if isinstance(value, np.generic) and value.dtype.kind in "biuf":
        return value.item()
    if is_array(value):
        if arrays_as_text:
            array = np.asarray(value)
            return f"{describe_shape(array)} {array.tolist()}"
        raise ArgumentTypeError(
            f'cannot write "{chain}" to JSON: it is an array. Use cont_to_disk_as_hdf5, or '
            f'arrays="text" to write it as '
            "text that is read back as text. No file was written."
        )
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise ArgumentTypeError(
        f'cannot write "{chain}" to JSON: {type(value).__name__} is unknown there. No file was '
        f"written."
    )


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    level = dict(pairs)
    if len(level) != len(pairs):
        keys = [key for key, _ in pairs]
        raise FileFormatError(
            f"the key {next(key for key in keys if keys.count(key) > 1)!r} stands twice in one "
            f"object"
        )
    return level


def _write(path: Path, text: str) -> None:
    with whole_file(path) as file:
        file.write(text.encode())
