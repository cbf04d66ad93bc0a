"""Input of a Container: mappings of any kind, keys of any type, chains as keys.

A key with `/` or `.` is a key chain and makes levels: `{"b/c": 1}` is `{"b": {"c": 1}}`. Other keys
count by their text. Two entries that would come to lie in one place are an error, never a silent
loss.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from nbmodule.base.kinds import is_whole
from nbmodule.errors import ArgumentError, StructureError


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """The options of `Container(...)`; they are described there."""

    print_limit: int | None = 10
    print_indent: int = 4
    key_length_limit: int | None = None
    alphabetical_keys: bool = True

    def __post_init__(self) -> None:
        for name in ("print_limit", "print_indent", "key_length_limit"):
            value = getattr(self, name)
            if value is None and name != "print_indent":
                continue
            if not is_whole(value) or value < 0:
                raise ArgumentError(f"{name} must be an integer of at least 0, got {value!r}.")


DEFAULT = Settings()


def split_chain(text: str) -> tuple[str, ...]:
    """Take a key chain apart at `/` and `.`."""
    return tuple(text.replace(".", "/").split("/"))


def key_text(key: object) -> str:
    """Return the text of a key.

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
    if "" in split_chain(text):
        raise StructureError(f"the key {key!r} has an empty part.")
    return text


def level_of(level: Mapping[Any, Any]) -> Mapping[str, Any]:
    """Make the keys of a mapping the keys of one level, with chains taken apart.

    Raises:
        StructureError: if two entries would lie in one place; both are named.
    """
    if all(type(key) is str and key and "/" not in key and "." not in key for key in level):
        return level
    return placed(_entries(level, (), "", ()))


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
    supplied: Mapping[Any, Any], prefix: tuple[str, ...], origin: str, within: tuple[int, ...]
) -> Iterator[tuple[tuple[str, ...], Any, str]]:
    """List the leaves and empty levels below a mapping: keys, value, and the keys as they were
    given.
    """
    if id(supplied) in within:
        raise StructureError("cannot make a Container from a dict that contains itself.")
    for key, value in supplied.items():
        keys = prefix + split_chain(key_text(key))
        current = f"{origin} > {key!r}" if origin else repr(key)
        if isinstance(value, Mapping) and value:
            yield from _entries(value, keys, current, (*within, id(supplied)))
        else:
            yield keys, {} if isinstance(value, Mapping) else value, current


def _collide(keys: tuple[str, ...], origins: dict[tuple[str, ...], str], second: str) -> None:
    first = next(origin for location, origin in origins.items() if location[: len(keys)] == keys)
    raise StructureError(
        f'{first} and {second} would both lie at "{"/".join(keys)}". Rename one of them. '
    )
