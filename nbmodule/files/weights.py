"""Save nested arrays to one HDF5 file, atomically, and load files of any format, with all claims
checked.

Contents of a file: a group for each level, a dataset for each array (`/linear0/w`), in the root
the attributes `format` and `format_version`, buffers in the group `__buffers__`, JSON given as
metadata in the text `__metadata__`. Plain h5py opens it. An index with checksums follows the HDF5
part (see `checksums`); this package loads through it.

Loading guarantees:
- An unchanged file loads equal. A changed or malicious file raises `FileFormatError` with the
  location. No file can run code, open another file, or take much more memory than its size.
- With `mmap=True` the checksums of arrays are not tested, because that would read them; everything
  else is checked.
- A file without the index (made or changed by another program) has no checksums. HDF5 reads its
  structures; see `hdf5_read`.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from io import FileIO
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from nbmodule.base.bounded_json import dump_json, parse_json
from nbmodule.base.interpreter import collector_paused
from nbmodule.base.kinds import DeviceLike
from nbmodule.base.whole_file import file_name, whole_file
from nbmodule.core.variables.placement import find_device
from nbmodule.errors import ArgumentError, StructureError
from nbmodule.files.archives import is_archive, is_pickle, read_archive
from nbmodule.files.chains import (
    BUFFERS,
    EMPTY,
    METADATA,
    PACKED,
    escape_levels,
    flatten_parts,
    nest,
    unreadable,
)
from nbmodule.files.checksums import check_bytes, check_count, fetch, read_at, read_index
from nbmodule.files.differences import Rename, rename_rows, rows_below
from nbmodule.files.hdf5_read import read_hdf5
from nbmodule.files.hdf5_write import write_hdf5
from nbmodule.files.packed import pack_small_arrays, unpack_small_arrays
from nbmodule.files.safetensors_format import is_safetensors, read_safetensors
from nbmodule.files.stored_leaf import GROUP, TEXT, StoredRow, describe_leaf, kind_of, restore
from nbmodule.tree.container import Container

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
            raise unreadable(
                where,
                "it is a pickle, as PyTorch wrote files before version "
                "1.6. If you trust it, torch.save(torch.load(path), path) writes it anew.",
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
                raise unreadable(f'"/{row.path}" of {where}', "it is damaged.")
            check_bytes(row, row.data, where)


def _read_parts(index: str, *, mmap: bool) -> Contents:
    """Read weights that an index distributes over files of its own folder."""
    with open_file(index) as file:
        size = os.fstat(file.fileno()).st_size
        if size > _MOST_INDEX:
            raise unreadable(index, f"an index of {size:,} bytes is longer than {_MOST_INDEX:,}.")
        record = parse_json(read_at(file, 0, size), index, unique=True)
    table = record.get("weight_map") if isinstance(record, dict) else None
    if not isinstance(table, dict) or not all(isinstance(name, str) for name in table.values()):
        raise unreadable(index, 'its "weight_map" names no files.')
    check_count(len(table), index)
    contents = Contents(index)
    for name in sorted(set(table.values())):
        if os.path.basename(name) != name or name in ("", ".", "..") or "\\" in name:
            raise unreadable(index, f"it names {name[:200]!r}, expected a file of its own folder.")
        part = _read_file(os.path.join(os.path.dirname(index), name), mmap=mmap)
        contents.metadata = contents.metadata or part.metadata
        contents.rows += part.rows
    listed = {escape_levels(name.split(".")) for name in table}
    if missing := sorted(listed.difference(path for path, _ in contents.rows)):
        raise unreadable(
            index,
            f'its parts lack "/{missing[0][:200]}"'
            f"{f' and {len(missing) - 1} more' if len(missing) > 1 else ''}.",
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
        raise unreadable(where, "it is not a regular file.")
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
                leaves[identity] = restore(row, data, where), data
            yield row.path, leaves[identity][0]
    if packed:
        yield from unpack_small_arrays(packed, where)


def save(
    path: str | os.PathLike[str],
    variables: Mapping[str, Any],
    *,
    buffers: Mapping[str, Any] | None = None,
    packed: bool | None = None,
    compression: str | int | None = None,
    dtype: DTypeLike | None = None,
    metadata: object = None,
) -> None:
    """Write nested arrays to an HDF5 file atomically, in place of an older one.

    Args:
        path: Path of the file; missing folders are created.
        variables: Nested mappings. Leaves are NumPy or JAX arrays, random keys, numbers, text and
            None.
        buffers: Likewise, values that are not trained; None writes no buffers.
        packed: Whether to store arrays of at most 64 KiB in one dataset for each dtype, with an
            index; None does so for more than 1,000 of them.
        compression: None, `"gzip"` (level 4), or a level of gzip from 0 to 9. Compressed arrays
            cannot be mapped.
        dtype: Dtype for floating-point arrays, such as `"bfloat16"`; complex numbers, integers and
            keys are not cast.
        metadata: Any JSON value.

    Raises:
        FileWriteError: if the disk is full or the folder is not writable; an older file is
            unchanged.
        ArgumentTypeError, DtypeError: if a leaf cannot be stored. Nothing is written.

    Example:
        >>> import os, tempfile
        >>> from nbmodule.files import read, save
        >>> path = os.path.join(tempfile.mkdtemp(), "weights.h5")
        >>> save(path, {"linear0": {"w": np.ones((2, 3), np.float32)}})
        >>> read(path).variables["linear0"]["w"].shape
        (2, 3)
    """
    if file_name(path, "save").endswith((".safetensors", ".npz")):
        raise ArgumentError(
            f"cannot save {os.fspath(path)}: weights are saved as HDF5, so the name must end in "
            ".h5. For safetensors use `save_safetensors`."
        )
    level, target = _check_compression(compression), _check_dtype(dtype)
    with collector_paused():
        rows = pack_small_arrays(_described(variables, buffers, metadata, target), packed)
    with whole_file(path) as file:
        write_hdf5(file, rows, level)


def _described(
    variables: Mapping[str, Any],
    buffers: Mapping[str, Any] | None,
    metadata: Any,
    dtype: np.dtype | None,
) -> list[StoredRow]:
    """List the rows of the file."""
    rows = [
        StoredRow(path, GROUP) if leaf is EMPTY else describe_leaf(leaf, path, dtype)
        for path, leaf in flatten_parts(variables, buffers)
    ]
    if metadata is not None:
        rows.append(describe_leaf(dump_json(metadata, "metadata").decode(), METADATA))
    return rows


def _check_compression(compression: str | int | None) -> int | None:
    if compression == "gzip":
        return 4
    if compression is None or (type(compression) is int and 0 <= compression <= 9):
        return compression
    raise ArgumentError(
        f'cannot save with compression={compression!r}: expected None, "gzip", or a level from 0 '
        "to 9."
    )


def _check_dtype(dtype: DTypeLike | None) -> np.dtype | None:
    if dtype is None:
        return None
    try:
        target = jnp.dtype(dtype)
    except TypeError as error:
        raise ArgumentError(f"cannot save with dtype={dtype!r}: it is not a dtype.") from error
    if kind_of(target) is None or not jnp.issubdtype(target, jnp.floating):
        raise ArgumentError(
            f"cannot save with dtype={dtype!r}: expected a dtype of floating point, such as "
            "bfloat16."
        )
    return target


def load_contents(
    path: str | os.PathLike[str],
    *,
    mmap: bool = False,
    prefix: str | None = None,
    rename: Rename = None,
    strict: bool = True,
    device: DeviceLike | None = None,
) -> Contents:
    """Load variables and buffers as nested dicts of JAX arrays; see `nb.load`.

    Args:
        path: Path of the file.
        mmap: Whether to map arrays instead of reading them; see `nb.load`.
        prefix: Level of the file to load; it is removed from the names.
        rename: New names for old ones, as a dict or a function; see `renaming`.
        strict: Whether an entry of `rename` without a match is an error.
        device: Placement of arrays: a device, its name, or a sharding.

    Example:
        >>> import os, tempfile
        >>> from nbmodule.files import save
        >>> from nbmodule.files.weights import load_contents
        >>> path = os.path.join(tempfile.mkdtemp(), "weights.h5")
        >>> save(path, {"linear0": {"w": np.ones((2, 3), np.float32)}})
        >>> load_contents(path, rename={"linear0": "linear"}).variables["linear"]["w"].shape
        (2, 3)
    """
    with collector_paused():
        contents = read_rows(path, mmap=mmap)
        if prefix is not None:
            contents.rows = rows_below(contents.rows, prefix, contents.where)
        if rename is not None:
            contents.rows, contents.report = rename_rows(
                contents.rows, rename, strict=strict, where=contents.where
            )
        if device is not None or not mmap:
            paths, leaves = zip(*contents.rows) if contents.rows else ((), ())
            contents.rows = list(zip(paths, place_on(leaves, device)))
        return contents.nested()


def load_with_metadata(path: str | os.PathLike[str]) -> tuple[dict[str, Any], Any]:
    """Load the variables of a weights file as nested dicts of JAX arrays, and its metadata, None if
    there is none.

    Example:
        >>> import os, tempfile
        >>> from nbmodule.files import load_with_metadata, save_safetensors
        >>> path = os.path.join(tempfile.mkdtemp(), "weights.safetensors")
        >>> save_safetensors(path, {"b": np.ones(2, np.float32)}, metadata={"step": "3"})
        >>> load_with_metadata(path)
        ({'b': Array([1., 1.], dtype=float32)}, {'step': '3'})
    """
    contents = load_contents(path)
    return contents.variables, contents.metadata


def place_on(leaves: Sequence[Any], device: DeviceLike | None = None) -> list[Any]:
    """Convert NumPy arrays to JAX arrays on a device; other leaves, and arrays of a dtype that JAX
    does not have, stay.

    On the CPU aligned arrays are used without a copy, so the NumPy arrays must not be changed
    later.

    Args:
        leaves: The leaves; the same object twice becomes one array.
        device: A device, its name (`cpu:0`, `gpu`), a sharding, or None for JAX's default device.

    Raises:
        DeviceError: If there is no such device.

    Example:
        >>> from nbmodule.files.weights import place_on
        >>> place_on([np.ones(2, np.float32), "text", np.ones(1)])
        [Array([1., 1.], dtype=float32), 'text', array([1.])]
    """
    target = find_device(device)
    is_x64 = jax.dtypes.canonicalize_dtype(np.int64) == np.int64
    movable = {
        id(leaf): leaf
        for leaf in leaves
        if (isinstance(leaf, np.ndarray) and _is_jax_dtype(leaf.dtype, is_x64))
        or (isinstance(leaf, jax.Array) and device is not None)
    }
    moved = dict(zip(movable, jax.device_put(list(movable.values()), target)))
    return [moved.get(id(leaf), leaf) for leaf in leaves]


@cache
def _is_jax_dtype(dtype: np.dtype, is_x64: bool) -> bool:
    """Return True if a JAX array can have this dtype while `jax_enable_x64` is `is_x64`."""
    try:
        is_canonical = np.dtype(jax.dtypes.canonicalize_dtype(dtype)) == dtype
        return is_canonical and jax.device_put(np.zeros(1, dtype)).dtype == dtype
    except (TypeError, ValueError, RuntimeError):  # JAX or the device does not have the dtype
        return False


def to_container(tree: dict[str, Any], path: str | os.PathLike[str]) -> Container:
    """Return the variables or buffers of a file as a Container.

    Raises:
        StructureError: if a Container cannot hold a name.
    """
    try:
        return Container(tree)
    except StructureError as error:
        raise StructureError(
            f"cannot load {os.fspath(path)} as a Container: {error} `read` gives plain dicts, in "
            "which any name can stand, and `rename` gives other names."
        ) from error
