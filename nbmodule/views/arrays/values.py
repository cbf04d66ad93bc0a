"""What can be said about any leaf without reading it: is it an array, of what type, where does it
live, can it be read.

Looking never moves a device array to the host here, and never raises: a tracer, a deleted buffer or
a random key has a type and a reason why its values are not shown.
"""

from __future__ import annotations

import functools
import re
from typing import NamedTuple, cast

import jax
import jax.core
import jax.numpy
import numpy as np
from jax.sharding import Sharding
from jax.typing import DTypeLike

from nbmodule.base.format import format_array, plain


class Facts(NamedTuple):
    """The type and the place of one leaf."""

    kind: str
    shape: tuple[int, ...] | None
    dtype: str
    bytes: int
    device: str
    sharding: str | None
    unreadable: str | None
    """Why the values cannot be shown, or None."""

    @property
    def is_lost(self) -> bool:
        """Whether there were values once: a buffer that was deleted, rather than a key or a shape."""
        return bool(self.unreadable) and self.unreadable.startswith("deleted")

    @property
    def text(self) -> str:
        """The type, as `float32[64, 3]`."""
        return format_array(self.shape, self.dtype)


def is_array(x: object) -> bool:
    """Tell whether a value is an array of JAX or NumPy, or stands for one (a tracer, a shape
    without values).
    """
    return isinstance(x, jax.Array | np.ndarray | np.generic | jax.ShapeDtypeStruct)


def facts_of(x: object) -> Facts:
    """Say what a leaf is without reading its values.

    Example:
        >>> facts_of(np.zeros((2, 3), 'float32')).text, facts_of('adam').dtype
        ('float32[2, 3]', 'str')
    """
    if isinstance(x, jax.core.Tracer):
        return Facts(
            "array",
            x.shape,
            str(x.dtype),
            0,
            "",
            None,
            "traced: no values while a function is compiled",
        )
    if isinstance(x, jax.ShapeDtypeStruct):
        return Facts("array", x.shape, str(x.dtype), 0, "", None, "a shape without values")
    if isinstance(x, jax.Array):
        return _facts_of_jax(x)
    if isinstance(x, np.ndarray | np.generic):
        unreadable = (
            None
            if holds_numbers(x.dtype)
            else "objects, not numbers"
            if x.dtype.hasobject
            else "no numbers"
        )
        return Facts(
            "array", tuple(x.shape), _spelled(x.dtype), int(x.nbytes), "host", None, unreadable
        )
    return Facts(type(x).__name__, None, type(x).__name__, 0, "", None, None)


def holds_numbers(dtype: np.dtype) -> bool:
    """Tell whether a NumPy dtype, or one of the small floats and integers that JAX adds, is made of
    numbers.
    """
    return dtype.kind in "fiubc" or dtype.name.startswith(("float", "bfloat", "int", "uint"))


def is_integer(dtype: DTypeLike) -> bool:
    """Tell whether a dtype is an integer or a boolean, small integers of JAX included."""
    dtype = np.dtype(dtype)
    return dtype.kind in "iub" or dtype.name.startswith(("int", "uint"))


def _facts_of_jax(x: jax.Array) -> Facts:
    size = x.size * x.dtype.itemsize
    if x.is_deleted():
        return Facts(
            "array", x.shape, str(x.dtype), 0, "", None, "deleted: its buffer was donated or freed"
        )
    device, sharding = place_of(x.sharding)
    dtype, unreadable = _spelled(x.dtype), None
    if jax.numpy.issubdtype(x.dtype, jax.dtypes.prng_key):
        unreadable = "random key"
    elif not x.is_fully_addressable:
        unreadable = "spread over several hosts"
    return Facts("array", x.shape, dtype, size, device, sharding, unreadable)


@functools.lru_cache(256)
def _spelled(dtype: DTypeLike) -> str:
    """The name of a dtype; NumPy takes ten microseconds to spell one."""
    return {"U": "str", "S": "bytes"}.get(getattr(dtype, "kind", "")) or str(dtype)


@functools.lru_cache(512)
def place_of(sharding: Sharding | None) -> tuple[str, str | None]:
    """Name the devices of a sharding, and how the array is split over them (None on a single
    device).
    """
    if sharding is None:  # of what has a shape and no value
        return "no value", None
    devices = sorted(sharding.device_set, key=lambda d: d.id)
    first = f"{devices[0].platform}:{devices[0].id}"
    if len(devices) == 1:
        return first, None
    spec = getattr(sharding, "spec", None)
    split = f"{', '.join(map(str, spec))}" if spec is not None else type(sharding).__name__
    return f"{len(devices)} × {devices[0].platform}", "replicated" if not split.strip(
        "None, "
    ) else plain(split)


def readable_numbers(x: object) -> np.ndarray:
    """Give the values of a readable array as NumPy numbers: small floats and integers widened,
    complex as magnitude.

    An array on the CPU is not copied.
    """
    x = np.asarray(x)
    if x.dtype.kind == "c":
        x = _magnitudes(x)
    if x.dtype.kind in "fiub" and x.dtype.type.__module__ == "numpy":  # in any order of bytes
        kind = (
            np.float32
            if x.dtype.itemsize == 2 and x.dtype.kind == "f"
            else np.float64
            if x.dtype.itemsize > 8
            else x.dtype.type
        )
        return x.astype(kind, copy=False)
    if not holds_numbers(x.dtype):
        raise TypeError(f"{x.dtype} holds no numbers")
    return x.astype(np.int8 if is_integer(x.dtype) else np.float32)


def _magnitudes(x: np.ndarray) -> np.ndarray:
    """The sizes of complex numbers; in double precision where single has none for two large parts."""
    with np.errstate(over="ignore"):
        sizes = np.abs(x)
    return sizes if np.isfinite(sizes).all() else np.abs(x.astype(np.complex128))


def short_value(x: object) -> str:
    """Write a leaf that is no array, or one number, as one short line; never runs a long or failing
    `repr` to its end.
    """
    if isinstance(x, str):
        return plain(repr(x[:80] + "…" if len(x) > 80 else x), 100)
    if isinstance(x, bool | int | float | complex | type(None)):
        try:
            return plain(repr(x), 60)
        except ValueError:  # integers beyond 4300 digits
            return f"integer of {cast('int', x).bit_length()} bits"
    if isinstance(x, bytes | bytearray):
        return f"{len(x)} bytes"
    if callable(x):
        return plain(getattr(x, "__qualname__", type(x).__name__), 80)
    try:
        return plain(
            re.sub(r" at 0x[0-9a-f]+", "", repr(x)), 80
        )  # an address is another one in each run
    except Exception as error:  # noqa: BLE001 - a display never breaks the cell
        return f"repr raised {type(error).__name__}"
