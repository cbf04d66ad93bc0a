"""Say in words how two nested values differ: which chains are missing, unexpected, or of another
shape.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from nbmodule.base.format import format_array
from nbmodule.base.paths import closest
from nbmodule.base.trees import ABSENT, paired

_LISTED = 10


def describe(value: object) -> str:
    """Write a value as dtype and shape where it has them, never with its elements.

    Example:
        >>> describe(jnp.ones((64, 3))), describe((2, 3)), describe("text"), describe(0.1)
        ('float32[64, 3]', '[2, 3]', 'str', 'float')
    """
    shape, dtype = shape_of(value), getattr(value, "dtype", None)
    if shape is None:
        return "None" if value is None else type(value).__name__
    return format_array(shape, "" if dtype is None else str(dtype))


def shape_of(value: object) -> tuple[Any, ...] | None:
    """Give the shape of an array or of a tuple that is one; None for what has no shape."""
    if isinstance(value, tuple) and all(
        size is None or isinstance(size, (int, np.integer)) for size in value
    ):
        return value
    shape = getattr(value, "shape", None)
    return shape if isinstance(shape, tuple) else None


def structure_difference(expected: Mapping[str, Any], actual: Mapping[str, Any]) -> str | None:
    """List the chains that are missing, unexpected, or of another shape; None if there are none.

    Args:
        expected: What should be there: from chain to anything with a shape, to a shape, or to None
            where only the chain counts.
        actual: What is there, in the same way.

    Example:
        >>> print(structure_difference({"b": (3,), "w": (3, 2)}, {"b": (4,), "weight": (3, 2)}))
        missing: "w"
        unexpected: "weight"
        of another shape: "b" is [4], not [3]
    """
    pairs = list(paired(expected, actual))
    missing = [name for name, _, there in pairs if there is ABSENT]
    unexpected = [name for name, requested, _ in pairs if requested is ABSENT]
    reshaped = [
        f'"{name}" is {describe(there)}, not {describe(requested)}'
        for name, requested, there in pairs
        if requested is not ABSENT
        and there is not ABSENT
        and requested is not None
        and shape_of(requested) != shape_of(there)
    ]
    lines = [
        _line("missing", [f'"{name}"{_meant(name, unexpected)}' for name in missing], len(missing)),
        _line("unexpected", [f'"{name}"' for name in unexpected], len(unexpected)),
        _line("of another shape", reshaped, len(reshaped)),
    ]
    return "\n".join(filter(None, lines)) or None


def _meant(name: str, unexpected: list[str]) -> str:
    """Point from a missing chain to the unexpected one that may be meant; not for one-letter names,
    which are all alike.
    """
    last = name.rsplit("/", 1)[-1]
    near = closest(name, unexpected) if len(last) > 2 or "/" in name else None
    return "" if near is None else f' (is it "{near}"?)'


def _line(title: str, items: Iterable[str], count: int) -> str:
    shown = ", ".join(list(items)[:_LISTED])
    more = f", … {count - _LISTED} more" if count > _LISTED else ""
    return f"{title}: {shown}{more}" if count else ""
