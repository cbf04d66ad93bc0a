"""JSON in files: what is read is bounded in memory and depth, and what is written stays within the
same bounds.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from nbmodule.errors import ArgumentError, ArgumentTypeError, FileFormatError

# A Python object made by the parser takes about 100 bytes, and each is announced by one of these
# signs.
_SIGNS, _MOST_OBJECTS, _MOST_BYTES = b",:[{", 5_000_000, 1 << 28


def parse_json(text: bytes, location: str, *, unique: bool = False) -> Any:
    """Parse JSON that may be damaged or hostile.

    Args:
        text: UTF-8.
        location: File and part, for errors.
        unique: Whether a key that stands twice in one object is an error; else the last one counts.

    Raises:
        FileFormatError: if it is no JSON, is nested too deeply, or would take more than about half
            a gigabyte.

    Example:
        >>> from nbmodule.base.bounded_json import parse_json
        >>> parse_json(b'{"step": 3}', "the example")
        {'step': 3}
    """
    if not _is_bounded(text):
        raise FileFormatError(
            f"cannot read {location}: {len(text)} bytes of JSON are more than allowed here."
        )
    try:
        return json.loads(text, object_pairs_hook=_unique if unique else None)
    except (ValueError, RecursionError) as error:
        raise FileFormatError(
            f"cannot read {location}: it is not JSON ({str(error)[:120]}). The file is damaged."
        ) from error


_PLAIN = frozenset({str, int, float, bool, type(None)})


def dump_json(value: object, what: str) -> bytes:
    """Spell a value as JSON that `parse_json` takes.

    Args:
        value: Dicts with text keys, lists, text, numbers, bools and None. Arrays without axes are
            written as their number.
        what: What it is called in an error.

    Raises:
        ArgumentTypeError: if JSON has no such value.
        ArgumentError: if the text would be too large to be read again.

    Example:
        >>> from nbmodule.base.bounded_json import dump_json
        >>> dump_json({"step": 3}, "extra")
        b'{"step":3}'
    """
    try:
        _check_keys(value)
        text = json.dumps(
            value, separators=(",", ":"), check_circular=False, default=_number
        ).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ArgumentTypeError(
            f"cannot save {what}: expected JSON values (dicts with str keys, lists, str, numbers, "
            f"True, False, None) or NumPy or JAX scalars; {str(error)[:200]}."
        ) from error
    if not _is_bounded(text):
        raise ArgumentError(
            f"cannot save {what}: {len(text)} bytes of JSON are more than can be read again."
        )
    return text


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for key, value in pairs:
        if key in members:
            raise ValueError(f"the key {key[:40]!r} stands twice")
        members[key] = value
    return members


def _number(value: Any) -> Any:
    """A scalar of NumPy or JAX, or a variable without axes, as a Python number."""
    if not hasattr(value, "item") or getattr(value, "shape", None) != ():
        shape = getattr(value, "shape", None)
        fix = "" if shape is None else f" of shape {list(shape)}; `x.tolist()` makes lists of it"
        raise TypeError(f"found {type(value).__name__}{fix}")
    number = value.item()
    if not isinstance(number, (bool, int, float)):
        raise TypeError(f"got a scalar of {value.dtype}")
    return number


def _check_keys(value: object) -> None:
    """`json.dumps` would turn the key 1 into "1" without a word, and a tuple into a list is all
    that we let pass.
    """
    items: Iterable[Any] = value if isinstance(value, (list, tuple)) else ()
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"got a dict with the key {key!r}")
        items = value.values()
    for item in items:
        if type(item) not in _PLAIN:  # most are: an index of many arrays is long
            _check_keys(item)


def _is_bounded(text: bytes) -> bool:
    return len(text) <= _MOST_BYTES and sum(text.count(sign) for sign in _SIGNS) <= _MOST_OBJECTS
