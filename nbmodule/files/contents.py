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
from typing import Any, Self

import numpy as np

from nbmodule.base.bounded_json import parse_json
from nbmodule.base.interpreter import collector_paused
from nbmodule.base.whole_file import file_name
from nbmodule.errors import FileFormatError
from nbmodule.files.chains import BUFFERS, EMPTY, METADATA, PACKED, escape_levels, nest
from nbmodule.files.checksums import check_count, read_at, read_index
from nbmodule.files.fetch import check_bytes, fetch
from nbmodule.files.hdf5_read import read_hdf5
from nbmodule.files.npz_format import is_archive, is_pickle, read_archive
from nbmodule.files.packed import unpack_small_arrays
from nbmodule.files.safetensors_format import is_safetensors, read_safetensors
from nbmodule.files.stored_leaf import GROUP, TEXT, StoredRow, restore

_MOST_INDEX = 100_000_000  # bytes


@dataclass(slots=True)
class Contents:
    """The contents of a file, on the host.

    Attributes:
        where: The file, for errors.
        rows: (path, leaf) for each leaf; those of buffers have their prefix.
        metadata: What was given to `save`, None if nothing.
        has_index: Whether an index with checksums was there; False for a file that another program
            wrote or changed.
        variables: Nested dicts of NumPy arrays (read-only where they are mapped), random keys,
            numbers, text and None; made of the rows by `nested`.
        buffers: The same; None if the file was saved without buffers.
        report: The effect of `rename=`, a `TreeComparison`; None without one.
    """

    where: str
    rows: list[tuple[str, Any]] = field(default_factory=list)
    metadata: Any = None
    has_index: bool = False
    variables: Any = field(default_factory=dict)
    buffers: Any = None
    report: Any = None

    @property
    def origin(self) -> str:
        """`torch` for a file that PyTorch wrote, `other` for one of another program or format,
        `nbmodule`.
        """
        about = self.metadata if isinstance(self.metadata, dict) else {}
        if self.has_index or about.get("format") == "nbmodule":
            return "nbmodule"
        return "torch" if about.get("format") == "pt" else "other"

    def nested(self) -> Self:
        """Nest the leaves by their paths, buffers apart."""
        prefix = BUFFERS + "/"
        variables = [row for row in self.rows if row[0].partition("/")[0] != BUFFERS]
        buffers = [(path[len(prefix) :], x) for path, x in self.rows if path.startswith(prefix)]
        has_buffers = len(variables) < len(self.rows)
        self.variables = nest(variables, where=self.where)
        self.buffers = nest(buffers, where=self.where) if has_buffers else None
        return self


def read(path: str | os.PathLike[str], *, mmap: bool = False) -> Contents:
    """Read a weights file as it is, into the memory of the host.

    Args:
        path: Of an HDF5, `.safetensors` or `.npz` file, or one of `torch.save`.
        mmap: Map arrays instead of reading them; see `nb.load`.

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
        return read_rows(path, mmap=mmap).nested()


def read_rows(path: str | os.PathLike[str], *, mmap: bool) -> Contents:
    """Read all leaves; they are not yet nested."""
    where = file_name(path, "load")
    index = where if where.endswith(_INDEX) else _in_repository(where, _INDEX)
    if index is not None:
        return _read_parts(index, mmap=mmap)
    return _read_file(_in_repository(where) or where, mmap=mmap)


# The names under which repositories of Hugging Face keep weights, the preferred ones first.
_REPOSITORY = ("model.safetensors", "pytorch_model.bin", "adapter_model.safetensors")
_INDEX = ".index.json"  # ends the name of the index of weights that are kept in several files


def _in_repository(folder: str, ending: str = "") -> str | None:
    """Return the weights of a folder that is a repository."""
    files = [os.path.join(folder, name + ending) for name in _REPOSITORY]
    return next(filter(os.path.isfile, files), None)


def _read_file(where: str, *, mmap: bool) -> Contents:
    contents = Contents(where)
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
        elif is_archive(file):
            contents.rows, contents.metadata = read_archive(file, where)
        else:
            rows = read_hdf5(file, where)
        if rows is not None:
            contents.rows = list(_leaves(file, rows, mmap, contents))
    if mmap:  # also those without bytes to map
        for array in [leaf for _, leaf in contents.rows if isinstance(leaf, np.ndarray)]:
            array.flags.writeable = False
    return contents


def _unpack(file: FileIO, rows: list[StoredRow], where: str) -> None:
    """Let HDF5 unpack the compressed arrays of a file with an index, and test their checksums."""
    unpacked = {row.path: row.data for row in read_hdf5(file, where, has_index=True)}
    for row in rows:
        if row.is_compressed:
            row.data = unpacked.get(row.path)
            if row.data is None or row.data.size != row.size:
                raise FileFormatError(f'cannot load "/{row.path}" of {where}: it is damaged.')
            check_bytes(row, row.data, where)


def _read_parts(index: str, *, mmap: bool) -> Contents:
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
    contents = Contents(index)
    for name in sorted(set(table.values())):
        if os.path.basename(name) != name or name in ("", ".", "..") or "\\" in name:
            raise FileFormatError(
                f"cannot load {index}: it names {name[:200]!r}, expected a file of its own folder."
            )
        part = _read_file(os.path.join(os.path.dirname(index), name), mmap=mmap)
        contents.metadata = contents.metadata or part.metadata
        contents.rows += part.rows
    listed = {escape_levels(name.split(".")) for name in table}
    if missing := sorted(listed.difference(path for path, _ in contents.rows)):
        raise FileFormatError(
            f'cannot load {index}: its parts lack "/{missing[0][:200]}"'
            f"{f' and {len(missing) - 1} more' if len(missing) > 1 else ''}."
        )
    return contents


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
    file: FileIO, rows: list[StoredRow], mmap: bool, contents: Contents
) -> Iterator[tuple[str, Any]]:
    """Make leaves of bytes; packed arrays come last."""
    where = contents.where
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
                leaves[identity] = leaf, data
            yield row.path, leaves[identity][0]
    if packed:
        yield from unpack_small_arrays(packed, where)
