"""The safetensors format, through the package `safetensors`.

Names such as `encoder.0.weight` become levels, and levels become such names. The package checks the
header; what it may cost to read one is bounded here first. The bytes of arrays are read, or mapped,
where the header says that they are.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from io import FileIO
from typing import Any

from nbmodule.base.bounded_json import parse_json
from nbmodule.base.whole_file import whole_file
from nbmodule.errors import ArgumentError, ArgumentTypeError, DtypeError
from nbmodule.files.chains import EMPTY, escape_levels, flatten_levels, unescape, unreadable
from nbmodule.files.checksums import MOST_ARRAYS, check_count, read_at
from nbmodule.files.stored_leaf import StoredRow, describe_leaf, kinds

# The format's name of each dtype.
_DTYPES = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "U16": "uint16",
    "I16": "int16",
    "U32": "uint32",
    "I32": "int32",
    "U64": "uint64",
    "I64": "int64",
    "F16": "float16",
    "BF16": "bfloat16",
    "F32": "float32",
    "F64": "float64",
    "C64": "complex64",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "F8_E8M0": "float8_e8m0fnu",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
}
_MOST_HEADER = 100_000_000  # bytes; the limit of the format itself


def is_safetensors(file: FileIO) -> bool:
    """Return True if a file begins as a safetensors file does."""
    head = read_at(file, 0, 9)
    return (
        len(head) == 9
        and head[8:] == b"{"
        and 8 + struct.unpack("<Q", head[:8])[0] <= os.fstat(file.fileno()).st_size
    )


def read_safetensors(file: FileIO, where: str) -> tuple[list[StoredRow], Any]:
    """List the arrays of a safetensors file, and its metadata.

    Raises:
        FileFormatError: If the header is damaged or lists more than 100,000 arrays, or if the bytes
            of arrays overlap, leave holes, or are outside of the file.
    """
    from safetensors import SafetensorError, safe_open

    (length,) = struct.unpack("<Q", read_at(file, 0, 8))
    if length > _MOST_HEADER:
        raise unreadable(where, f"a header of {length} bytes is longer than the format allows.")
    text = read_at(file, 8, length)
    check_count(text.count(b'"data_offsets"'), where)  # before there is an object for each
    parse_json(text, f"the header of {where}", unique=True)  # the package takes the last of two
    rows, at = [], 8 + length
    try:
        with safe_open(where, framework="numpy") as arrays:
            metadata = arrays.metadata()
            for name in arrays.offset_keys():  # in the order of their bytes, without holes
                array = arrays.get_slice(name)
                dtype, shape = array.get_dtype(), tuple(array.get_shape())
                if dtype not in _DTYPES:
                    raise unreadable(f'"{name[:200]}" of {where}', f"unknown dtype {dtype!r}.")
                size = kinds()[_DTYPES[dtype]].nbytes(shape)
                path = escape_levels(name.split("."))
                rows.append(StoredRow(path, _DTYPES[dtype], shape, at, size))
                at += size
    except (SafetensorError, OverflowError, UnicodeError) as error:
        raise unreadable(where, f"it is damaged (safetensors says: {str(error)[:200]}).") from error
    return rows, metadata


def save_safetensors(
    path: str | os.PathLike[str],
    variables: Mapping[str, Any],
    *,
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write nested arrays as a safetensors file, atomically.

    Levels become names such as `encoder.0.weight`; empty levels are left out. Meanwhile the arrays
    take their memory twice.

    Args:
        path: Of the file; folders that are missing are made.
        variables: Nested mappings of arrays and numbers.
        metadata: Text by name.

    Raises:
        FileWriteError: If the file cannot be written; the older file is unchanged.
        DtypeError: If the format has no such dtype.
        ArgumentError: If a name contains a dot, which would become a level.

    Example:
        >>> import os, tempfile
        >>> from nbmodule.files import read, save_safetensors
        >>> path = os.path.join(tempfile.mkdtemp(), "w.safetensors")
        >>> save_safetensors(path, {"linear": {"weight": np.ones((2, 3), np.float32)}})
        >>> read(path).variables["linear"]["weight"].shape
        (2, 3)
    """
    from safetensors import TensorSpec, serialize

    leaves = _leaves(variables)
    if len(leaves) > MOST_ARRAYS:
        raise ArgumentError(
            f"cannot save {len(leaves):,} arrays as safetensors: at most {MOST_ARRAYS:,} are read "
            "again. `nb.save` takes any number."
        )
    if not all(isinstance(text, str) for item in (metadata or {}).items() for text in item):
        raise ArgumentTypeError("cannot save the metadata: safetensors files hold text by name.")
    data = {name: leaf.to_bytes() for name, leaf in leaves}  # alive until everything is written
    specs = {
        name: TensorSpec(
            dtype=leaf.dtype, shape=leaf.shape, data_ptr=data[name].ctypes.data, data_len=leaf.size
        )
        for name, leaf in leaves
    }
    with whole_file(path) as file:
        file.write(serialize(specs, metadata))


def _leaves(variables: Mapping[str, Any]) -> list[tuple[str, StoredRow]]:
    leaves = []
    for path, value in flatten_levels(variables, what="variables"):
        if value is EMPTY:
            continue
        leaf, parts = describe_leaf(value, path), [unescape(part) for part in path.split("/")]
        dtype = leaf.notes.get("prng_impl", leaf.dtype)
        if dtype not in _DTYPES.values():
            raise DtypeError(f'cannot save "/{path}" as safetensors: the format has no {dtype}.')
        if any("." in part for part in parts):
            raise ArgumentError(
                f'cannot save "/{path}": safetensors uses a dot to separate levels. '
            )
        leaves.append((".".join(parts), leaf))
    return leaves
