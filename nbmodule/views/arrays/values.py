"""Arrays as metadata, statistics, NumPy numbers, exact bytes and text.

The metadata of a leaf need no computing. A leaf that cannot be read, as a tracer, a deleted buffer
or a random key, has a type and a reason. Statistics count every element; arrays in host memory
(also those of the CPU backend) are read in place, those of other devices are fetched together.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import Any, cast

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jax.sharding import Sharding
from jax.typing import DTypeLike

from nbmodule.base.format import format_number, plain
from nbmodule.base.statistics import Statistics, join_statistics, statistics_of_elements
from nbmodule.views.records.records import VariableRow

# Intervals of a histogram.
BINS = 32
# Integers up to here are exact in 64 bits of floating point.
EXACT_INTEGERS = 1 << 53


def is_array_like(x: object) -> bool:
    """Return True for arrays of JAX or NumPy and what stands for one (a tracer, a shape)."""
    return isinstance(x, jax.Array | np.ndarray | np.generic | jax.ShapeDtypeStruct)


def metadata_of(x: object) -> VariableRow:
    """Return the row of a leaf, without a path, and without reading its values.

    Example:
        >>> metadata_of(np.zeros((2, 3), "float32")).text, metadata_of("adam").dtype
        ('float32[2, 3]', 'str')
    """
    if not is_array_like(x):
        return VariableRow("", type(x).__name__, None, type(x).__name__)
    array = cast("Any", x)
    about = VariableRow("", "array", tuple(array.shape), _name_of(array.dtype))
    if isinstance(x, jax.core.Tracer):
        return about._replace(value="traced: no values while a function is compiled")
    if isinstance(x, jax.ShapeDtypeStruct):
        return about._replace(value="a shape without values")
    reason = None
    if not isinstance(x, jax.Array):
        if not holds_numbers(array.dtype):
            reason = "objects, not numbers" if array.dtype.hasobject else "no numbers"
        return about._replace(bytes=array.nbytes, device="host", value=reason)
    if x.is_deleted():
        return about._replace(error="deleted: its buffer was donated or freed")
    if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
        reason = "random key"
    elif not x.is_fully_addressable:
        reason = "spread over several hosts"
    device, split = placement_of(x.sharding)
    nbytes = x.size * x.dtype.itemsize
    return about._replace(bytes=nbytes, device=device, sharding=split, value=reason)


def holds_numbers(dtype: np.dtype) -> bool:
    """Return True for dtypes of numbers, the small floats and integers of JAX included."""
    return dtype.kind in "fiubc" or dtype.name.startswith(("float", "bfloat", "int", "uint"))


def holds_texts(x: object) -> bool:
    """Return True for an array of texts."""
    return getattr(getattr(x, "dtype", None), "kind", "") in ("U", "S")


def is_integer(dtype: DTypeLike) -> bool:
    """Return True for integers and booleans, the small integers of JAX included."""
    dtype = np.dtype(dtype)
    return dtype.kind in "iub" or dtype.name.startswith(("int", "uint"))


@functools.lru_cache(256)
def _name_of(dtype: DTypeLike) -> str:
    """Return the name of a dtype; NumPy needs ten microseconds to write one."""
    return {"U": "str", "S": "bytes"}.get(getattr(dtype, "kind", "")) or str(dtype)


@functools.lru_cache(512)
def placement_of(sharding: Sharding | None) -> tuple[str, str | None]:
    """Name the devices of a sharding, and how the array is split (None on a single device)."""
    if sharding is None:  # of what has a shape and no value
        return "no value", None
    devices = sorted(sharding.device_set, key=lambda device: device.id)
    if len(devices) == 1:
        return f"{devices[0].platform}:{devices[0].id}", None
    spec = getattr(sharding, "spec", None)
    split = ", ".join(map(str, spec)) if spec is not None else type(sharding).__name__
    split = plain(split) if split.strip("None, ") else "replicated"
    return f"{len(devices)} × {devices[0].platform}", split


def readable_numbers(x: object) -> np.ndarray:
    """Return the values as NumPy numbers: small types widened, complex numbers as magnitudes.

    An array on the CPU is not copied.

    Raises:
        TypeError: The dtype holds no numbers.
    """
    x = np.asarray(x)
    if x.dtype.kind == "c":
        x = _magnitudes(x)
    if not holds_numbers(x.dtype):
        raise TypeError(f"{x.dtype} holds no numbers")
    if x.dtype.kind not in "fiub" or x.dtype.type.__module__ != "numpy":
        return x.astype(np.int8 if is_integer(x.dtype) else np.float32)
    if x.dtype == np.float16:
        return x.astype(np.float32)
    if x.dtype.itemsize > 8:
        return x.astype(np.float64)
    return x.astype(x.dtype.newbyteorder("="), copy=False)


def _magnitudes(x: np.ndarray) -> np.ndarray:
    """Return |x|, in double precision where single precision overflows."""
    with np.errstate(over="ignore"):
        sizes = np.abs(x)
    return sizes if np.isfinite(sizes).all() else np.abs(x.astype(np.complex128))


def statistics_of(arrays: Sequence[Any]) -> list[Statistics | None]:
    """Reduce each array to its statistics; None where there are no numbers to read.

    Example:
        >>> (s,) = statistics_of([np.array([1.0, 3.0, np.nan], "float32")])
        >>> s.mean, s.std, s.min, s.max, s.nan
        (2.0, 1.0, 1.0, 3.0, 1)
    """
    readable = [x for x in arrays if metadata_of(x).is_readable]
    fetched = iter(jax.device_get(readable))
    return [
        statistics_of_elements(readable_numbers(next(fetched)), BINS, places=True)
        if metadata_of(x).is_readable
        else None
        for x in arrays
    ]


def union_of(parts: Sequence[Statistics]) -> Statistics | None:
    """Join the statistics of several arrays, as of one; None if none has an element."""
    parts = [part for part in parts if part.size]
    return join_statistics(parts) if parts else None


def short_value(x: object) -> str:
    """Write a leaf that is no array as one short line; a failing `repr` is not raised."""
    if isinstance(x, bytes | bytearray):
        return f"{len(x)} bytes"
    try:
        text = repr(x[:80] + "…" if isinstance(x, str) and len(x) > 80 else x)
    except Exception as error:  # noqa: BLE001 - a display never breaks the cell
        return f"repr raised {type(error).__name__}"
    return plain(re.sub(r" at 0x[0-9a-f]+", "", text), 80)  # an address differs per run


def exact_bytes(x: np.ndarray) -> tuple[bytes, str]:
    """Write values little-endian in the smallest of a few types that holds each exactly.

    Args:
        x: Numbers of any type.

    Returns:
        The bytes, and the type: 'f4', 'f8', 'i8', 'u8', or 'c8' and 'c16', real and imaginary
        parts in turn.

    Example:
        >>> (
        ...     exact_bytes(np.array([16777217], "int32"))[1],
        ...     exact_bytes(np.array([1.5], "float16"))[1],
        ... )
        ('f8', 'f4')
    """
    code = _exact_type(x)
    return x.astype(f"<{code}").tobytes(), code


def _exact_type(x: np.ndarray) -> str:
    size = x.dtype.itemsize
    if x.dtype.kind == "c":
        return "c8" if size <= 8 else "c16"
    if size <= 2 or (size <= 4 and not is_integer(x.dtype)):
        return "f4"
    if size <= 4 or not is_integer(x.dtype) or not x.size:
        return "f8"
    if int(x.min()) >= -EXACT_INTEGERS and int(x.max()) <= EXACT_INTEGERS:
        return "f8"
    return "u8" if x.dtype.kind == "u" else "i8"


def exact_text(v: Any) -> str:
    """Write one value with all the digits that tell it from its neighbors.

    Example:
        >>> exact_text(np.float32(0.1)), exact_text(np.complex64(3 + 4j))
        ('0.1', '3+4j (|x| 5 ∠ 53.1°)')
    """
    v = np.asarray(v)[()]
    if not np.iscomplexobj(v):
        return str(v).removesuffix(".0")
    sign = "-" if np.signbit(v.imag) else "+"
    real, imaginary = (str(part).removesuffix(".0") for part in (v.real, abs(v.imag)))
    angle = format_number(float(np.angle(v, deg=True)), 3)
    return f"{real}{sign}{imaginary}j (|x| {format_number(float(abs(v)))} ∠ {angle}°)"
