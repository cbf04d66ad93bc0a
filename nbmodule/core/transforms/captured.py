"""What a function uses of its surroundings: what is captured, how it is found again, and what is compared at each call.

*What is captured.* Before the first trace a function's closure, defaults and globals, and what stands directly in a list or
dict there, are looked through (`guess`). A guess may miss: a model that the trace meets without having been given it is
captured then, and the trace begins anew (`Missed`).

*How it is found again.* A name may stand for another model at the next call, so what is remembered is the place: whose dict,
which cell, which list. Nothing can be asked of Python but where the code may look, and that are the names in it: of globals, and
of attributes of what is found so far (`_Places`). What was captured and stands at none of these places, in a pair of a list, say,
or behind a property, is found by a way from the function (`access.py`).

*What is compared at each call* (`CodeWatch`), cheapest first, by `id` or type, without a look into any model:

- the code of the functions: nobody has defined one of them again;
- what stands at places that hold a model: the same thing, or a model has come or gone;
- what stands at places that hold a list, dict or object: another one may hold other models, so its `id` is compared, and
  where that differs, the models that it holds (`soft`): a list that is made anew at each call costs no trace;
- of what kind all else is: a number may become a model, which is asked only where the kind differs, so that a number may become a
  text without a trace.
"""

from __future__ import annotations

import functools
import types
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import jax
import numpy as np

from nbmodule.core.shape.holders import content_of, manner_of
from nbmodule.core.transforms.access import (
    access_paths,
    is_plain_object,
    is_plainly_listed,
    is_settled,
    open_paths,
    reached,
)
from nbmodule.core.transforms.carried import is_stateful
from nbmodule.core.transforms.methods import Method
from nbmodule.core.transforms.names import (
    Inherited,
    contents,
    dict_of,
    function_below,
    global_names,
    globals_read,
    is_users,
    methods_by,
    names_in,
    names_set,
    settings_of,
)

_SETTINGS = (int, float, complex, bool, str, bytes, type(None))
_MOST = 1000  # items of a list or dict that are looked at
_DEEPEST = 3  # attributes of attributes of plain objects
_BEHIND = frozenset(("__getitem__", "__getattr__", "__call__", "__iter__"))
_LISTED, _KEYED = (list, tuple, deque, set, frozenset), (dict, types.MappingProxyType)
_FEW = 64  # items of a list, dict or object without models whose kinds are compared at each call


# -- what is captured -----------------------------------------------------------------------------------
def guess(fn: Callable[..., Any]) -> list[Any]:
    """Modules, optimizers, streams and boxes that `fn` can reach through itself, its closure, its defaults and globals."""
    found: dict[int, Any] = {}
    for thing in _surroundings(fn, set()):
        for item in _inside(thing):
            found.setdefault(id(item), item)
    return list(found.values())


def names_reached(fn: Callable[..., Any]) -> set[str]:
    """Names that the code of `fn` mentions, and that of the user's functions which it can reach."""
    functions = [each for each in _surroundings(fn, set()) if isinstance(each, types.FunctionType) and is_users(each)]
    return {name for each in functions for name in global_names(each.__code__)}


def _inside(thing: Any) -> Iterator[Any]:
    if is_stateful(thing):
        yield thing
    elif type(thing) in (list, tuple) and len(thing) < _MOST:
        yield from filter(is_stateful, thing)
    elif type(thing) is dict and len(thing) < _MOST:
        yield from filter(is_stateful, thing.values())


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
        for thing in _named_by(fn):
            yield thing
            if isinstance(thing, (types.FunctionType, types.MethodType, functools.partial)) and is_users(thing):
                yield from _surroundings(thing, seen)


def _named_by(fn: types.FunctionType) -> Iterator[Any]:
    yield from map(contents, fn.__closure__ or ())
    yield from fn.__defaults__ or ()
    yield from (fn.__globals__[name] for name in global_names(fn.__code__) if name in fn.__globals__)


