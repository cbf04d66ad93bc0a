"""Read HDF5 files that have no index: those that another program wrote or changed.

HDF5 reads the structures; arrays that lie in one piece are read, or mapped, by plain reads. Links
to other files, cycles, filters that h5py lacks, and claims beyond what a file of this size can hold
are refused before any number is read. Files as this package wrote them never get here.

HDF5 crashes or hangs on about one of a thousand damaged files, and h5py cannot be interrupted. So
another process walks through the structures first.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from io import FileIO
from typing import Any

import numpy as np

from nbmodule.errors import FileFormatError
from nbmodule.files.chains import MAX_DEPTH, escape_key
from nbmodule.files.checksums import (
    FORMAT,
    GROUP,
    StoredRow,
    check_row,
    check_total,
    check_version,
    most_bytes,
    read_at,
)
from nbmodule.files.dtypes import HALF_COMPLEX, IEEE_LIKE, kind_of
from nbmodule.files.fetch import empty
from nbmodule.files.hdf5_write import hdf5_type, import_h5py
from nbmodule.files.stored_leaf import NOTHING, TEXT

# Filters of h5py itself: deflate, shuffle, Fletcher, szip, n-bit, scale-offset, lzf.
_FILTERS = {1, 2, 3, 4, 5, 6, 32000}
_MOST_ATTRIBUTE = 1 << 16  # bytes
_PATIENCE = 30.0  # seconds
_WALK = """
import sys, h5py

def visit(name, node):
    try:
        list(node.attrs.items())
        if isinstance(node, h5py.Dataset):
            node.id.get_storage_size(), node.id.get_offset()
            if node.nbytes < 1 << 24:
                node[()]
    except Exception:
        pass

with h5py.File(sys.argv[1], "r", locking=False) as file:
    visit("/", file)
    file.visititems(visit)
