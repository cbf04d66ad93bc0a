"""The dtypes that a file can hold, and their byte layouts.

Most lie as in memory, little-endian, with an HDF5 type that any reader turns into numbers. Integers
and floats of fewer than eight bits, one byte each in memory, lie packed, the first element in the
lowest bits. Floats whose special values HDF5 would misread (those without infinities) lie as raw
bits in `uint8`; the attribute `dtype` names them.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cache
from math import prod

import numpy as np

from nbmodule.errors import FileFormatError

PLAIN = (
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "float32",
    "float64",
    "complex64",
    "complex128",
)
# Exponent and mantissa bits of the floats that are made like IEEE's, so that HDF5's own float type
# says all about them.
IEEE_LIKE = {
    "bfloat16": (8, 7),
    "float8_e5m2": (5, 2),
    "float8_e4m3": (4, 3),
    "float8_e3m4": (3, 4),
}
HALF_COMPLEX = {"complex32": "float16", "bcomplex32": "bfloat16"}
RAW = (
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e4m3b11fnuz",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
    "float6_e2m3fn",
    "float6_e3m2fn",
)
PACKED_BITS = {
    "int4": 4,
    "uint4": 4,
    "int2": 2,
    "uint2": 2,
    "int1": 1,
    "uint1": 1,
    "float4_e2m1fn": 4,
}


@dataclass(frozen=True, slots=True)
class Kind:
    """One dtype that a file can hold.

    Attributes:
        name: As NumPy and JAX print it.
        dtype: In memory.
        bits: Of one element in the file.
        raw: Whether the file shows it as `uint8` beside an attribute `dtype`.
    """

    name: str
    dtype: np.dtype
    bits: int
    raw: bool

    def nbytes(self, shape: tuple[int, ...]) -> int:
        """Bytes that an array of this shape takes in the file."""
        return (prod(shape) * self.bits + 7) // 8

    def stored_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Shape of the HDF5 dataset: packed elements lie in one row of bytes."""
        return shape if self.bits >= 8 else (self.nbytes(shape),)


@cache
def kinds() -> dict[str, Kind]:
    """All dtypes that a file can hold, by name; those that the installed `ml_dtypes` lacks are left
    out.

    Example:
        >>> from nbmodule.files.dtypes import kinds
        >>> kinds()["int4"].nbytes((3, 3))
        5
    """
    import ml_dtypes

    table = {
        name: Kind(name, np.dtype(name), 8 * np.dtype(name).itemsize, raw=False) for name in PLAIN
    }
    for name in (*IEEE_LIKE, *HALF_COMPLEX, *RAW, *PACKED_BITS):
        if hasattr(ml_dtypes, name):
            dtype = np.dtype(getattr(ml_dtypes, name))
            raw = name in RAW or name in PACKED_BITS
            table[name] = Kind(name, dtype, PACKED_BITS.get(name, 8 * dtype.itemsize), raw)
    return table


@cache
def kind_of(dtype: np.dtype) -> Kind | None:
    """The kind of a NumPy dtype in any byte order, None if no file can hold it."""
    return kinds().get(dtype.name)


def to_bytes(array: np.ndarray, element: Kind) -> np.ndarray:
    """Give the bytes of an array as they lie in the file, as one row of `uint8`; without a copy
    where possible.

    Example:
        >>> import ml_dtypes
        >>> from nbmodule.files.dtypes import kinds, to_bytes
        >>> to_bytes(np.array([1, -1, 7], ml_dtypes.int4), kinds()["int4"])
        array([241,   7], dtype=uint8)
    """
    if array.dtype != element.dtype:
        array = array.astype(element.dtype)
    flat = np.ascontiguousarray(array).reshape(-1)
    if element.bits < 8:
        return _pack(flat.view(np.uint8), element.bits)
    return _swapped(flat).view(np.uint8)


def from_bytes(row: np.ndarray, element: Kind, shape: tuple[int, ...], location: str) -> np.ndarray:
    """View bytes from a file as an array; without a copy where possible.

    Args:
        row: One row of `uint8`, just as long as the array needs.
        element: What the bytes are.
        shape: Of the array.
        location: File and chain, for errors.

    Raises:
        FileFormatError: if the bytes mean nothing in this dtype, or no array can have the shape.
    """
    try:
        if element.bits < 8:
            return _unpack(row, element, prod(shape)).reshape(shape)
        if element.name == "bool" and row.size and row.max() > 1:
            raise FileFormatError(
                f"cannot load {location}: bytes of a bool array are neither 0 nor 1. The file is "
                "damaged."
            )
        if not row.size:
            return np.empty(shape, element.dtype)
        flat = row.view(element.dtype)
        return _swapped(flat if flat.flags.aligned else row.copy().view(element.dtype)).reshape(
            shape
        )
    except ValueError as error:
        if isinstance(error, FileFormatError):
            raise
        raise FileFormatError(
            f"cannot load {location}: no array can have the shape {shape}."
        ) from error


def _swapped(flat: np.ndarray) -> np.ndarray:
    """Bytes in a file are little-endian; on other machines the parts of each number are turned
    around.
    """
    if sys.byteorder == "little":
        return flat
    width = flat.itemsize // 2 if "complex" in flat.dtype.name else flat.itemsize
    return flat.view(f"u{width}").byteswap().view(flat.dtype)


def _pack(values: np.ndarray, bits: int) -> np.ndarray:
    per_byte = 8 // bits
    padded = np.zeros(-(-values.size // per_byte) * per_byte, np.uint8)
    padded[: values.size] = values & ((1 << bits) - 1)
    parts = padded.reshape(-1, per_byte)
    out = parts[:, 0].copy()
    for position in range(1, per_byte):
        out |= parts[:, position] << (bits * position)
    return out


def _unpack(row: np.ndarray, element: Kind, size: int) -> np.ndarray:
    per_byte = 8 // element.bits
    shifts = np.arange(per_byte, dtype=np.uint8) * element.bits
    values = ((row[:, None] >> shifts) & ((1 << element.bits) - 1)).reshape(-1)[:size]
    if element.name.startswith("int"):  # the top bit is the sign
        sign = np.uint8(1 << (element.bits - 1))
        return ((values ^ sign) - sign).view(np.int8).astype(element.dtype)
    return (
        values.view(element.dtype)
        if element.name.startswith("float")
        else values.astype(element.dtype)
    )
