"""What a user gives to a Container: mappings of any kind, keys of any type, chains as keys.

A key with `/` or `.` is a key chain and makes levels: `{"b/c": 1}` is `{"b": {"c": 1}}`. Other keys
count by their text. Two entries that would come to lie in one place are an error, never a silent
loss.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from nbmodule.errors import StructureError
from nbmodule.tree.settings import Settings

_IS_MAPPING: dict[type, bool] = {}


def is_mapping(value: object) -> bool:
    """Tell whether a value is a dict or another mapping; the answer is remembered for each type."""
    cls = type(value)
    result = _IS_MAPPING.get(cls)
    if result is None:
        result = _IS_MAPPING[cls] = issubclass(cls, Mapping)
    return result


def as_mapping(value: Any, settings: Settings) -> Mapping[Any, Any] | None:
    """Give the mapping that a value stands for, or None; sequences of the nested types become
    `it_0`, `it_1`, ...
    """
    if is_mapping(value):
        return value
    if settings.types_to_iteratively_nest and isinstance(value, settings.types_to_iteratively_nest):
        items = list(value)
        digits = len(str(max(len(items) - 1, 0)))
        return {f"it_{index:0{digits}}": item for index, item in enumerate(items)}
    return None


def split(text: str) -> tuple[str, ...]:
    """Take a key chain apart at `/` and `.`."""
    return tuple(text.replace(".", "/").split("/"))


def key_text(key: object) -> str:
    """Give the text of a key.

    Raises:
        StructureError: if a part of the text is empty, or if a key that is not text has a separator
            in its own.
    """
    text = str(key)
    if not isinstance(key, str) and ("/" in text or "." in text):
        raise StructureError(
            f'the key {key!r} has the text "{text}", in which "/" and "." would separate levels. '
            "Give it a name of your own."
        )
    if "" in split(text):
        raise StructureError(f"the key {key!r} has an empty part.")
    return text


def level_of(level: Mapping[Any, Any], settings: Settings) -> Mapping[str, Any]:
    """Make the keys of a mapping the keys of one level, with chains taken apart.

    Raises:
        StructureError: if two entries would lie in one place; both are named.
    """
    for key in level:
        if type(key) is not str or "/" in key or "." in key or not key:
            break
    else:
        return level
    return placed(_entries(level, settings, (), "", ()))


def placed(entries: Iterable[tuple[tuple[str, ...], Any, str]]) -> dict[str, Any]:
    """Build a nested dict of entries: the keys of a place, the value (`{}` for an empty level), and
    a name for messages.

    Raises:
        StructureError: if two entries would lie in one place; both are named.
    """
    whole: dict[str, Any] = {}
    origins: dict[tuple[str, ...], str] = {}
    for keys, value, origin in entries:
        level = whole
        for depth, name in enumerate(keys[:-1]):
            level = level.setdefault(name, {})
            if type(level) is not dict:
                _collide(keys[: depth + 1], origins, origin)
        if keys[-1] in level and not (type(value) is dict and type(level[keys[-1]]) is dict):
            _collide(keys, origins, origin)
        level.setdefault(keys[-1], value)
        origins[keys] = origin
    return whole


def _entries(
    supplied: Mapping[Any, Any],
    settings: Settings,
    prefix: tuple[str, ...],
    origin: str,
    within: tuple[int, ...],
) -> Iterator[tuple[tuple[str, ...], Any, str]]:
    """List the leaves and empty levels below a mapping: keys, value, and the keys as they were
    given.
    """
    if id(supplied) in within:
        raise StructureError("cannot make a Container from a dict that contains itself.")
    for key, value in supplied.items():
        keys = prefix + split(key_text(key))
        current = f"{origin} > {key!r}" if origin else repr(key)
        inner = as_mapping(value, settings)
        if inner:
            yield from _entries(inner, settings, keys, current, (*within, id(supplied)))
        else:
            yield keys, value if inner is None else {}, current


def _collide(keys: tuple[str, ...], origins: dict[tuple[str, ...], str], second: str) -> None:
    first = next(origin for location, origin in origins.items() if location[: len(keys)] == keys)
    raise StructureError(
        f'{first} and {second} would both lie at "{"/".join(keys)}". Rename one of them. '
    )
