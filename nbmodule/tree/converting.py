"""Containers as lists, dicts and iterators, and back."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from typing import Any

from nbmodule.errors import StructureError
from nbmodule.tree.nested import Kind, Nested


def to_dict(container: Nested) -> dict[str, Any]:
    """Give plain nested dicts with the same leaves."""
    return {
        key: to_dict(value) if isinstance(value, Nested) else value
        for key, value in container.items()
    }


def to_flat_list(container: Nested) -> list[Any]:
    """List all leaves in canonical order, the order of `jax.tree.leaves`."""
    leaves: list[Any] = []
    for name in container._ordered():
        value = dict.__getitem__(container, name)
        leaves.extend(to_flat_list(value) if isinstance(value, Nested) else [value])
    return leaves


def from_flat_list(container: Kind, flat_list: Iterable[Any]) -> Kind:
    """Give a Container of this structure with other leaves, in the order of `cont_to_flat_list`."""
    values = list(flat_list)
    expected = len(to_flat_list(container))
    if len(values) != expected:
        raise StructureError(
            f"the Container has {expected} leaves and the list has {len(values)} values."
        )
    remaining = iter(values)

    def visit(level: Nested) -> Any:
        new = {}
        for name in level._ordered():
            value = dict.__getitem__(level, name)
            new[name] = visit(value) if isinstance(value, Nested) else next(remaining)
        return level._like({name: new[name] for name in level})

    return visit(container)


def to_nested_list(container: Nested) -> list[Any]:
    """Give nested lists of the leaves, without the keys."""
    return [
        to_nested_list(value) if isinstance(value, Nested) else value
        for value in container.values()
    ]


def to_iterator(
    container: Nested, leaf_keys_only: bool = False, include_empty: bool = False
) -> Iterator[tuple[str, Any]]:
    """Go through the leaves with their key chains."""
    for key, value in container.items():
        if not isinstance(value, Nested):
            yield key, value
        elif value:
            for chain, leaf in to_iterator(value, leaf_keys_only, include_empty):
                yield chain if leaf_keys_only else f"{key}/{chain}", leaf
        elif include_empty:
            yield key, value


def to_iterator_keys(container: Nested, leaf_keys_only: bool, include_empty: bool) -> Iterator[str]:
    """Go through the key chains of the leaves."""
    return (chain for chain, _ in to_iterator(container, leaf_keys_only, include_empty))


def to_iterator_values(container: Nested, include_empty: bool = False) -> Iterator[Any]:
    """Go through the leaves."""
    for value in container.values():
        if isinstance(value, Nested) and (value or not include_empty):
            yield from to_iterator_values(value, include_empty)
        else:
            yield value


def deep_copy(container: Kind, memo: dict[int, Any]) -> Kind:
    """Copy all levels and all leaves, as `copy.deepcopy` asks for it."""
    new = container._like({})
    memo[id(container)] = new
    new._take({key: copy.deepcopy(value, memo) for key, value in container.items()})
    return new


def max_depth(container: Nested) -> int:
    """The number of keys in the longest chain."""
    return max(
        (chain.count("/") + 1 for chain in to_iterator_keys(container, False, True)), default=0
    )
