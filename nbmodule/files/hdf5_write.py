"""Write an HDF5 file with h5py, without passing arrays through HDF5.

HDF5 writes the structures; each array gets a location at once (early allocation, no fill), and is
then written there by plain writes, with its checksum. So 500 MB of arrays are not copied, and a
full disk fails in plain writes, which fail cleanly. The index with all checksums comes last.
"""

from __future__ import annotations

import io
import operator
import os
import zlib
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from typing import Any, BinaryIO

from nbmodule.base.interpreter import collector_paused
from nbmodule.errors import MissingDependencyError
from nbmodule.files.checksums import FORMAT, VERSION, index_bytes
from nbmodule.files.stored_leaf import GROUP, IEEE_LIKE, NOTHING, TEXT, StoredRow, kinds

ALIGNMENT = 4096  # a page, so that an array can be mapped into memory where it lies
_COMPRESSED_FROM = 1 << 10
# Bytes from which an array has a page of its own, and its checksum is computed in another thread:
# checksums take three times as long as the writes.
_LARGE = 1 << 16
_THREADS = 2


def import_h5py() -> Any:
    """Import h5py, or say how to get it."""
    try:
        import h5py
    except ImportError as error:
        raise MissingDependencyError(
            "weights files need h5py, which is not installed: `pip install h5py`."
        ) from error
    return h5py


def write_hdf5(file: BinaryIO, rows: list[StoredRow], level: int | None) -> None:
    """Write an HDF5 file of these rows, and its index.

    Args:
        file: New and empty, open for writing and reading.
        rows: All that it is to hold; they get their locations and checksums.
        level: Of gzip, 0 to 9; None leaves the arrays as they are.
    """
    h5py = import_h5py()
    # HDF5 reads back what it writes while it compresses, which must not be lost on a full disk:
    # a compressed file is made in memory first.
    memory = None if level is None else io.BytesIO()
    target = _Target(memory or file)
    aligned = {"alignment_threshold": _LARGE, "alignment_interval": ALIGNMENT}
    block = min(1 << 20, 1024 + 512 * len(rows))
    with collector_paused():
        with h5py.File(
            target, "w", libver=("v110", "v110"), meta_block_size=block, **aligned
        ) as structures:
            structures.attrs["format"], structures.attrs["format_version"] = FORMAT, VERSION
            builder = _Builder(h5py, structures, level)
            rows = [builder.add(row) for row in rows]
        if target.error is not None:
            raise target.error
    if memory is not None:
        file.write(memory.getbuffer())
    _write_arrays(file, rows)
    size = file.seek(0, os.SEEK_END)  # the structures alone may end before the last array
    file.write(index_bytes(rows, size))


class _Target:
    """An open file as h5py calls it.

    HDF5 cannot pass on an error of the system, and may fail again when it closes. So the first
    error is kept, and from then on nothing is written.
    """

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.error: OSError | None = None
        self.seek, self.tell, self.read = file.seek, file.tell, file.read
        self.readinto = file.readinto  # type: ignore[attr-defined]

    def write(self, data: Any) -> int:
        self._try(self.file.write, data)
        return len(data)

    def truncate(self, size: int) -> int:
        self._try(self.file.truncate, size)
        return size

    def flush(self) -> None:
        self._try(self.file.flush)

    def _try(self, act: Callable[..., Any], *arguments: Any) -> None:
        if self.error is None:
            try:
                act(*arguments)
            except OSError as error:
                self.error = error


