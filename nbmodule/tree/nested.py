"""A dict of dicts as a PyTree, with key chains as indices, and what a user gives to make one.

A key with `/` or `.` is a key chain and makes levels: `{"b/c": 1}` is `{"b": {"c": 1}}`. Other keys
count by their text. Two entries that would get one place are an error, never a silent
loss.

A new key is stored at the end; the keys are sorted when they are next listed (`_ordered`). Every
change goes through `_put` or `_remove`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from typing import Any, Self, TypeVar

import jax

from nbmodule.base.kinds import is_whole
from nbmodule.base.paths import hint, sort_names
from nbmodule.errors import ArgumentError, ArgumentTypeError, PathError, StructureError


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """The options of `Container(...)`; they are described there."""

    print_limit: int | None = 10
    print_indent: int = 4
    key_length_limit: int | None = None
    alphabetical_keys: bool = True

    def __post_init__(self) -> None:
        for name in ("print_limit", "print_indent", "key_length_limit"):
            value = getattr(self, name)
            if value is None and name != "print_indent":
                continue
            if not is_whole(value) or value < 0:
                raise ArgumentError(f"{name} must be an integer of at least 0, got {value!r}.")


DEFAULT = Settings()


def split_chain(text: str) -> tuple[str, ...]:
    """Take a key chain apart at `/` and `.`."""
    return tuple(text.replace(".", "/").split("/"))


def key_text(key: object) -> str:
    """Return the text of a key.

    Raises:
        StructureError: if a part of the text is empty, or if a key that is not text has a separator
            in its own.
    """
    text = str(key)
    if not isinstance(key, str) and ("/" in text or "." in text):
        raise StructureError(
            f'the key {key!r} has the text "{text}", in which "/" and "." would separate levels. '
            "Give it a name of your own."
        )
    if "" in split_chain(text):
        raise StructureError(f"the key {key!r} has an empty part.")
    return text


def placed(entries: Iterable[tuple[tuple[str, ...], Any, str]]) -> dict[str, Any]:
    """Build a nested dict of entries: the keys of a place, the value (`{}` for an empty level), and
    a name for messages.

    Raises:
        StructureError: if two entries would have one place; both are named.
    """
    whole: dict[str, Any] = {}
    origins: dict[tuple[str, ...], str] = {}
    for keys, value, origin in entries:
        level = whole
        for depth, name in enumerate(keys[:-1]):
            level = level.setdefault(name, {})
            if type(level) is not dict:
                _collide(keys[: depth + 1], origins, origin)
        if keys[-1] in level and not (type(value) is dict and type(level[keys[-1]]) is dict):
            _collide(keys, origins, origin)
        level.setdefault(keys[-1], value)
        origins[keys] = origin
    return whole


def _entries(
    supplied: Mapping[Any, Any],
    prefix: tuple[str, ...] = (),
    origin: str = "",
    within: tuple[int, ...] = (),
) -> Iterator[tuple[tuple[str, ...], Any, str]]:
    """List the leaves, Containers and empty levels below a mapping: keys, value, and the keys as
    they were given.
    """
    if id(supplied) in within:
        raise StructureError("cannot make a Container from a dict that contains itself.")
    for key, value in supplied.items():
        keys = prefix + split_chain(key_text(key))
        current = f"{origin} > {key!r}" if origin else repr(key)
        if isinstance(value, Nested) or not isinstance(value, Mapping):
            yield keys, value, current
        elif value:
            yield from _entries(value, keys, current, (*within, id(supplied)))
        else:
            yield keys, {}, current


def _collide(keys: tuple[str, ...], origins: dict[tuple[str, ...], str], second: str) -> None:
    first = next(origin for location, origin in origins.items() if location[: len(keys)] == keys)
    raise StructureError(
        f'{first} and {second} would both lie at "{"/".join(keys)}". Rename one of them. '
    )


_MISSING, _ABSENT = object(), object()
set_slot = object.__setattr__  # past `Container.__setattr__`, which sets keys
UNSET = {"_settings": DEFAULT, "_names": None, "_link": None}


def is_of_class(obj: object, name: str) -> bool:
    """Return True if the class of an object has that attribute.

    Where a property raises `AttributeError`, Python forgets that error and calls `__getattr__`. A
    class that defines it must not call the property missing: `object.__getattribute__(obj, name)`
    raises the error of the property again.

    Example:
        >>> is_of_class(1, "real"), is_of_class(1, "rael")
        (True, False)
    """
    return any(name in vars(cls) for cls in type(obj).__mro__)


class Names(tuple):
    """The keys of one level in canonical order; also the static part of its PyTree node.

    Equality is that of the tuple: print settings are carried along, but do not distinguish
    structures.
    """

    settings: Settings | None = None
    order: tuple[str, ...] | None = None
    stored_in_order: bool = True


class Nested(dict):
    """A dict of dicts; `Container` gives it its methods.

    A level is made in the thousands by one operator, so it has slots, and those that were never set
    are set to `UNSET` when they are first read.
    """

    __slots__ = ("__weakref__", "_link", "_names", "_settings")

    _settings: Settings
    _names: Names | None
    _link: Any

    def __getattr__(self, name: str) -> Any:
        if name not in UNSET:
            raise AttributeError(name)
        value = UNSET[name]
        set_slot(self, name, value)
        return value

    @classmethod
    def _from_dict(cls, level: dict[str, Any], settings: Settings | None = None) -> Self:
        """Make a Container of a dict whose keys are text without separators."""
        new = cls.__new__(cls)
        if settings is not None and settings is not DEFAULT:
            set_slot(new, "_settings", settings)
        for name, value in level.items():
            if type(value) is dict:
                level[name] = cls._from_dict(value, settings)
        new._take(level)
        return new

    def _take(self, level: Mapping[str, Any]) -> None:
        """Store all items of a new level in order."""
        names = sort_names(level)
        if self._settings.alphabetical_keys and names != list(level):
            dict.update(self, {name: level[name] for name in names})
        else:
            dict.update(self, level)
        self._note(names)

    def _note(self, names: Iterable[str]) -> Names:
        """Cache the keys in canonical order, with the print settings."""
        names, settings = Names(names), self._settings
        stored = tuple(dict.keys(self))
        if names != stored:
            names.stored_in_order = False
        if settings is not DEFAULT:
            names.settings = settings
            if not settings.alphabetical_keys:
                names.order = stored
        set_slot(self, "_names", names)
        return names

    def _like(self, level: Mapping[str, Any]) -> Self:
        """Make a level of the same type and settings from valid keys."""
        return self._from_dict(dict(level), self._settings)

    def _with_parts(self, fn: Callable[[Any], Any]) -> Self:
        """Make a copy of this level with `fn(part)` in the place of each part."""
        level = {k: fn(value) if isinstance(value, Nested) else value for k, value in self.items()}
        return self._like(level)

    def _mapping_from(self, supplied: Any) -> Mapping[Any, Any]:
        """Return the argument of a constructor, a mapping, pairs or None, as a mapping."""
        if supplied is None or isinstance(supplied, Mapping):
            return supplied or {}
        try:
            return dict(supplied)
        except (TypeError, ValueError):
            raise ArgumentTypeError(
                f"a {type(self).__name__} is made of a mapping or of pairs, not of "
                f"{type(supplied).__name__}."
            ) from None

    def _admit(self, value: Any) -> Any:
        """Convert a mapping into a Container, whose chains become levels; other values are
        unchanged.
        """
        if isinstance(value, Nested) or not isinstance(value, Mapping):
            return value
        return self._from_dict(placed(_entries(value)), self._settings)

    def _with_settings(self, inplace: bool = False, **changes: object) -> Self:
        """Change settings of all levels, here or in a copy."""
        target = self if inplace else self.copy()
        set_slot(target, "_settings", dataclasses.replace(self._settings, **changes))
        set_slot(target, "_names", None)
        for key, value in dict.items(target):
            if isinstance(value, Nested):
                dict.__setitem__(target, key, value._with_settings(inplace, **changes))
        return target

    # Ordering
    def _ordered(self) -> Names:
        """Return the keys in canonical order."""
        return self._names or self._note(sort_names(dict.keys(self)))

    # Places
    def _keys_of(self, location: object) -> tuple[str, ...] | None:
        """Split a key, a key chain or a tuple of keys; None for an index into arrays."""
        if isinstance(location, str):
            if "/" not in location and "." not in location:
                return (location,) if location else ()
            keys = split_chain(location)
        elif (
            isinstance(location, tuple)
            and location
            and all(isinstance(key, str) for key in location)
        ):
            keys = tuple(key for part in location for key in split_chain(part))
        else:
            return None
        if "" in keys:
            raise PathError(f"the key chain {location!r} has an empty key.")
        return keys

    def _chain(self, location: object) -> tuple[str, ...]:
        """Split a key or a key chain.

        Raises:
            ArgumentTypeError: if it is neither.
        """
        keys = self._keys_of(location)
        if keys is None:
            raise ArgumentTypeError(f"a key chain must be a str, got {type(location).__name__}.")
        return keys

    def _at(self, keys: Iterable[str], default: object = _MISSING) -> Any:
        """Return the value at a chain; a missing one returns the default, or raises `PathError`."""
        value: Any = self
        for key in keys:
            value = dict.get(value, key, _MISSING) if isinstance(value, Nested) else _MISSING
        if value is not _MISSING:
            return value
        if default is not _MISSING:
            return default
        chain = "/".join(keys)
        raise PathError(f'the Container has no "{chain}"{hint(chain, self._chains(levels=True))}')

    def _has(self, location: object) -> bool:
        """Return True if there is a leaf or a part at a key, a key chain or a tuple of keys."""
        keys = self._keys_of(location)
        return keys is not None and self._at(keys, _ABSENT) is not _ABSENT

    def _chains(self, levels: bool = False, prefix: str = "") -> Iterator[str]:
        for key, value in self.items():
            if isinstance(value, Nested):
                if levels:
                    yield prefix + key
                yield from value._chains(levels, f"{prefix}{key}/")
            else:
                yield prefix + key

    def _put(self, key: str, value: Any) -> None:
        """Store at one key of this level; a link may convert the value."""
        value = self._admit(value)
        if isinstance(value, Nested) and value._holds(self):
            raise StructureError(f'cannot set "{key}": the Container would contain itself.')
        if self._link is not None:
            value = self._link.setting(self, key, value)
        if not dict.__contains__(self, key):
            set_slot(self, "_names", None)
        dict.__setitem__(self, key, value)

    def _holds(self, part_of: Nested) -> bool:
        return self is part_of or any(
            isinstance(part, Nested) and part._holds(part_of) for part in self.values()
        )

    def _put_at(self, keys: tuple[str, ...], value: Any) -> None:
        """Store at a chain of keys; missing levels are created, and attached when complete."""
        if not keys:
            raise PathError("the empty key chain is the Container itself and cannot be set.")
        level: Nested = self
        for depth, key in enumerate(keys[:-1]):
            inner = dict.get(level, key, _MISSING)
            if inner is _MISSING:
                for missing in reversed(keys[depth + 1 :]):
                    value = level._like({missing: level._admit(value)})
                level._put(key, value)
                return
            if not isinstance(inner, Nested):
                location, leaf = "/".join(keys), "/".join(keys[: depth + 1])
                raise StructureError(
                    f'cannot set "{location}": "{leaf}" holds a value of type '
                    f"{type(inner).__name__}, not a Container."
                )
            level = inner
        level._put(keys[-1], value)

    def _remove(self, key: str) -> Any:
        """Remove one key of this level and return its value."""
        if self._link is not None:
            self._link.deleting(self, key)
        set_slot(self, "_names", None)
        value = dict.pop(self, key)
        return value

    def _remove_at(self, keys: tuple[str, ...]) -> Any:
        if not keys:
            raise PathError("the empty key chain is the Container itself and cannot be deleted.")
        self._at(keys)
        return self._at(keys[:-1])._remove(keys[-1])

    # The dict protocol
    def _level(self) -> dict[str, Any]:
        """Return this level, or a sorted copy where keys were added out of order.

        The stored dict itself is never put in order, since another thread may be reading it.
        """
        names = self._ordered()
        if names.stored_in_order or not self._settings.alphabetical_keys:
            return self
        return {name: dict.__getitem__(self, name) for name in names}

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __reversed__(self) -> Iterator[str]:
        return reversed(list(self.keys()))

    # These three return views of a dict, whose type has no name for an annotation.
    def keys(self) -> KeysView[str]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return the keys of this level, in order; see `cont_all_key_chains` for all levels."""
        return dict.keys(self._level())

    def values(self) -> ValuesView[Any]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return the values of this level, in the order of their keys."""
        return dict.values(self._level())

    def items(self) -> ItemsView[str, Any]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return the pairs of this level, in the order of their keys."""
        return dict.items(self._level())

    def get(self, key: object, default: object = None) -> Any:
        """Return the value at a key or a key chain, else the default."""
        keys = self._keys_of(key)
        return default if keys is None else self._at(keys, default)

    def pop(self, key: object, default: object = _MISSING) -> Any:
        """Remove and return the value at a key or a key chain, else the default, if there is
        one.
        """
        if default is not _MISSING and not self._has(key):
            return default
        return self._remove_at(self._chain(key))

    def popitem(self) -> tuple[str, Any]:
        """Remove and return the last pair of this level."""
        for key in reversed(self):
            return key, self._remove(key)
        raise PathError("popitem: the Container is empty.")

    def setdefault(self, key: object, default: Any = None) -> Any:
        """Return the value at a key or a key chain, after storing the default if it is missing."""
        keys = self._chain(key)
        if not self._has(key):
            self._put_at(keys, default)
        return self._at(keys)

    def update(self, items: Any = (), /, **kwargs: object) -> None:
        """Set keys or key chains of this level; a mapping replaces the part at its key."""
        pairs = items.items() if isinstance(items, Mapping) else dict(items).items()
        for key, value in [*pairs, *kwargs.items()]:
            self._put_at(self._keys_of(key) or (key_text(key),), value)

    def clear(self) -> None:
        """Remove all keys."""
        for key in list(self):
            self._remove(key)

    def copy(self) -> Self:
        """Copy this level; parts and arrays are shared, as with any dict (`cont_copy` copies all
        levels).
        """
        return self._like(dict(self.items()))

    __copy__ = copy


Kind = TypeVar("Kind", bound=Nested)
"""The class of the Container that a function is given, which its result has too."""


def _flatten(tree: Nested) -> tuple[tuple[Any, ...], Names]:
    names = tree._names or tree._ordered()
    if names.stored_in_order:
        return tuple(dict.values(tree)), names
    return tuple(dict.__getitem__(tree, name) for name in names), names


def _flatten_with_keys(tree: Nested) -> tuple[tuple[tuple[Any, Any], ...], Names]:
    children, names = _flatten(tree)
    return tuple(zip(map(jax.tree_util.DictKey, names), children, strict=True)), names


def register_container(cls: type[Nested]) -> None:
    """Register a class of Containers as PyTree nodes."""

    def unflatten(names: Names, children: Iterable[Any]) -> Nested:
        new = cls.__new__(cls)
        if names.settings is None and names.stored_in_order:
            dict.update(new, zip(names, children))
            set_slot(new, "_names", names)
            return new
        if names.settings is not None:
            set_slot(new, "_settings", names.settings)
        level = dict(zip(names, children, strict=True))
        new._take({name: level[name] for name in names.order or names})
        return new

    jax.tree_util.register_pytree_with_keys(cls, _flatten_with_keys, unflatten, _flatten)
