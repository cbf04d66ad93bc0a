"""New structures of the same leaves: flatten, rename, rearrange, cut and slice.

Two leaves that would get one key chain are an error, never a loss.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from nbmodule.errors import ArgumentError, ArgumentTypeError, StructureError
from nbmodule.tree.converting import max_depth, to_iterator
from nbmodule.tree.given import placed, split
from nbmodule.tree.looking_up import at_key_chain, key_test, prune_key_chains
from nbmodule.tree.mapping import take_over
from nbmodule.tree.nested import Kind, Nested

_ABSENT = object()


def _renamed(container: Kind, pairs: Iterable[tuple[str, str, Any]]) -> Kind:
    """Build a Container from (old chain, new chain, leaf or part)."""
    return container._from_dict(placed(_entries(pairs)), container._settings)


def _entries(pairs: Iterable[tuple[str, str, Any]]) -> Iterator[tuple[tuple[str, ...], Any, str]]:
    for old, chain, value in pairs:
        keys = split(chain) if isinstance(chain, str) else ()
        if not keys:
            raise ArgumentTypeError(
                f'"{old}" would get {chain!r} for a key chain, which is no text. Nothing was '
                f"changed."
            )
        if "" in keys:
            raise StructureError(
                f'"{old}" would get the key chain "{chain}", with an empty key. Nothing was '
                f"changed."
            )
        if not isinstance(value, Nested):
            yield keys, value, f'"{old}"'
        elif not value:
            yield keys, {}, f'"{old}"'
        else:
            for inner, leaf in to_iterator(value, include_empty=True):
                yield (
                    (*keys, *split(inner)),
                    {} if isinstance(leaf, Nested) else leaf,
                    f'"{old}/{inner}"',
                )


# Names


def flatten_key_chains(
    container: Kind,
    include_empty: bool = False,
    above_height: int | None = None,
    below_depth: int | None = None,
) -> Kind:
    """Join the keys of each chain into one, as `a__b__c`."""
    return _renamed(
        container,
        (
            (chain, flatten_key_chain(chain, "__", above_height, below_depth), value)
            for chain, value in to_iterator(container, include_empty=include_empty)
        ),
    )


def flatten_key_chain(
    key_chain: str, replacement: str, above_height: int | None, below_depth: int | None
) -> str:
    """Join the keys of one chain."""
    if not isinstance(key_chain, str) or not isinstance(replacement, str):
        raise ArgumentTypeError("a key chain, and what stands between its joined keys, are text.")
    for name, count in (("above_height", above_height), ("below_depth", below_depth)):
        if count is not None and count < 0:
            raise ArgumentError(f"{name} is a number of levels from 0 on; found {count}.")
    keys = split(key_chain)
    top, bottom = below_depth or 0, above_height or 0
    ending = keys[len(keys) - bottom :] if bottom and len(keys) > bottom else ()
    keys_left = keys[: len(keys) - len(ending)]
    beginning = keys_left[:top] if top and len(keys) > top else ()
    middle = replacement.join(keys_left[len(beginning) :])
    return "/".join([*beginning, *([middle] if middle else []), *ending])


def format_key_chains(container: Kind, format_fn: Callable[[str], str]) -> Kind:
    """Rename each leaf: `format_fn` takes its key chain and gives the new one."""
    return _renamed(
        container, ((chain, format_fn(chain), value) for chain, value in to_iterator(container))
    )


def restructure_key_chains(
    container: Kind, keychain_mapping: Mapping[str, str], keep_orig: bool, replace: bool
) -> Kind:
    """Give leaves or parts other key chains."""
    if not isinstance(keychain_mapping, Mapping):
        raise ArgumentTypeError(
            f"a mapping from old to new key chains is wanted, not "
            f"{type(keychain_mapping).__name__}."
        )
    moved = [(old, new, at_key_chain(container, old)) for old, new in keychain_mapping.items()]
    retained = prune_key_chains(container, list(keychain_mapping)) if replace else container
    stay = list(to_iterator(retained, include_empty=True)) if keep_orig else []
    return _renamed(container, [*((chain, chain, value) for chain, value in stay), *moved])


def prune_keys_from_key_chains(
    container: Kind, absolute: str | Iterable[str] | None, containing: str | Iterable[str] | None
) -> Kind:
    """Take levels out and keep what is below them."""
    if absolute is None and containing is None:
        raise ArgumentError("give absolute= or containing=: the keys to take out.")
    tests = [
        key_test(keys, part)
        for keys, part in ((absolute, False), (containing, True))
        if keys is not None
    ]
    return _renamed(
        container,
        (
            (
                chain,
                "/".join(key for key in chain.split("/") if not any(test(key) for test in tests)),
                value,
            )
            for chain, value in to_iterator(container, include_empty=True)
        ),
    )


# Cuts


def cutoff_at_depth(container: Kind, depth_cutoff: int, inplace: bool) -> Kind:
    """Keep this many levels: parts that lie deeper become empty."""
    return _cut(container, lambda depth, _: depth >= depth_cutoff, inplace)


def cutoff_at_height(container: Kind, height_cutoff: int, inplace: bool) -> Kind:
    """Cut this many levels away from below: parts that are at most so deep become empty."""
    return _cut(container, lambda _, part: max_depth(part) <= height_cutoff, inplace)


def _cut(container: Kind, cuts: Callable[[int, Any], bool], inplace: bool) -> Kind:
    def visit(level: Any, depth: int) -> Any:
        if cuts(depth, level):
            return level._like({})
        return level._like(
            {
                key: visit(value, depth + 1) if isinstance(value, Nested) else value
                for key, value in level.items()
            }
        )

    new = visit(container, 0)
    return take_over(container, new) if inplace else new


# Slices


def slice_keys(
    container: Kind, key_slice: str | slice | Mapping[int, str | slice], all_depths: bool
) -> Kind:
    """Keep a range of keys."""
    slices = dict(key_slice) if isinstance(key_slice, Mapping) else {0: key_slice}
    if all_depths and slices:
        first = next(iter(slices.values()))
        slices = {depth: slices.get(depth, first) for depth in range(max_depth(container) + 1)}

    def visit(level: Any, depth: int) -> Any:
        keys = sliced(list(level.keys()), slices[depth]) if depth in slices else level.keys()
        return level._like(
            {
                key: visit(level[key], depth + 1) if isinstance(level[key], Nested) else level[key]
                for key in keys
            }
        )

    return visit(container, 0)


def slice_via_key(container: Nested, slice_key: str) -> Any:
    """Put in the place of each part that has a certain key what it has there."""
    result = container._at((slice_key,), _ABSENT)
    if result is not _ABSENT:
        return result
    return container._like(
        {
            key: slice_via_key(value, slice_key) if isinstance(value, Nested) else value
            for key, value in container.items()
        }
    )


def sliced(keys: list[str], key_slice: str | slice) -> list[str]:
    """Give the keys in a slice or between two texts."""
    if isinstance(key_slice, slice):
        return keys[key_slice]
    if not isinstance(key_slice, str) or key_slice.count(":") != 1:
        raise ArgumentTypeError(
            f'keys are sliced by a text such as "b:d" or by a slice, not by {key_slice!r}.'
        )
    first, last = key_slice.split(":")
    return [
        key for key in keys if key >= first and (not last or key <= last or key.startswith(last))
    ]
