"""What a function may use from its surroundings: a guess at its modules, and a watch on the code that it runs."""

from __future__ import annotations

import dis
import functools
import inspect
import types
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import jax
import numpy as np

from nbmodule.core.shape.holders import content_of, manner_of
from nbmodule.core.transforms.access import (
    AccessPath,
    OpenPath,
    access_paths,
    contents,
    dict_of,
    global_names,
    is_plain_object,
    is_plainly_listed,
    is_settled,
    is_users,
    open_paths,
    reached,
    settings_of,
)
from nbmodule.core.transforms.carried import is_stateful
from nbmodule.core.transforms.methods import Method

_SETTINGS = (int, float, complex, bool, str, bytes, type(None))
_MOST = 1000  # items of a list or dict that are looked at
_DEEPEST = 3  # attributes of attributes of plain objects
_BEHIND = frozenset(("__getitem__", "__getattr__", "__call__", "__iter__"))
_LISTED, _KEYED = (list, tuple, deque, set, frozenset), (dict, types.MappingProxyType)
_INNER = ("__func__", "func", "__wrapped__")
_FEW = 64  # items of a list, dict or object without models whose kinds are compared at each call


def guess(fn: Callable[..., Any]) -> list[Any]:
    """Modules, optimizers, streams and boxes that `fn` can reach through itself, its closure, its defaults and globals."""
    found: dict[int, Any] = {}
    for thing in _surroundings(fn, set()):
        for item in _inside(thing):
            found.setdefault(id(item), item)
    return list(found.values())


def _inside(thing: Any) -> Iterator[Any]:
    if is_stateful(thing):
        yield thing
    elif type(thing) in (list, tuple) and len(thing) < _MOST:
        yield from (item for item in thing if is_stateful(item))
    elif type(thing) is dict and len(thing) < _MOST:
        yield from (item for item in thing.values() if is_stateful(item))


def _surroundings(fn: Callable[..., Any], seen: set[int]) -> Iterator[Any]:
    if id(fn) in seen:
        return
    seen.add(id(fn))
    yield fn
    if isinstance(fn, functools.partial):
        yield from (*fn.args, *fn.keywords.values())
        yield from _surroundings(fn.func, seen)
    elif isinstance(fn, (types.MethodType, Method)):
        yield fn.__self__
        if is_plain_object(fn.__self__) and not is_stateful(fn.__self__):
            yield from list(vars(fn.__self__).values())
        yield from _surroundings(fn.__func__, seen)
    elif isinstance(fn, types.FunctionType):
        for thing in _names(fn):
            yield thing
            if isinstance(thing, (types.FunctionType, types.MethodType, functools.partial)) and is_users(thing):
                yield from _surroundings(thing, seen)


def _names(fn: types.FunctionType) -> Iterator[Any]:
    for cell in fn.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # a name that is not bound yet
            continue
    yield from fn.__defaults__ or ()
    for name in global_names(fn.__code__):
        if name in fn.__globals__:
            yield fn.__globals__[name]


def _texts(code: types.CodeType) -> Iterator[str]:
    """Texts in the code that may be names, as in `getattr(holder, "model")`."""
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _texts(constant)
        elif isinstance(constant, str) and constant.isidentifier():
            yield constant


