"""Containers as lists, dicts and iterators, and back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Self

from nbmodule.errors import StructureError
from nbmodule.tree.nested import Nested


class Convertible(Nested):
    """Convert a Container to lists, dicts and iterators, and back."""

    __slots__ = ()

    def cont_to_dict(self) -> dict[str, Any]:
        """Give plain nested dicts with the same leaves.

        Example:
            >>> nb.Container(a=1, b={"c": 2}).cont_to_dict()
            {'a': 1, 'b': {'c': 2}}
        """
        return {
            key: value.cont_to_dict() if isinstance(value, Convertible) else value
            for key, value in self.items()
        }

    def cont_to_flat_list(self) -> list[Any]:
        """List all leaves in canonical order, the order of `jax.tree.leaves`.

        Example:
            >>> nb.Container(b={"c": 2}, a=1).cont_to_flat_list()
            [1, 2]
        """
        leaves: list[Any] = []
        for name in self._ordered():
            value = dict.__getitem__(self, name)
            leaves.extend(value.cont_to_flat_list() if isinstance(value, Convertible) else [value])
        return leaves

    def cont_from_flat_list(self, flat_list: Iterable[Any]) -> Self:
        """Give a Container of this structure with other leaves, in the order of
        `cont_to_flat_list`.

        Raises:
            StructureError: if there are more or fewer values than leaves.

        Example:
            >>> nb.Container(a=1, b={"c": 2}).cont_from_flat_list([3, 4]).cont_to_dict()
            {'a': 3, 'b': {'c': 4}}
        """
        values = list(flat_list)
        expected = len(self.cont_to_flat_list())
        if len(values) != expected:
            raise StructureError(
                f"the Container has {expected} leaves and the list has {len(values)} values."
            )
        remaining = iter(values)

        def visit(level: Nested) -> Any:
            new = {}
            for name in level._ordered():
                value = dict.__getitem__(level, name)
                new[name] = visit(value) if isinstance(value, Convertible) else next(remaining)
            return level._like({name: new[name] for name in level})

        return visit(self)

    def cont_to_nested_list(self) -> list[Any]:
        """Give nested lists of the leaves, without the keys.

        Example:
            >>> nb.Container(a=1, b={"c": 2, "d": 3}).cont_to_nested_list()
            [1, [2, 3]]
        """
        return [
            value.cont_to_nested_list() if isinstance(value, Convertible) else value
            for value in self.values()
        ]

    def cont_to_iterator(
        self, leaf_keys_only: bool = False, include_empty: bool = False
    ) -> Iterator[tuple[str, Any]]:
        """Go through the leaves with their key chains.

        Args:
            leaf_keys_only: Give the last key instead of the chain.
            include_empty: Give empty levels too.

        Example:
            >>> list(nb.Container(a=1, b={"c": 2}).cont_to_iterator())
            [('a', 1), ('b/c', 2)]
        """
        for key, value in self.items():
            if not isinstance(value, Convertible):
                yield key, value
            elif value:
                for chain, leaf in value.cont_to_iterator(leaf_keys_only, include_empty):
                    yield chain if leaf_keys_only else f"{key}/{chain}", leaf
            elif include_empty:
                yield key, value

    def cont_to_iterator_keys(
        self, leaf_keys_only: bool = False, include_empty: bool = False
    ) -> Iterator[str]:
        """Go through the key chains of the leaves.

        Example:
            >>> list(nb.Container(a=1, b={"c": 2}).cont_to_iterator_keys(leaf_keys_only=True))
            ['a', 'c']
        """
        return (chain for chain, _ in self.cont_to_iterator(leaf_keys_only, include_empty))

    def cont_to_iterator_values(self, include_empty: bool = False) -> Iterator[Any]:
        """Go through the leaves.

        Example:
            >>> list(nb.Container(a=1, b={"c": 2}).cont_to_iterator_values())
            [1, 2]
        """
        for value in self.values():
            if isinstance(value, Convertible) and (value or not include_empty):
                yield from value.cont_to_iterator_values(include_empty)
            else:
                yield value

    @property
    def cont_max_depth(self) -> int:
        """The number of keys in the longest chain.

        Example:
            >>> nb.Container(a=1, b={"c": {"d": 2}}).cont_max_depth
            3
        """
        return max(
            (chain.count("/") + 1 for chain in self.cont_to_iterator_keys(False, True)), default=0
        )
