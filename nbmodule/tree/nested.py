"""A dict of dicts with one way to reach, to set and to delete a place: the storage below `Container`.

Every method that reads the dict goes through `_ready` or `_ordered`, since values and order may have been put off (`level`).
Every change goes through `_put` or `_remove`. A key never holds `/` or `.`: these separate levels.
"""

from __future__ import annotations

import dataclasses
from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from typing import Any, Self

from nbmodule.base.paths import hint
from nbmodule.errors import ArgumentTypeError, PathError, StructureError
from nbmodule.tree.expression import memory
from nbmodule.tree.given import key_text, split
from nbmodule.tree.level import Level, set_slot

_MISSING = object()
_MISSING_HERE = object()


class Nested(Level):
    """A dict of dicts; `Container` gives it its methods."""

    __slots__ = ()

    def _with_settings(self, inplace: bool = False, **changes: Any) -> Self:
        """Change settings of all levels, here or in a copy."""
        target = self if inplace else self._like({})
        parts = {
            key: value._with_settings(inplace, **changes) if isinstance(value, Nested) else value
            for key, value in self.items()
        }
        set_slot(target, "_settings", dataclasses.replace(self._settings, **changes))
        if inplace:
            set_slot(self, "_names", None)
        else:
            target._take(parts)
        return target

    # Places
    def _keys_of(self, place: Any) -> tuple[str, ...] | None:
        """Split a key, a key chain or a tuple of keys; None for an index into arrays."""
        if isinstance(place, str):
            if "/" not in place and "." not in place:
                return (place,) if place else ()
            keys = split(place)
        elif isinstance(place, tuple) and place and all(isinstance(key, str) for key in place):
            keys = tuple(key for part in place for key in split(part))
        else:
            return None
        if "" in keys:
            raise PathError(f"the key chain {place!r} has an empty key.")
        return keys

    def _chain(self, place: Any) -> tuple[str, ...]:
        """Split what must be a key or a key chain.

        Raises:
            ArgumentTypeError: if it is something else.
        """
        keys = self._keys_of(place)
        if keys is None:
            raise ArgumentTypeError(f"a key chain is text, not {type(place).__name__}.")
        return keys

    def _at(self, keys: Iterable[str], default: Any = _MISSING) -> Any:
        """Walk down; without a default, a missing place raises `PathError` with the closest chain."""
        value: Any = self
        for key in keys:
            if not isinstance(value, Nested):
                value = _MISSING
                break
            value._ready()
            value = dict.get(value, key, _MISSING)
            if value is _MISSING:
                break
        if value is not _MISSING:
            return value
        if default is not _MISSING:
            return default
        chain = "/".join(keys)
        raise PathError(f'the Container has no "{chain}"{hint(chain, self._chains(levels=True))}')

    def _chains(self, levels: bool = False, prefix: str = "") -> Iterator[str]:
        for key, value in self.items():
            if isinstance(value, Nested):
                if levels:
                    yield prefix + key
                yield from value._chains(levels, f"{prefix}{key}/")
            else:
                yield prefix + key

    def _put(self, key: str, value: Any) -> None:
        """Store at one key of this level; the link, if any, has the last word on the value."""
        self._ready()
        value = self._admit(value)
        if isinstance(value, Nested) and value._holds(self):
            raise StructureError(f'cannot set "{key}": the Container would contain itself. Nothing was changed.')
        if self._link is not None:
            value = self._link.setting(self, key, value)
        if not dict.__contains__(self, key):
            set_slot(self, "_names", None)
        dict.__setitem__(self, key, value)
        memory.note_change()

    def _holds(self, other: Nested) -> bool:
        return self is other or any(isinstance(part, Nested) and part._holds(other) for part in self.values())

    def _put_at(self, keys: tuple[str, ...], value: Any) -> None:
        """Store at a chain of keys; levels that are missing are made, and attached when they are complete."""
        if not keys:
            raise PathError("the empty key chain is the Container itself and cannot be set.")
        level: Nested = self
        for depth, key in enumerate(keys[:-1]):
            level._ready()
            below = dict.get(level, key, _MISSING)
            if below is _MISSING:
                for missing in reversed(keys[depth + 1 :]):
                    value = level._like({missing: level._admit(value)})
                level._put(key, value)
                return
            if not isinstance(below, Nested):
                place, leaf = "/".join(keys), "/".join(keys[: depth + 1])
                raise StructureError(
                    f'cannot set "{place}": "{leaf}" holds a value of type {type(below).__name__}, not a Container. '
                    "Nothing was changed."
                )
            level = below
        level._put(keys[-1], value)

    def _remove(self, key: str) -> Any:
        """Take one key off this level and give its value."""
        self._ready()
        if self._link is not None:
            self._link.deleting(self, key)
        set_slot(self, "_names", None)
        value = dict.pop(self, key)
        memory.note_change()
        return value

    def _remove_at(self, keys: tuple[str, ...]) -> Any:
        if not keys:
            raise PathError("the empty key chain is the Container itself and cannot be deleted.")
        self._at(keys)
        return self._at(keys[:-1])._remove(keys[-1])

    # The dict protocol
    def _level(self) -> dict[str, Any] | None:
        """Give a sorted copy of this level where keys were added out of order; else None: it is in order.

        The stored dict itself is never put in order, since another thread may be reading it.
        """
        names = self._ordered()
        if names.stored_in_order or not self._settings.alphabetical_keys:
            return None
        return {name: dict.__getitem__(self, name) for name in names}

    def __len__(self) -> int:
        pending = self._pending
        return dict.__len__(self) if pending is None else len(pending.structure[0])

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __reversed__(self) -> Iterator[str]:
        return reversed(list(self.keys()))

    # What these three return is a view of a dict at run time, whose type has no name for an annotation.
    def keys(self) -> KeysView[str]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Give the keys of this level, in order; see `cont_all_key_chains` for all levels."""
        level = self._level()
        return dict.keys(self) if level is None else level.keys()

    def values(self) -> ValuesView[Any]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Give the values of this level, in the order of their keys."""
        level = self._level()
        return dict.values(self) if level is None else level.values()

    def items(self) -> ItemsView[str, Any]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Give the pairs of this level, in the order of their keys."""
        level = self._level()
        return dict.items(self) if level is None else level.items()

    def get(self, key: Any, default: Any = None) -> Any:
        """Give what is at a key or a key chain, else the default."""
        keys = self._keys_of(key)
        return default if keys is None else self._at(keys, default)

    def pop(self, key: Any, default: Any = _MISSING) -> Any:
        """Take out what is at a key or a key chain; a missing one gives the default, if there is one."""
        keys = self._keys_of(key)
        if default is not _MISSING and (keys is None or self._at(keys, _MISSING_HERE) is _MISSING_HERE):
            return default
        return self._remove_at(self._chain(key))

    def popitem(self) -> tuple[str, Any]:
        """Take out the last pair of this level."""
        for key in reversed(self):
            return key, self._remove(key)
        raise PathError("popitem: the Container is empty.")

    def setdefault(self, key: Any, default: Any = None) -> Any:
        """Give what is at a key or a key chain; store the default there first if nothing is."""
        keys = self._chain(key)
        if self._at(keys, _MISSING_HERE) is _MISSING_HERE:
            self._put_at(keys, default)
        return self._at(keys)

    def update(self, given: Any = (), /, **kwargs: Any) -> None:
        """Set many keys or key chains of this level; a mapping replaces what was at its key."""
        pairs = given.items() if isinstance(given, Mapping) else dict(given).items()
        for key, value in [*pairs, *kwargs.items()]:
            self._put_at(self._keys_of(key) or (key_text(key),), value)

    def clear(self) -> None:
        """Take out everything."""
        for key in list(self):
            self._remove(key)

    def copy(self) -> Self:
        """Copy this level; parts and arrays are shared, as with any dict (`cont_copy` copies all levels)."""
        return self._like(dict(self.items()))

    __copy__ = copy
