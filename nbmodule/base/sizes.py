"""Amounts of memory, as people write them; `format.format_bytes` is the way back."""

from __future__ import annotations

import re

from nbmodule.errors import ArgumentError

_UNITS = {
    "": 1,
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KIB": 2**10,
    "MIB": 2**20,
    "GIB": 2**30,
    "TIB": 2**40,
}


def bytes_of(text: str | int | float) -> int:
    """Read an amount of memory.

    Example:
        >>> from nbmodule.base.sizes import bytes_of
        >>> bytes_of("256MB"), bytes_of("1.5 GiB"), bytes_of(1000)
        (256000000, 1610612736, 1000)
    """
    if isinstance(text, (int, float)) and not isinstance(text, bool) and text > 0:
        return int(text)
    found = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*([A-Za-z]*)\s*", text) if isinstance(text, str) else None
    if found is None or found[2].upper() not in _UNITS or not float(found[1]):
        raise ArgumentError(
            f"budget is an amount of memory, such as '256MB' or a number of bytes above zero; found {text!r}."
        )
    return int(float(found[1]) * _UNITS[found[2].upper()])
