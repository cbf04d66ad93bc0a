"""Nested mappings as rows of (path, leaf) and back, with names spelled so that HDF5 can hold any of
them.

A path joins the names of the levels by `/`. HDF5 cannot hold a `/`, a NUL or half a surrogate pair
in a name, gives `.` a meaning and knows no empty name, so these are written with a percent sign:
`a/b` is `a%2Fb`, `.` is `%2E`, the empty name is `%`, and a percent sign itself is `%25`. All other
names stand in the file as they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from nbmodule.errors import ArgumentError, ArgumentTypeError, FileFormatError

MAX_DEPTH = 1100
BUFFERS, PACKED, METADATA = "__buffers__", "__packed__", "__metadata__"
RESERVED = frozenset((BUFFERS, PACKED, METADATA))

_UNSAFE = re.compile("[%/\x00\ud800-\udfff]")
_ESCAPED = re.compile("%u([0-9A-F]{4})|%([0-9A-F]{2})")


def unreadable(where: str, reason: str) -> FileFormatError:
    """Return the error about a file, or a part of one, that cannot be loaded."""
    return FileFormatError(f"cannot load {where}: {reason}")


class EmptyLevel:
    """Stands for a level without any entries, which is kept like a leaf."""

    def __repr__(self) -> str:
        return "{}"


EMPTY = EmptyLevel()


def escape_key(name: str, *, at_root: bool = False) -> str:
    """Spell a name so that HDF5 can hold it.

    Args:
        name: Any text.
        at_root: Whether it stands in the file's root, where the names of the format itself are
            taken.

    Example:
        >>> from nbmodule.files.chains import escape_key
        >>> escape_key("conv/1"), escape_key("."), escape_key("100%"), escape_key("w")
        ('conv%2F1', '%2E', '100%25', 'w')
    """
    if name in ("", "."):
        return "%2E" if name else "%"
    if at_root and name in RESERVED:
        return "%5F" + name[1:]
    return _UNSAFE.sub(_spell, name)


def escape_levels(levels: Iterable[str]) -> str:
    """Return the path of a location, given the unescaped names of its levels.

    Example:
        >>> from nbmodule.files.chains import escape_levels
        >>> escape_levels(["encoder", "a/b"])
        'encoder/a%2Fb'
    """
    return "/".join(escape_key(name, at_root=not depth) for depth, name in enumerate(levels))


def _spell(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"%{code:02X}" if code < 0x80 else f"%u{code:04X}"


def unescape(name: str) -> str:
    """Undo `escape_key`.

    Example:
        >>> from nbmodule.files.chains import unescape
        >>> unescape("conv%2F1")
        'conv/1'
    """
    if "%" not in name:
        return name
    return (
        "" if name == "%" else _ESCAPED.sub(lambda match: chr(int(match[1] or match[2], 16)), name)
    )


def flatten_levels(tree: Mapping[str, Any], *, what: str) -> Iterator[tuple[str, Any]]:
    """Yield (path, leaf) for each leaf of a nested mapping, in its own order; an empty level is the
    leaf `EMPTY`.

    Args:
        tree: Mappings of mappings; everything else is a leaf.
        what: What the tree is called in an error, such as `variables`.

    Raises:
        ArgumentTypeError: if a key is not a string, or the tree is no mapping.
        ArgumentError: if levels are nested too deeply, as those of a mapping that contains itself
            are.

    Example:
        >>> from nbmodule.files.chains import flatten_levels
        >>> list(flatten_levels({"linear": {"w": 1, "b": 2}, "aux": {}}, what="variables"))
        [('linear/w', 1), ('linear/b', 2), ('aux', {})]
    """
    if not isinstance(tree, Mapping):
        raise ArgumentTypeError(
            f"cannot save {what}: expected a nested mapping of arrays, got {type(tree).__name__}."
        )
    stack = [(iter(tree.items()), "", 1)]
    while stack:
        items, prefix, depth = stack[-1]
        for name, value in items:
            if not isinstance(name, str):
                raise ArgumentTypeError(
                    f'cannot save {what}: the key {name!r} in "/{prefix.rstrip("/")}" is a '
                    f"{type(name).__name__}, and names in a file must be str. Convert the keys "
                    "with `str` first."
                )
            path = prefix + escape_key(name, at_root=depth == 1)
            if not isinstance(value, Mapping):
                yield path, value
            elif not value:
                yield path, EMPTY
            elif depth >= MAX_DEPTH:
                raise ArgumentError(
                    f'cannot save {what}: "{path[:60]}..." is more than {MAX_DEPTH} levels '
                    "deep. Does a mapping contain itself?"
                )
            else:
                stack.append((iter(value.items()), path + "/", depth + 1))
                break
        else:
            stack.pop()


def flatten_parts(
    variables: Mapping[str, Any], buffers: Mapping[str, Any] | None
) -> list[tuple[str, Any]]:
    """Return (path, leaf) for each variable, then for each buffer, below `__buffers__`; None for no
    buffers.

    Example:
        >>> from nbmodule.files.chains import flatten_parts
        >>> flatten_parts({"w": 1}, {"mean": 2})
        [('w', 1), ('__buffers__/mean', 2)]
    """
    rows = list(flatten_levels(variables, what="variables"))
    if buffers is not None:
        inner = flatten_levels(buffers, what="buffers")
        rows += [(f"{BUFFERS}/{path}", leaf) for path, leaf in inner] or [(BUFFERS, EMPTY)]
    return rows


def nest(rows: Iterable[tuple[str, Any]], *, where: str) -> dict[str, Any]:
    """Build nested dicts from (path, leaf) rows; the inverse of `flatten_levels`.

    Args:
        rows: In the order in which the keys shall stand.
        where: The file, for errors.

    Raises:
        FileFormatError: if two rows claim one place, or a place is both a leaf and a level.

    Example:
        >>> from nbmodule.files.chains import nest
        >>> nest([("linear/w", 1), ("linear/b", 2)], where="w.h5")
        {'linear': {'w': 1, 'b': 2}}
    """
    root: dict[str, Any] = {}
    for path, leaf in rows:
        *levels, name = map(unescape, path.split("/"))
        if len(levels) >= MAX_DEPTH:
            raise unreadable(where, f'"/{path[:60]}..." is more than {MAX_DEPTH} levels deep.')
        level: Any = root
        for key in levels:
            level = level.setdefault(key, {})
            if type(level) is not dict:
                break
        if type(level) is not dict or name in level:
            child = f"{path}/x" if type(level) is dict else path
            parent, _, last = child.rpartition("/")
            raise unreadable(
                where,
                f'"/{path}" is listed twice, or is both an array and a '
                "group, and nested names have no place for both. "
                f"`nb.load(path, rename={{'{child}': '{parent}_{last}'}})` moves what is below.",
            )
        level[name] = {} if leaf is EMPTY else leaf
    return root