# -- what is compared at each call ----------------------------------------------------------------------
class CodeWatch:
    """Notices that a function or a global helper that it names was redefined, and that a name stands for another model now.

    The lists are what the steady state of a compiled call walks by itself (`binding.py`): plain tuples, and no call of Python
    for each. What stands somewhere is remembered by its `id`; when it is gone, its program is too, or it is `kept`.

    Args:
        functions: The function, and the forwards of the models that it is called with or has captured.
        captured: What it has captured.
        classes: Of these models.
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
        """Whether all names still stand for what they stood for, or for what holds the same models."""
        moved = self._moved()
        if any(self.soft.get(place) != reached(now) for place, now in moved):
            return False
        if any(fn.__defaults__ is not given or fn.__kwdefaults__ is not named for fn, given, named in self.defaults):
            return False
        if not all(path.leads() for path in self.paths if path.kind is None):
            return False
        came = self._came()
        if any(map(reached, came)):
            return False
        self.has_moved = bool(moved or came)
        return True

    def _moved(self) -> list[tuple[tuple[int, Any], Any]]:
        """Places where another thing stands, and what stands there now; of a place that held a model itself, nothing is soft."""
        moved: list[tuple[tuple[int, Any], Any]] = []
        for names, name, value in self.bindings:
            if id(now := names.get(name)) != value:
                moved.append(((id(names), name), now))
        for cell, value in self.cells:
            if id(now := contents(cell)) != value:
                moved.append(((id(cell), None), now))
        for sequence, values in self.sequences:
            if list(map(id, sequence)) != values:
                moved.append(((id(sequence), None), sequence))
        return moved

    def _came(self) -> list[Any]:
        """What stands where something of another kind stood."""
        came = [names.get(name) for names, name, kind in self.name_kinds if type(names.get(name)) is not kind]
        came += [contents(cell) for cell, kind in self.cell_kinds if type(contents(cell)) is not kind]
        came += [path.value() for path in self.paths if path.kind is not None and not path.leads()]
        for live, kinds in self.kinds:
            now = list(live)
            if list(map(type, now)) != kinds:
                came += [value for value in now if type(value) not in kinds]
        return came


# -- how it is found again --------------------------------------------------------------------------------
class _Places:
    """Where models were found, and where some may come to stand: by what they are found again, each by what stands there.

    A place is a dict and a key, a cell, or a list as a whole. In one of three ways it is compared: `look` finds models and holds to
    them, `_keep_softly` finds what may hold some, and of all else the kind is noted.
    """

    def __init__(self) -> None:
        self.codes: dict[int, tuple[Any, Any]] = {}
        # What stands there, by its `id`.
        self.bindings: dict[tuple[int, Any], tuple[Any, Any, int]] = {}
        self.cells: dict[int, tuple[Any, int]] = {}
        self.sequences: dict[int, tuple[Any, list[int]]] = {}
        # Those of them where what holds other things stands, with the models that it holds.
        self.soft: dict[tuple[int, Any], list[int]] = {}
        # Where no model is: the kinds of what is there.
        self.name_kinds: dict[tuple[int, Any], tuple[Any, Any, type]] = {}
        self.cell_kinds: dict[int, tuple[Any, type]] = {}
        self.kinds: dict[int, tuple[Any, list[type]]] = {}

        self.holders: list[Any] = []  # objects whose attributes are watched; see `Closure`, which holds them weakly
        self.kept: list[Any] = []  # values that are known by their `id`, which must not go to another meanwhile
        self._noted: set[int] = set()
        self._said: set[str] = set()  # names in code
        self._stored: set[str] = set()  # and those of them that it sets

    @property
    def read(self) -> frozenset[str]:
        """Names that the code reads and never sets."""
        return frozenset(self._said - self._stored)

    def without(self, captured: Sequence[Any]) -> list[Any]:
        """What of the captured things stands at none of these places."""
        known = {value for *_, value in (*self.bindings.values(), *self.cells.values())}
        known.update(*(values for held, values in self.sequences.values() if (id(held), None) not in self.soft))
        return [thing for thing in captured if id(thing) not in known]

    # -- from the code ------------------------------------------------------------------------------------
    def look_at_functions(self, functions: Sequence[Callable[..., Any]]) -> None:
        """Look at what functions of the user's name, and at what the helpers name that they name."""
        waiting = list(reversed(functions))  # a method before the function below it: it has an object
        while waiting:
            given = waiting.pop()
            fn = function_below(given)
            if not isinstance(fn, types.FunctionType) or id(fn) in self.codes or not is_users(fn):
                continue
            self.codes[id(fn)] = (fn, fn.__code__)
            names = names_in(fn.__code__)
            self._said |= names
            self._stored |= names_set(fn.__code__)
            owner = getattr(given, "__self__", None)
            self.look(owner, names)
            self._look_at_settings(owner, names, fn.__code__)
            self._look_at_class(owner if isinstance(owner, type) else type(owner), names)
            self._look_at_given(given, fn, names)
            waiting += [*self._look_at_globals(fn, names), *self._look_at_cells(fn, names)]

    def look_at_classes(self, classes: Sequence[type]) -> None:
        """Look at classes of modules, by the names that the functions and the methods that they call read."""
        for kind in classes:
            for fn in methods_by(kind, self._said):
                self._said.update(global_names(fn.__code__))
                self._stored |= names_set(fn.__code__)
        for kind in classes:
            self._look_at_class_of_module(kind, self.read)

    def _look_at_globals(self, fn: types.FunctionType, names: frozenset[str]) -> list[types.FunctionType]:
        """Look at the globals that a function names; gives the helpers among them."""
        helpers, read = [], globals_read(fn)
        for name in names:
            value, place = fn.__globals__.get(name), (id(fn.__globals__), name)
            is_helper = isinstance(value, types.FunctionType) and is_users(value)
            if is_helper or self.look(value, names):
                self.bindings[place] = (fn.__globals__, name, id(value))
            elif name in read and _may_change(value):  # other names are attributes, or of builtins
                self._look_at_class(value, names)
                if not self._look_softly(fn.__globals__, name, value, names):
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
                self._look_at_class(value, names)
                if self._keep_softly((id(cell), None), value, names):
                    self.cells[id(cell)] = (cell, id(value))
                else:
                    self.cell_kinds[id(cell)] = (cell, type(value))
            helpers += [value] if isinstance(value, types.FunctionType) else []
        return helpers

    def _look_at_given(self, given: object, fn: types.FunctionType, names: frozenset[str]) -> None:
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

    def _look_at_settings(self, owner: object, names: frozenset[str], code: types.CodeType) -> None:
        """Watch numbers, texts and flags of the object that a method belongs to, but for those that the method itself sets."""
        if is_stateful(owner) or not is_plain_object(owner):
            return
        own = vars(owner)
        for name in names & own.keys() - names_set(code):
            if type(own[name]) in _SETTINGS:
                self.bindings[id(own), name] = (own, name, id(own[name]))
                self.kept.append(own[name])

    def _look_at_class(self, kind: object, names: frozenset[str]) -> None:
        """Watch of which kinds the settings of a user's class are."""
        if not isinstance(kind, type) or not is_users(kind):
            return
        for name in names & settings_of(kind).keys():
            own = next(dict_of(base) for base in kind.__mro__ if name in dict_of(base))
            if not self._look_softly(own, name, own[name], names):
                self.name_kinds[id(kind), name] = (own, name, type(own[name]))
            self.kept.append(own)

    def _look_at_class_of_module(self, kind: type, names: frozenset[str]) -> None:
        """Watch the settings of a user's class of modules, which are no part of a module's structure."""
        for name in names & settings_of(kind).keys():
            own = dict_of(kind) if name in dict_of(kind) else Inherited(kind)
            value = own.get(name)
            if self.look(value, names):
                self.bindings[id(own), name] = (own, name, id(value))
            elif isinstance(value, (*_SETTINGS, jax.Array, np.ndarray)):
                self.bindings[id(own), name] = (own, name, id(value))
                self.kept.append(value)
            elif not self._look_softly(own, name, value, names):
                self.name_kinds[id(own), name] = (own, name, type(value))
            self.kept.append(own)  # a view of a class may be known by its `id` alone

    # -- what holds a model -------------------------------------------------------------------------------
    def look(self, value: Any, names: frozenset[str], depth: int = 0) -> bool:
        """Whether `value` is stateful or holds what is, under one of these names; where it is held is kept."""
        if is_stateful(value):
            return True
        if isinstance(value, (*_LISTED, *_KEYED)):
            if not is_plainly_listed(value):
                return False
            return (self._look_into_keyed if isinstance(value, _KEYED) else self._look_into_listed)(value, names, depth)
        if manner_of(type(value)).is_wrapper and (content := content_of(value)) is not None:
            return self.look(content, names, depth)
        if depth < _DEEPEST and is_plain_object(value) and not is_settled(value):
            return self._look_into_object(value, names, depth)
        return False

    def _look_into_listed(self, values: Collection[Any], names: frozenset[str], depth: int) -> bool:
        found = len(values) < _MOST and any(map(is_stateful, values))
        if not isinstance(values, tuple):  # another one stands there when its items are others
            if found:
                self.sequences[id(values)] = (values, list(map(id, values)))
            else:
                self._note_kinds(values, values)
        self._note_inside(values, names, depth)
        return found

    def _look_into_keyed(self, values: Any, names: frozenset[str], depth: int) -> bool:
        self._note_kinds(values, values.values())
        held = {key: item for key, item in values.items() if is_stateful(item)} if len(values) < _MOST else {}
        if held:  # others may come
            self.sequences[id(values)] = (values, list(map(id, values)))
            self.soft[id(values), None] = reached(values)
        self._note_inside(values, names, depth)
        self._bind(values, held)
        return bool(held)

    def _look_into_object(self, value: object, names: frozenset[str], depth: int) -> bool:
        own = vars(value)
        self.holders.append(value)
        self._note_kinds(own, own.values())
        held = {name: own[name] for name in names & own.keys() if self.look(own[name], names, depth + 1)}
        for name in names & own.keys() - held.keys():
            self._look_softly(own, name, own[name], names, depth + 1)
        self._look_behind(value, names, depth)
        self._bind(own, held)
        return bool(held)

    def _bind(self, own: Any, held: dict[Any, Any]) -> None:
        for key, item in held.items():
            self.bindings[id(own), key] = (own, key, id(item))

    def _look_behind(self, value: object, names: frozenset[str], depth: int) -> None:
        """Look at the attributes that properties and methods of an object, by these names, ask for."""
        if depth >= _DEEPEST or not is_users(type(value)) or id(value) in self._noted:
            return
        self._noted.add(id(value))
        asked = {name for fn in methods_by(type(value), names | _BEHIND) for name in global_names(fn.__code__)}
        own = vars(value)
        for name in asked & own.keys() - names:
            self._look_softly(own, name, own[name], names | asked, depth + 1)

    # -- what holds no model, and may later ---------------------------------------------------------------
    def _look_softly(self, own: Any, name: object, value: object, names: frozenset[str], depth: int = 0) -> bool:
        """Whether what stands under a name may hold a model one day: then it is noticed when another stands there."""
        if (id(own), name) in self.bindings or not self._keep_softly((id(own), name), value, names, depth):
            return False
        self.bindings[id(own), name] = (own, name, id(value))
        return True

    def _keep_softly(self, place: tuple[int, Any], value: object, names: frozenset[str], depth: int = 0) -> bool:
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
        if depth >= _DEEPEST or len(values) > _FEW or id(values) in self._noted:
            return
        self._noted.add(id(values))
        if isinstance(values, _KEYED):
            for key, value in values.items() if is_plainly_listed(values) else ():
                self._look_softly(values, key, value, names, depth + 1)
            return
        kept = [self._keep_softly((id(values), i), value, names, depth + 1) for i, value in enumerate(values)]
        if any(kept) and isinstance(values, (list, deque)) and id(values) not in self.sequences:
            self.sequences[id(values)] = (values, list(map(id, values)))
            self.soft[id(values), None] = reached(values)

    def _note_kinds(self, thing: Any, live: Any) -> None:
        """Watch of which kinds the values are that a list, dict or object holds, if they are few."""
        if len(thing) <= _FEW:
            self.kinds[id(thing)] = (live, list(map(type, live)))


def _may_change(value: object) -> bool:
    """Whether a name may well stand for something of another kind later; one of an imported module does not."""
    return not isinstance(value, types.ModuleType)
