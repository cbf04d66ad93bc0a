"""Look up, set and drop leaves of a Container, and convert it to lists and dicts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Self

import jax

from nbmodule.errors import ArgumentTypeError, PathError, StructureError
from nbmodule.tree.nested import Kind, Nested


def _is_leaf(value: object) -> bool:
    return not isinstance(value, Nested)


class LookupMethods(Nested):
    """Convert a Container; look up, set and drop leaves and parts by key chain."""

    __slots__ = ()

    def cont_to_dict(self) -> dict[str, Any]:
        """Return plain nested dicts with the same leaves.

        Example:
            >>> nb.Container(a=1, b={"c": 2}).cont_to_dict()
            {'a': 1, 'b': {'c': 2}}
        """
        return {
            key: value.cont_to_dict() if isinstance(value, LookupMethods) else value
            for key, value in self.items()
        }

    def cont_to_flat_list(self) -> list[Any]:
        """List all leaves in canonical order, the order of `jax.tree.leaves`.

        Example:
            >>> nb.Container(b={"c": 2}, a=1).cont_to_flat_list()
            [1, 2]
        """
        return jax.tree.leaves(self, is_leaf=_is_leaf)

    def cont_from_flat_list(self, flat_list: Iterable[Any]) -> Self:
        """Return a Container of this structure with other leaves, in the order of
        `cont_to_flat_list`.

        Raises:
            StructureError: if there are more or fewer values than leaves.

        Example:
            >>> nb.Container(a=1, b={"c": 2}).cont_from_flat_list([3, 4]).cont_to_dict()
            {'a': 3, 'b': {'c': 4}}
        """
        values, structure = list(flat_list), jax.tree.structure(self, is_leaf=_is_leaf)
        if len(values) != structure.num_leaves:
            raise StructureError(
                f"the Container has {structure.num_leaves} leaves and the list has {len(values)} "
                "values."
            )
        return jax.tree.unflatten(structure, values)

    def cont_to_nested_list(self) -> list[Any]:
        """Return nested lists of the leaves, without the keys.

        Example:
            >>> nb.Container(a=1, b={"c": 2, "d": 3}).cont_to_nested_list()
            [1, [2, 3]]
        """
        return [
            value.cont_to_nested_list() if isinstance(value, LookupMethods) else value
            for value in self.values()
        ]

    def cont_to_iterator(
        self, leaf_keys_only: bool = False, include_empty: bool = False
    ) -> Iterator[tuple[str, Any]]:
        """Iterate over the leaves with their key chains.

        Args:
            leaf_keys_only: Whether to yield the last key instead of the chain.
            include_empty: Whether to yield empty levels too.

        Example:
            >>> list(nb.Container(a=1, b={"c": 2}).cont_to_iterator())
            [('a', 1), ('b/c', 2)]
        """
        for key, value in self.items():
            if not isinstance(value, LookupMethods):
                yield key, value
            elif value:
                for chain, leaf in value.cont_to_iterator(leaf_keys_only, include_empty):
                    yield chain if leaf_keys_only else f"{key}/{chain}", leaf
            elif include_empty:
                yield key, value

    def cont_to_iterator_keys(
        self, leaf_keys_only: bool = False, include_empty: bool = False
    ) -> Iterator[str]:
        """Iterate over the key chains of the leaves.

        Example:
            >>> list(nb.Container(a=1, b={"c": 2}).cont_to_iterator_keys(leaf_keys_only=True))
            ['a', 'c']
        """
        return (chain for chain, _ in self.cont_to_iterator(leaf_keys_only, include_empty))

    def cont_to_iterator_values(self, include_empty: bool = False) -> Iterator[Any]:
        """Iterate over the leaves.

        Example:
            >>> list(nb.Container(a=1, b={"c": 2}).cont_to_iterator_values())
            [1, 2]
        """
        return (leaf for _, leaf in self.cont_to_iterator(include_empty=include_empty))

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

    def cont_copy(self) -> Self:
        """Copy all levels; the leaves are shared.

        Example:
            >>> c = nb.Container(a={"b": jnp.ones(2)})
            >>> d = c.cont_copy()
            >>> d.a is c.a, d.a.b is c.a.b
            (False, True)
        """
        return self._with_parts(lambda part: part.cont_copy())

    def cont_at_key_chain(self, key_chain: str, ignore_key_errors: bool = False) -> Any:
        """Return the leaf or the part at a key chain; None if it is missing and errors are ignored.

        Example:
            >>> c = nb.Container(a=1, b={"c": 2})
            >>> c.cont_at_key_chain("b/c"), c.cont_at_key_chain("x", ignore_key_errors=True)
            (2, None)
        """
        keys = self._chain(key_chain)
        return self._at(keys, None) if ignore_key_errors else self._at(keys)

    def cont_at_key_chains(self, key_chains: object) -> Self:
        """Return a Container of these key chains alone.

        Example:
            >>> c = nb.Container(a=1, b={"c": 2, "d": 3})
            >>> c.cont_at_key_chains(["a", "b/c"]).cont_to_dict()
            {'a': 1, 'b': {'c': 2}}
        """
        new = self._like({})
        for keys in asked_keys(self, key_chains):
            value = self._at(keys)
            if not new._has(keys):
                new._put_at(keys, value.cont_copy() if isinstance(value, LookupMethods) else value)
        return new

    def cont_at_keys(self, keys: str | Iterable[str], containing: bool = False) -> Self:
        """Return a Container of the leaves below some keys at any level.

        Args:
            keys: One key or several.
            containing: Whether keys that contain one of `keys` match too.

        Example:
            >>> c = nb.Container(a=1, b={"c": 2, "d": 3})
            >>> c.cont_at_keys("c").cont_to_dict(), c.cont_at_keys(["b"]).cont_to_dict()
            ({'b': {'c': 2}}, {'b': {'c': 2, 'd': 3}})
        """
        return self.cont_at_key_chains(_chains_with(self, key_test(keys, containing)))

    def cont_all_key_chains(self, include_empty: bool = False) -> list[str]:
        """List the key chains of all leaves, optionally also of empty levels.

        Example:
            >>> nb.Container(a=1, b={"c": 2, "d": {}}).cont_all_key_chains()
            ['a', 'b/c']
        """
        return [chain for chain, _ in self.cont_to_iterator(include_empty=include_empty)]

    def cont_key_chains_containing(self, text: str) -> list[str]:
        """List the key chains that contain a text.

        Example:
            >>> nb.Container(a_sub=1, b={"c": 2, "d_sub": 3}).cont_key_chains_containing("sub")
            ['a_sub', 'b/d_sub']
        """
        return [chain for chain in self.cont_all_key_chains() if text in chain]

    def cont_has_key(self, text: str) -> bool:
        """Return True if a key, or a chain, exists at any level.

        Example:
            >>> c = nb.Container(a={"b": {"c": 1}})
            >>> c.cont_has_key("b"), c.cont_has_key("b/c"), c.cont_has_key("a/c")
            (True, True, False)
        """
        if not self._keys_of(text):
            return False
        parts = (value for value in self.values() if isinstance(value, LookupMethods))
        return self._has(text) or any(part.cont_has_key(text) for part in parts)

    def cont_has_key_chain(self, key_chain: str) -> bool:
        """Return True if there is a leaf or a part at this key chain.

        Example:
            >>> c = nb.Container(a=1, b={"c": 2})
            >>> c.cont_has_key_chain("b/c"), c.cont_has_key_chain("c")
            (True, False)
        """
        return self._has(key_chain)

    def cont_if_exists(self, key_chain: str) -> Any:
        """Return the leaf or part at a key chain, or None.

        Example:
            >>> nb.Container(a=1).cont_if_exists("b") is None
            True
        """
        return self.cont_at_key_chain(key_chain, ignore_key_errors=True)

    def cont_set_at_key_chain(self, key_chain: str, val: object, inplace: bool = False) -> Self:
        """Set a leaf or a part, and create missing levels.

        Example:
            >>> nb.Container(a=1).cont_set_at_key_chain("b/c", 2).cont_to_dict()
            {'a': 1, 'b': {'c': 2}}
        """
        target = _target(self, inplace)
        target._put_at(self._chain(key_chain), val)
        return target

    def cont_set_at_key_chains(self, target_dict: Mapping[str, Any], inplace: bool = False) -> Self:
        """Set all leaves of a dict, nested or with key chains as keys; other leaves stay.

        Example:
            >>> c = nb.Container(a=1, b={"c": 2, "d": 3})
            >>> c.cont_set_at_key_chains({"a": 4, "b": {"d": 5}}).cont_to_dict()
            {'a': 4, 'b': {'c': 2, 'd': 5}}
        """
        return set_all(self, target_dict, inplace, must_exist=False)

    def cont_overwrite_at_key_chain(
        self, key_chain: str, val: object, inplace: bool = False
    ) -> Self:
        """Set a leaf or a part that exists already.

        Raises:
            PathError: if it does not exist.

        Example:
            >>> nb.Container(a=1).cont_overwrite_at_key_chain("a", 2).a
            2
        """
        self.cont_at_key_chain(key_chain)
        return self.cont_set_at_key_chain(key_chain, val, inplace)

    def cont_overwrite_at_key_chains(
        self, target_dict: Mapping[str, Any], inplace: bool = False
    ) -> Self:
        """Set all leaves of a dict; each must exist already.

        Raises:
            PathError: if one does not exist; nothing was changed.

        Example:
            >>> nb.Container(a=1, b=2).cont_overwrite_at_key_chains({"b": 3}).cont_to_dict()
            {'a': 1, 'b': 3}
        """
        return set_all(self, target_dict, inplace, must_exist=True)

    def cont_create_if_absent(self, key_chain: str, val: object, inplace: bool = False) -> Self:
        """Set a leaf or a part if the key chain does not exist.

        Example:
            >>> nb.Container(a=1).cont_create_if_absent("a", 5).cont_create_if_absent(
            ...     "b", 6
            ... ).cont_to_dict()
            {'a': 1, 'b': 6}
        """
        if self.cont_has_key_chain(key_chain):
            return _target(self, inplace)
        return self.cont_set_at_key_chain(key_chain, val, inplace)

    def cont_prune_key_chain(self, key_chain: str, inplace: bool = False) -> Self:
        """Drop a leaf or a part, and levels that become empty.

        Example:
            >>> nb.Container(a=1, b={"c": {"d": 2}}).cont_prune_key_chain("b/c/d").cont_to_dict()
            {'a': 1}
        """
        return self.cont_prune_key_chains([key_chain], inplace)

    def cont_prune_key_chains(self, key_chains: object, inplace: bool = False) -> Self:
        """Drop several leaves or parts, and levels that become empty.

        Example:
            >>> c = nb.Container(a=1, b={"c": 2, "d": 3})
            >>> c.cont_prune_key_chains(["a", "b/c"]).cont_to_dict()
            {'b': {'d': 3}}
        """
        requested, target = asked_keys(self, key_chains), _target(self, inplace)
        for keys in requested:
            if not target._has(keys):  # it went with a level above it
                continue
            target._remove_at(keys)
            while (keys := keys[:-1]) and not target._at(keys):
                target._remove_at(keys)
        return target

    def cont_prune_keys(self, keys: str | Iterable[str], inplace: bool = False) -> Self:
        """Drop keys with their parts at every level, and levels that become empty.

        Example:
            >>> c = nb.Container(a=1, b={"c": 2, "d": 3}, c=4)
            >>> c.cont_prune_keys(["a", "c"]).cont_to_dict()
            {'b': {'d': 3}}
        """
        chains = _chains_with(self, key_test(keys, False))
        return self.cont_prune_key_chains(chains, inplace)

    def cont_prune_empty(self, keep_nones: bool = False) -> Self:
        """Drop empty levels, and leaves that are None unless `keep_nones`.

        Example:
            >>> nb.Container(a=1, b={"c": {}, "d": None}).cont_prune_empty().cont_to_dict()
            {'a': 1}
        """
        level: dict[str, Any] = {}
        for key, value in self.items():
            if isinstance(value, LookupMethods):
                inner = value.cont_prune_empty(keep_nones)
                if inner:
                    level[key] = inner
            elif keep_nones or value is not None:
                level[key] = value
        return self._like(level)


def _target(container: Kind, inplace: bool) -> Kind:
    return container if inplace else container.cont_copy()


def _chains_with(container: LookupMethods, fits: Callable[[str], bool]) -> list[str]:
    """List the key chains with a matching key at any level."""
    chains = container.cont_all_key_chains(include_empty=True)
    return [chain for chain in chains if any(map(fits, chain.split("/")))]


def set_all(container: Kind, leaves: Mapping[str, Any], inplace: bool, *, must_exist: bool) -> Kind:
    """Set all leaves of a dict, nested or with key chains as keys; other leaves stay, and with
    `must_exist` none may be new.
    """
    whole = container._admit(container._mapping_from(leaves))
    changes = list(whole.cont_to_iterator(include_empty=True))
    trial = container.cont_copy()
    for target in (trial, container) if inplace else (trial,):  # so that an error changes nothing
        for chain, value in changes:
            if must_exist:
                target._at(target._chain(chain))
            target._put_at(target._chain(chain), value)
    return container if inplace else trial


def asked_keys(container: Nested, key_chains: Any) -> list[tuple[str, ...]]:
    """Split key chains that exist into keys: an iterable of chains, a dict (its chains), or one
    chain.
    """
    if isinstance(key_chains, Mapping):
        key_chains = container._admit(key_chains).cont_all_key_chains(include_empty=True)
    elif isinstance(key_chains, str):
        key_chains = [key_chains]
    elif not isinstance(key_chains, Iterable):
        raise ArgumentTypeError(
            f"key chains must be a list, a dict or a str, got {type(key_chains).__name__}."
        )
    results = []
    for chain in key_chains:
        keys = container._keys_of(chain)
        if not keys:
            raise PathError(f"{chain!r} is no key chain.")
        container._at(keys)
        results.append(keys)
    return results


def key_test(keys: str | Iterable[str], containing: bool) -> Callable[[str], bool]:
    """Return a predicate: whether a key is one of several, or contains one of them."""
    expected = {keys} if isinstance(keys, str) else set(keys)
    if not all(isinstance(key, str) for key in expected):
        raise ArgumentTypeError("keys are text: one key or a list of keys.")
    return (
        (lambda key: any(part in key for part in expected)) if containing else expected.__contains__
    )
