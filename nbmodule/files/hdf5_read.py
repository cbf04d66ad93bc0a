"""Read HDF5 files that have no index: those that another program wrote or changed.

Links to other files, cycles, and claims beyond what a file of this size can hold are refused before
any number is read. Of files as this package wrote them only compressed arrays are read here.

HDF5 crashes or hangs on about one of a thousand damaged files, and h5py cannot be interrupted. So
another process walks through the structures first.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from io import FileIO
from typing import Any

import numpy as np

from nbmodule.errors import FileFormatError
from nbmodule.files.chains import MAX_DEPTH, escape_key, unreadable
from nbmodule.files.checksums import FORMAT, check_row, check_version, empty, most_bytes, read_at
from nbmodule.files.hdf5_write import hdf5_type, import_h5py
from nbmodule.files.stored_leaf import GROUP, IEEE_LIKE, NOTHING, TEXT, StoredRow, kind_of

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
    """List the arrays of an HDF5 file, with their bytes.

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
        raise unreadable(
            where,
            f"it is not an HDF5, safetensors or npz file (it has {size} bytes "
            f"and begins with {read_at(file, 0, 8)!r}).",
        )
    head = read_at(file, 0, 36)
    end = int.from_bytes(head[28:36], "little") if head[8:10] in (b"\2\x08", b"\3\x08") else size
    if end > size:
        raise unreadable(where, f"it is truncated: it has {size} bytes, its head says {end}.")
    _walk_through(where)
    try:
        with h5py.File(where, "r", locking=False) as opened:
            is_ours = _attribute(opened, "format") == FORMAT
            if is_ours:
                check_version(_attribute(opened, "format_version"), where)
            if is_ours and end < size and not has_index:
                raise unreadable(where, f"the index behind byte {end} is damaged.")
            return list(_Reader(h5py, size, where, is_ours).rows(opened))
    except FileFormatError:
        raise
    except (OSError, RuntimeError, ValueError, KeyError, TypeError, MemoryError) as error:
        raise unreadable(where, f"it is damaged (HDF5 says: {str(error)[:200]}).") from error


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
    raise unreadable(where, f"{reason} while it read the structures.")


def _attribute(node: Any, name: str) -> Any:
    """Return an attribute as a plain value, None if there is none; one of no numbers is a list."""
    value = node.attrs.get(name)
    if isinstance(value, import_h5py().Empty):
        return []
    return value.tolist() if hasattr(value, "tolist") else value


@dataclass
class _Reader:
    """Finds all arrays of an open file, through hard links only."""

    h5py: Any
    size: int
    where: str
    is_ours: bool
    claimed: int = 0

    def refused(self, path: str, reason: str) -> FileFormatError:
        """Return the error about something that is not read."""
        return unreadable(self.where, f'"/{path[:200]}" {reason}.')

    def rows(self, root: Any) -> Iterator[StoredRow]:
        """Yield a row for each array and each empty group."""
        known: dict[int, StoredRow | None] = {}
        stack: list[tuple[Any, str, int]] = [(root, "", 0)]
        while stack:
            node, path, depth = stack.pop()
            address = self.h5py.h5o.get_info(node.id).addr
            if isinstance(node, self.h5py.Dataset):
                row = known.get(address) or self.dataset(node, path)
                known[address] = row
                yield replace(row, path=path)
            elif isinstance(node, self.h5py.Group):  # else a named type, which is no data
                if address in known:
                    raise self.refused(path, "has two access paths, as in a cycle")
                if depth > MAX_DEPTH:
                    raise self.refused(path, f"is more than {MAX_DEPTH} levels deep")
                known[address] = None
                members = list(self.members(node, path))
                stack += [(member, inner, depth + 1) for member, inner in reversed(members)]
                if not members and path:
                    yield StoredRow(path, GROUP)

    def members(self, group: Any, path: str) -> Iterator[tuple[Any, str]]:
        """Yield the members of a group with their paths; names in our files are escaped."""
        for name in group:
            text = name.decode("utf-8", "surrogateescape") if isinstance(name, bytes) else name
            if not self.is_ours:
                text = escape_key(text, at_root=not path)
            inner = f"{path}/{text}" if path else text
            if not isinstance(group.get(name, getlink=True), self.h5py.HardLink):
                raise self.refused(inner, "is a soft or external link")
            yield group[name], inner

    def dataset(self, node: Any, path: str) -> StoredRow:
        """Read one array or text."""
        if node.external or node.is_virtual:
            raise self.refused(path, "keeps its numbers in another file")
        notes = {name: _attribute(node, name) for name in ("python", "prng_impl") if self.is_ours}
        notes = {name: note for name, note in notes.items() if note is not None}
        if node.shape is None:
            return StoredRow(path, NOTHING, notes=notes)
        h5_type = node.id.get_type()
        stored = h5_type.get_size() * int(np.prod(node.shape, dtype=object))
        is_text = h5_type.get_class() == self.h5py.h5t.STRING and node.shape == ()
        raw = _attribute(node, "dtype") if self.is_ours else None
        if is_text:
            entry: dict[str, Any] = {"dtype": TEXT}
        elif raw is not None:
            entry = {"dtype": raw, "shape": _attribute(node, "shape")}
        else:
            entry = {"dtype": self.dtype_name(h5_type, path), "shape": list(node.shape)}
        self.claimed += stored
        if self.claimed > most_bytes(self.size):
            raise self.refused(path, f"claims {stored} bytes in a file of {self.size}")
        entry |= {"path": path, "size": stored, "notes": notes, "compressed": True}
        row = check_row(entry, self.size, self.where)
        try:
            row.data = self.text(node, stored) if is_text else self.numbers(node, h5_type, stored)
        except (OSError, RuntimeError, ValueError) as error:
            raise self.refused(path, f"cannot be read: {str(error)[:200]}") from error
        row.size = row.data.size
        return row

    def text(self, node: Any, stored: int) -> np.ndarray:
        """Read a text; HDF5 drops zeros at its end."""
        length = _attribute(node, "length") if self.is_ours else 0
        return np.frombuffer(node[()].ljust(min(length or 0, stored), b"\0"), np.uint8)

    def numbers(self, node: Any, h5_type: Any, stored: int) -> np.ndarray:
        """Read the bytes of an array, little-endian."""
        everything, data = self.h5py.h5s.ALL, empty(stored)
        dtype, target = np.dtype(f"V{h5_type.get_size()}"), h5_type
        if not _is_little(h5_type):
            dtype = h5_type.dtype.newbyteorder("<")
            target = self.h5py.h5t.py_create(dtype, logical=True)
        node.id.read(everything, everything, data.view(dtype).reshape(node.shape), target)
        return data

    def dtype_name(self, h5_type: Any, path: str) -> str:
        """Return the name of an HDF5 type of numbers."""
        for name in IEEE_LIKE:
            if h5_type.equal(hdf5_type(name)):
                return name
        try:
            element = kind_of(h5_type.dtype)
        except TypeError:
            element = None
        if element is None or h5_type.get_class() == self.h5py.h5t.STRING:
            raise self.refused(path, "does not hold plain numbers")
        return element.name


def _is_little(h5_type: Any) -> bool:
    try:
        return h5_type.dtype.newbyteorder("<") == h5_type.dtype
    except TypeError:  # a float that NumPy lacks; ours are little-endian
        return True
