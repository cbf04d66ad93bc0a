"""Nested mappings and their leaves by chain, which is the tuple of keys that leads to one: there and back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def flat(level: Mapping[Any, Any], chain: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Leaves of nested mappings, by chain, in the order of their keys.

    Example:
        >>> list(flat({"b": {"c": 1, "d": 2}, "a": 3}))
        [(('b', 'c'), 1), (('b', 'd'), 2), (('a',), 3)]
    """
    for key, value in level.items():
        if isinstance(value, Mapping):
            yield from flat(value, (*chain, str(key)))
        else:
            yield (*chain, str(key)), value


def nest(leaves: Mapping[tuple[str, ...], Any]) -> dict[str, Any]:
    """Nested dicts from chains of keys, in the order given.

    Example:
        >>> nest({("b", "c"): 1, ("a",): 3, ("b", "d"): 2})
        {'b': {'c': 1, 'd': 2}, 'a': 3}
    """
    root: dict[str, Any] = {}
    for chain, value in leaves.items():
        level = root
        for key in chain[:-1]:
            level = level.setdefault(key, {})
        level[chain[-1]] = value
    return root
