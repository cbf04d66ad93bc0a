"""Places of a Container: looking them up, setting and dropping them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from nbmodule.base.paths import hint
from nbmodule.errors import ArgumentTypeError, AttributePathError, PathError
from nbmodule.tree.converting import to_iterator
from nbmodule.tree.nested import Kind, Nested

_ABSENT = object()


def asked_keys(container: Nested, key_chains: object) -> list[tuple[str, ...]]:
    """Take `key_chains` in any form apart, and check that each exists."""
    requested = keys_of_chains(container, key_chains)
    for keys in requested:
        container._at(keys)
    return requested


def _target(container: Kind, inplace: bool) -> Kind:
    return container if inplace else copy_levels(container)


def copy_levels(container: Kind) -> Kind:
    """Copy all levels; the leaves are shared."""
    level = {
        key: copy_levels(value) if isinstance(value, Nested) else value
        for key, value in container.items()
    }
    return container._like(level)


# Looking up


def at_key_chain(container: Nested, key_chain: str, ignore_key_errors: bool = False) -> Any:
    """Give the leaf or the part at a key chain; a missing one raises, or gives None if errors are
    ignored.
    """
    keys = container._chain(key_chain)
    return container._at(keys, None) if ignore_key_errors else container._at(keys)


def at_key_chains(container: Kind, key_chains: object, ignore_key_errors: bool = False) -> Kind:
    """Give the Container of only those key chains."""
    requested = (
        keys_of_chains(container, key_chains)
        if ignore_key_errors
        else asked_keys(container, key_chains)
    )
    new = container._like({})
    for keys in requested:
        value = container._at(keys, _ABSENT)
        if value is not _ABSENT and new._at(keys, _ABSENT) is _ABSENT:
            new._put_at(keys, copy_levels(value) if isinstance(value, Nested) else value)
    return new


def at_keys(container: Kind, keys: str | Iterable[str], containing: bool) -> Kind:
    """Give the Container of the leaves below certain keys, at whatever level these are."""
    fits = key_test(keys, containing)

    def pick(level: Nested) -> dict[str, Any]:
        chosen: dict[str, Any] = {}
        for key, value in level.items():
            if fits(key):
                chosen[key] = copy_levels(value) if isinstance(value, Nested) else value
            elif isinstance(value, Nested) and (inner := pick(value)):
                chosen[key] = inner
        return chosen

    return container._like(pick(container))


def all_key_chains(container: Nested, include_empty: bool = False) -> list[str]:
    """List the key chains of all leaves; of empty levels too, if asked."""
    return [chain for chain, _ in to_iterator(container, include_empty=include_empty)]


def key_chains_containing(container: Nested, text: str, include_empty: bool) -> list[str]:
    """List the key chains that contain a text."""
    return [chain for chain in all_key_chains(container, include_empty) if text in chain]


def has_key(container: Nested, text: str) -> bool:
    """Tell whether there is such a key at any level; a chain is looked for at any level too."""
    keys = container._keys_of(text)
    if not keys:
        return False
    parts = (value for value in container.values() if isinstance(value, Nested))
    return container._at(keys, _ABSENT) is not _ABSENT or any(has_key(part, text) for part in parts)


def has_key_chain(container: Nested, key_chain: str) -> bool:
    """Tell whether there is a leaf or a part at this key chain."""
    keys = container._keys_of(key_chain)
    return keys is not None and container._at(keys, _ABSENT) is not _ABSENT


# Setting


def set_at_key_chain(container: Kind, key_chain: str, val: Any, inplace: bool) -> Kind:
    """Set a leaf or a part; missing levels are made."""
    keys = container._chain(key_chain)
    target = _target(container, inplace)
    target._put_at(keys, val)
    return target


def overwrite_at_key_chain(container: Kind, key_chain: str, val: object, inplace: bool) -> Kind:
    """Set a leaf or a part that exists already."""
    at_key_chain(container, key_chain)
    return set_at_key_chain(container, key_chain, val, inplace)


def set_all(container: Kind, given: Mapping[str, Any], inplace: bool, *, must_exist: bool) -> Kind:
    """Set all leaves of a dict, nested or with key chains as keys; other leaves stay, and with
    `must_exist` none may be new.
    """
    expected = [
        (container._chain(chain), value)
        for chain, value in to_iterator(as_container(container, given), include_empty=True)
    ]
    trial = copy_levels(container)
    for keys, value in expected:
        if must_exist:
            container._at(keys)
        trial._put_at(keys, value)
    if not inplace:
        return trial
    for keys, value in expected:
        container._put_at(keys, value)
    return container


def create_if_absent(container: Kind, key_chain: str, val: object, inplace: bool) -> Kind:
    """Set a leaf or a part where there is none yet."""
    target = _target(container, inplace)
    return (
        target
        if has_key_chain(target, key_chain)
        else set_at_key_chain(target, key_chain, val, inplace=True)
    )


# Dropping


def delete(container: Nested, place: object) -> None:
    """`del container[place]`."""
    keys = container._keys_of(place)
    if keys is None:
        raise ArgumentTypeError(
            f"only a key or a key chain can be deleted, not an index of type "
            f"{type(place).__name__}."
        )
    container._remove_at(keys)


def delete_attribute(container: Nested, name: str) -> None:
    """`del container.name`."""
    if not dict.__contains__(container, name):
        raise AttributePathError(
            f'{type(container).__name__} has no key "{name}"{hint(name, dict.keys(container))}'
        )
    container._remove_at((name,))


def prune_key_chains(container: Kind, key_chains: object, inplace: bool = False) -> Kind:
    """Drop several leaves or parts, and the levels that are empty without them."""
    requested = asked_keys(container, key_chains)
    target = _target(container, inplace)
    for keys in requested:
        if target._at(keys, _ABSENT) is _ABSENT:  # it went with a level above it
            continue
        target._remove_at(keys)
        while (keys := keys[:-1]) and not target._at(keys):
            target._remove_at(keys)
    return target


def prune_keys(container: Kind, keys: str | Iterable[str], inplace: bool) -> Kind:
    """Drop certain keys with all below them, at every level, and the levels that are empty without
    them.
    """
    fits = key_test(keys, False)

    def found(level: Nested, prefix: str) -> list[str]:
        chains: list[str] = []
        for key, value in level.items():
            if fits(key):
                chains.append(prefix + key)
            elif isinstance(value, Nested):
                chains += found(value, f"{prefix}{key}/")
        return chains

    return prune_key_chains(container, found(container, ""), inplace)


def prune_empty(container: Kind, keep_nones: bool = False) -> Kind:
    """Drop empty levels, and leaves that are None unless these are to be kept."""
    level: dict[str, Any] = {}
    for key, value in container.items():
        if isinstance(value, Nested):
            inner = prune_empty(value, keep_nones)
            if inner:
                level[key] = inner
        elif keep_nones or value is not None:
            level[key] = value
    return container._like(level)


def as_container(like: Nested, given: object) -> Any:
    """Make a Container of a mapping, of the type and settings of another; a Container is handed
    back.
    """
    if isinstance(given, Nested):
        return given
    new = like._like({})
    new._fill(new._mapping_from(given))
    return new


def keys_of_chains(like: Nested, key_chains: object) -> list[tuple[str, ...]]:
    """Take key chains apart: a list or other iterable of chains, a dict whose chains count, or one
    chain.
    """
    if isinstance(key_chains, Mapping):
        chains: Iterable[Any] = all_key_chains(as_container(like, key_chains), include_empty=True)
    elif isinstance(key_chains, str):
        chains = [key_chains]
    elif isinstance(key_chains, Iterable):
        chains = key_chains
    else:
        raise ArgumentTypeError(
            f"key chains are a list, a dict or one string, not {type(key_chains).__name__}."
        )
    results = []
    for chain in chains:
        keys = like._keys_of(chain)
        if not keys:
            raise PathError(f"{chain!r} is no key chain.")
        results.append(keys)
    return results


def key_test(keys: str | Iterable[str], containing: bool) -> Callable[[str], bool]:
    """Give the test whether a key is one of several, or contains one of them."""
    expected = {keys} if isinstance(keys, str) else set(keys)
    if not all(isinstance(key, str) for key in expected):
        raise ArgumentTypeError("keys are text: one key or a list of keys.")
    return (
        (lambda key: any(part in key for part in expected)) if containing else expected.__contains__
    )
