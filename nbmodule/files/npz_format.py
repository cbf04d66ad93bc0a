"""Zip archives, read only: files of `torch.save`, and NumPy's `.npz` with one `.npy` file for each
array.

Pickled objects are never loaded.
"""

from __future__ import annotations

import os
import zipfile
from io import FileIO
from math import prod
from typing import Any

import numpy as np

from nbmodule.base.format import format_array
from nbmodule.errors import FileFormatError
from nbmodule.files.chains import escape_levels
from nbmodule.files.checksums import check_count, read_at
from nbmodule.files.dtypes import kind_of
from nbmodule.files.fetch import empty
from nbmodule.files.torch_format import RefusedError, read_torch

# Limits of what an archive may claim: a compressed member, or a stride of 0 in a tensor, may mean
# more numbers than the file holds.
MOST_EXPANSION, FREE_CLAIM = 100, 1 << 28
_FIXES = {".keras": " `nb.from_keras(keras.models.load_model(path))` takes a model of Keras."}


def is_archive(file: FileIO) -> bool:
    """Return True if a file begins as a zip archive does."""
    return read_at(file, 0, 4) in (b"PK\x03\x04", b"PK\x05\x06")


def read_archive(file: FileIO, where: str) -> tuple[list[tuple[str, Any]], Any]:
    """Read an `.npz` file, or one of `torch.save`; return its leaves, and its metadata.

    Args:
        file: Open for reading, without a buffer.
        where: The file, for errors.

    Raises:
        FileFormatError: If it is damaged, holds anything but arrays of numbers (of `torch.save`
            also numbers, text, and lists and dicts of them), lists more than 100,000 of them, or
            claims more than 100 times its size and 256 MiB.
    """
    file.seek(0)
    size = os.fstat(file.fileno()).st_size
    try:
        with zipfile.ZipFile(file) as archive:  # type: ignore[arg-type]
            check_count(len(archive.infolist()), where)
            limit = MOST_EXPANSION * size + FREE_CLAIM
            if any(name.endswith("data.pkl") for name in archive.namelist()):
                return read_torch(archive, size, limit), {"format": "pt"}
            return _read_npz(archive, size, limit, where), None
    except RefusedError as error:
        raise FileFormatError(f"cannot load {where}: {error}.") from None
    except FileFormatError:
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"[:200]
        raise FileFormatError(f"cannot load {where}: it is damaged ({reason}).") from error


def _read_npz(archive: zipfile.ZipFile, size: int, limit: int, where: str) -> list[tuple[str, Any]]:
    """Read all arrays of an `.npz` file; a `/` in a name makes levels."""
    members = [info for info in archive.infolist() if not info.is_dir()]
    foreign = [info.filename for info in members if not info.filename.endswith(".npy")]
    if foreign:
        fix = _FIXES.get(os.path.splitext(where)[1], "")
        raise FileFormatError(
            f"cannot load {where}: it is an archive that holds {foreign[0][:200]!r}, and "
            f"an .npz holds arrays (.npy) alone.{fix}"
        )
    claim = sum(info.file_size for info in members)
    if claim > limit:
        raise FileFormatError(
            f"cannot load {where}: it claims to unpack from {size:,} bytes to {claim:,}, "
            f"and at most {MOST_EXPANSION} times its size and {FREE_CLAIM >> 20} MiB "
            "are read. If you trust it, `np.load` unpacks it."
        )
    return [_leaf(archive, info, where) for info in members]


def is_pickle(file: FileIO) -> bool:
    """Return True if a file begins as a pickle, as PyTorch wrote files before version 1.6."""
    head = read_at(file, 0, 2)
    return head[:1] == b"\x80" and head[1:] in (b"\x02", b"\x03", b"\x04", b"\x05")


def _leaf(archive: zipfile.ZipFile, info: zipfile.ZipInfo, where: str) -> tuple[str, Any]:
    name = info.filename.removesuffix(".npy")
    location = f'"{name[:200]}" of {where}'
    array = _array(archive, info, location)
    path = escape_levels(name.split("/"))
    if array.dtype.kind == "U" and array.shape == ():  # as `np.str_` saves it
        return path, str(array)
    if kind_of(array.dtype) is None:
        raise FileFormatError(
            f"cannot load {location}: its dtype is {array.dtype}, and only arrays of numbers are "
            "loaded (NumPy forgets the names of bfloat16 and its kin; save such arrays as HDF5 "
            "or safetensors)."
        )
    return path, array.astype(array.dtype.newbyteorder("="), order="C", copy=False)


def _array(archive: zipfile.ZipFile, info: zipfile.ZipInfo, location: str) -> np.ndarray:
    """Read an `.npy` file as an array, and never as an object."""
    stream: Any
    with archive.open(info) as stream:
        version = np.lib.format.read_magic(stream)
        if version not in ((1, 0), (2, 0)):
            raise FileFormatError(f"cannot load {location}: unknown version {version} of npy.")
        is_first = version == (1, 0)
        read_header = getattr(np.lib.format, f"read_array_header_{1 if is_first else 2}_0")
        shape, is_fortran, dtype = read_header(stream)
        if dtype.hasobject:
            raise FileFormatError(
                f"cannot load {location}: it holds pickled objects, which are never loaded."
            )
        size = info.file_size - stream.tell()
        if any(axis < 0 for axis in shape) or prod(shape) * dtype.itemsize != size:
            raise FileFormatError(
                f"cannot load {location}: {format_array(shape, str(dtype))} does not take {size} "
                "bytes."
            )
        row = empty(size)  # aligned, so that JAX takes it over without another copy
        stream.readinto(row.data)
    return row.view(dtype).reshape(shape, order="F" if is_fortran else "C")
