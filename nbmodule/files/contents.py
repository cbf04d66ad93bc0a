"""Read what a weights file holds, whichever way: by its index, through the guarded reader of HDF5,
or from another format.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from io import FileIO
from typing import Any

import numpy as np

from nbmodule.base.bounded_json import parse_json
from nbmodule.base.interpreter import collector_paused
from nbmodule.base.whole_file import file_name
from nbmodule.errors import FileFormatError
from nbmodule.files.chains import BUFFERS, EMPTY, METADATA, PACKED, escape_levels, nest, unescape
from nbmodule.files.checksums import check_count, read_at, read_index
from nbmodule.files.fetch import check_bytes, fetch
from nbmodule.files.hdf5_read import read_hdf5
from nbmodule.files.npz_format import is_npz, is_pickle, is_torch_archive, read_npz
from nbmodule.files.packed import unpack_small_arrays
from nbmodule.files.safetensors_format import is_safetensors, read_safetensors
from nbmodule.files.stored_leaf import GROUP, TEXT, StoredRow, restore
from nbmodule.files.torch_format import read_torch

_MOST_INDEX = 100_000_000  # bytes


@dataclass(slots=True)
class Contents:
    """The contents of a file, on the host.

    Attributes:
        variables: Nested dicts of NumPy arrays (read-only where they are mapped), random keys,
            numbers, text and None.
        buffers: The same; None if the file was saved without buffers.
        metadata: What was given to `save`, None if nothing.
        has_index: Whether an index with checksums was there; False for a file that another program
            wrote or changed.
    """

    variables: dict[str, Any] = field(default_factory=dict)
    buffers: dict[str, Any] | None = None
    metadata: Any = None
    has_index: bool = True


def read(path: str | os.PathLike[str], *, mmap: bool = False) -> Contents:
    """Read a weights file as it is, into the memory of the host.

    Args:
        path: Of an HDF5, `.safetensors` or `.npz` file, or one of `torch.save`, which PyTorch then
            reads.
        mmap: Map arrays instead of reading them; see `load`.

    Raises:
        FileNotFoundError: if there is no file.
        FileFormatError: if the file is damaged, or is none of these.

    Example:
        >>> import os, tempfile
        >>> from nbmodule.files import read, save
        >>> path = os.path.join(tempfile.mkdtemp(), "weights.h5")
        >>> save(path, {"w": np.arange(3)}, metadata={"epoch": 4})
        >>> contents = read(path)
        >>> contents.variables, contents.buffers, contents.metadata
        ({'w': array([0, 1, 2])}, None, {'epoch': 4})
    """
    with collector_paused():
        rows, contents = read_rows(path, mmap=mmap)
        into_trees(contents, rows, os.fspath(path))
        return contents


def read_flat(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a file within the bounds of `read`, by names instead of nested; for files of a run.

    Raises:
        FileFormatError: If the file is damaged, claims more than it can hold, or is no such file.

    Example:
        >>> import os, tempfile
        >>> from nbmodule.files import read_flat
        >>> path = os.path.join(tempfile.mkdtemp(), "snapshot.npz")
        >>> np.savez(path, **{"step": 3, "model/w": np.ones(2)})
        >>> read_flat(path)
        {'step': array(3), 'model/w': array([1., 1.])}
    """
    with collector_paused():
        rows, _ = read_rows(path, mmap=False)
        return {"/".join(map(unescape, name.split("/"))): leaf for name, leaf in rows}


def read_rows(
    path: str | os.PathLike[str], *, mmap: bool
) -> tuple[list[tuple[str, Any]], Contents]:
    """Read all leaves with their paths, those of buffers with their prefix; the trees of the
    contents are still empty.
    """
    where = file_name(path, "load")
    index = find_index(where)
    if index is not None:
        return _read_parts(index, mmap=mmap)
    return _read_file(find_weights(where), mmap=mmap)


def _read_file(where: str, *, mmap: bool) -> tuple[list[tuple[str, Any]], Contents]:
    contents = Contents()
    with open_file(where) as file:
        rows = read_index(file, where)
        contents.has_index = rows is not None
        if rows is not None:
            if any(row.is_compressed for row in rows):
                _unpack(file, rows, where)
        elif is_safetensors(file):
            rows, contents.metadata = read_safetensors(file, where)
        elif is_pickle(file):
            raise FileFormatError(
                f"cannot load {where}: it is a pickle, as PyTorch wrote files before version "
                "1.6. If you trust it, torch.save(torch.load(path), path) writes it anew."
            )
        elif is_npz(file):
            is_torch = is_torch_archive(file)
            contents.metadata = {"format": "pt"} if is_torch else None
            leaves = (read_torch if is_torch else read_npz)(file, where)
            return [(path, _read_only(leaf) if mmap else leaf) for path, leaf in leaves], contents
        else:
            rows = read_hdf5(file, where)
        return list(_leaves(file, rows, mmap, where, contents)), contents