class CodeWatch:
    """Notices that a function or a global helper that it names was redefined, and that a name stands for another model now.

    Names are those that the code mentions: globals, closure cells, and attributes of plain objects that it can reach. What a
    name stands for is remembered by its `id`; when that is gone, its program is too.

    What was captured and stands nowhere there (in a pair of a list, behind a property, in a class) has an `AccessPath`.

    A name that stands for no model may stand for one later. Of those the kind is remembered, which is quick to compare; only
    where it differs is it asked whether a model has come (`is_bound`), so that a number may become a text without a retrace.
    Of a list, dict, tuple or object that holds no model under a name, the `id` is remembered in the same way (`soft`): another
    one may hold one. What has no list or dict to be watched, a slot or a context variable, has an `OpenPath`.
    """

    __slots__ = (
        "bindings",
        "cell_kinds",
        "cells",
        "codes",
        "defaults",
        "has_moved",
        "holders",
        "kept",
        "kinds",
        "name_kinds",
        "paths",
        "sequences",
        "soft",
    )

    def __init__(
        self, functions: list[Callable[..., Any]], captured: Sequence[Any] = (), classes: Sequence[type] = ()
    ) -> None:
        places = _Places()
        places.look_at_functions(functions)
        places.look_at_classes(classes)
        self.soft, self.has_moved = places.soft, False
        self.codes, self.bindings = tuple(places.codes.values()), list(places.bindings.values())
        self.cells, self.sequences = list(places.cells.values()), list(places.sequences.values())
        self.name_kinds, self.cell_kinds = tuple(places.name_kinds.values()), tuple(places.cell_kinds.values())
        self.kinds, self.kept, self.holders = list(places.kinds.values()), places.kept, places.holders
        watched = [fn for fn, _ in self.codes]
        self.defaults = [
            (fn, fn.__defaults__, fn.__kwdefaults__) for fn in watched if fn.__defaults__ or fn.__kwdefaults__
        ]
        missing = places.without(captured)
        roots = [*functions[:1], *watched, *classes]
        self.paths = [*(access_paths(missing, roots) if missing else ()), *open_paths(roots, places.read)]

    @property
    def is_light(self) -> bool:
        """Whether nothing is held that may hold models: no list and no dict of the user's."""
        hard = (names for names, name, _ in self.bindings if (id(names), name) not in self.soft)
        return not any((id(held), None) not in self.soft for held, _ in self.sequences) and all(
            names.get("__name__") for names in hard
        )

    def let_go(self) -> None:
        """Hold nothing any more, also where others hold these lists; what was watched is gone."""
        for held in "bindings cells sequences kinds kept holders paths defaults soft".split():
            getattr(self, held).clear()

    def is_fresh(self) -> bool:
        """Whether all code is as it was, and all names stand for what they stood for."""
        return self.has_code() and self.is_bound()

    def has_code(self) -> bool:
        """Whether no function was defined again; what was stays gone, while a name may go back to an earlier model."""
        return all(fn.__code__ is code for fn, code in self.codes)

    def is_bound(self) -> bool:
        """Whether all names still stand for what they stood for."""
        changed: list[tuple[Any, Any]] = []  # what is held softly, and what is there now
        for names, name, value in self.bindings:
            if id(now := names.get(name)) != value:
                changed.append(((id(names), name), now))
        for cell, value in self.cells:
            if id(now := contents(cell)) != value:
                changed.append(((id(cell), None), now))
        for sequence, values in self.sequences:
            if list(map(id, sequence)) != values:
                changed.append(((id(sequence), None), sequence))
        if any(self.soft.get(place) != reached(now) for place, now in changed):
            return False
        if any(fn.__defaults__ is not given or fn.__kwdefaults__ is not named for fn, given, named in self.defaults):
            return False
        if not all(path.leads() for path in self.paths if type(path) is AccessPath):
            return False
        came = self._came()
        if any(map(reached, came)):
            return False
        self.has_moved = bool(changed or came)
        return True

    def _came(self) -> list[Any]:
        """What stands where something of another kind stood."""
        came = [names.get(name) for names, name, kind in self.name_kinds if type(names.get(name)) is not kind]
        came += [contents(cell) for cell, kind in self.cell_kinds if type(contents(cell)) is not kind]
        came += [path.value() for path in self.paths if type(path) is OpenPath and not path.leads()]
        for live, kinds in self.kinds:
            now = list(live)
            if list(map(type, now)) != kinds:
                came += [value for value in now if type(value) not in kinds]
        return came


