"""Leaves of a file as arrays of bytes and back, and the dtypes that a file can hold.

Leaves are NumPy and JAX arrays, random keys, numbers, text and None. Notes, which are attributes of
the dataset, keep what the bytes do not tell: that a number was a Python `int`, the generator of a
key.

Most dtypes are stored as in memory, little-endian, with an HDF5 type that any reader turns into
numbers. Integers of four bits, one byte each in memory, lie packed, the first element in the lowest
bits. Floats whose special values HDF5 would misread (those without infinities) lie as raw bits in
`uint8`; the attribute `dtype` names them.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from functools import cache
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from nbmodule.base.format import describe_shape
from nbmodule.errors import ArgumentError, ArgumentTypeError, DtypeError
from nbmodule.files.chains import unreadable

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
        raw: Whether the file shows it as `uint8`, with an attribute `dtype`.
    """

    name: str
    dtype: np.dtype
    bits: int
    raw: bool

    def nbytes(self, shape: tuple[int, ...]) -> int:
        """Bytes that an array of this shape takes in the file."""
        return (prod(shape) * self.bits + 7) // 8

    def stored_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Shape of the HDF5 dataset: packed elements are one row of bytes."""
        return shape if self.bits >= 8 else (self.nbytes(shape),)


@cache
def kinds() -> dict[str, Kind]:
    """All dtypes that a file can hold, by name.

    Example:
        >>> from nbmodule.files.stored_leaf import kinds
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
    """Return the bytes of an array as stored in the file, as one row of `uint8`; without a copy
    where possible.

    Example:
        >>> import ml_dtypes
        >>> from nbmodule.files.stored_leaf import kinds, to_bytes
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
        raise unreadable(
            location, "bytes of a bool array are neither 0 nor 1. The file is damaged."
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
        raise unreadable(location, f"no array can have the shape {shape}.") from error


TEXT, NOTHING, GROUP = "text", "none", "group"
MOST_AXES = 32
SCALARS = {"bool": bool, "int": int, "float": float, "complex": complex}


@dataclass(slots=True)
class StoredRow:
    """One leaf, or empty group, that is to be written or is stored in a file.

    Attributes:
        path: Spelled by `chains.escape`.
        dtype: Name of its kind, `text`, `none` or `group`.
        shape: Of the array.
        offset: Of its first byte in the file; 0 when it has none or is compressed.
        size: How many bytes it has when unpacked.
        crc: `zlib.crc32` of these bytes, None if unknown.
        notes: What the bytes do not tell.
        is_compressed: Whether HDF5 must unpack it.
        data: To be written: the array itself, still on its device, text as bytes, or rows that lie
            one after the other. Of a file: bytes that were fetched by other means.
        identity: The object that was given; two places that hold the same one share its bytes. None
            where that says nothing.
    """

    path: str
    dtype: str
    shape: tuple[int, ...] = ()
    offset: int = 0
    size: int = 0
    crc: int | None = None
    notes: dict[str, Any] = field(default_factory=dict)
    is_compressed: bool = False
    data: Any = None
    identity: Any = None

    @property
    def element(self) -> Kind:
        """The layout of its elements in the file."""
        return kinds()[self.dtype]

    def to_bytes(self) -> np.ndarray:
        """Fetch the bytes to write, as one row of `uint8`; the array comes from its device only
        now.
        """
        if isinstance(self.data, bytes):
            return np.frombuffer(self.data, np.uint8)
        if isinstance(self.data, list):
            return np.concatenate([row.to_bytes() for row in self.data])
        return to_bytes(to_host(self.data), self.element)


def to_host(array: object) -> np.ndarray:
    """The array in the memory of the host, as a view where it is there already.

    `np.asarray` alone would leave a second copy on the host for as long as the array lives.
    """
    if isinstance(array, jax.Array) and _platform(array) != "cpu" and array.is_fully_addressable:
        with contextlib.suppress(RuntimeError):  # JAX was told to do without the CPU
            array = jax.device_put(array, jax.local_devices(backend="cpu")[0])
    return np.asarray(array)


def _platform(array: jax.Array) -> str:
    return next(iter(array.devices())).platform


def describe_leaf(leaf: Any, path: str, dtype: np.dtype | None = None) -> StoredRow:
    """Return how a leaf is to be written.

    Args:
        leaf: Array, random key, number, text or None.
        path: Its place in the file.
        dtype: Cast arrays of floating point to this one.

    Raises:
        ArgumentTypeError: if a file cannot hold such a value.
        ArgumentError: if the array is gone, or not all of it is on this host.
        DtypeError: if a file cannot hold the dtype.
    """
    if leaf is None:
        return StoredRow(path, NOTHING, data=b"")
    if isinstance(leaf, str):
        text = leaf.encode("utf-8", "surrogatepass")
        return StoredRow(path, TEXT, size=len(text), data=text)
    if type(leaf) in SCALARS.values():
        array = np.asarray(leaf)
        if array.dtype == object:
            raise DtypeError(f'cannot save "/{path}": the integer has more than 64 bits.')
        notes = {"python": type(leaf).__name__}
        return StoredRow(path, array.dtype.name, size=array.nbytes, notes=notes, data=array)
    source, notes = as_array(leaf, path), {}
    if not isinstance(source, (jax.Array, np.ndarray)):
        raise ArgumentTypeError(
            f'cannot save "/{path}": expected an array, a number, text or None, got '
            f"{type(leaf).__name__}."
        )
    if not isinstance(source.dtype, np.dtype):
        notes["prng_impl"] = str(jax.random.key_impl(source))
        source = jax.random.key_data(source)
    element = kind_of(source.dtype)
    if element is None:
        raise DtypeError(
            f'cannot save "/{path}": files hold numbers, bools and random keys, and its dtype is '
            f"{source.dtype}."
        )
    if len(source.shape) > MOST_AXES:
        raise ArgumentError(
            f'cannot save "/{path}": it has {len(source.shape)} axes, and HDF5 knows at most '
            f"{MOST_AXES}."
        )
    if dtype is not None and jnp.issubdtype(element.dtype, jnp.floating) and element.dtype != dtype:
        element = kinds()[dtype.name]  # cast when it is written: one copy exists at a time
    size = element.nbytes(source.shape)
    return StoredRow(
        path, element.name, source.shape, size=size, notes=notes, data=source, identity=leaf
    )


def as_array(leaf: Any, path: str) -> Any:
    """Return the JAX or NumPy array of a leaf that is or holds one, and any other leaf unchanged.

    Raises:
        ArgumentTypeError: if it is being traced, or some of its values are masked.
        ArgumentError: if it was deleted, or not all of it is on this host.
    """
    if not isinstance(leaf, jax.Array) and hasattr(leaf, "__jax_array__"):
        leaf = leaf.__jax_array__()
    if not isinstance(leaf, jax.Array):
        if np.ma.is_masked(leaf):
            raise ArgumentTypeError(
                f'cannot save "/{path}": some of its values are masked, and a file holds no mask. '
                "x.filled(0) gives them a value."
            )
        return np.asarray(leaf) if hasattr(leaf, "__array__") else leaf
    if isinstance(leaf, Tracer):
        raise ArgumentTypeError(
            f'cannot save "/{path}": it is being traced and has no numbers yet. '
            "Save outside of jit, grad, vmap and scan."
        )
    if leaf.is_deleted():
        raise ArgumentError(
            f'cannot save "/{path}": the array was deleted, as donated arguments are. Save the '
            "array that the compiled call returned."
        )
    if leaf.is_fully_addressable:
        return leaf
    if leaf.is_fully_replicated:
        return leaf.addressable_data(0)
    raise ArgumentError(
        f'cannot save "/{path}": parts of it are on other hosts. Use `nbmodule.files.sharded`, '
        "with which each host writes its own part."
    )


def restore(row: StoredRow, data: np.ndarray, where: str) -> Any:
    """Make a leaf again of its bytes; the inverse of `describe_leaf` and `to_bytes`.

    Args:
        row: The leaf in the file; unknown notes are ignored.
        data: Its bytes, one row of `uint8`.
        where: The file, for errors.

    Raises:
        FileFormatError: if the bytes and notes do not fit together.
    """
    location = f'"/{row.path[:200]}" of {where}'
    if row.dtype == NOTHING:
        return None
    if row.dtype == TEXT:
        try:
            return data.tobytes().decode("utf-8", "surrogatepass")
        except UnicodeDecodeError as error:
            raise unreadable(location, "the text is not UTF-8.") from error
    array = from_bytes(data, row.element, row.shape, location)
    notes = row.notes
    if "prng_impl" in notes:
        return _restore_key(array, notes["prng_impl"], location)
    if "python" in notes:
        cls = SCALARS.get(str(notes["python"]))
        if cls is None or row.shape != ():
            raise unreadable(
                location, f"it is marked as a Python {notes['python']!r} but is not one."
            )
        return cls(array[()])
    return array


def _restore_key(array: np.ndarray, impl: object, location: str) -> Any:
    try:
        return jax.random.wrap_key_data(jnp.asarray(array), impl=str(impl))
    except (ValueError, TypeError) as error:
        raise unreadable(
            location, f"{describe_shape(array)} is not a random key of the kind {str(impl)[:40]!r}."
        ) from error