"""


def read_hdf5(file: FileIO, where: str, *, has_index: bool = False) -> list[StoredRow]:
    """List the arrays of an HDF5 file, with their bytes where they do not lie in one piece.

    Args:
        file: Open for reading.
        where: The file, for errors.
        has_index: Whether an index of checksums follows the end of the HDF5 file.

    Raises:
        FileFormatError: If it is no HDF5 file, is damaged, or holds links to other files, cycles or
            anything else that is not read.
        MissingDependencyError: If h5py is not installed.
    """
    h5py = import_h5py()
    size = os.fstat(file.fileno()).st_size
    if not h5py.is_hdf5(where):
        raise FileFormatError(
            f"cannot load {where}: it is not an HDF5, safetensors or npz file (it has {size} bytes "
            f"and begins with {read_at(file, 0, 8)!r})."
        )
    head = read_at(file, 0, 36)
    end = int.from_bytes(head[28:36], "little") if head[8:10] in (b"\2\x08", b"\3\x08") else size
    if end > size:
        raise FileFormatError(
            f"cannot load {where}: it is truncated: it has {size} bytes, its head says {end}."
        )
    _walk_through(where)
    try:
        with h5py.File(where, "r", locking=False) as opened:
            reader = _Reader(h5py, opened.id, size, where)
            if reader.is_ours and end < size and not has_index:
                raise FileFormatError(
                    f"cannot load {where}: the index behind byte {end} is damaged."
                )
            rows = list(reader.rows())
    except FileFormatError:
        raise
    except (OSError, RuntimeError, ValueError, KeyError, TypeError, MemoryError) as error:
        raise FileFormatError(
            f"cannot load {where}: it is damaged (HDF5 says: {str(error)[:200]})."
        ) from error
    check_total((row for row in rows if row.data is None), size, where)
    return rows


def _walk_through(where: str) -> None:
    """Refuse a file on which HDF5 crashes or hangs; errors are met again when it is read."""
    paths = os.pathsep.join(path for path in sys.path if isinstance(path, str))
    try:
        done = subprocess.run(
            [sys.executable, "-c", _WALK, where],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=_PATIENCE,
            env=os.environ | {"PYTHONPATH": paths},
        )
    except subprocess.TimeoutExpired:
        reason = "HDF5 does not finish"
    else:
        if done.returncode >= 0:
            return
        reason = f"HDF5 crashed (signal {-done.returncode})"
    raise FileFormatError(f"cannot load {where}: {reason} while it read the structures.")


@dataclass
class _Reader:
    """Finds all arrays below the root, through hard links only."""

    h5py: Any
    root: Any
    size: int
    where: str
    claimed: int = 0
    groups: set[Any] = field(default_factory=set)
    datasets: dict[Any, StoredRow] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.is_ours = self.attribute(self.root, "format") == FORMAT
        if self.is_ours:
            check_version(self.attribute(self.root, "format_version"), self.where)

    def refused(self, path: str, reason: str) -> FileFormatError:
        """Return the error about something that is not read."""
        return FileFormatError(f'cannot load {self.where}: "/{path[:200]}" {reason}.')

    def rows(self) -> Iterator[StoredRow]:
        """Yield a row for each array and each empty group."""
        h5py, stack = self.h5py, [(self.root, b"/", "", 0)]
        while stack:
            parent, name, path, depth = stack.pop()
            node = h5py.h5o.open(parent, name)
            address = h5py.h5o.get_info(node).addr
            if isinstance(node, h5py.h5d.DatasetID):
                if address not in self.datasets:
                    self.datasets[address] = self.dataset(node, path)
                yield replace(self.datasets[address], path=path)
            elif isinstance(node, h5py.h5g.GroupID):  # else a named type, which is no data
                if address in self.groups:
                    raise self.refused(path, "has two access paths, as in a cycle")
                if depth > MAX_DEPTH:
                    raise self.refused(path, f"is more than {MAX_DEPTH} levels deep")
                self.groups.add(address)
                links = self.links(node, path)
                stack += [(node, link, inner, depth + 1) for link, inner in reversed(links)]
                if not links and path:
                    yield StoredRow(path, GROUP)

    def links(self, group: Any, path: str) -> list[tuple[bytes, str]]:
        """Return the names in a group, and the path of each; names in our files are escaped."""
        names: list[bytes] = []
        group.links.iterate(names.append)
        result = []
        for name in names:
            text = name.decode("utf-8", "surrogateescape")
            if not self.is_ours:
                text = escape_key(text, at_root=not path)
            inner = f"{path}/{text}" if path else text
            if group.links.get_info(name).type != self.h5py.h5l.TYPE_HARD:
                raise self.refused(inner, "is a soft or external link")
            result.append((name, inner))
        return result

    def attribute(self, owner: Any, name: str) -> Any:
        """Return a small attribute as a plain value, None if there is none."""
        h5a, h5s = self.h5py.h5a, self.h5py.h5s
        if not h5a.exists(owner, name.encode()):
            return None
        stored = h5a.open(owner, name.encode())
        if stored.get_space().get_simple_extent_type() == h5s.NULL:
            return []
        if stored.get_storage_size() > _MOST_ATTRIBUTE:
            raise self.refused("", f"has an attribute {name!r} that is too large")
        value = np.zeros(stored.shape, stored.dtype)
        stored.read(value, mtype=self.h5py.h5t.py_create(stored.dtype))
        plain = value.tolist()
        return plain.decode("utf-8", "replace") if isinstance(plain, bytes) else plain

    def dataset(self, node: Any, path: str) -> StoredRow:
        """Describe an array and say where it lies; read its bytes if they are not in one piece."""
        h5py, layout, h5_type = self.h5py, node.get_create_plist(), node.get_type()
        if layout.get_external_count() or layout.get_layout() == h5py.h5d.VIRTUAL:
            raise self.refused(path, "keeps its numbers in another file")
        notes = {name: self.attribute(node, name) for name in ("python", "prng_impl")}
        entry: dict[str, Any] = {"path": path, "shape": list(node.shape or ()), "notes": {}}
        if self.is_ours:
            entry["notes"] = {name: note for name, note in notes.items() if note is not None}
        extent = node.get_space().get_simple_extent_type()
        if extent == h5py.h5s.NULL:
            return StoredRow(path, NOTHING, notes=entry["notes"])
        if h5_type.get_class() == h5py.h5t.STRING and extent == h5py.h5s.SCALAR:
            data = np.frombuffer(self.text(node, h5_type, path), np.uint8)
            return StoredRow(path, TEXT, size=data.size, data=data)
        stored = h5_type.get_size() * int(np.prod(node.shape, dtype=object))
        entry |= {"dtype": self.dtype_name(h5_type, path), "size": stored}
        raw = self.attribute(node, "dtype") if self.is_ours else None
        if raw is not None:
            entry |= {"dtype": raw, "shape": self.attribute(node, "shape")}
        is_whole = layout.get_layout() == h5py.h5d.CONTIGUOUS and _is_little(h5_type)
        offset = node.get_offset() if is_whole and node.get_storage_size() == stored else None
        if offset is not None or not stored:
            return check_row(entry | {"offset": offset or 0}, self.size, self.where)
        self.claimed += stored
        if self.claimed > most_bytes(self.size):
            raise self.refused(path, f"claims {stored} bytes in a file of {self.size}")
        row = check_row(entry, self.size, self.where, is_located=False)
        row.data = self.bytes_of(node, h5_type, layout, stored, path)
        return row

    def dtype_name(self, h5_type: Any, path: str) -> str:
        """Return the name of an HDF5 type of numbers."""
        for name in (*IEEE_LIKE, *HALF_COMPLEX):
            if h5_type.equal(hdf5_type(name)):
                return name
        try:
            element = kind_of(h5_type.dtype)
        except TypeError:
            element = None
        if element is None or h5_type.get_class() == self.h5py.h5t.STRING:
            raise self.refused(path, "does not hold plain numbers")
        return element.name

    def text(self, node: Any, h5_type: Any, path: str) -> bytes:
        """Read one text."""
        everything, length = self.h5py.h5s.ALL, None
        if h5_type.is_variable_str():
            value = np.empty((), self.h5py.string_dtype())
            node.read(everything, everything, value, self.h5py.h5t.py_create(value.dtype))
            data: Any = value[()] or b""
            return data if isinstance(data, bytes) else data.encode("utf-8", "surrogatepass")
        if h5_type.get_size() > most_bytes(self.size):
            raise self.refused(path, f"claims {h5_type.get_size()} bytes in a file of {self.size}")
        value = np.zeros((), f"S{h5_type.get_size()}")
        node.read(everything, everything, value, h5_type)
        length = self.attribute(node, "length") if self.is_ours else 0
        text: Any = value[()]
        return text.ljust(min(length or 0, h5_type.get_size()), b"\0")

    def bytes_of(self, node: Any, h5_type: Any, layout: Any, stored: int, path: str) -> np.ndarray:
        """Read an array that is compressed, cut into chunks, or not little-endian."""
        codes = {layout.get_filter(i)[0] for i in range(layout.get_nfilters())}
        if codes - _FILTERS:
            raise self.refused(
                path, f"is compressed by filter {min(codes - _FILTERS)}, which h5py cannot undo"
            )
        data, is_little = empty(stored), _is_little(h5_type)
        width = f"V{h5_type.get_size()}"
        dtype = np.dtype(width) if is_little else h5_type.dtype.newbyteorder("<")
        target = h5_type if is_little else self.h5py.h5t.py_create(dtype, logical=True)
        everything = self.h5py.h5s.ALL
        try:
            node.read(everything, everything, data.view(dtype).reshape(node.shape), target)
        except (OSError, RuntimeError, ValueError) as error:
            raise self.refused(path, f"cannot be read: {str(error)[:200]}") from error
        return data


def _is_little(h5_type: Any) -> bool:
    try:
        return h5_type.dtype.newbyteorder("<") == h5_type.dtype
    except TypeError:  # a float that NumPy lacks; ours are little-endian
        return True
