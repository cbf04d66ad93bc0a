"""A Container in a file, and read back; nothing is pickled and nothing is executed.

JSON is written by this file, HDF5 by the package `files` through a socket.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from nbmodule.base.bounded_json import parse_json
from nbmodule.base.format import describe_shape
from nbmodule.base.sockets import socket
from nbmodule.base.whole_file import file_name, whole_file
from nbmodule.errors import ArgumentError, ArgumentTypeError, FileFormatError, StructureError
from nbmodule.tree.comparison import ComparisonMethods
from nbmodule.tree.leaf import is_array

_FORMATS = {"hdf5": "hdf5", "h5": "hdf5", "h5py": "hdf5", "json": "json"}


class FileMethods(ComparisonMethods):
    """Write Containers to files, and read them."""

    __slots__ = ()

    def cont_to_disk_as_hdf5(self, path: str | os.PathLike[str]) -> None:
        """Write an HDF5 file: a group for each level, a dataset for each leaf.

        Args:
            path: The file. It appears whole or not at all.

        Raises:
            ArgumentTypeError: if a leaf is neither an array nor a number; no file was written.

        Example:
            >>> import tempfile
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     nb.Container(a=jnp.ones(2)).cont_to_disk_as_hdf5(f"{folder}/c.h5")
            ...     nb.Container.cont_from_disk_as_hdf5(f"{folder}/c.h5").a
            Array([1., 1.], dtype=float32)
        """
        for chain, leaf in self.cont_to_iterator():
            if not (is_array(leaf) or isinstance(leaf, (bool, int, float, complex, np.generic))):
                raise ArgumentTypeError(
                    f'cannot write "{chain}" to HDF5: {type(leaf).__name__} is neither an array '
                    "nor a number."
                )
        socket("save_hdf5")(path, self.cont_to_dict())

    @classmethod
    def cont_from_disk_as_hdf5(cls, path: str | os.PathLike[str]) -> Any:
        """Read an HDF5 file; see `cont_to_disk_as_hdf5`.

        Raises:
            FileFormatError: if the file is damaged or no such file.
        """
        return cls(socket("load_with_metadata")(path)[0])  # type: ignore[call-arg]

    def cont_to_disk_as_json(
        self, path: str | os.PathLike[str], *, arrays: str | None = None
    ) -> None:
        """Write a JSON file of numbers, text, lists, True, False and None.

        Args:
            path: The file. It appears whole or not at all; missing folders are made.
            arrays: `"text"` writes an array as text with dtype, shape and elements, which is read
                back as text. By default arrays are refused, since JSON would not give them back
                (`cont_to_disk_as_hdf5` does).

        Raises:
            ArgumentTypeError: if a leaf cannot be written; no file was written.

        Example:
            >>> import tempfile
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     c = nb.Container(lr=0.1, net={"sizes": [3, 2]})
            ...     c.cont_to_disk_as_json(f"{folder}/c.json")
            ...     nb.Container.cont_from_disk_as_json(f"{folder}/c.json").cont_to_dict()
            {'lr': 0.1, 'net': {'sizes': [3, 2]}}
        """
        if arrays not in (None, "text"):
            raise ArgumentError(f'arrays= is None or "text", got {arrays!r}.')
        text = json.dumps(_jsonable(self, "", arrays is not None), indent=4, ensure_ascii=False)
        with whole_file(file_name(path, "save")) as file:
            file.write(text.encode())

    @classmethod
    def cont_from_disk_as_json(cls, path: str | os.PathLike[str]) -> Any:
        """Read a JSON file; its objects become levels.

        Raises:
            FileFormatError: if the file is no JSON, or holds something else than an object, or one
                key twice.
        """
        with open(file_name(path, "load"), "rb") as file:
            value = parse_json(file.read(), os.fspath(path), unique=True)
        if not isinstance(value, dict):
            raise FileFormatError(
                f"{os.fspath(path)} holds a {type(value).__name__}, not an object with keys."
            )
        try:
            return cls(value)
        except StructureError as error:
            raise FileFormatError(f"{os.fspath(path)} cannot be a Container: {error}") from error

    def cont_save(self, path: str | os.PathLike[str], format: str | None = None) -> None:
        """Write a file as `"hdf5"` or `"json"`; by default its ending decides.

        Example:
            >>> import tempfile
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     nb.Container(a=1).cont_save(f"{folder}/c.json", "json")
            ...     nb.Container.cont_load(f"{folder}/c.json", "json").a
            1
        """
        if _format(path, format) == "json":
            self.cont_to_disk_as_json(path)
        else:
            self.cont_to_disk_as_hdf5(path)

    @classmethod
    def cont_load(cls, path: str | os.PathLike[str], format: str | None = None) -> Any:
        """Read a file that is `"hdf5"` or `"json"`; by default its ending decides."""
        if _format(path, format) == "json":
            return cls.cont_from_disk_as_json(path)
        return cls.cont_from_disk_as_hdf5(path)


def _format(path: str | os.PathLike[str], format: str | None) -> str:
    suffix = Path(file_name(path, "save or load")).suffix.removeprefix(".") or "hdf5"
    requested = suffix if format is None else format
    result = _FORMATS.get(str(requested).lower())
    if result is None:
        raise ArgumentError(f'there is no format {requested!r}; there are "hdf5" and "json".')
    return result


def _jsonable(value: object, chain: str, arrays_as_text: bool) -> Any:
    """Turn a Container or a leaf into what JSON knows."""
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        below = {key: f"{chain}/{key}" if chain else key for key in value}
        return {key: _jsonable(x, below[key], arrays_as_text) for key, x in value.items()}
    if isinstance(value, (list, tuple)):
        return [_jsonable(x, f"{chain}/v{i}", arrays_as_text) for i, x in enumerate(value)]
    if isinstance(value, np.generic) and value.dtype.kind in "biuf":
        return value.item()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if is_array(value) and arrays_as_text:
        array = np.asarray(value)
        return f"{describe_shape(array)} {array.tolist()}"
    reason = f"{type(value).__name__} is unknown there."
    if isinstance(value, dict):
        reason = f"its key {next(k for k in value if not isinstance(k, str))!r} is no text."
    elif is_array(value):
        reason = (
            'it is an array. Use cont_to_disk_as_hdf5, or arrays="text" to write it as text that '
            "is read back as text."
        )
    raise ArgumentTypeError(f'cannot write "{chain}" to JSON: {reason} No file was written.')
