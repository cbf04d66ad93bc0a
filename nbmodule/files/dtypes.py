"""The dtypes that a file can hold, and their byte layouts.

Most lie as in memory, little-endian, with an HDF5 type that any reader turns into numbers. Integers
of four bits, one byte each in memory, lie packed, the first element in the lowest bits. Floats
whose special values HDF5 would misread (those without infinities) lie as raw bits in `uint8`; the
attribute `dtype` names them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import prod

import numpy as np

from nbmodule.errors import FileFormatError

_PLAIN = (
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 "
    "complex128"
)
# Exponent and mantissa bits of the floats that are made like IEEE's, so that HDF5's own float type
# says all about them.
IEEE_LIKE = {
    "bfloat16": (8, 7),
    "float8_e5m2": (5, 2),
    "float8_e4m3": (4, 3),
    "float8_e3m4": (3, 4),
}
_RAW = "float8_e4m3fn float8_e4m3fnuz float8_e4m3b11fnuz float8_e5m2fnuz float8_e8m0fnu"
_FOUR_BITS = "int4 uint4"


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
    """All dtypes that a file can hold, by name.

    Example:
        >>> from nbmodule.files.dtypes import kinds
        >>> kinds()["int4"].nbytes((3, 3))
        5
    """
    import ml_dtypes  # noqa: F401  (makes its dtypes known to NumPy)

    raw = {*_RAW.split(), *_FOUR_BITS.split()}
    table = {}
    for name in (*_PLAIN.split(), *IEEE_LIKE, *sorted(raw)):
        dtype = np.dtype(name)
        bits = 4 if name in _FOUR_BITS.split() else 8 * dtype.itemsize
        table[name] = Kind(name, dtype, bits, name in raw)
    return table


@cache
def kind_of(dtype: np.dtype) -> Kind | None:
    """The kind of a NumPy dtype in any byte order, None if no file can hold it."""
    return kinds().get(dtype.name)


def to_bytes(array: np.ndarray, element: Kind) -> np.ndarray:
    """Return the bytes of an array as they lie in the file, as one row of `uint8`; without a copy
    where possible.

    Example:
        >>> import ml_dtypes
        >>> from nbmodule.files.dtypes import kinds, to_bytes
        >>> to_bytes(np.array([1, -1, 7], ml_dtypes.int4), kinds()["int4"])
        array([241,   7], dtype=uint8)
    """
    if array.dtype != element.dtype:
        array = array.astype(element.dtype)
    row = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    if element.bits == 8 * element.dtype.itemsize:
        return row
    padded = np.append(row & 15, np.zeros(row.size % 2, np.uint8))
    return padded[::2] | padded[1::2] << 4


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
    if element.name == "bool" and row.size and row.max() > 1:
        raise FileFormatError(
            f"cannot load {location}: bytes of a bool array are neither 0 nor 1. The file is "
            "damaged."
        )
    if element.bits < 8:
        row = np.stack([row & 15, row >> 4], axis=1).reshape(-1)[: prod(shape)]
        if element.name == "int4":  # the top bit is the sign
            row = ((row ^ 8) - 8).view(np.int8)
        flat = row.astype(element.dtype)
    else:
        flat = row.view(element.dtype)
    try:
        return (flat if flat.flags.aligned else flat.copy()).reshape(shape)
    except ValueError as error:
        raise FileFormatError(
            f"cannot load {location}: no array can have the shape {shape}."
        ) from error