class _Builder:
    """Adds leaves to an open HDF5 file; arrays through the low-level interface, which takes a tenth
    of the time.
    """

    def __init__(self, h5py: Any, root: Any, level: int | None) -> None:
        self.h5py, self.root, self.level = h5py, root, level
        self.links = h5py.h5p.create(h5py.h5p.LINK_CREATE)
        self.links.set_create_intermediate_group(True)
        self.links.set_char_encoding(h5py.h5t.CSET_UTF8)
        self.plain = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        self.plain.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
        self.plain.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        self.plain.set_obj_track_times(False)
        self.known: dict[int, StoredRow] = {}

    def add(self, row: StoredRow) -> StoredRow:
        """Make the dataset of a row, or a second name for one that is there."""
        if row.dtype == GROUP:
            self.root.create_group(row.path)
            return row
        if row.identity is not None:
            first = self.known.setdefault(id(row.identity), row)
            if first is not row:
                self.root[row.path] = self.root[first.path]
                return replace(first, path=row.path)
        if row.dtype in (TEXT, NOTHING):
            dataset = self._add_text(row)
        elif self.level is not None and row.size >= _COMPRESSED_FROM:
            dataset = self._add_compressed(row)
        else:
            dataset = self._add_plain(row)
        notes = dict(row.notes)
        if row.dtype == TEXT:  # HDF5 drops zeros at the end of a text, and knows no empty text
            notes["length"] = row.size
        elif row.dtype != NOTHING and row.element.raw:
            notes |= {"dtype": row.dtype, "shape": list(row.shape)}
        if notes:
            attributes = self.h5py.Dataset(dataset).attrs
            for name, value in notes.items():
                # HDF5 cannot read an attribute of no numbers
                attributes[name] = self.h5py.Empty("<i8") if value == [] else value
        if row.size and not row.is_compressed:
            row.offset = dataset.get_offset() or 0
        return row

    def _add_plain(self, row: StoredRow) -> Any:
        h5s, shape = self.h5py.h5s, row.element.stored_shape(row.shape)
        space = h5s.create_simple(shape) if shape else h5s.create(h5s.SCALAR)
        h5_type = hdf5_type(row.dtype)
        return self.h5py.h5d.create(
            self.root.id, row.path.encode(), h5_type, space, self.plain, self.links
        )

    def _add_text(self, row: StoredRow) -> Any:
        if row.dtype == NOTHING:
            return self.root.create_dataset(row.path, data=self.h5py.Empty("<i1")).id
        dtype = self.h5py.string_dtype("utf-8", max(1, row.size))
        return self.root.create_dataset(row.path, data=row.data, dtype=dtype).id

    def _add_compressed(self, row: StoredRow) -> Any:
        h5_type, everything = hdf5_type(row.dtype), self.h5py.h5s.ALL
        shape = row.element.stored_shape(row.shape)
        dataset = self.root.create_dataset(
            row.path,
            shape,
            self.h5py.Datatype(h5_type),
            chunks=True,
            shuffle=True,
            compression=self.level,
        ).id
        data: Any = row.to_bytes()  # NumPy declares its buffers from Python 3.12 on
        row.is_compressed, row.crc = True, zlib.crc32(data)
        stored = data.view(f"V{h5_type.get_size()}").reshape(shape)
        dataset.write(everything, everything, stored, h5_type)
        return dataset


@cache
def hdf5_type(name: str) -> Any:
    """The HDF5 type in which a dtype is shown."""
    h5t = import_h5py().h5t
    if kinds()[name].raw:
        return h5t.STD_U8LE
    if name in IEEE_LIKE:
        exponent, mantissa = IEEE_LIKE[name]
        h5_type = h5t.IEEE_F32LE.copy()
        h5_type.set_fields(exponent + mantissa, mantissa, exponent, 0, mantissa)
        h5_type.set_size((exponent + mantissa + 1) // 8)
        h5_type.set_ebias(2 ** (exponent - 1) - 1)
        return h5_type
    return h5t.py_create(kinds()[name].dtype.newbyteorder("<"), logical=True)


def _write_arrays(file: BinaryIO, rows: list[StoredRow]) -> None:
    """Write each array to its location, and note its checksum; of large arrays other threads
    compute it meanwhile.
    """
    checksums: dict[int, int] = {}
    running: deque[tuple[int, Future[int]]] = deque()
    with ThreadPoolExecutor(_THREADS) as pool:
        for row in sorted(rows, key=operator.attrgetter("offset")):
            if not row.size or row.is_compressed or row.offset in checksums:
                continue
            data: Any = row.to_bytes()  # NumPy declares its buffers from Python 3.12 on
            is_large = row.size >= _LARGE
            checksums[row.offset] = 0 if is_large else zlib.crc32(data)
            if is_large:
                running.append((row.offset, pool.submit(zlib.crc32, data)))
            file.seek(row.offset)
            file.write(data)
            while len(running) > _THREADS:  # so that few arrays are on the host at a time
                offset, checksum = running.popleft()
                checksums[offset] = checksum.result()
        checksums |= {offset: checksum.result() for offset, checksum in running}
    for row in rows:
        row.crc = checksums.get(row.offset, row.crc)
    file.flush()
