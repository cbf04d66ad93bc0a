"""The values of an array as they are: as bytes for a page, as text for a reader; nothing is rounded
that could be told apart.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nbmodule.base.format import format_number, plain
from nbmodule.views.arrays.values import is_integer

SAFE = 1 << 53
"""Integers up to here are exact in 64 bits of floating point."""


def exact_bytes(x: np.ndarray) -> tuple[bytes, str]:
    """Write values little-endian in the smallest of a few types that holds each exactly.

    Args:
        x: Numbers of any type.

    Returns:
        The bytes, and the type: 'f4', 'f8', 'i8', 'u8', or 'c8' and 'c16', real and imaginary parts
        in turn.

    Example:
        >>> exact_bytes(np.array([16777217], 'int32'))[1], exact_bytes(np.array([1.5], 'float16'))[1]
        ('f8', 'f4')
    """
    kind = _type_of(x)
    return x.astype(f"<{kind}").tobytes(), kind


def _type_of(x: np.ndarray) -> str:
    size = x.dtype.itemsize
    if x.dtype.kind == "c":
        return "c8" if size <= 8 else "c16"
    if not is_integer(x.dtype):
        return "f4" if size <= 4 else "f8"
    if size <= 2:
        return "f4"
    if size <= 4 or not x.size or (int(x.max()) <= SAFE and int(x.min()) >= -SAFE):
        return "f8"
    return "u8" if x.dtype.kind == "u" else "i8"


def exact_text(v: Any) -> str:
    """Write one value with all the digits that tell it from its neighbors.

    Example:
        >>> exact_text(np.float32(0.1)), exact_text(np.int64(2**60)), exact_text(np.complex64(3 + 4j))
        ('0.1', '1152921504606846976', '3+4j (|x| 5 ∠ 53.1°)')
    """
    v = np.asarray(v)[()]
    if isinstance(v, str | bytes):
        return plain(v if isinstance(v, str) else repr(v), 200)
    if np.iscomplexobj(v):
        sign = "-" if np.signbit(v.imag) else "+"
        angle = format_number(float(np.angle(v, deg=True)), 3)
        return f"{_short(v.real)}{sign}{_short(abs(v.imag))}j (|x| {format_number(float(abs(v)))} ∠ {angle}°)"
    return _short(v)


def _short(v: Any) -> str:
    text = str(v)
    return text.removesuffix(".0") if text.endswith(".0") else text
