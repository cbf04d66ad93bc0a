"""Input of a Container: mappings of any kind, keys of any type, chains as keys.

A key with `/` or `.` is a key chain and makes levels: `{"b/c": 1}` is `{"b": {"c": 1}}`. Other keys
count by their text. Two entries that would come to lie in one place are an error, never a silent
loss.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from nbmodule.base.kinds import is_whole
from nbmodule.errors import ArgumentError, ArgumentTypeError, StructureError


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """The options of `Container(...)`; they are described there."""

    print_limit: int | None = 10
    print_indent: int = 4
    print_line_spacing: int = 0
    key_length_limit: int | None = None
    default_key_color: str = "green"
    keyword_color_dict: Mapping[str, str] | None = None
    alphabetical_keys: bool = True
    rebuild_child_containers: bool = False
    types_to_iteratively_nest: tuple[type, ...] = ()

    def __post_init__(self) -> None:
        for name in ("print_limit", "print_indent", "print_line_spacing", "key_length_limit"):
            value, is_limit = getattr(self, name), name in ("print_limit", "key_length_limit")
            most = sys.maxsize if is_limit else _MOST_SPACES
            if value is None and is_limit:
                continue
            if not is_whole(value) or not 0 <= value <= most:
                raise ArgumentError(f"{name} must be an integer from 0 to {most}, got {value!r}.")
        for color in (self.default_key_color, *(self.keyword_color_dict or {}).values()):
            if color not in COLORS:
                raise ArgumentError(f"there is no color {color!r}; there are {', '.join(COLORS)}.")
        types = self.types_to_iteratively_nest
        if not all(isinstance(item, type) for item in types):
            raise ArgumentTypeError(
                f"types_to_iteratively_nest must be a list of types, got {types!r}."
            )


_MOST_SPACES = 200
COLORS = {
    name: f"\x1b[{code}m"
    for name, code in zip(
        ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"),
        range(30, 38),
        strict=True,
    )
}
DEFAULT = Settings()


def settings_from(options: dict[str, Any]) -> Settings:
    """Check options and make them a `Settings`; the usual ones are one shared value."""
    types = options.get("types_to_iteratively_nest")
    options = options | {"types_to_iteratively_nest": tuple(types) if types is not None else ()}
    if all(options[name] == getattr(DEFAULT, name) for name in options):
        return DEFAULT
    return Settings(**options)


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


def split_chain(text: str) -> tuple[str, ...]:
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
    if "" in split_chain(text):
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
        keys = prefix + split_chain(key_text(key))
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