class _Places:
    """Where stateful things were found, and where some may come to stand."""

    def __init__(self) -> None:
        self.bindings: dict[tuple[int, Any], tuple[Any, Any, int]] = {}
        self.cells: dict[int, tuple[Any, int]] = {}
        self.sequences: dict[int, tuple[Any, list[int]]] = {}
        self.name_kinds: dict[
            tuple[int, Any], tuple[Any, Any, type]
        ] = {}  # where none were: the kinds of what was there
        self.cell_kinds: dict[int, tuple[Any, type]] = {}
        self.kinds: dict[int, tuple[Any, list[type]]] = {}
        self.holders: list[Any] = []  # objects whose attributes are watched; see `Closure`, which holds them weakly
        self.soft: dict[
            tuple[int, Any], list[int]
        ] = {}  # where what holds other things is, and the models that it holds
        self.noted: set[int] = set()
        self.kept: list[Any] = []  # values that are known by their `id`, which must not go to another meanwhile

        self.codes: dict[int, tuple[Any, Any]] = {}
        self._said: set[str] = set()  # names in code
        self._stored: set[str] = set()  # and those of them that it sets

    @property
    def read(self) -> frozenset[str]:
        """Names that the code reads and never sets."""
        return frozenset(self._said - self._stored)

    def look_at_functions(self, functions: Sequence[Callable[..., Any]]) -> None:
        """Look at what functions of the user's name, and at what the helpers name that they name."""
        waiting = list(reversed(functions))  # a method before the function below it: it has an object
        while waiting:
            given = waiting.pop()
            fn = _function(given)
            if not isinstance(fn, types.FunctionType) or id(fn) in self.codes or not is_users(fn):
                continue
            self.codes[id(fn)] = (fn, fn.__code__)
            names = frozenset((*global_names(fn.__code__), *_texts(fn.__code__)))
            self._said |= names
            self._stored |= _set_names(fn.__code__)
            owner = getattr(given, "__self__", None)
            self.look(owner, names)
            self.look_at_settings(owner, names, fn.__code__)
            self.look_at_class(owner if isinstance(owner, type) else type(owner), names)
            self.look_at_given(given, fn, names)
            waiting += [*self._look_at_globals(fn, names), *self._look_at_cells(fn, names)]

    def _look_at_globals(self, fn: types.FunctionType, names: frozenset[str]) -> list[types.FunctionType]:
        """Look at the globals that a function names; gives the helpers among them."""
        helpers, globals_read = [], _globals_read(fn)
        for name in names:
            value, place = fn.__globals__.get(name), (id(fn.__globals__), name)
            is_helper = isinstance(value, types.FunctionType) and is_users(value)
            if is_helper or self.look(value, names):
                self.bindings[place] = (fn.__globals__, name, id(value))
            elif name in globals_read and _may_change(value):
                self.look_at_class(value, names)
                if not self.look_softly(fn.__globals__, name, value, names):
                    self.name_kinds[place] = (fn.__globals__, name, type(value))
            helpers += [value] if is_helper else []
        return helpers

    def _look_at_cells(self, fn: types.FunctionType, names: frozenset[str]) -> list[types.FunctionType]:
        """Look at the closure of a function; gives the functions in it."""
        helpers = []
        for cell in fn.__closure__ or ():
            value = contents(cell)
            if isinstance(value, types.FunctionType) or self.look(value, names):
                self.cells[id(cell)] = (cell, id(value))
            elif _may_change(value):
                self.look_at_class(value, names)
                if self.keep_softly((id(cell), None), value, names):
                    self.cells[id(cell)] = (cell, id(value))
                else:
                    self.cell_kinds[id(cell)] = (cell, type(value))
            helpers += [value] if isinstance(value, types.FunctionType) else []
        return helpers

    def look_at_classes(self, classes: Sequence[type]) -> None:
        """Look at classes of modules, by the names that the functions and the methods that they call read."""
        for kind in classes:
            for fn in _methods(kind, self._said):
                self._said.update(global_names(fn.__code__))
                self._stored |= _set_names(fn.__code__)
        for kind in classes:
            self.look_at_class_of_module(kind, self.read)

    def look(self, value: Any, names: frozenset[str], depth: int = 0) -> bool:
        """Whether `value` is stateful or holds what is, under one of these names; where it is held is kept."""
        if is_stateful(value):
            return True
        if isinstance(value, _LISTED):
            if not is_plainly_listed(value):
                return False
            found = self._look_into_sequence(value)
            self._note_inside(value, names, depth)
            return found
        if isinstance(value, _KEYED):
            if not is_plainly_listed(value):
                return False
            self._note_kinds(value, value.values())
            held = {key: item for key, item in value.items() if is_stateful(item)} if len(value) < _MOST else {}
            if held:  # others may come
                self.sequences[id(value)] = (value, list(map(id, value)))
                self.soft[id(value), None] = reached(value)
            self._note_inside(value, names, depth)
        elif manner_of(type(value)).is_wrapper and (content := content_of(value)) is not None:
            return self.look(content, names, depth)
        elif depth < _DEEPEST and is_plain_object(value) and not is_settled(value):
            own = vars(value)
            self.holders.append(value)
            self._note_kinds(own, own.values())
            held = {name: own[name] for name in names & own.keys() if self.look(own[name], names, depth + 1)}
            for name in names & own.keys() - held.keys():
                self.look_softly(own, name, own[name], names, depth + 1)
            self._look_behind(value, names, depth)
            value = own
        else:
            return False
        for key, item in held.items():
            self.bindings[id(value), key] = (value, key, id(item))
        return bool(held)

    def look_at_given(self, given: object, fn: types.FunctionType, names: frozenset[str]) -> None:
        """Look at what a function has been given beforehand: its defaults, its attributes, the arguments of a partial."""
        values: list[Any] = [*(fn.__defaults__ or ()), *(fn.__kwdefaults__ or {}).values()]
        while isinstance(given, functools.partial):
            values += [*given.args, *given.keywords.values()]
            given = given.func
        for value in values:
            self.look(value, names)
        if fn.__kwdefaults__:
            self._note_kinds(fn.__kwdefaults__, fn.__kwdefaults__.values())
        for name in names & vars(fn).keys():
            self.name_kinds[id(vars(fn)), name] = (vars(fn), name, type(vars(fn)[name]))

    def look_at_class(self, kind: object, names: frozenset[str]) -> None:
        """Watch of which kinds the settings of a user's class are."""
        if not isinstance(kind, type) or not is_users(kind):
            return
        for name in names & settings_of(kind).keys():
            own = next(dict_of(base) for base in kind.__mro__ if name in dict_of(base))
            if not self.look_softly(own, name, own[name], names):
                self.name_kinds[id(kind), name] = (own, name, type(own[name]))
            self.kept.append(own)

    def look_at_class_of_module(self, kind: type, names: frozenset[str]) -> None:
        """Watch the settings of a user's class of modules, which are no part of a module's structure."""
        for name in names & settings_of(kind).keys():
            own = dict_of(kind) if name in dict_of(kind) else _Inherited(kind)
            value = own.get(name)
            if self.look(value, names):
                self.bindings[id(own), name] = (own, name, id(value))
            elif isinstance(value, (*_SETTINGS, jax.Array, np.ndarray)):
                self.bindings[id(own), name] = (own, name, id(value))
                self.kept.append(value)
            elif not self.look_softly(own, name, value, names):
                self.name_kinds[id(own), name] = (own, name, type(value))
            self.kept.append(own)  # a view of a class may be known by its `id` alone

    # -- what holds no model, and may later ----------------------------------------------------------
    def look_softly(self, own: Any, name: object, value: object, names: frozenset[str], depth: int = 0) -> bool:
        """Whether what stands under a name may hold a model one day: then it is noticed when another stands there."""
        if (id(own), name) in self.bindings or not self.keep_softly((id(own), name), value, names, depth):
            return False
        self.bindings[id(own), name] = (own, name, id(value))
        return True

    def keep_softly(self, place: tuple[int, Any], value: object, names: frozenset[str], depth: int = 0) -> bool:
        """Whether a value may hold a model one day: what it holds now is noted."""
        is_listed = isinstance(value, (list, tuple, dict, deque))
        is_object = not is_listed and is_plain_object(value)
        if is_object and not (is_users(type(value)) or type(value) is types.SimpleNamespace):
            return False
        if not is_object and not is_plainly_listed(value):
            return False
        self.look(value, names, depth)
        if isinstance(value, (list, deque)):
            self._note_kinds(value, value)
        elif isinstance(value, dict):
            self._note_kinds(value, dict.values(value))
        if not is_object:
            self._note_inside(value, names, depth)
        self.soft[place] = found = reached(value)
        if not found and not is_object:
            self.kept.append(value)  # else its `id` might be given to another
        return True

    def _note_inside(self, values: Any, names: frozenset[str], depth: int) -> None:
        """Look at lists, dicts and objects inside of a list, tuple or dict that is small."""
        if depth >= _DEEPEST or len(values) > _FEW or id(values) in self.noted:
            return
        self.noted.add(id(values))
        if isinstance(values, _KEYED):
            for key, value in values.items() if is_plainly_listed(values) else ():
                self.look_softly(values, key, value, names, depth + 1)
            return
        kept = [self.keep_softly((id(values), i), value, names, depth + 1) for i, value in enumerate(values)]
        if any(kept) and isinstance(values, (list, deque)) and id(values) not in self.sequences:
            self.sequences[id(values)] = (values, list(map(id, values)))
            self.soft[id(values), None] = reached(values)

    def _look_behind(self, value: object, names: frozenset[str], depth: int) -> None:
        """Look at the attributes that properties and methods of an object, by these names, ask for."""
        if depth >= _DEEPEST or not is_users(type(value)) or id(value) in self.noted:
            return
        self.noted.add(id(value))
        asked = {name for fn in _methods(type(value), names | _BEHIND) for name in global_names(fn.__code__)}
        own = vars(value)
        for name in asked & own.keys() - names:
            self.look_softly(own, name, own[name], names | asked, depth + 1)

    def without(self, captured: Sequence[Any]) -> list[Any]:
        """What of the captured things stands at none of these places."""
        known = {value for *_, value in (*self.bindings.values(), *self.cells.values())}
        known.update(*(values for held, values in self.sequences.values() if (id(held), None) not in self.soft))
        return [thing for thing in captured if id(thing) not in known]

    def look_at_settings(self, owner: object, names: frozenset[str], code: types.CodeType) -> None:
        """Watch numbers, texts and flags of the object that a method belongs to, but for those that the method itself sets."""
        if is_stateful(owner) or not is_plain_object(owner):
            return
        own = vars(owner)
        for name in names & own.keys() - _set_names(code):
            if type(own[name]) in _SETTINGS:
                self.bindings[id(own), name] = (own, name, id(own[name]))
                self.kept.append(own[name])

    def _note_kinds(self, thing: Any, live: Any) -> None:
        """Watch of which kinds the values are that a list, dict or object holds, if they are few."""
        if len(thing) <= _FEW:
            self.kinds[id(thing)] = (live, list(map(type, live)))

    def _look_into_sequence(self, values: Collection[Any]) -> bool:
        if len(values) >= _MOST or not any(map(is_stateful, values)):
            if not isinstance(values, tuple):
                self._note_kinds(values, values)
            return False
        if not isinstance(values, tuple):
            self.sequences[id(values)] = (values, list(map(id, values)))
        return True


