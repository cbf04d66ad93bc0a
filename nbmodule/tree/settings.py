"""Order of keys and printing of a Container: one immutable value, shared by all levels."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping
from typing import Any

from nbmodule.base.kinds import is_whole
from nbmodule.errors import ArgumentError, ArgumentTypeError


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
            value = getattr(self, name)
            if value is None and name in ("print_limit", "key_length_limit"):
                continue
            if not is_whole(value):
                raise ArgumentTypeError(f"{name} is a whole number, not {type(value).__name__}.")
            most = _MOST_SPACES if name in ("print_indent", "print_line_spacing") else sys.maxsize
            if not 0 <= value <= most:
                raise ArgumentError(
                    f"{name} is a number from 0 "
                    f"{'on' if most == sys.maxsize else f'to {most}'}, got {value}."
                )
        for color in (self.default_key_color, *(self.keyword_color_dict or {}).values()):
            if color not in COLORS:
                raise ArgumentError(f"there is no color {color!r}; there are {', '.join(COLORS)}.")
        types = self.types_to_iteratively_nest
        if not all(isinstance(item, type) for item in types):
            raise ArgumentTypeError(f"types_to_iteratively_nest is a list of types, got {types!r}.")


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
