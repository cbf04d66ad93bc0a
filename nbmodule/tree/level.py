"""One level of a Container: how it is made, in what order its keys are, and what is put off until it is looked at.

Two things are put off, because both would cost time on every operator and every key:

- *values*: an operator leaves an unfinished `Expression` in `_pending`; the first look at a value or key finishes it;
- *order*: a new key is stored at the end, and the order is found out when the keys are next listed (`_names`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Self

from nbmodule.base.depth import allow
from nbmodule.base.paths import sort_names
from nbmodule.errors import ArgumentTypeError, StructureError
from nbmodule.tree.expression import Expression, memory
from nbmodule.tree.given import as_mapping, level_of
from nbmodule.tree.settings import DEFAULT, Settings

set_slot = object.__setattr__  # past `Container.__setattr__`, which sets keys
UNSET = {"_settings": DEFAULT, "_pending": None, "_names": None, "_known": None, "_link": None}


class Names(tuple):
    """The keys of one level in canonical order; also the static part of its PyTree node.

    Equality is that of the tuple: how a Container prints is carried along, but two that differ only in this are one structure.
    """

    settings: Settings | None = None
    order: tuple[str, ...] | None = None
    stored_in_order: bool = True


class Level(dict):
    """A dict that may hold further levels.

    A level is made in the thousands by one operator, so it has slots, and those that were never set are set to `UNSET` when
    they are first read.
    """

    __slots__ = ("__weakref__", "_known", "_link", "_names", "_pending", "_settings")

    _settings: Settings
    _pending: Expression | None
    _names: Names | None
    _known: tuple[int, Expression] | None
    _link: Any

    def __getattr__(self, name: str) -> Any:
        if name not in UNSET:
            raise AttributeError(name)
        value = UNSET[name]
        set_slot(self, name, value)
        return value

    @classmethod
    def _from_dict(cls, level: dict[str, Any], settings: Settings | None = None) -> Self:
        """Adopt a dict as it is: keys are text without separators, plain dicts below become levels."""
        new = cls.__new__(cls)
        for name, value in level.items():
            if type(value) is dict:
                level[name] = cls._from_dict(value, settings)
        if settings is not None and settings is not DEFAULT:
            set_slot(new, "_settings", settings)
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
        """Remember the keys in canonical order, with what rides along through a PyTree."""
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
        """Make a level of the same type and settings from keys that are known to be good."""
        return self._from_dict(dict(level), self._settings)

    def _fill(self, given: Mapping[Any, Any], within: tuple[int, ...] = ()) -> None:
        """Take over the items of a mapping from a user: chains become levels, mappings become Containers."""
        level = level_of(given, self._settings)
        self._take({name: self._admit(value, (*within, id(given))) for name, value in level.items()})

    def _mapping_from(self, given: Any) -> Mapping[Any, Any]:
        """Make a mapping of what a constructor is given: a mapping, pairs, or a sequence of a nested type."""
        if given is None:
            return {}
        mapping = as_mapping(given, self._settings)
        if mapping is None:
            try:
                mapping = dict(given)
            except (TypeError, ValueError):
                raise ArgumentTypeError(
                    f"a {type(self).__name__} is made of a mapping or of pairs, not of {type(given).__name__}."
                ) from None
        return mapping

    def _admit(self, value: Any, within: tuple[int, ...] = ()) -> Any:
        """Turn a mapping that is to be stored into a Container; anything else stays what it is."""
        settings = self._settings
        if isinstance(value, Level) and not settings.rebuild_child_containers:
            return value
        mapping = as_mapping(value, settings)
        if mapping is None:
            return value
        if id(value) in within:
            raise StructureError("cannot make a Container from a dict that contains itself. Nothing was changed.")
        allow(len(within))
        new = type(self).__new__(type(self))
        if settings is not DEFAULT:
            set_slot(new, "_settings", settings)
        new._fill(mapping, (*within, id(value)))
        return new

    # What is put off
    def _ready(self) -> None:
        """Finish the operator that this Container is the result of, if it is one."""
        pending = self._pending
        if pending is not None:
            values = iter(pending.force())
            with pending.lock:
                if self._pending is not None:
                    self._build(pending.structure, values)
                    set_slot(self, "_pending", None)
                    memory.note_known(self, memory.changes, pending)
            memory.open.pop(id(self), None)

    def _build(self, structure: tuple, values: Iterator[Any]) -> None:
        """Fill this level, and make those below it, from the keys and the leaves in canonical order."""
        names, parts = structure
        if not names.stored_in_order:
            self._build_in_order(names, parts or (None,) * len(names), values)
            return
        if parts is None:
            fill(self, names, values)
            return
        kind, settings = type(self), self._settings
        make = kind.__new__
        for name, part in zip(names, parts):  # one turn for each level: every call counts
            if part is None:
                _store(self, name, next(values))
                continue
            level = make(kind)
            if settings is not DEFAULT:
                set_slot(level, "_settings", settings)
            below, deeper = part
            if deeper is None and len(below) < _FEW and below.stored_in_order:
                for key in below:
                    _store(level, key, next(values))
                _set_names(level, below)
            else:
                level._build(part, values)
            _store(self, name, level)
        _set_names(self, names)

    def _build_in_order(self, names: Names, parts: tuple, values: Iterator[Any]) -> None:
        """Fill this level from leaves in canonical order where its keys have, or had, another order of their own."""
        level: dict[str, Any] = {}
        for name, part in zip(names, parts, strict=True):
            if part is None:
                level[name] = next(values)
            else:
                level[name] = self._like({})
                level[name]._build(part, values)
        self._take({name: level[name] for name in names.order or names})

    def _ordered(self) -> Names:
        """Give the keys in canonical order."""
        names = self._names
        if names is None:
            self._ready()
            names = self._names or self._note(sort_names(dict.keys(self)))
        return names


_store = dict.__setitem__
_set_names: Any = Level.__dict__["_names"].__set__  # the slot, without a look-up
_FEW = 10  # keys up to which storing one by one is quicker than a call of `update`


def fill(level: Level, names: Names, values: Iterator[Any]) -> None:
    """Fill a new level that has no parts."""
    if len(names) < _FEW:
        for name in names:
            _store(level, name, next(values))
    else:
        dict.update(level, zip(names, values))
    _set_names(level, names)