def _methods(kind: type, names: Collection[str]) -> list[types.FunctionType]:
    """The methods and properties of a user's class by these names, and those that they name in turn."""
    own: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        own.update(dict_of(base) if is_users(base) else {})
    found: dict[str, types.FunctionType] = {}
    waiting = [name for name in own if name in names]
    while waiting:
        name = waiting.pop()
        fn = own[name]  # a proxy would answer any name
        fn = fn.fget if isinstance(fn, property) else fn.__func__ if isinstance(fn, (classmethod, staticmethod)) else fn
        if isinstance(fn, types.FunctionType) and name not in found:
            found[name] = fn
            waiting += [name for name in global_names(fn.__code__) if name in own]
    return list(found.values())


class _Inherited:
    """The names of a class and of those above it, as attributes are looked up."""

    __slots__ = ("kind",)

    def __init__(self, kind: type) -> None:
        self.kind = kind

    def get(self, name: str) -> Any:
        """What stands under the name; None if nothing does."""
        return next((dict_of(base)[name] for base in self.kind.__mro__ if name in dict_of(base)), None)


def _may_change(value: object) -> bool:
    """Whether a name may well stand for something of another kind later; one of an imported module does not."""
    return not isinstance(value, types.ModuleType)


def _globals_read(fn: types.FunctionType) -> set[str]:
    """Names of globals that a function, or one inside it, reads; those of builtins are left out."""
    known = fn.__builtins__ if isinstance(fn.__builtins__, dict) else vars(fn.__builtins__)
    found, waiting = set(), [fn.__code__]
    while waiting:
        code = waiting.pop()
        found |= {step.argval for step in dis.get_instructions(code) if step.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
        waiting += [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
    return {name for name in found if name in fn.__globals__ or name not in known}


def _set_names(code: types.CodeType) -> set[str]:
    return {step.argval for step in dis.get_instructions(code) if step.opname == "STORE_ATTR"}


def _function(fn: Any) -> Any:
    """The function below methods, partials and decorators; a proxy that answers any name leads nowhere."""
    while not isinstance(fn, types.FunctionType):
        name = next((each for each in _INNER if inspect.getattr_static(fn, each, None) is not None), None)
        if name is None:
            return fn
        fn = getattr(fn, name)
    return fn