def _unpack(file: FileIO, rows: list[StoredRow], where: str) -> None:
    """Let HDF5 unpack the compressed arrays of a file with an index, and test their checksums."""
    unpacked = {row.path: row.data for row in read_hdf5(file, where, has_index=True)}
    for row in rows:
        if row.is_compressed:
            row.data = unpacked.get(row.path)
            if row.data is None or row.data.size != row.size:
                raise FileFormatError(f'cannot load "/{row.path}" of {where}: it is damaged.')
            check_bytes(row, row.data, where)


# The names under which repositories of Hugging Face keep weights, the preferred ones first.
_REPOSITORY = ("model.safetensors", "pytorch_model.bin", "adapter_model.safetensors")
_INDEX = ".index.json"


def find_index(path: str) -> str | None:
    """Return the index of weights that are kept in several files, None for a single file."""
    if path.endswith(_INDEX):
        return path
    indices = [os.path.join(path, name + _INDEX) for name in _REPOSITORY]
    return next((index for index in indices if os.path.isfile(index)), None)


def find_weights(path: str) -> str:
    """Return the weights file of a folder that is a repository, else the path itself."""
    candidates = [os.path.join(path, name) for name in _REPOSITORY]
    return next((file for file in candidates if os.path.isfile(file)), path)


def _read_parts(index: str, *, mmap: bool) -> tuple[list[tuple[str, Any]], Contents]:
    """Read weights that an index distributes over files of its own folder."""
    with open_file(index) as file:
        size = os.fstat(file.fileno()).st_size
        if size > _MOST_INDEX:
            raise FileFormatError(
                f"cannot load {index}: an index of {size:,} bytes is longer than {_MOST_INDEX:,}."
            )
        record = parse_json(read_at(file, 0, size), index, unique=True)
    table = record.get("weight_map") if isinstance(record, dict) else None
    if not isinstance(table, dict) or not all(isinstance(name, str) for name in table.values()):
        raise FileFormatError(f'cannot load {index}: its "weight_map" names no files.')
    check_count(len(table), index)
    rows: list[tuple[str, Any]] = []
    contents = Contents(has_index=False)
    for name in sorted(set(table.values())):
        if os.path.basename(name) != name or name in ("", ".", "..") or "\\" in name:
            raise FileFormatError(
                f"cannot load {index}: it names {name[:200]!r}, expected a file of its own folder."
            )
        part, about = _read_file(os.path.join(os.path.dirname(index), name), mmap=mmap)
        contents.metadata = contents.metadata or about.metadata
        rows += part
    listed = {escape_levels(name.split(".")) for name in table}
    if missing := sorted(listed.difference(path for path, _ in rows)):
        raise FileFormatError(
            f'cannot load {index}: its parts lack "/{missing[0][:200]}"'
            f"{f' and {len(missing) - 1} more' if len(missing) > 1 else ''}."
        )
    return rows, contents


def open_file(path: str | os.PathLike[str]) -> FileIO:
    """Open a regular file for reading, without a buffer; a folder or a pipe is no weights file."""
    where = file_name(path, "load")
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        raise FileNotFoundError(errno.ENOENT, "cannot load: there is no such file", where) from None
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "cannot load: it is a folder, expected a file", where)
    if not stat.S_ISREG(mode):
        raise FileFormatError(f"cannot load {where}: it is not a regular file.")
    return open(path, "rb", buffering=0)


def _leaves(
    file: FileIO, rows: list[StoredRow], mmap: bool, where: str, contents: Contents
) -> Iterator[tuple[str, Any]]:
    """Make leaves of bytes; packed arrays come last."""
    packed: dict[str, np.ndarray] = {}
    leaves: dict[Any, Any] = {}
    for row, data in fetch(file, rows, is_mapped=mmap, where=where):
        if row.dtype == GROUP:
            yield row.path, EMPTY
        elif row.path.startswith(PACKED + "/"):
            packed[row.path[len(PACKED) + 1 :]] = data
        elif row.path == METADATA and row.dtype == TEXT:
            contents.metadata = parse_json(data.tobytes(), f'"/{METADATA}" of {where}')
        else:
            # Two rows with the same bytes are two names of one array.
            identity = (id(data), row.dtype, row.shape, str(row.notes)) if row.size else row.path
            if identity not in leaves:
                leaf = restore(data, row.dtype, row.shape, row.notes, f'"/{row.path}" of {where}')
                leaves[identity] = (_read_only(leaf) if mmap else leaf), data
            yield row.path, leaves[identity][0]
    if packed:
        yield from (
            (path, _read_only(leaf) if mmap else leaf)
            for path, leaf in unpack_small_arrays(packed, where)
        )


def _read_only(leaf: Any) -> Any:
    """Make a mapped leaf read-only, also one without bytes to map."""
    if isinstance(leaf, np.ndarray):
        leaf.flags.writeable = False
    return leaf


def into_trees(contents: Contents, rows: list[tuple[str, Any]], where: str) -> None:
    """Nest leaves by their paths, buffers apart."""
    prefix = BUFFERS + "/"
    buffers = [(path[len(prefix) :], leaf) for path, leaf in rows if path.startswith(prefix)]
    contents.variables = nest(
        ((path, leaf) for path, leaf in rows if not path.startswith(prefix) and path != BUFFERS),
        where=where,
    )
    if buffers or any(path == BUFFERS for path, _ in rows):
        contents.buffers = nest(buffers, where=where)
