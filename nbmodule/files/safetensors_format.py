"""The safetensors format: eight bytes of length, a header in JSON, the bytes of all arrays. Read and written without a package.

Names such as `encoder.0.weight` become levels, and levels become such names.
Source: https://github.com/huggingface/safetensors, section "Format".
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from io import FileIO
from math import prod
from typing import Any

from nbmodule.base.whole_file import whole_file
from nbmodule.errors import ArgumentError, ArgumentTypeError, DtypeError, FileFormatError
from nbmodule.files.bounded_json import dump_json, parse_json
from nbmodule.files.chains import EMPTY, escape, flatten, unescape
from nbmodule.files.leaves import StoredLeaf, describe
from nbmodule.files.seal import MOST_ARRAYS, SealedRow, check_count, check_row, read_at

# The format's name of each dtype.
NAMES = {
    "bool": "BOOL",
    "uint8": "U8",
    "int8": "I8",
    "uint16": "U16",
    "int16": "I16",
    "uint32": "U32",
    "int32": "I32",
    "uint64": "U64",
    "int64": "I64",
    "float16": "F16",
    "bfloat16": "BF16",
    "float32": "F32",
    "float64": "F64",
    "complex64": "C64",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "float8_e8m0fnu": "F8_E8M0",
    "float8_e4m3fnuz": "F8_E4M3FNUZ",
    "float8_e5m2fnuz": "F8_E5M2FNUZ",
    "float4_e2m1fn": "F4",
}
_DTYPES = {name: dtype for dtype, name in NAMES.items()}
_MOST_HEADER = 100_000_000  # the limit of the format itself


def is_safetensors(file: FileIO) -> bool:
    """Whether a file begins as a safetensors file does."""
    head = read_at(file, 0, 9)
    return (
        len(head) == 9 and head[8:] == b"{" and 8 + struct.unpack("<Q", head[:8])[0] <= os.fstat(file.fileno()).st_size
    )


def read_safetensors(file: FileIO, where: str) -> tuple[list[SealedRow], Any]:
    """List the arrays of a safetensors file, and its metadata.

    Raises:
        FileFormatError: if the header is damaged, lists more than 100,000 arrays or one of them twice, or if the arrays' bytes
            overlap, leave holes, or would lie outside of the file.
    """
    size = os.fstat(file.fileno()).st_size
    (length,) = struct.unpack("<Q", read_at(file, 0, 8))
    if length > _MOST_HEADER:
        raise FileFormatError(f"cannot load {where}: a header of {length} bytes is longer than the format allows.")
    text = read_at(file, 8, length)
    check_count(text.count(b'"data_offsets"'), where)  # before there is an object for each
    header = parse_json(text, f"the header of {where}", unique=True)
    if not isinstance(header, dict):
        raise FileFormatError(f"cannot load {where}: its header lists no arrays.")
    metadata = header.pop("__metadata__", None)
    check_count(len(header), where)
    rows = [_row(name, entry, 8 + length, size, where) for name, entry in header.items()]
    _check_whole(rows, 8 + length, size, where)
    return rows, metadata


def _check_whole(rows: list[SealedRow], begin: int, size: int, where: str) -> None:
    """The bytes behind the header belong to one array each, as the format wants it."""
    at = begin
    for row in sorted(rows, key=lambda row: (row.offset, row.size)):
        if row.offset != at:
            what = "overlaps the array before it" if row.offset < at else f"leaves a hole of {row.offset - at} bytes"
            raise FileFormatError(f'cannot load "/{row.path[:200]}" of {where}: it {what}, which the format forbids.')
        at += row.size
    if at != size:
        raise FileFormatError(
            f"cannot load {where}: {size - at} bytes at its end belong to no array, which the format forbids."
        )


def _row(name: str, entry: Any, begin: int, size: int, where: str) -> SealedRow:
    place = f'"{name[:200]}" of {where}'
    try:
        dtype, (first, last) = _DTYPES.get(entry["dtype"]), entry["data_offsets"]
        if first < 0:
            raise ValueError("an array would lie in the header")
        row = {"dtype": dtype, "shape": entry["shape"], "offset": begin + first, "size": last - first}
    except (TypeError, KeyError, ValueError) as error:
        raise FileFormatError(f"cannot load {place}: its entry in the header is damaged.") from error
    if dtype is None:
        raise FileFormatError(f"cannot load {place}: unknown dtype {str(entry['dtype'])[:40]!r}.")
    path = "/".join(escape(part, at_root=not level) for level, part in enumerate(name.split(".")))
    return check_row(row | {"path": path}, size, where)


def save_safetensors(
    path: str | os.PathLike[str], variables: Mapping[str, Any], *, metadata: Mapping[str, str] | None = None
) -> None:
    """Write nested arrays as a safetensors file, which appears whole or not at all.

    Levels become names such as `encoder.0.weight`; empty levels are left out.

    Args:
        path: Of the file; folders that are missing are made.
        variables: Nested mappings of arrays and numbers.
        metadata: Text by name.

    Raises:
        FileWriteError: if the file cannot be written; what was there is unchanged.
        DtypeError: if the format has no such dtype.
        ArgumentError: if a name contains a dot, which would become a level.

    Example:
        >>> import os, tempfile
        >>> from nbmodule.files import read, save_safetensors
        >>> path = os.path.join(tempfile.mkdtemp(), "w.safetensors")
        >>> save_safetensors(path, {"linear": {"weight": np.ones((2, 3), np.float32)}})
        >>> read(path).variables["linear"]["weight"].shape
        (2, 3)
    """
    leaves = sorted(
        _leaves(variables), key=lambda item: (-item[1].kind.bits, item[0])
    )  # wide ones first keeps all aligned
    if len(leaves) > MOST_ARRAYS:
        raise ArgumentError(
            f"cannot save {len(leaves):,} arrays as safetensors: at most {MOST_ARRAYS:,} are read again. Nothing was written. `nb.save` "
            "takes any number."
        )
    header: dict[str, Any] = {}
    if metadata is not None:
        if not all(isinstance(text, str) for item in metadata.items() for text in item):
            raise ArgumentTypeError(
                "cannot save the metadata: safetensors files hold text by name. Nothing was written."
            )
        header["__metadata__"] = {_spelled(name): _spelled(text) for name, text in metadata.items()}
    at = 0
    for name, leaf in leaves:
        header[name] = {"dtype": NAMES[leaf.dtype], "shape": leaf.shape, "data_offsets": [at, at + leaf.nbytes]}
        at += leaf.nbytes
    text = dump_json(header, "the header")
    text += b" " * (-len(text) % 8)
    with whole_file(path) as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, leaf in leaves:
            file.write(leaf.data().data)


def _spelled(text: str) -> str:
    """The text, if it can be written as UTF-8, which the format's header is."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ArgumentError(
            f"cannot save {text[:200]!r} as safetensors: it holds half of a character (a lone surrogate), which other programs refuse. "
            "Nothing was written."
        ) from None
    return text


def _leaves(variables: Mapping[str, Any]) -> list[tuple[str, StoredLeaf]]:
    found = []
    for path, value in flatten(variables, what="variables"):
        if value is EMPTY:
            continue
        leaf, parts = describe(value, path), [unescape(part) for part in path.split("/")]
        dtype = leaf.notes.get("prng_impl", leaf.dtype)
        if dtype not in NAMES:
            raise DtypeError(f'cannot save "/{path}" as safetensors: the format has no {dtype}. Nothing was written.')
        if any("." in part for part in parts):
            raise ArgumentError(
                f'cannot save "/{path}": safetensors takes a dot for the end of a level. Nothing was written.'
            )
        if leaf.kind.bits * prod(leaf.shape) % 8:
            raise DtypeError(
                f'cannot save "/{path}" as safetensors: the format wants whole bytes, and {prod(leaf.shape)} numbers of '
                f"{leaf.kind.bits} bits are none. Nothing was written."
            )
        found.append((_spelled(".".join(parts)), leaf))
    return found
