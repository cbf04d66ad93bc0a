"""New structures of the same leaves: flatten, rename, rearrange, cut and slice.

Two leaves that would get one key chain are an error, never a loss.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Self

from nbmodule.errors import ArgumentError, ArgumentTypeError, StructureError
from nbmodule.tree.lookup import key_test
from nbmodule.tree.mapping import MapMethods, take_over
from nbmodule.tree.nested import Kind, placed, split_chain

_ABSENT = object()


class ChainMethods(MapMethods):
    """Rename, rearrange, cut and slice key chains."""

    __slots__ = ()

    def cont_flatten_key_chains(
        self,
        include_empty: bool = False,
        above_height: int | None = None,
        below_depth: int | None = None,
    ) -> Self:
        """Join the keys of each chain into one, as `a__b__c`.

        Args:
            include_empty: Keep empty levels.
            above_height: Keep this many levels at the bottom.
            below_depth: Keep this many levels at the top.

        Example:
            >>> c = nb.Container(a=1, b={"c": {"d": 2}})
            >>> c.cont_flatten_key_chains().cont_to_dict()
            {'a': 1, 'b__c__d': 2}
            >>> c.cont_flatten_key_chains(above_height=1).cont_to_dict()
            {'a': 1, 'b__c': {'d': 2}}
            >>> c.cont_flatten_key_chains(below_depth=1).cont_to_dict()
            {'a': 1, 'b': {'c__d': 2}}
        """

        def flatten(chain: str) -> str:
            return ChainMethods.cont_flatten_key_chain(chain, "__", above_height, below_depth)

        return _renamed(self, flatten, include_empty)

    @staticmethod
    def cont_flatten_key_chain(
        key_chain: str,
        replacement: str = "__",
        above_height: int | None = None,
        below_depth: int | None = None,
    ) -> str:
        """Join the keys of one chain.

        Args:
            key_chain: The chain.
            replacement: Stands between the keys that are joined.
            above_height: Keep this many keys at the end.
            below_depth: Keep this many keys at the beginning.

        Example:
            >>> (
            ...     nb.Container.cont_flatten_key_chain("a/b/c"),
            ...     nb.Container.cont_flatten_key_chain("a/b/c", "-", below_depth=1),
            ... )
            ('a__b__c', 'a/b-c')
        """
        if not isinstance(key_chain, str) or not isinstance(replacement, str):
            raise ArgumentTypeError(
                "a key chain, and what stands between its joined keys, are text."
            )
        for name, count in (("above_height", above_height), ("below_depth", below_depth)):
            if count is not None and count < 0:
                raise ArgumentError(f"{name} must be at least 0 (levels), got {count}.")
        keys = split_chain(key_chain)
        top, bottom = below_depth or 0, above_height or 0
        ending = keys[len(keys) - bottom :] if bottom and len(keys) > bottom else ()
        keys_left = keys[: len(keys) - len(ending)]
        beginning = keys_left[:top] if top and len(keys) > top else ()
        middle = replacement.join(keys_left[len(beginning) :])
        return "/".join([*beginning, *([middle] if middle else []), *ending])

    def cont_format_key_chains(self, format_fn: Callable[[str], str]) -> Self:
        """Rename each leaf: `format_fn` takes its key chain and gives the new one.

        Example:
            >>> nb.Container(_a=1, b={"_c": 2}).cont_format_key_chains(
            ...     lambda kc: kc.replace("_", "")
            ... ).cont_to_dict()
            {'a': 1, 'b': {'c': 2}}
        """
        return _renamed(self, format_fn)

    def cont_restructure_key_chains(
        self, keychain_mapping: Mapping[str, str], keep_orig: bool = True, replace: bool = True
    ) -> Self:
        """Move leaves or parts to other key chains.

        Args:
            keychain_mapping: From old to new key chain.
            keep_orig: Keep what is not named; else start from nothing.
            replace: Take the old chains away; else they stay too.

        Example:
            >>> c = nb.Container(a=1, b={"c": 2, "d": 3})
            >>> c.cont_restructure_key_chains({"a": "A", "b/c": "B/C"}).cont_to_dict()
            {'A': 1, 'B': {'C': 2}, 'b': {'d': 3}}
            >>> c.cont_restructure_key_chains({"b": "x/y"}, keep_orig=False).cont_to_dict()
            {'x': {'y': {'c': 2, 'd': 3}}}
        """
        if not isinstance(keychain_mapping, Mapping):
            raise ArgumentTypeError(
                f"expected a mapping from old to new key chains, got "
                f"{type(keychain_mapping).__name__}."
            )
        moved = [(old, new, self.cont_at_key_chain(old)) for old, new in keychain_mapping.items()]
        retained = self.cont_prune_key_chains(list(keychain_mapping)) if replace else self
        stay = list(retained.cont_to_iterator(include_empty=True)) if keep_orig else []
        return _rearranged(self, [*((chain, chain, value) for chain, value in stay), *moved])

    def cont_prune_keys_from_key_chains(
        self,
        absolute: str | Iterable[str] | None = None,
        containing: str | Iterable[str] | None = None,
    ) -> Self:
        """Take levels out and keep what is below them.

        Args:
            absolute: The keys to take out of all chains.
            containing: Take out keys that contain one of these texts.

        Example:
            >>> c = nb.Container(a=1, net={"w": 2, "layer": {"b": 3}})
            >>> c.cont_prune_keys_from_key_chains("net").cont_to_dict()
            {'a': 1, 'layer': {'b': 3}, 'w': 2}
        """
        if absolute is None and containing is None:
            raise ArgumentError("give absolute= or containing=: the keys to take out.")
        is_named, is_like = key_test(absolute or (), False), key_test(containing or (), True)

        def shorten(chain: str) -> str:
            return "/".join(k for k in chain.split("/") if not (is_named(k) or is_like(k)))

        return _renamed(self, shorten, include_empty=True)

    def cont_cutoff_at_depth(self, depth_cutoff: int, inplace: bool = False) -> Self:
        """Keep this many levels: deeper parts become empty.

        Example:
            >>> c = nb.Container(a=1, b={"c": {"d": 2}})
            >>> c.cont_cutoff_at_depth(1).cont_to_dict(), c.cont_cutoff_at_depth(2).cont_to_dict()
            ({'a': 1, 'b': {}}, {'a': 1, 'b': {'c': {}}})
        """
        return _cut(self, lambda depth, _: depth >= depth_cutoff, inplace)

    def cont_cutoff_at_height(self, height_cutoff: int, inplace: bool = False) -> Self:
        """Cut this many levels away from below: parts that are at most so deep become empty.

        Example:
            >>> c = nb.Container(a={"c": 1}, b={"c": {"d": 2}})
            >>> c.cont_cutoff_at_height(1).cont_to_dict()
            {'a': {}, 'b': {'c': {}}}
        """
        return _cut(self, lambda _, part: part.cont_max_depth <= height_cutoff, inplace)

    def cont_slice_keys(
        self, key_slice: str | slice | Mapping[int, str | slice], all_depths: bool = False
    ) -> Self:
        """Keep a range of keys.

        Args:
            key_slice: `"b:d"` keeps the keys from b to d, d and all that begins with it included; a
                slice counts the keys; a dict gives one of these for each depth, the first level
                being 0.
            all_depths: Apply it at every level.

        Example:
            >>> c = nb.Container(a=1, b=2, c={"a": 3, "b": 4}, d=5)
            >>> parts = c.cont_slice_keys("b:c"), c.cont_slice_keys({1: slice(1)})
            >>> parts[0].cont_to_dict(), parts[1].cont_to_dict()
            ({'b': 2, 'c': {'a': 3, 'b': 4}}, {'a': 1, 'b': 2, 'c': {'a': 3}, 'd': 5})
        """
        slices = dict(key_slice) if isinstance(key_slice, Mapping) else {0: key_slice}
        if all_depths and slices:
            first = next(iter(slices.values()))
            slices = {depth: slices.get(depth, first) for depth in range(self.cont_max_depth + 1)}

        def visit(level: Any, depth: int) -> Any:
            if depth in slices:
                level = level._like({k: level[k] for k in sliced(list(level), slices[depth])})
            return level._with_parts(lambda part: visit(part, depth + 1))

        return visit(self, 0)

    def cont_slice_via_key(self, slice_key: str) -> Any:
        """Put in the place of each part that has a certain key what it has there.

        Example:
            >>> c = nb.Container(a={"x": 1, "y": 2}, b={"c": {"x": 3}})
            >>> c.cont_slice_via_key("x").cont_to_dict()
            {'a': 1, 'b': {'c': 3}}
        """
        result = self._at((slice_key,), _ABSENT)
        if result is not _ABSENT:
            return result
        return self._with_parts(lambda part: part.cont_slice_via_key(slice_key))


def _renamed(container: Kind, rename: Callable[[str], str], include_empty: bool = False) -> Kind:
    """Rename the chain of each leaf by `rename`."""
    pairs = container.cont_to_iterator(include_empty=include_empty)
    return _rearranged(container, ((chain, rename(chain), value) for chain, value in pairs))


def _rearranged(container: Kind, pairs: Iterable[tuple[str, str, Any]]) -> Kind:
    """Build a Container from (old chain, new chain, leaf or part)."""
    return container._from_dict(placed(_entries(pairs)), container._settings)


def _entries(pairs: Iterable[tuple[str, str, Any]]) -> Iterator[tuple[tuple[str, ...], Any, str]]:
    for old, chain, value in pairs:
        keys = split_chain(chain) if isinstance(chain, str) else ()
        if not keys:
            raise ArgumentTypeError(
                f'"{old}" would get {chain!r} for a key chain, which is no text.'
            )
        if "" in keys:
            raise StructureError(f'"{old}" would get the key chain "{chain}", with an empty key.')
        if not isinstance(value, ChainMethods) or not value:
            yield keys, {} if isinstance(value, ChainMethods) else value, f'"{old}"'
            continue
        inside = value.cont_to_iterator(include_empty=True)
        yield from _entries((f"{old}/{k}", f"{chain}/{k}", leaf) for k, leaf in inside)


def _cut(container: Kind, cuts: Callable[[int, Any], bool], inplace: bool) -> Kind:
    def visit(level: Any, depth: int) -> Any:
        if cuts(depth, level):
            return level._like({})
        return level._with_parts(lambda part: visit(part, depth + 1))

    new = visit(container, 0)
    return take_over(container, new) if inplace else new


def sliced(keys: list[str], key_slice: str | slice) -> list[str]:
    """Return the keys in a slice or between two texts."""
    if isinstance(key_slice, slice):
        return keys[key_slice]
    if not isinstance(key_slice, str) or key_slice.count(":") != 1:
        raise ArgumentTypeError(
            f'keys are sliced by text such as "b:d" or by a slice, got {key_slice!r}.'
        )
    first, last = key_slice.split(":")
    return [
        key for key in keys if key >= first and (not last or key <= last or key.startswith(last))
    ]
